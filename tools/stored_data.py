"""The data in measurements/: which files there are, who writes and shows them, and the schema of each JSON file.

`python -m tools.generated` writes the schemas and the table of measurements/README.md from this list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from harness.core.strict_toml import ROOT
from harness.report.markdown_table import table
from harness.report.schema import field_docstrings
from harness.workflows.mutation_testing.recall.document import RecallDocument
from tools import boards, bugs, encodings, goals, sweeps
from tools.fuzz_bugs.document import BugRaces
from tools.harness_mutants.document import MutantsDocument
from tools.matrix.document import Matrix
from tools.survey.document import Answers, PackageList
from tools.trees.document import TreeAnswers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = ROOT / "measurements"
SCHEMAS = FOLDER / "schema"
_REFERENCE = "#/$defs/{name}"


class StoredData(NamedTuple):
    """A file of measurements/, or several of a kind."""

    files: str
    """A glob below measurements/."""
    what: str
    written_by: str
    """A command, or where to read how a person writes it."""
    page: str
    """The page that is written from it, below docs/."""
    kind: Any = None
    """The type that JSON is read into; None for TOML, whose keys docs/toml.md lists."""

    @property
    def schema_path(self) -> Path:
        """The file of the schema, named after the file or its folder."""
        folder, _, name = self.files.rpartition("/")
        return SCHEMAS / f"{folder or name.removesuffix('.json')}.json"

    def paths(self) -> list[Path]:
        """The files that exist. Before its command has run, there may be none."""
        return sorted(FOLDER.glob(self.files))

    def schema(self) -> dict[str, Any]:
        """The JSON Schema, draft 2020-12. It allows no unknown key, and nor do the readers."""
        (shape,), definitions = msgspec.json.schema_components([self.kind], ref_template=_REFERENCE)
        for kind in _structs(self.kind):
            shown = definitions[kind.__name__]["properties"]
            for name, docstring in field_docstrings(kind).items():
                shown[name]["description"] = docstring
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"measurements/{self.files}",
            **shape,
            "$defs": dict(sorted(definitions.items())),
        }


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The records in a type, each once for every way to it."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from _structs(field.type)
    for inner in get_args(kind):
        yield from _structs(inner)


MUTATE = "[`plumb mutate --generate --sample`](../docs/RECALL.md#add-a-sample)"
BY_HAND = "by hand: [its keys](../docs/toml.md)"
DATA = (
    StoredData("bench.json", "How fast Plumbline answers", "`python -m tools.goals`", "BENCH.md", list[goals.Measured]),
    StoredData(
        "fuzz-bugs.json",
        "How soon the fuzzer shows bugs",
        "`python -m tools.fuzz_bugs`",
        "BENCH.md",
        BugRaces,
    ),
    StoredData("boards.json", "What servers cost", "`python -m tools.boards`", "BOARDS.md", boards.StoredCosts),
    StoredData(
        "encodings.json",
        "How often programs contain each encoding of an access",
        "`python -m tools.encodings`",
        "ENCODINGS.md",
        dict[str, encodings.Census],
    ),
    StoredData(
        "found.json",
        "Which releases have a bug that was found",
        "`python -m tools.found`",
        "FOUND.md",
        bugs.StoredAnswers,
    ),
    StoredData(
        "sweeps.json",
        "What emulators have executed of every instruction set",
        "`python -m tools.sweeps`",
        "ENCODINGS.md",
        dict[str, sweeps.Swept],
    ),
    StoredData("matrix.json", "Releases, compilers and machines", "`python -m tools.matrix`", "MATRIX.md", Matrix),
    StoredData("trees.json", "Commits between releases", "`python -m tools.trees`", "TREES.md", TreeAnswers),
    StoredData("trees.toml", "Which commits, and what explains their findings", BY_HAND, "TREES.md"),
    StoredData(
        "survey-packages.json",
        "Debian's packages that a rule chose",
        "`python -m tools.survey --choose`",
        "PROGRAMS.md",
        PackageList,
    ),
    StoredData("survey.json", "What `plumb deb` says of them", "`python -m tools.survey`", "PROGRAMS.md", Answers),
    StoredData("survey.toml", "Which packages are named, and what explains the findings", BY_HAND, "PROGRAMS.md"),
    StoredData("recall/*.json", "Samples of mutants of releases", MUTATE, "RECALL.md", RecallDocument),
    StoredData("recall/survivors.toml", "Why no test finds a mutant, or which does now", BY_HAND, "RECALL.md"),
    StoredData("recall/suspects.toml", "Where `plumb suspects` ranks the changed function", BY_HAND, "RECALL.md"),
    StoredData(
        "harness-mutants.json",
        "Mutants of the harness",
        "`python -m tools.harness_mutants --store`",
        "TESTS.md",
        MutantsDocument,
    ),
    StoredData("harness-mutants.toml", "Why no test notices a mutant of the harness", BY_HAND, "TESTS.md"),
)


def file_rows() -> list[str]:
    """measurements/README.md's table."""
    rows = [
        (
            f"`{one.files}`",
            one.what,
            one.written_by,
            f"[docs/{one.page}](../docs/{one.page})",
            f"[{one.schema_path.name}](schema/{one.schema_path.name})" if one.kind else "",
        )
        for one in DATA
    ]
    return table(["file", "what", "written by", "page", "schema"], rows)
