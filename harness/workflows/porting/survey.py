"""Makes the porting report: everything that a porter must know about a source tree on a target, in one document.

The report says whether the tree configures, compiles, links and starts, which accesses are misaligned, which bytes
differ, which code was never compiled, and what to fix first. Its parts are the modules beside this one:

attempt          the build as the tree's makefile has it, with the output of compiler, linker and preprocessor
conditionals     code for other systems and machines, and whether it was compiled
makefiles        assumptions that the makefiles make
source_lines     lines of the source beside their places
xmemalign        the outcome under each of Solaris' policies, derived from the audit
items            all evidence, in the order of what to fix first
document         the classes of port.json
page, markdown   port.html and port.md
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import disassembly, symbols
from harness.build.sources import tree_files
from harness.build.workshop.build_failure import BuildFailedError
from harness.build.workshop.build_plan import BuildPlan
from harness.core import json_codec, untrusted_text
from harness.core.errors import UsageError
from harness.core.finding import place_in_file
from harness.core.model import CANARY_SUITE
from harness.isa import rules
from harness.record import fault_log, run_folder
from harness.report.finding import is_in_tree
from harness.run.server_process import Guest, StartError
from harness.run.servers.server_spec import ServerSpec
from harness.workflows.check import Check
from harness.workflows.porting import attempt, conditionals, items, makefiles, markdown, page, xmemalign
from harness.workflows.porting.document import FILE, Hint, PortReport, Region, Step, TargetPort
from harness.workflows.porting.items import Death
from harness.workflows.porting.source_lines import line_of
from harness.workflows.target_setup import set_up_targets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.core.finding import Access, Finding
    from harness.core.model import Build, SourceTree
    from harness.core.target_model import Target
    from harness.judge.findings import Judgement
    from harness.plan.catalog import Catalog
    from harness.plan.request import Request
    from harness.workflows.porting.attempt import Attempt
    from harness.workflows.target_setup import TargetSetup
    from harness.workflows.workbench import Workbench

AUDITED_POLICY = rules.audit_name("strict")
"""Under this policy every suite runs to its end, and every access that is not naturally aligned is reported."""
_SOURCE = {".c", ".h", ".cc", ".cpp", ".hpp", ".inc"}


def portable_targets(catalog: Catalog, names: Sequence[str]) -> list[Target]:
    """The targets that support a report. Raises UsageError for the kernel tier, and for native targets."""
    chosen = [catalog.targets[name] for name in catalog.select_targets(names)]
    for target in chosen:
        if not target.emulator.can_audit:
            remedy = (
                f"--target {target.userland}" if target.userland else "--target required, or one of: plumb list targets"
            )
            why = "the audit needs user-mode emulation" if target.userland else "it runs natively"
            raise UsageError(f"no porting report for {target.name}", where="--target", because=why, remedy=remedy)
    return chosen


def make_report(bench: Workbench, request: Request) -> tuple[PortReport, Judgement]:
    """The whole report and the run's own judgement. `request` uses AUDITED_POLICY. Raises as a check does."""
    targets = portable_targets(bench.catalog, request.plan.targets)
    check = Check(bench, request)
    judgement, _ = check.run()
    porter = _Porter(check, judgement.findings)
    examined = [porter.examine(setup) for setup in set_up_targets(bench, targets).values()]
    ports, deaths = [port for port, _ in examined], [death for _, death in examined if death]
    ordered = items.in_order(
        [
            *(item for port in ports for item in items.of_steps(port.target, port.steps)),
            *items.of_deaths(deaths, judgement.findings),
            *items.of_findings(judgement.findings, deaths, unbuilt=items.unbuilt(ports)),
            *items.of_notes(ports),
        ]
    )
    report = PortReport(
        schema=1,
        verdict=items.verdict_of(ordered, judgement),
        server=judgement.server,
        seed=judgement.seed,
        run=judgement.run,
        optimisation=judgement.optimisation,
        settings=request.settings,
        items=items.with_sources(ordered, porter.files),
        targets=ports,
        cells=judgement.cells,
        stages=bench.progress.stages,
    )
    return report, judgement


class _Porter:
    """Examines a tree on one target after another, once the suites have run."""

    def __init__(self, check: Check, findings: Sequence[Finding]) -> None:
        self.bench = check.bench
        self.request = check.request
        self.findings = findings
        self.tree = check.tree
        self.files = readable(self.tree)

    def examine(self, setup: TargetSetup) -> tuple[TargetPort, Death | None]:
        """Build without the project's help and with it, start the server, and read the run and the source.

        Also returns how the start ended, where the server died.
        """
        target = setup.target
        tools, optimisation = setup.toolchain, self.request.optimisation
        plan = BuildPlan(tree=self.tree, target=target, tools=tools, optimisation=optimisation)
        tried = attempt.attempt(self.bench.builder, plan)
        shutil.copy2(tried.log, self.request.run / f"build-{target.name}.log")
        build = self._build(setup)
        steps, death = attempt.steps(tried, build, self.files), None
        if not isinstance(build, BuildFailedError):
            death = self._try_start(build, setup)
            steps.append(_started(death))
        with self.bench.progress.stage("read", f"reading source and audit for {target.name}"):
            return self._read(setup, tried, steps), death

    def _read(self, setup: TargetSetup, tried: Attempt, steps: list[Step]) -> TargetPort:
        """The items from the source, the compiler's output and the audit."""
        target = setup.target
        named = {name: text for name, text in self.files.items() if makefiles.is_makefile(name)}
        accesses = _accesses(self.request.run, target)
        return TargetPort(
            target=target.name,
            title=target.title,
            machine=target.machine,
            alignment=target.alignment,
            steps=steps,
            hints=_hints(tried, self.findings, self.files, target.name),
            assumptions=makefiles.assumptions(named),
            regions=_regions(self.files, tried),
            xmemalign=[] if accesses is None else xmemalign.outcomes(self.bench.catalog.policies, target, accesses),
        )

    def _build(self, setup: TargetSetup) -> Build | BuildFailedError:
        try:
            return setup.build(self.tree, self.request.optimisation, self.request.allocator)
        except BuildFailedError as error:
            return error

    def _try_start(self, build: Build, setup: TargetSetup) -> Death | None:
        """The outcome of a start with the kernel's fixup off; None if the server answers."""
        target = setup.target
        runner = setup.runner("signal")
        with tempfile.TemporaryDirectory(prefix="plumbline-start-") as folder:
            spec = ServerSpec(build=build, version=self.tree.version)
            guest = Guest(spec, runner, Path(folder) / "guest-1", sockets=Path(folder))
            what = f"starting {self.tree.name} on {target.name}, where misaligned accesses are fatal"
            try:
                with self.bench.progress.stage("start", what), guest:
                    return None
            except StartError as error:
                detail = " ".join(error.detail.split())
            faults = fault_log.read_faults(guest.evidence.fault_log)
        table = symbols.Symbols(setup.toolchain.prefix, str(build.server_binary))
        stack = table.backtrace(faults[0], target.emulator.qemu) if faults else []
        return Death(
            target=target.name,
            detail=detail,
            function=stack[0].function if stack else "",
            place=place_in_file(stack[0].file, stack[0].line) if stack else "",
            stack=tuple(f"{frame.function} ({place_in_file(frame.file, frame.line)})" for frame in stack[:8]),
        )


def write(folder: Path, report: PortReport, judgement: Judgement) -> list[Path]:
    """Write port.json, port.md and port.html into the run folder."""
    documents = {
        FILE: json_codec.pretty(report).decode(),
        "port.md": markdown.render(report),
        "port.html": page.render(folder, report, judgement),
    }
    for name, text in documents.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in documents]


def readable(tree: SourceTree) -> dict[str, str]:
    """Name -> text of every source file and makefile. Names are as in the compilers' messages."""
    paths = {
        untrusted_text.as_utf8(str(path.relative_to(tree.content))): path
        for path in tree_files.source_files(tree.content)
        if not path.is_symlink()
    }
    return {
        name: path.read_text("utf-8", "replace")
        for name, path in paths.items()
        if path.suffix in _SOURCE or makefiles.is_makefile(name)
    }


def _hints(tried: Attempt, findings: Sequence[Finding], files: Mapping[str, str], target: str) -> list[Hint]:
    """The compiler's warnings by option, file and line; those with a misaligned access in the audit come first."""
    audited = {
        (frame.file, frame.line)
        for finding in findings
        if finding.kind == "alignment"
        for witness in finding.witnesses
        if witness.target == target
        for frame in witness.backtrace[:1]
    }
    hints = [
        Hint(
            warning=warning.warning or "on by default",
            file=warning.file,
            line=warning.line,
            text=warning.text,
            origin=symbols.origin_in_tree(warning.file),
            seen=(warning.file, warning.line) in audited,
            source=line_of(files, warning.file, warning.line),
        )
        for warning in tried.warnings
    ]
    return sorted(hints, key=lambda hint: (hint.origin != "server", not hint.seen, hint.warning, hint.file, hint.line))


def _regions(files: dict[str, str], tried: Attempt) -> list[Region]:
    """Code that was not compiled, and compiled code about Solaris, which Solaris itself would not compile."""
    every = conditionals.regions(files, tried.passed)
    return [region for region in every if not region.compiled or region.topic == "Solaris"]


def _started(death: Death | None) -> Step:
    if death is None:
        return Step(name="start", result="ok", detail="it answers PING with every misaligned access raising SIGBUS")
    where = f", in {death.function} ({death.place})" if death.function else ""
    return Step(name="start", result="failed", detail=death.detail + where)


def _accesses(run: Path, target: Target) -> dict[str, list[Access]] | None:
    """Source line -> the misaligned accesses that the audit recorded there; None for a target without a build."""
    record = run_folder.read_run(run)
    if target.name not in record.binaries:
        return None
    table = symbols.Symbols(record.triples[target.name], record.binaries[target.name])
    machine = target.emulator.qemu
    own = (run / target.name).glob("*/guest-*/faults.jsonl")
    peers = run.glob(f"*/*/{run_folder.PEERS}/{target.name}/guest-*/faults.jsonl")
    found: dict[str, list[Access]] = {}
    for log in sorted([*own, *peers]):
        if log.parts[-3] == CANARY_SUITE:
            continue
        for fault in fault_log.read_faults(log):
            if fault.event == "access":
                frame = table.frames(fault.maps, fault.pc)[0]
                if not is_in_tree(frame):
                    # The porter's machine has a different C library.
                    continue
                access = disassembly.access_of(fault, machine)
                here = found.setdefault(f"{frame.file}:{frame.line}", [])
                if access not in here:
                    here.append(access)
    return found
