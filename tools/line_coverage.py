"""`python -m tools.line_coverage RELEASE`: which lines of a release's src/*.c the suites run, and upstream's own tests.

The release is compiled for the host with gcov's counters. A server counts when it ends by itself; COVERAGE_TEST,
which the release has for that purpose, makes its children do so as well. Checks run one after the other: all suites but
the canary and upstream's tests; the server's self-tests; `heap` with jemalloc; and upstream's tests alone.

A line of the source counts wherever it was compiled: with and without TLS, with libc's allocator and jemalloc, in the
server and in its self-tests. Each of these builds has its own counters and notes. Counters that are not of a note's
compilation bear another stamp, and gcov leaves them out.
"""

from __future__ import annotations

import gzip
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from harness.build.sources.openssl import provide_openssl
from harness.build.workshop.build_plan import BuildPlan
from harness.core import json_codec
from harness.core.digests import key_of
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.target_model import ORACLE
from harness.judge.known import known_list
from harness.plan.plan import make_plan
from harness.plan.request import Request
from harness.report.markdown_table import table
from harness.run.selftests import style_of
from harness.workflows.check import Check
from harness.workflows.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.model import Allocator, SourceTree, Suite, Tier
    from harness.core.target_model import Target

GCOV_SECONDS = 300.0
PATIENCE = 10.0
"""Factor of every time limit: of replies, and of the time in which a server stops."""
SELFTESTS = "selftests"
"""The suite, and the variant of the server that it runs; the last of the variants."""
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
    # A server that is killed because it stops too slowly loses its counters, which it writes as it ends.
    return msgspec.structs.replace(
        target, compiler_flags=[*target.compiler_flags, *flags], slowdown=PATIENCE * target.slowdown
    )


def compile_notes(bench: Workbench, tree: SourceTree, target: Target, folder: Path) -> dict[str, Path]:
    """Compile the server once more in every variant, and keep what gcov needs of each in its own folder."""
    tools = bench.toolchain_of(target)
    tests = style_of(tree)
    openssl = provide_openssl(bench.fetcher, tools)
    variants: dict[str, dict[str, Any]] = {"plain": {}, "tls": {"tls": openssl}, "jemalloc": {"allocator": "jemalloc"}}
    if not isinstance(tests, str):
        variants[SELFTESTS] = {}
    plain = BuildPlan(tree=tree, target=target, tools=tools, optimisation="O0")
    for name, how in variants.items():
        what = f"{tree.name} with gcov's counters ({name})"
        (folder / name).mkdir(parents=True)
        plan = msgspec.structs.replace(plain, **how)
        with bench.builder.workshop(plan, what=what, kind=f"coverage-{name}") as shop:
            if name == SELFTESTS and not isinstance(tests, str):
                shop.make([tests.goal], compiler=shop.wrapper("gcc", tests.flags, suffix="-selftests"))
            else:
                shop.make_server()
            for path in (shop.tree / "src").glob("*.gcno"):
                shutil.copy2(path, folder / name)
    return {name: folder / name for name in variants}


def run_suites(
    bench: Workbench, server: str, suites: list[str], tier: Tier, run: Path, allocator: Allocator = "libc"
) -> None:
    """Run suites natively; what they find does not matter here."""
    request = Request(
        plan=make_plan(bench.catalog, targets=[ORACLE], server=server, suites=suites),
        server=server,
        tier=tier,
        policy="signal",
        optimisation="O0",
        allocator=allocator,
        emulator="pinned",
        jobs=2,
        seed=1,
        install=False,
        known=known_list.DEFAULT,
        run=run,
        warnings="off",
        everywhere="off",
    )
    Check(bench, request).run()


def lines_of(notes: Mapping[str, Path], counters: Path) -> Lines:
    """The lines of every file, from gcov's notes of every variant and the counters of one check."""
    places: dict[str, list[Path]] = {}
    # The counters' names contain the whole path of the object, with # for slashes: deps have an sds.c too.
    for found in counters.rglob("*#tree#src#*.gcda"):
        places.setdefault(found.name.rpartition("#")[0], []).append(found)
    merged: Lines = {}
    for name, paths in itertools.product(notes, places.values()):
        lines = _lines(notes[name], paths)
        # The text of a self-test stands in the same file, and is not a line of the server.
        merged = within(merged, lines) if name == SELFTESTS else either(merged, lines)
    if not any(ran for lines in merged.values() for ran in lines.values()):
        raise InfrastructureError("gcov says that no line ran", where=str(counters))
    return merged


def _lines(notes: Path, counters: Sequence[Path]) -> Lines:
    """The lines of one variant, and which ran by the counters of objects of one place."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for note in notes.glob("*.gcno"):
            shutil.copy2(note, place)
        for path in counters:
            shutil.copy2(path, place / path.name.rpartition("#")[2])
        process.run(
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
                    lines = {line["line_number"]: line["count"] > 0 for line in file["lines"]}
                    merged = either(merged, {name: lines})
    return merged


def either(some: Lines, more: Lines) -> Lines:
    """The lines of two checks, each of which ran if it ran in one of them."""
    return {
        file: {
            line: some.get(file, {}).get(line, False) or more.get(file, {}).get(line, False)
            for line in sorted(some.get(file, {}).keys() | more.get(file, {}).keys())
        }
        for file in sorted(some.keys() | more.keys())
    }


def within(lines: Lines, more: Lines) -> Lines:
    """The same lines, each of which ran if it ran in one of two checks."""
    return {
        file: {line: ran or more.get(file, {}).get(line, False) for line, ran in numbers.items()}
        for file, numbers in lines.items()
    }


def page(server: str, found: Mapping[str, Lines]) -> str:
    """The table: the whole, and every file, by lines that ran."""
    first = dict(list(found.values())[-1])
    rows = [["**all**", f"{sum(map(len, first.values())):,}", *(_share(lines.values()) for lines in found.values())]]
    rows += [
        [f"`{file}`", f"{len(first[file]):,}", *(_share([lines.get(file, {})]) for lines in found.values())]
        for file in sorted(first, key=lambda name: -len(first[name]))
    ]
    return "\n".join([f"## {server}", "", *table(["file", "lines", *found], rows, numbers_from=1), ""])


def _share(files: Any) -> str:
    counted = [ran for lines in files for ran in lines.values()]
    return f"{sum(counted) / len(counted):.1%}" if counted else "–"


def checks_of(suites: Mapping[str, Suite]) -> list[tuple[str, list[str], Allocator]]:
    """The checks: by whom, with which suites and which allocator. The counters of one would overwrite another's."""
    ours = {name: suite for name, suite in suites.items() if suite.needs_server and not suite.upstream}
    tests = [name for name, suite in ours.items() if suite.program == SELFTESTS]
    # It fails calls by which a server writes its counters, too: broken files would take the others' with them.
    failing = [name for name in ours if name == "injection"]
    heap = [name for name in ours if name in ("heap", "persistence")]
    theirs = [name for name, suite in suites.items() if suite.upstream]
    found: list[tuple[str, list[str], Allocator]] = [
        (OURS, [name for name in ours if name not in (*tests, *failing)], "libc"),
        (OURS, failing, "libc"),
        (OURS, tests, "libc"),
        (OURS, heap, "jemalloc"),
        (THEIRS, theirs, "libc"),
    ]
    return [check for check in found if check[1]]


@click.command()
@click.argument("server")
@click.option("--tier", type=click.Choice(["quick", "full", "thorough"]), default="full", show_default=True)
@click.option("--suite", "only", multiple=True, help="Only these suites; repeat for more.")
@click.option("--lines", "file", type=click.Path(path_type=Path), help="Write which lines ran to this JSON file.")
@click.option("--runs", type=click.Path(path_type=Path), help="Keep the runs' folders in this new folder.")
def main(server: str, tier: Tier, only: tuple[str, ...], file: Path | None, runs: Path | None) -> None:
    """Print the share of lines that run, by file."""
    bench = Workbench.default()
    # Two selections may run beside each other.
    counters = bench.cache.root / "work" / f"gcov-{key_of([server, *only])}"
    plain = bench.catalog.targets[ORACLE]
    bench.catalog.targets[ORACLE] = instrumented(plain, counters)
    tree = bench.open_server(server)
    suites = {name: suite for name, suite in bench.catalog.suites.items() if not only or name in only}
    found: dict[str, Lines] = {}
    with tempfile.TemporaryDirectory() as folder:
        notes = compile_notes(bench, tree, bench.catalog.targets[ORACLE], Path(folder) / "notes")
        for number, (name, chosen, allocator) in enumerate(checks_of(suites)):
            shutil.rmtree(counters, ignore_errors=True)
            counters.mkdir(parents=True)
            run_suites(bench, server, chosen, tier, (runs or Path(folder)) / f"{number}-{chosen[0]}", allocator)
            found[name] = either(found.get(name, {}), lines_of(notes, counters))
        shutil.rmtree(counters, ignore_errors=True)
    if len(found) > 1:
        found[BOTH] = either(*found.values())
    if file is not None:
        file.write_bytes(json_codec.encode(found))
    click.echo(page(tree.name, found))


if __name__ == "__main__":
    main()
