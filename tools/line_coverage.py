"""`python -m tools.line_coverage RELEASE`: which lines of a release's src/*.c the suites run, and upstream's own tests.

The release is compiled for this machine with gcov's counters. Two checks run on it: all suites but the canary and
upstream's tests, and upstream's tests alone. A server counts when it ends by itself; COVERAGE_TEST, which the release
has for that purpose, makes its children do so as well.

The server's self-tests do not run: with REDIS_TEST its files compile to other code, whose counters would overwrite
those of the server.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.target_model import ORACLE
from harness.judge import known_findings
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.report.markdown_table import table
from harness.workflows.check import Check
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.core.model import SourceTree, Suite, Tier
    from harness.core.target_model import Target

GCOV_SECONDS = 300.0
OURS, THEIRS, BOTH = "Plumbline's suites", "upstream's tests", "both"
Lines = dict[str, dict[int, bool]]
"""File of src -> line with code -> whether it ran."""


def instrumented(target: Target, counters: Path) -> Target:
    """The native target as one whose programs count lines into a folder."""
    # A fixed seed gives the notes of another compilation the same stamp, without which gcov ignores the counters.
    flags = [
        "-frandom-seed=plumbline",
        "--coverage",
        "-fprofile-update=atomic",
        f"-fprofile-dir={counters}",
        "-DCOVERAGE_TEST",
    ]
    return msgspec.structs.replace(target, compiler_flags=[*target.compiler_flags, *flags])


def compile_notes(bench: Workbench, tree: SourceTree, target: Target, notes: Path) -> None:
    """Compile the server once more, and keep what gcov needs of its compilation."""
    tools = bench.catalog.toolchain_of(target)
    what = f"{tree.name} with gcov's counters"
    with bench.builder.workshop(tree, target, tools, "O0", what=what, kind="coverage") as shop:
        shop.make_server()
        for path in (shop.tree / "src").glob("*.gcno"):
            shutil.copy2(path, notes)


def run_suites(bench: Workbench, server: str, suites: list[str], tier: Tier, run: Path) -> None:
    """Run suites on this machine; what they find does not matter here."""
    request = Request(
        plan=make_plan(bench.catalog, targets=[ORACLE], server=server, suites=suites),
        server=server,
        tier=tier,
        policy="signal",
        optimisation="O0",
        emulator="pinned",
        jobs=2,
        seed=1,
        install=False,
        known=known_findings.DEFAULT,
        run=run,
        warnings="off",
    )
    Check(bench, request).run()


def lines_of(notes: Path, counters: Path) -> Lines:
    """The lines of every file, from gcov's notes and the counters of one check."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for note in notes.glob("*.gcno"):
            shutil.copy2(note, place)
            # The counters' names contain the whole path of the object, with # for slashes: deps have an sds.c too.
            for found in counters.rglob(f"*#tree#src#{note.stem}.gcda"):
                shutil.copy2(found, place / f"{note.stem}.gcda")
        result = process.run(
            ["gcov", "--json-format", *sorted(path.name for path in place.glob("*.gcno"))],
            deadline_seconds=GCOV_SECONDS,
            folder=place,
        )
        merged: Lines = {}
        for path in sorted(place.glob("*.gcov.json.gz")):
            document = json_codec.decode(gzip.decompress(path.read_bytes()), dict[str, Any])
            for file in document["files"]:
                name = Path(file["file"]).name
                if name.endswith(".c") and "deps" not in Path(file["file"]).parts:
                    known = merged.setdefault(name, {})
                    for line in file["lines"]:
                        number = line["line_number"]
                        known[number] = known.get(number, False) or line["count"] > 0
    if not any(ran for lines in merged.values() for ran in lines.values()):
        raise InfrastructureError("gcov says that no line ran", where=str(counters), because=result.text[-500:])
    return merged


def both(ours: Lines, theirs: Lines) -> Lines:
    """What either of two checks ran."""
    return {
        file: {line: ours[file][line] or theirs.get(file, {}).get(line, False) for line in ours[file]} for file in ours
    }


def page(server: str, found: Mapping[str, Lines]) -> str:
    """The table: the whole, and every file, by lines that ran."""
    first = next(iter(found.values()))
    rows = [["**all**", f"{sum(map(len, first.values())):,}", *(_share(lines.values()) for lines in found.values())]]
    rows += [
        [f"`{file}`", f"{len(first[file]):,}", *(_share([lines.get(file, {})]) for lines in found.values())]
        for file in sorted(first, key=lambda name: -len(first[name]))
    ]
    return "\n".join([f"## {server}", "", *table(["file", "lines", *found], rows, numbers_from=1), ""])


def _share(files: Any) -> str:
    counted = [ran for lines in files for ran in lines.values()]
    return f"{sum(counted) / len(counted):.1%}" if counted else "–"


def _counts(suite: Suite) -> bool:
    """Whether a suite runs the code that is measured: not the canary, and no other code of the same files."""
    return suite.needs_server and not suite.upstream and not suite.tls and suite.program != "selftests"


@click.command()
@click.argument("server")
@click.option("--tier", type=click.Choice(["quick", "full", "thorough"]), default="full", show_default=True)
@click.option("--suite", "only", multiple=True, help="Only these suites; repeat for more.")
@click.option("--lines", "file", type=click.Path(path_type=Path), help="Write which lines ran to this JSON file.")
def main(server: str, tier: Tier, only: tuple[str, ...], file: Path | None) -> None:
    """Print the share of lines that run, by file."""
    bench = Workbench.default()
    # Two selections may run beside each other.
    counters = bench.cache.root / "work" / f"gcov-{key_of([server, *only])}"
    plain = bench.catalog.targets[ORACLE]
    bench.catalog.targets[ORACLE] = instrumented(plain, counters)
    tree = bench.open_server(server)
    wanted = {name: suite for name, suite in bench.catalog.suites.items() if not only or name in only}
    suites = {
        OURS: [name for name, one in wanted.items() if _counts(one)],
        THEIRS: [name for name, one in wanted.items() if one.upstream],
    }
    found: dict[str, Lines] = {}
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        notes.mkdir()
        compile_notes(bench, tree, bench.catalog.targets[ORACLE], notes)
        for name, chosen in suites.items():
            if not chosen:
                continue
            shutil.rmtree(counters, ignore_errors=True)
            counters.mkdir(parents=True)
            run_suites(bench, server, chosen, tier, Path(folder) / name.partition(" ")[0])
            found[name] = lines_of(notes, counters)
        shutil.rmtree(counters, ignore_errors=True)
    if len(found) == len(suites):
        found[BOTH] = both(*found.values())
    if file is not None:
        file.write_bytes(json_codec.encode(found))
    click.echo(page(tree.name, found))


if __name__ == "__main__":
    main()
