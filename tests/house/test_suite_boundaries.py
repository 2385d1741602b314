"""Suites are independent: a suite imports only its own and the shared code, and the harness does not name any
suite.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.core.strict_toml import ROOT
from harness.plan.catalog import Catalog
from tests.support.code_names import texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARED = "_shared"


def trespasses(folder: Path) -> list[str]:
    """Each import through which a suite below `folder`, or the shared code, depends on another suite."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(folder)
        own = file.parts[0] if len(file.parts) > 1 else ""
        for name in [one.text for one in texts(path.read_text("utf-8")) if one.kind == "import"]:
            assert not name.startswith("."), "suites import by absolute name"
            package, _, rest = name.partition(".")
            suite = rest.partition(".")[0]
            if package == "suites" and suite not in {SHARED, own}:
                found.append(f"{file} imports {name}")
    return found


def test_no_suite_imports_another_suite() -> None:
    assert trespasses(ROOT / "suites") == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("bitops/test_bitops.py", "from suites.fuzz.model import Model"),
        ("bitops/test_bitops.py", "from suites import fuzz"),
        ("bitops/test_bitops.py", "import suites.fuzz.model"),
        ("bitops/test_bitops.py", "if TYPE_CHECKING:\n    from suites.fuzz import model"),
        ("_shared/link.py", "from suites.fuzz.model import Model"),
        ("conftest.py", "from suites.fuzz.model import Model"),
    ],
)
def test_an_import_of_another_suite_is_found(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"from suites._shared import link\n{line}\n", "utf-8")
    assert len(trespasses(tmp_path)) == 1


def test_a_suite_may_import_itself_and_shared_code(tmp_path: Path) -> None:
    path = tmp_path / "fuzz" / "session.py"
    path.parent.mkdir()
    path.write_text("import harness.core\nfrom suites._shared import link\nfrom suites.fuzz import model\n", "utf-8")
    assert trespasses(tmp_path) == []


SUITES = set(Catalog().suites)
ENGLISH = {
    "canary",
    "clock",
    "cluster",
    "hashing",
    "heap",
    "modules",
    "order",
    "persistence",
    "programs",
    "protocol",
    "replication",
    "threads",
    "tls",
    "upstream",
    "visible",
    "width",
}
"""Suite names that are also common words: such a name in a program need not mean the suite."""
PROGRAMS = {"units", "selftests"}
"""The kinds of core.model.Program, which run folders record; the suites that run them have the same names."""
EXCUSED = {
    ("harness/analysis/symbols.py", "modules"): "a folder of a server's tree",
    ("harness/build/upstream_programs.py", "programs"): "a kind of build folder",
    ("harness/cli/checks.py", "fuzz"): "the command `plumb fuzz`, which runs the suites that are guided",
    ("harness/cli/commands.py", "fuzz"): "the same",
    ("harness/core/model.py", "canary"): "the role, and CANARY_SUITE, by which a stored run is judged",
    ("harness/judge/findings.py", "order"): "a kind of finding",
    ("harness/plan/catalog.py", "canary"): "the role",
    ("harness/record/fault_log.py", "order"): "a kind of line in an emulator's log",
    ("harness/run/canary.py", "canary"): "the file name of the compiled program",
    ("harness/run/vm/machine.py", "clock"): "a request to the machine's init",
    ("harness/run/server_questions.py", "cluster"): "the command CLUSTER of a server",
    ("harness/run/upstream/stage.py", "modules"): "a folder of a release's tests",
    ("harness/run/upstream/test_files.py", "cluster"): "the same",
    ("harness/workflows/campaign/job.py", "fuzz"): "the command `plumb fuzz`",
    ("harness/workflows/mutation_testing/mutations.py", "width"): "a kind of mutation",
    ("harness/workflows/mutation_testing/mutations.py", "order"): "a kind of mutation",
}


def named(source: str) -> Iterator[str]:
    """The suites named in a module's identifiers, strings and paths. Docstrings and comments may name any suite."""
    for one in texts(source):
        match one.kind:
            case "string":
                yield from SUITES & {one.text}
                yield from _below_suites(one.text)
            case "path":
                yield from _below_suites(one.text)
            case "import" if one.text.partition(".")[0] == "suites":
                yield "an import of suites"
            case "import" | "identifier":
                yield from {one.text.rpartition(".")[2]} & (SUITES - ENGLISH - PROGRAMS)


def _below_suites(path: str) -> Iterator[str]:
    """The folders of suites in a path, as `suites/NAME`."""
    return (f"suites/{name}" for name in re.findall(r"\bsuites/(\w+)", path) if name in SUITES | {SHARED})


def suites_named(file: str, source: str) -> set[str]:
    """The suites that a module of the harness names without a listed exception."""
    return {name for name in named(source) if name not in PROGRAMS and (file, name) not in EXCUSED}


def test_the_harness_names_no_suite() -> None:
    sources = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in (ROOT / "harness").rglob("*.py")}
    found = {file: names for file, source in sources.items() if (names := suites_named(file, source))}
    assert found == {}, "ask the catalog for a suite by its role, program or module (suite.toml)"
    stale = {(file, name) for file, name in EXCUSED if name not in named(sources.get(file, ""))}
    assert stale == set(), "exceptions that are no longer needed"


@pytest.mark.parametrize(
    "line",
    [
        'FOLDER = ROOT / "suites" / "bitops"',
        'FOLDER = ROOT / "suites" / "canary" / "accesses"',
        'FOLDER = ROOT / "suites" / "units"',
        'FOLDER = ROOT / "suites/modules/plumbline.c"',
        'FOLDER = Path("suites/units/units.toml")',
        'FOLDER = ROOT / "suites/_shared/link.py"',
        'ours = cell.suite == "protocol"',
        "from suites.fuzz import model",
        "import suites.fuzz",
        "bitops = 1",
        "print(catalog.sds)",
    ],
)
def test_a_suite_that_the_harness_names_is_found(line: str) -> None:
    assert suites_named("harness/core/planted.py", line) != set()


def test_docstrings_comments_and_common_words_may_name_suites() -> None:
    source = '"""As suites/bitops does."""\n# bitops\nprotocol = "suites"\nkind = "units"\n'
    assert suites_named("harness/core/planted.py", source) == set()
