"""`python -m tools.goals`: measures how fast Plumbline answers, beside its goals, and stores the figures of a commit.

Each measurement runs `plumb` as a person would, `--rounds` times, and the median counts. measurements/bench.json keeps
the figures of each commit that was measured, and the command prints them side by side. `python -m tools.generated`
writes the newest ones into docs/BENCH.md. The machine should do nothing else: the load average is stored, too.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from harness.build.emulators.emulator_cache import Emulators
from harness.build.sources import emulator_wheel
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.model import Record
from harness.core.processes import environment, process
from harness.core.progress import Progress
from harness.core.strict_toml import ROOT
from harness.core.target_model import ORACLE
from harness.judge.findings import Judgement
from harness.plan.catalog import DEFAULT_SERVER, Catalog
from harness.record import event_log, run_cost, run_folder
from harness.report.formats import findings_json
from harness.report.markdown_table import table
from harness.workflows.measure.overhead import AUDITED, DELAYED, ENFORCED, Costs
from harness.workflows.mutation_testing import mutations
from harness.workflows.workbench import Workbench
from tools import clones, project, question_options
from tools.emulators import write_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DASH = "–"
ON_REQUEST = ("cold", "cold_packaged", "premerge_hub", "commits", "waits")
"""What is measured only on request, because it takes many minutes."""
STORED = ROOT / "measurements" / "bench.json"
DEADLINE_SECONDS = 3600.0
SEED = "1"
BAD_SERVER = "redis-3.2.6"
"""Its servers die in most tests of these suites on strict machines."""
CRASHING = ("bitops", "hashing")
HANGING = "armv5"
"""The target on which SETs hang, because it has 32 bits."""
SET = ("src/t_string.c", "void setCommand(client *c) {\n")
DISAGREEING = ("sparc64", "cluster", "cluster-epoch-byte-order")
"""A target, a suite, and the planted bug with which its clusters never agree."""
FUZZED = "armv5"
FUZZ_TIME = "60s"
KERNELS = ("armv5", "armv6", "armv7", "armv7-on-arm64", "aarch64", "sparc32plus", "sparc64")
"""The targets of the kernel tier that are the required ones' machines, without `-kernel`."""
CHANGED = "src/bitops.c"
CHANGED_FUNCTION = "void bitopCommand(client *c) {\n"
"""Its first line; every test of BITOP enters it."""
HUB = "src/networking.c"
HUB_FUNCTION = "void addReplyBulkLongLong(client *c, long long ll) {\n"
"""The first line of a function that most suites enter."""
COMMITS = (
    "6ceadfb5805369f896f0f137c30a4f7210198ff3",
    "3788a055fee9041860d422d2d93e42677552bceb",
    "af7fca797a531c90a54ea79a56929f3e5598c01f",
    "06cfe2c254b987daab5a555b55531c4a39a0edcf",
    "c419524c05d7544636d5bc0cc0cb333052b0a517",
)
"""Public commits, three of Redis and two of Valkey, which a developer might check before the merge."""
UNKNOWN = "src/util.c"
"""Where a base has a function of its own, so that nothing is known of it."""


def _short(commit: str) -> str:
    return commit[:9]


def _figure(commit: str) -> str:
    return f"premerge_{_short(commit)}"


class Goal(NamedTuple):
    """A figure, and its goal."""

    title: str
    unit: str
    goal: float
    at_least: bool = False

    def met(self, value: float) -> bool:
        """Whether a value reaches the goal."""
        return value >= self.goal if self.at_least else value <= self.goal


GOALS = {
    "quick": Goal("quick check, six targets", "s", 70),
    "quick_processor": Goal("its processor time", "s", 125),
    "premerge": Goal(f"premerge of one line of {CHANGED}, six targets", "s", 45),
    "premerge_first": Goal(f"premerge of one line of {HUB}, the first of a checkout", "s", 300),
    "premerge_next": Goal("the next one, with another line there", "s", 150),
    **{
        _figure(commit): Goal(f"premerge of public commit {_short(commit)}, the first of a checkout", "s", 300)
        for commit in COMMITS
    },
    "premerge_alone": Goal("premerge, of a native check with the same suites", "×", 2),
    "streams": Goal(f"`fuzz` on {FUZZED}: streams for a second of processor", "1/s", 1500, at_least=True),
    "commands": Goal(f"`fuzz` on {FUZZED}: commands for a second of processor", "1/s", 15000, at_least=True),
    "crashes": Goal(f"check of {BAD_SERVER} against {DEFAULT_SERVER}, suites {' and '.join(CRASHING)}", "×", 3),
    "hangs": Goal(f"check on {HANGING} of a tree whose SETs hang, against the release", "×", 3),
    "disagrees": Goal(f"`{DISAGREEING[1]}` on {DISAGREEING[0]} with epochs in host order, against the release", "×", 3),
    "cold": Goal("first check with an empty cache", "s", 600),
    "cold_packaged": Goal("first check with an empty cache and the wheel of the emulators", "s", 360),
    "kernels": Goal("check of bitops and protocol on seven real kernels and userlands", "s", 600),
    "enforcement": Goal("least throughput with enforcement, of that without", "", 0.95, at_least=True),
    "audit": Goal("least throughput in an audit, of that without", "", 0.80, at_least=True),
    "delays": Goal("least throughput while stores wait, of that without enforcement", "", 0.25, at_least=True),
    "memory": Goal("memory of a quick check, all processes", "MiB", float("inf")),
}
"""Name of a figure -> its goal. The memory has none yet."""


class Measured(Record, frozen=True):
    """The figures of one commit on one machine."""

    commit: str
    date: str
    processors: int
    load: float | None
    """The load average before the first measurement; None if it was not recorded."""
    figures: dict[str, list[float]]
    """Name of a figure -> its value in each round."""

    @property
    def is_busy(self) -> bool:
        """Whether other work occupied the machine before the first measurement."""
        return self.load is not None and self.load > self.processors / 2


def read() -> list[Measured]:
    """The stored figures, the oldest first."""
    return json_codec.decode(STORED.read_bytes(), list[Measured]) if STORED.is_file() else []


def store(measured: Measured) -> None:
    """Add figures to those of their commit, on their date."""
    others = [one for one in read() if (one.commit, one.date) != (measured.commit, measured.date)]
    same = [one.figures for one in read() if (one.commit, one.date) == (measured.commit, measured.date)]
    figures = {**(same[0] if same else {}), **measured.figures}
    STORED.write_bytes(json_codec.pretty([*others, msgspec.structs.replace(measured, figures=figures)]))


def current_rows(stored: Sequence[Measured] | None = None) -> list[str]:
    """The table of docs/BENCH.md: a row for each figure, with its newest value; of the stored ones by default."""
    stored = read() if stored is None else stored
    lines = []
    for name, goal in GOALS.items():
        newest = next((one for one in reversed(stored) if one.figures.get(name)), None)
        figure = (_cell(goal, newest.figures[name]), _machine(newest)) if newest else ("not measured", "")
        lines.append([goal.title, _goal(goal), *figure])
    return table(["figure", "goal", "measured", "on a machine with"], lines, numbers_from=1)


def _machine(measured: Measured) -> str:
    busy = ", beside other work" if measured.is_busy else ""
    return f"{measured.processors} processors{busy}"


def rows(stored: Sequence[Measured] | None = None) -> list[str]:
    """What the command prints: a row for each figure, a column for each commit; of the stored ones by default."""
    stored = read() if stored is None else stored
    heads = [f"{one.commit}, {one.date}" for one in stored]
    lines = []
    for name, goal in GOALS.items():
        cells = [_cell(goal, one.figures.get(name, [])) for one in stored]
        if any(cells):
            lines.append([goal.title, _goal(goal), *(cell or DASH for cell in cells)])
    loads = (DASH if one.load is None else one.load for one in stored)
    conditions = [f"{one.processors}, {load}" for one, load in zip(stored, loads, strict=True)]
    lines.append(["processors, load before", "", *conditions])
    return table(["figure", "goal", *heads], lines, numbers_from=1)


def _goal(goal: Goal) -> str:
    if goal.goal == float("inf"):
        return DASH
    return f"{'≥' if goal.at_least else '≤'} {goal.goal:g} {goal.unit}".strip()


def _cell(goal: Goal, values: Sequence[float]) -> str:
    if not values:
        return ""
    value = statistics.median(values)
    text = f"{value:,.2f}" if value < 10 else f"{value:,.0f}"
    missed = "" if goal.met(value) else ", missed"
    return f"{text} {goal.unit}".strip() + f" ({len(values)}×{missed})"


class _Bench:
    """Runs `plumb`, each time in its own folder below one that is removed."""

    def __init__(
        self, folder: Path, targets: Sequence[str], histories: Sequence[Path], keep: Callable[[_Bench], None]
    ) -> None:
        """`keep` is called after each figure, so a later failure does not lose it."""
        self.folder = folder
        self._keep = keep
        self._histories = histories
        self._targets = [word for target in targets for word in ("--target", target)]
        self._count = 0
        self.figures: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        """One round's value of a figure."""
        self.figures.setdefault(name, []).append(round(value, 3))
        self._keep(self)
        Progress().say(f"{name}: {value:.2f} {GOALS[name].unit}")

    def plumb(
        self,
        *words: str | Path,
        codes: Sequence[ExitCode] = (ExitCode.PASS,),
        variables: Mapping[str, str] | None = None,
    ) -> tuple[float, Path]:
        """The seconds that a command took, and its run folder. Raises InfrastructureError if it ended otherwise."""
        self._count += 1
        run = self.folder / f"run-{self._count}"
        began = time.monotonic()
        result = project.plumb(
            *words, "--run", run, "--seed", SEED, deadline_seconds=DEADLINE_SECONDS, variables=variables
        )
        seconds = time.monotonic() - began
        if result.expired or result.code not in codes:
            expected = " or ".join(str(int(code)) for code in codes)
            raise InfrastructureError(
                f"plumb {words[0]} ended with status {result.code} and not {expected}: it measures nothing",
                because=result.text[-2000:],
                remedy="fix what it says, and measure again",
            )
        return seconds, run

    def quick(self) -> None:
        """The answer of a plain `plumb check`, and its memory."""
        seconds, run = self.plumb("check", *self._targets)
        self.add("quick", seconds)
        cost = run_cost.read(run)
        assert cost is not None
        self.add("quick_processor", cost.own_seconds + sum(cost.programs.values()))
        self.add("memory", cost.peak.pss_bytes / 2**20)

    def _checkout(self, *, unknown: bool = False) -> Path:
        """A repository of the default release. `unknown`: with a function that no earlier one had."""
        tree = self.folder / f"checkout-{self._count}"
        shutil.copytree(self._release(DEFAULT_SERVER), tree)
        if unknown:
            self._make_unknown(tree, time.time_ns())
        clones.git(tree, "init", "--quiet")
        self._commit(tree)
        return tree

    @staticmethod
    def _release(name: str) -> Path:
        """The source of a release."""
        return Workbench.default().fetcher.server(Catalog().servers[name]).path

    @staticmethod
    def _make_unknown(tree: Path, number: int) -> None:
        """Add a function that no tree had before."""
        with (tree / UNKNOWN).open("a", encoding="utf-8") as stream:
            stream.write(f"\nunsigned long long plumblineUnknown(void) {{ return {number}ULL; }}\n")

    @staticmethod
    def _commit(tree: Path) -> None:
        clones.git(tree, "add", "--all", "--force")
        clones.git(
            tree, *("-c", "user.name=bench"), *("-c", "user.email=bench@localhost"), "commit", "--quiet", "-mbase"
        )

    def commits(self) -> None:
        """Public commits against their parents, each in a checkout whose base nothing was known of."""
        places = clones.found_in(self._histories, COMMITS)
        if absent := [commit for commit in COMMITS if commit not in places]:
            raise UsageError(
                f"no clone contains {', '.join(absent)}",
                where="--git",
                remedy="clone redis/redis and valkey-io/valkey, and name both folders with --git",
            )
        for commit, clone in places.items():
            tree, number = self.folder / f"{_short(commit)}-{self._count}", time.time_ns()
            clones.check_out(f"{commit}~1", clone, tree)
            self._make_unknown(tree, number)
            self._commit(tree)
            clones.git(tree, "read-tree", "--reset", "-u", commit)
            self._make_unknown(tree, number)
            # Any verdict will do: what the commits break is not what is measured.
            codes = (ExitCode.PASS, ExitCode.FINDINGS, ExitCode.INCONCLUSIVE)
            seconds, run = self.plumb("premerge", "--server", tree, "--base", "HEAD", *self._targets, codes=codes)
            self.add(_figure(commit), seconds)
            judgement = json_codec.decode((run / findings_json.FORMAT.file).read_bytes(), Judgement)
            Progress().say(f"{_short(commit)}: {judgement.verdict}")

    def premerge_hub(self) -> None:
        """Two changes of a function that most tests enter, in a checkout that was never checked."""
        tree = self._checkout(unknown=True)
        for name in ("premerge_first", "premerge_next"):
            self._change(tree, f"    if (ll == {70001 + time.time_ns() % 1_000_000_000}) return;\n", HUB, HUB_FUNCTION)
            self.add(name, self.plumb("premerge", "--server", tree, "--base", "HEAD", *self._targets)[0])

    def premerge(self) -> None:
        """A checkout whose work tree has one more line than its base."""
        tree = self._checkout()
        # The base is built, and another change checked before, as on a developer's machine.
        self._change(tree, "    if (c->argc == 70000) return;\n")
        self.plumb("premerge", "--server", tree, "--base", "HEAD", *self._targets)
        self._change(tree, f"    if (c->argc == {70001 + time.time_ns() % 1_000_000_000}) return;\n")
        seconds, run = self.plumb("premerge", "--server", tree, "--base", "HEAD", *self._targets)
        self.add("premerge", seconds)
        # Another change, so that its server has to be compiled, too.
        self._change(tree, f"    if (c->argc == {70001 + time.time_ns() % 1_000_000_000}) return;\n")
        suites = [word for suite in run_folder.read_run(run).suites for word in ("--suite", suite)]
        alone, _ = self.plumb("check", "--server", tree, "--target", ORACLE, *suites)
        self.add("premerge_alone", seconds / alone)

    @staticmethod
    def _change(tree: Path, line: str, file: str = CHANGED, function: str = CHANGED_FUNCTION) -> None:
        """Add a line to the function that is changed."""
        before, head, after = (tree / file).read_text("utf-8").partition(function)
        assert head, f"{file} has no {function}"
        (tree / file).write_text(f"{before}{head}{line}{after}", "utf-8")

    def fuzz(self) -> None:
        """Streams and commands, by the processor time of the tests with all that they started."""
        corpus = self.folder / f"corpus-{self._count}"
        _, run = self.plumb("fuzz", "--target", FUZZED, "--time", FUZZ_TIME, "--corpus", corpus)
        streams, commands, seconds = fuzzed(run)
        self.add("streams", streams / seconds)
        self.add("commands", commands / seconds)

    def crashes(self) -> None:
        """The same suites on a tree whose servers die and on one whose servers live."""
        suites = [*self._targets, *(word for suite in CRASHING for word in ("--suite", suite))]
        good, _ = self.plumb("check", *suites)
        bad, _ = self.plumb("check", "--server", BAD_SERVER, *suites, codes=[ExitCode.FINDINGS])
        self.add("crashes", bad / good)

    def waits(self) -> None:
        """Suites on trees of which the tests wait in vain, and on the release."""
        bad = (ExitCode.FINDINGS, ExitCode.INCONCLUSIVE)
        tree = self._checkout()
        self._change(tree, "    while (sizeof(long) == 4 && sdslen(c->argv[2]->ptr) > 3) {}\n", *SET)
        good, _ = self.plumb("check", "--target", HANGING)
        self.add("hangs", self.plumb("check", "--server", tree, "--target", HANGING, codes=bad)[0] / good)
        target, suite, bug = DISAGREEING
        planted = mutations.mutations()[bug]
        mutations.plant(planted, self._release(planted.server), tree := self.folder / f"{bug}-{self._count}")
        words = ("--target", target, "--suite", suite)
        good, _ = self.plumb("check", "--server", planted.server, *words)
        self.add("disagrees", self.plumb("check", "--server", tree, *words, codes=bad)[0] / good)

    def cold(self) -> None:
        """The first check of a machine that has the packages. It downloads 150 MB."""
        self.add("cold", self._first())

    def cold_packaged(self) -> None:
        """The same with `plumbline-emulators` installed: QEMU is not compiled."""
        bench, site = Workbench.default(), self.folder / f"site-{self._count}"
        programs = Emulators(bench.cache, bench.fetcher, Progress()).prepare(
            [one.emulator for one in bench.catalog.targets.values() if one.emulator.is_qemu_user]
        )
        shutil.unpack_archive(write_wheel(programs, self.folder / f"wheel-{self._count}"), site, "zip")
        for program in (site / emulator_wheel.PACKAGE / emulator_wheel.PROGRAMS).iterdir():
            # What unpacks archives here forgets the permissions, which pip sets.
            program.chmod(0o755)
        self.add("cold_packaged", self._first(PYTHONPATH=str(site)))

    def _first(self, **variables: str) -> float:
        cache = self.folder / f"cache-{self._count}"
        seconds, _ = self.plumb("check", *self._targets, variables={**variables, "PLUMBLINE_CACHE": str(cache)})
        compiled = any((cache / "logs").glob("qemu-*"))
        if compiled == bool(variables):
            raise InfrastructureError(
                f"QEMU was {'' if compiled else 'not '}compiled: the first check measures something else",
                where=str(cache / "logs"),
            )
        shutil.rmtree(cache)
        return seconds

    def kernels(self) -> None:
        """Two suites in emulated machines with Linux."""
        targets = [word for name in KERNELS for word in ("--target", f"{name}-kernel")]
        self.add("kernels", self.plumb("check", *targets, "--suite", "bitops", "--suite", "protocol")[0])

    def enforcement(self) -> None:
        """The least ratio of any target and workload."""
        words = [sys.executable, "-m", "harness.cli.console_script", "bench", "--json", *self._targets]
        result = process.run_successfully(
            words, problem="plumb bench failed", deadline_seconds=DEADLINE_SECONDS, folder=ROOT, environment=os.environ
        )
        costs = json_codec.decode(result.output[result.output.index(b"\n{") + 1 :], Costs)
        for name, policy in (("enforcement", ENFORCED), ("audit", AUDITED), ("delays", DELAYED)):
            if ratios := [one.ratio for one in costs.throughput if one.policy == policy]:
                self.add(name, min(ratios))


MEASUREMENTS: dict[str, Callable[[_Bench], None]] = {
    "quick": _Bench.quick,
    "premerge": _Bench.premerge,
    "premerge_hub": _Bench.premerge_hub,
    "commits": _Bench.commits,
    "fuzz": _Bench.fuzz,
    "crashes": _Bench.crashes,
    "waits": _Bench.waits,
    "cold": _Bench.cold,
    "cold_packaged": _Bench.cold_packaged,
    "kernels": _Bench.kernels,
    "enforcement": _Bench.enforcement,
}


def fuzzed(run: Path) -> tuple[int, int, float]:
    """The streams and commands of a run of `fuzz`, and the processor seconds of its cells."""
    record = run_folder.read_run(run)
    streams = commands = 0
    seconds = 0.0
    for target in record.targets:
        for suite in record.suites:
            log = event_log.read(run / target / suite / event_log.NAME)
            for event in log.events:
                said = re.search(r"(\d+) examples, (\d+) commands in", getattr(event, "message", ""))
                streams += int(said[1]) if said else 0
                commands += int(said[2]) if said else 0
            seconds += log.processor_seconds if suite != "canary" else 0.0
    if not streams or not seconds:
        raise InfrastructureError("the run of fuzz has no streams", where=str(run), remedy="measure again")
    return streams, commands, seconds


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(tuple(MEASUREMENTS)))
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="The median of so many counts.")
@click.option("--target", "targets", multiple=True, help="Fewer targets, for a trial: nothing is stored.")
@question_options.histories(required=False)
def main(names: tuple[str, ...], rounds: int, targets: tuple[str, ...], histories: tuple[Path, ...]) -> None:
    """Measure these, or all that take few minutes; store the figures in measurements/bench.json."""
    chosen = names or tuple(name for name in MEASUREMENTS if name not in ON_REQUEST)
    measured = _conditions()
    Cache.default()

    def keep(bench: _Bench) -> None:
        if not targets:
            store(msgspec.structs.replace(measured, figures=bench.figures))

    with tempfile.TemporaryDirectory(prefix="plumbline-goals-") as folder:
        # Also if it is killed: a checkout and its runs take a gigabyte.
        process.keep_folder(Path(folder))
        bench = _Bench(Path(folder), targets, histories, keep)
        for _ in range(rounds):
            # They take turns, so a temporary disturbance of the machine affects all of them.
            for name in chosen:
                MEASUREMENTS[name](bench)
    shown = [*read(), msgspec.structs.replace(measured, figures=bench.figures)] if targets else read()
    click.echo("\n".join(rows(shown)))
    if measured.is_busy:
        click.echo(f"The machine was busy (load {measured.load}) before it measured: figures of time say little.")


def _conditions() -> Measured:
    """The commit that is measured, and the machine before the first measurement; no figures yet."""
    commit = process.run_successfully(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"],
        problem="git names no commit",
        deadline_seconds=60,
        environment=environment.for_git(),
    ).text.strip()
    return Measured(
        commit=commit,
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        processors=os.cpu_count() or 1,
        load=round(os.getloadavg()[0], 1),
        figures={},
    )


if __name__ == "__main__":
    main()
