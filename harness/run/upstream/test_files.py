"""A release's own test files: their names, in its own order, and the command that runs one of them.

Three programs of upstream run them: tests/test_helper.tcl (servers of one test), tests/cluster/run.tcl and
tests/sentinel/run.tcl (twenty and ten servers for each file). Names are upstream's own: `unit/type/string`,
`cluster/03-failover-loop`.
"""

from __future__ import annotations

import difflib
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.core.errors import UsageError
from harness.core.model import Record
from harness.core.processes import process
from harness.core.wanted_tests import SEPARATOR, fits

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

HELPER = Path("tests/test_helper.tcl")
INSTANCES = Path("tests/instances.tcl")
OLDEST_TCL = (8, 6)
MARK = "external:skip"
"""The tag of tests that need their own servers."""
VERSION = Path(__file__).with_name("version.tcl")
LIST_SECONDS = 60.0
PORTS = 300
"""How many ports a file may take: its servers' and, below them, those of upstream's own programs."""
TEST_PORTS = 40
UPSTREAM_SECONDS = 100_000
"""The deadline of upstream's own watchdog, which does not know about emulators: longer than any of Plumbline's."""

Driver = Literal["helper", "cluster", "sentinel"]


class UpstreamFile(Record, frozen=True):
    """One file of a release's tests."""

    name: str
    """`unit/type/string`, `cluster/03-failover-loop`."""
    driver: Driver

    @property
    def path(self) -> str:
        """The file's path in the tree."""
        folder, _, rest = self.name.partition("/")
        return f"tests/{self.name}.tcl" if self.driver == "helper" else f"tests/{folder}/tests/{rest}.tcl"

    def command(self, tree: Path, first_port: int, server: tuple[str, int] | None = None) -> list[str]:
        """The command that runs the file alone, in a copy of the tree; against a server that runs already, if given.

        `first_port`: the first port of its servers, for releases that have an option for it.
        """
        if self.driver == "helper":
            text = (tree / HELPER).read_text("utf-8", "replace")
            words = ["tclsh", str(HELPER), "--single", self.name, "--clients", "1"]
            words += ["--timeout", str(UPSTREAM_SECONDS)] * ("{--timeout}" in text)
            if "{--baseport}" in text:
                words += ["--baseport", str(first_port + TEST_PORTS), "--portcount", str(PORTS - TEST_PORTS)]
            if server is not None:
                words += ["--host", server[0], "--port", str(server[1]), "--singledb"]
            return words + [option for option in ("--durable", "--dont-clean") if f"{{{option}}}" in text]
        text = (tree / INSTANCES).read_text("utf-8", "replace")
        words = ["tclsh", f"tests/{self.driver}/run.tcl", "--single", self.name.partition("/")[2]]
        return words + [option for option in ("--dont-clean",) if option in text]


def has_tests(tree: Path) -> bool:
    """Whether a tree contains tests: the archives of some packages do not."""
    return (tree / HELPER).is_file()


def external_files(tree: Path) -> list[UpstreamFile]:
    """The files whose tests can run against a server that runs already: upstream marks those that cannot.

    Empty for a release that has no such marks, before Redis 6.2. Raises as `upstream_files` does.
    """
    if MARK not in (tree / "tests/support/server.tcl").read_text("utf-8", "replace"):
        return []
    whole = re.compile(r"^\s*(tags|start_server|start_cluster)\b[^\n]*external:skip", re.MULTILINE)

    def can(file: UpstreamFile) -> bool:
        text = (tree / file.path).read_text("utf-8", "replace")
        begins = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        return file.driver == "helper" and not (begins and whole.match(begins[0]))

    return [file for file in upstream_files(tree) if can(file)]


def upstream_files(tree: Path, *, shown: Path | None = None) -> list[UpstreamFile]:
    """Every test file of a tree, in upstream's order. `shown`: the user's own folder, if the tree is a copy of it.

    Raises UsageError for a tree without tests, and if Tcl is too old.
    """
    if not has_tests(tree):
        raise UsageError(
            "the tree has no tests of its own",
            where=str((shown or tree) / HELPER),
            because="the file does not exist: archives of some packages leave tests out",
            remedy="a release of `plumb list servers`, or a checkout of the whole repository",
        )
    _refuse_old_tcl()
    listed = _listed(tree)
    modules = [_name(path, tree) for path in sorted((tree / "tests/unit/moduleapi").glob("*.tcl"))]
    files = [UpstreamFile(name=name, driver="helper") for name in dict.fromkeys([*listed, *modules])]
    missing = [file.name for file in files if not (tree / file.path).is_file()]
    drivers: tuple[Driver, ...] = ("cluster", "sentinel")
    for driver in drivers:
        if (tree / f"tests/{driver}/run.tcl").is_file():
            paths = sorted((tree / f"tests/{driver}/tests").glob("*.tcl"))
            files += [UpstreamFile(name=f"{driver}/{path.stem}", driver=driver) for path in paths]
    return [file for file in files if file.name not in missing]


def selected(
    files: Iterable[UpstreamFile],
    words: Sequence[str],
    *,
    unnamed: Container[str] | None = None,
    beside_others: bool = False,
) -> list[UpstreamFile]:
    """The files that a selection of tests may mean: those that it names, or if it names none, all or those `unnamed`.

    A word with a slash before any `::` selects files: by name, part of a name, or glob. Raises UsageError if a word
    selects no file, unless other suites also run (`beside_others`), whose tests it may select.
    """
    every = list(files)
    chosen: set[str] = set()
    elsewhere = 0
    for word in words:
        place = word.partition(SEPARATOR)[0]
        if "/" not in place:
            continue
        names = [file.name for file in every if fits(file.name, [place])]
        if not names and beside_others:
            elsewhere += 1
        elif not names:
            near = difflib.get_close_matches(place, [file.name for file in every], n=1)
            raise UsageError(
                f"the release has no test file {place}",
                where=f"--test {word}",
                because="a word with a slash names a file of the release's own tests",
                remedy=f"did you mean '{near[0]}'?" if near else "ls tests/unit tests/integration in its tree",
            )
        chosen.update(names)
    if chosen:
        return [file for file in every if file.name in chosen]
    if words and elsewhere == len(words):
        return []
    return [file for file in every if unnamed is None or file.name in unnamed]


def line_of(text: str, test: str) -> int:
    """The line of a file on which a test begins; 0 if its name is not written there."""
    for number, line in enumerate(text.splitlines(), 1):
        if test in line and re.match(r"\s*test\b", line):
            return number
    return 0


def _name(path: Path, tree: Path) -> str:
    return str(path.relative_to(tree / "tests").with_suffix(""))


def _listed(tree: Path) -> list[str]:
    """The release's own list."""
    if "{--list-tests}" not in (tree / HELPER).read_text("utf-8", "replace"):
        text = (tree / HELPER).read_text("utf-8", "replace")
        found = re.search(r"set ::all_tests \{(.*?)\}", text, re.DOTALL)
        return found[1].split() if found else []
    with tempfile.TemporaryDirectory() as folder:
        # Since Valkey 9.1 the helper ends at once if there is no server program; it starts none to list tests.
        (Path(folder) / "valkey-server").symlink_to(sys.executable)
        result = process.run_successfully(
            ["tclsh", str(HELPER), "--list-tests"],
            problem="the release does not list its tests",
            where=str(tree / HELPER),
            deadline_seconds=LIST_SECONDS,
            folder=tree,
            environment={**process.PLAIN_ENVIRONMENT, "VALKEY_BIN_DIR": folder},
        )
    return [line.strip() for line in result.text.splitlines() if re.fullmatch(r"[\w./-]+", line.strip())]


def _refuse_old_tcl() -> None:
    """Raise UsageError if the overlay would not run (it needs tailcall)."""
    result = process.run_successfully(
        ["tclsh", VERSION], problem="tclsh does not run", deadline_seconds=LIST_SECONDS, remedy="plumb doctor --install"
    )
    version = result.text.strip()
    if tuple(int(part) for part in version.split(".") if part.isdigit()) < OLDEST_TCL:
        raise UsageError(
            f"tclsh {version} is too old",
            where="tclsh",
            because=f"Plumbline runs upstream's tests under version {'.'.join(map(str, OLDEST_TCL))} or later",
            remedy="apt-get install tcl",
        )
