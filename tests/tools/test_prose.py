"""The prose linter rejects what it should, and the documents satisfy it."""

from __future__ import annotations

import pytest
import yaml

from harness.core.strict_toml import ROOT
from tools import prose

REJECTED = [
    "Both do all the set-up",
    "The same for people, in every run folder",
    "Before any suite counts, canaries show that the target traps",
    "checks what you changed, and what the base shows as well is not blamed on you",
    "Tell what this machine lacks",
    "memory that forgives nothing",
    "Not everything is in the known list",
    "apart by spaces",
    "is to be so quick that people run it",
    "what has no end goes on",
    "a test waits in vain",
    "what a server tells of its memory",
    "the primary goes on as before",
    "a machine's own byte order",
    "servers take the variants by turns",
    "whoever visits more",
]
ACCEPTED = [
    "Both install everything they need",
    "Human-readable reports",
    "Every run first verifies enforcement with canaries",
    "checks your change with the relevant suites and reports only new findings",
    "List missing packages and how to install them",
    "guard pages and minimal alignment",
    "There are unknown findings",
    "space-separated",
    "must be fast enough to run before every push",
    "time limit for open-ended suites",
    "a test waits without result, until the time limit",
    "what a server reports about its memory",
    "the primary continues as before",
    "the machine's byte order",
    "servers alternate between the variants",
]


@pytest.mark.parametrize("phrase", REJECTED)
@pytest.mark.parametrize(
    "page",
    ["{}.\n", "- {}\n", "# {}\n", "| a | {} |\n", "A sentence.\n{}.\n"],
    ids=["paragraph", "item", "heading", "cell", "second line"],
)
def test_a_phrase_that_no_native_writer_would_use_is_rejected(phrase: str, page: str) -> None:
    (first, *_) = prose.problems(page.format(phrase))
    assert first.line == page.count("\n")
    assert first.advice.startswith("write: ")


@pytest.mark.parametrize("phrase", REJECTED)
def test_a_phrase_is_found_across_a_line_break_and_in_any_case(phrase: str) -> None:
    assert list(prose.problems(phrase.replace(" ", "\n").upper()))


@pytest.mark.parametrize("phrase", ACCEPTED)
def test_its_advice_is_accepted(phrase: str) -> None:
    assert list(prose.problems(f"{phrase}.\n")) == []


def test_code_comments_and_addresses_are_not_prose() -> None:
    text = "Run `what has no end`.\n\n```sh\nmend it\n```\n\n<!-- mend\nit -->\n\n    mend it\n\n[a link](mend.md)\n"
    assert list(prose.problems(text)) == []


def test_a_long_sentence_is_rejected_in_every_kind_of_text() -> None:
    long = "word " * (prose.LONGEST_SENTENCE_WORDS + 1)
    wrapped = long.replace(" ", "\n", 20)
    for page in (f"{long}.\n", f"Short.\n\n{wrapped}\n", f"- short\n- {long}\n", f"1. {long}\n", f"| a | {long} |\n"):
        (problem,) = prose.problems(page)
        assert "split it" in problem.advice
    assert list(prose.problems("word " * (prose.LONGEST_SENTENCE_WORDS - 1) + "end.\n")) == []
    assert list(prose.problems("Ten words that make up a line of a list.\n" * 9)) == []


def test_a_list_of_values_counts_as_one_word() -> None:
    values = ", ".join(["`value`"] * prose.LONGEST_SENTENCE_WORDS)
    assert list(prose.problems(f"- `key` ({values}): what the key is for.\n")) == []


def test_the_documents_satisfy_it() -> None:
    read = {str(path.relative_to(ROOT)) for path in prose.pages()}
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/FOUND.md", "harness/README.md"} <= read
    assert {"docs/cli.md", "docs/toml.md", "docs/DIFFERENCES.md", "docs/support.md"} <= read, "generated pages"
    found = [
        f"{path}:{one.line}: {one.words}" for path in read for one in prose.problems((ROOT / path).read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("name", ["action.yml", ".github/workflows/check.yml"])
def test_the_descriptions_of_the_action_and_the_workflow_satisfy_it(name: str) -> None:
    def descriptions(value: object) -> list[str]:
        if isinstance(value, dict):
            here = [str(value["description"])] if "description" in value else []
            return here + [one for inner in value.values() for one in descriptions(inner)]
        return []

    texts = descriptions(yaml.safe_load((ROOT / name).read_text("utf-8")))
    assert len(texts) > 10
    assert [one for text in texts for one in prose.problems(text)] == []
