"""What a porter wants to know of a tree and a machine, in one document.

Does it configure, compile, link and start; which accesses are misaligned; which bytes differ; what was never compiled;
and in which order to mend it.

make_report      tries all: a build without our help, a run of the suites under the audit, a start without it
attempt          the build as the tree's makefile has it, and what compiler, linker and preprocessor said
conditionals     code for other systems and machines, and whether it was compiled
makefiles        what makefiles take for granted
xmemalign        Solaris' policies, worked out from the audit
items            all evidence in the order of what to fix first
document         the nouns; port.json
page, markdown   port.html and port.md
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.analysis import disassembly, symbols
from harness.build.qemu_user import Emulators
from harness.build.server_build import Builder, BuildFailedError
from harness.build.sources import tree_files
from harness.core import json_codec
from harness.core.errors import UsageError
from harness.core.model import CANARY_SUITE
from harness.isa import rules
from harness.record import fault_log, run_folder
from harness.report.finding import is_in_tree
from harness.run.server_process import Guest, StartError
from harness.workflows.check import Check
from harness.workflows.porting import attempt, conditionals, items, makefiles, markdown, page, xmemalign
from harness.workflows.porting.document import FILE, Hint, PortReport, Region, Step, TargetPort
from harness.workflows.porting.items import Death

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.core.cache import Cache
    from harness.core.finding import Access, Finding
    from harness.core.model import Build, SourceTree, Target
    from harness.core.progress import Progress
    from harness.judge.findings import Judgement
    from harness.plan.catalog import Catalog
    from harness.plan.request import Request
    from harness.workflows.porting.attempt import Attempt

AUDITED_POLICY = rules.audit_name("strict")
"""Under it every suite runs to its end, and whatever is not naturally aligned is reported."""
_SOURCE = {".c", ".h", ".cc", ".cpp", ".hpp", ".inc"}


def portable_targets(catalog: Catalog, names: Sequence[str]) -> list[Target]:
    """The targets that one can port to. Raises UsageError for machines of the kernel tier, and for this one."""
    chosen = [catalog.targets[name] for name in catalog.select_targets(names)]
    for target in chosen:
        if not target.emulator.can_audit:
            remedy = f"--target {target.userland}" if target.userland else "plumb list targets"
            why = "the audit needs user-mode emulation" if target.userland else "it is this machine"
            raise UsageError(f"no porting report for {target.name}", where="--target", because=why, remedy=remedy)
    return chosen


def make_report(catalog: Catalog, store: Cache, progress: Progress, request: Request) -> tuple[PortReport, Judgement]:
    """Everything, and the run's own judgement. `request` has AUDITED_POLICY. Raises PlumblineError as a check does."""
    targets = portable_targets(catalog, request.targets)
    check = Check(catalog, store, progress, request)
    judgement, _ = check.run()
    porter = _Porter(check, judgement.findings)
    looked = [porter.look_at(target) for target in targets]
    ports, deaths = [port for port, _ in looked], [death for _, death in looked if death]
    ordered = items.in_order(
        [
            *(item for port in ports for item in items.of_steps(port.target, port.steps)),
            *items.of_deaths(deaths, judgement.findings),
            *items.of_findings(judgement.findings, deaths),
            *items.of_notes(ports),
        ]
    )
    report = PortReport(
        schema=1,
        verdict=items.verdict_of(ordered, judgement.cells),
        server=judgement.server,
        seed=judgement.seed,
        run=judgement.run,
        optimisation=judgement.optimisation,
        items=ordered,
        targets=ports,
        cells=judgement.cells,
        stages=progress.stages,
    )
    return report, judgement


class _Porter:
    """Looks at a tree on one target after the other, once the suites have run."""

    def __init__(self, check: Check, findings: Sequence[Finding]) -> None:
        self.catalog = check.catalog
        self.request = check.request
        self.findings = findings
        self.tree = check.tree
        self.builder = Builder(check.store, check.progress)
        self.emulators = Emulators(check.store, check.fetcher, check.progress)
        self.files = _readable(self.tree)

    def look_at(self, target: Target) -> tuple[TargetPort, Death | None]:
        """A build without our help, one with it, a start; what the run and the source tell. And how the start ended."""
        tools = self.catalog.toolchain_of(target)
        tried = attempt.attempt(self.builder, self.tree, target, tools, self.request.optimisation)
        shutil.copy2(tried.log, self.request.run / f"build-{target.name}.log")
        build = self._build(target)
        steps, death = attempt.steps(tried, build), None
        if not isinstance(build, BuildFailedError):
            death = self._try_start(build, target)
            steps.append(_started(death))
        named = {name: text for name, text in self.files.items() if makefiles.is_makefile(name)}
        accesses = _accesses(self.request.run, target)
        port = TargetPort(
            target=target.name,
            title=target.title,
            machine=target.machine,
            alignment=target.alignment,
            steps=steps,
            hints=_hints(tried, self.findings, target.name),
            assumptions=makefiles.assumptions(named),
            regions=_regions(self.files, tried),
            xmemalign=[] if accesses is None else xmemalign.outcomes(self.catalog.policies, target, accesses),
        )
        return port, death

    def _build(self, target: Target) -> Build | BuildFailedError:
        tools = self.catalog.toolchain_of(target)
        try:
            return self.builder.build(self.tree, target, tools, self.request.optimisation, self.request.allocator)
        except BuildFailedError as error:
            return error

    def _try_start(self, build: Build, target: Target) -> Death | None:
        """How a start ends with the kernel's fixup off; None if the server answers."""
        tools = self.catalog.toolchain_of(target)
        policy = rules.policy_for(self.catalog.policies, "signal", target)
        runner = self.emulators.runner(target, tools, policy, self.emulators.prepare([target.emulator]))
        with tempfile.TemporaryDirectory(prefix="plumbline-start-") as folder:
            guest = Guest(build, runner, Path(folder) / "guest-1", sockets=Path(folder), version=self.tree.version)
            try:
                with guest:
                    return None
            except StartError as error:
                detail = " ".join(error.detail.split())
            faults = fault_log.read_faults(guest.fault_log)
        table = symbols.Symbols(tools.triple, str(build.server_binary))
        stack = table.backtrace(faults[0], target.emulator.qemu) if faults else []
        return Death(
            target=target.name,
            detail=detail,
            function=stack[0].function if stack else "",
            place=f"{stack[0].file}:{stack[0].line}" if stack else "",
            stack=tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in stack[:8]),
        )


def write(folder: Path, report: PortReport, judgement: Judgement) -> list[Path]:
    """port.json, port.md and port.html, in the run folder."""
    documents = {
        FILE: json_codec.pretty(report).decode(),
        "port.md": markdown.render(report),
        "port.html": page.render(folder, report, judgement),
    }
    for name, text in documents.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in documents]


def _readable(tree: SourceTree) -> dict[str, str]:
    """Sources and makefiles, as text."""
    found = {
        str(path.relative_to(tree.content)): path
        for path in tree_files.source_files(tree.content)
        if not path.is_symlink()
    }
    return {
        name: path.read_text("utf-8", "replace")
        for name, path in found.items()
        if path.suffix in _SOURCE or makefiles.is_makefile(name)
    }


def _hints(tried: Attempt, findings: Sequence[Finding], target: str) -> list[Hint]:
    """The compiler's warnings by option, file and line; those first where the audit saw what they warn of."""
    seen = {
        (frame.file, frame.line)
        for finding in findings
        if finding.kind == "alignment"
        for witness in finding.witnesses
        if witness.target == target
        for frame in witness.backtrace[:1]
    }
    hints = [
        Hint(
            warning=one.warning or "on by default",
            file=one.file,
            line=one.line,
            text=one.text,
            origin=symbols.origin_in_tree(one.file),
            seen=(one.file, one.line) in seen,
        )
        for one in tried.warnings
    ]
    return sorted(hints, key=lambda one: (one.origin != "server", not one.seen, one.warning, one.file, one.line))


def _regions(files: dict[str, str], tried: Attempt) -> list[Region]:
    """What was not compiled; of Solaris' also what was, which would not be there."""
    every = conditionals.regions(files, tried.passed)
    return [one for one in every if not one.compiled or one.topic == "Solaris"]


def _started(death: Death | None) -> Step:
    if death is None:
        return Step(name="start", result="ok", detail="it answers PING with every misaligned access raising SIGBUS")
    where = f", in {death.function} ({death.place})" if death.function else ""
    return Step(name="start", result="failed", detail=death.detail + where)


def _accesses(run: Path, target: Target) -> dict[str, list[Access]] | None:
    """Source line -> the misaligned accesses that the audit saw there on a target; None where nothing was built."""
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
                    # There it is another C library.
                    continue
                access = disassembly.access_of(fault, machine)
                here = found.setdefault(f"{frame.file}:{frame.line}", [])
                if access not in here:
                    here.append(access)
    return found
