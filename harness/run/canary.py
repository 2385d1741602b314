"""Canaries: a program makes every access of a target's instruction set there, and shows that silence is meaningful.

The program is generated from harness/isa/accesses/ISA.toml; harness.isa.rules defines what each access must do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.analysis import symbols
from harness.build.helper_program import compiled
from harness.core.errors import InfrastructureError
from harness.core.model import Record
from harness.core.processes import process
from harness.core.strict_toml import PACKAGE, read_toml
from harness.core.target_model import (  # noqa: TC001 - msgspec reads the annotations when it decodes
    AddressingMode,
    PlannedAccess,
)
from harness.isa import rules
from harness.record import fault_log

if TYPE_CHECKING:
    from harness.build.qemu_user import Runner
    from harness.core.cache import Cache
    from harness.core.target_model import Direction, Target, Toolchain
    from harness.run.vm.machine import Machine

ACCESSES = PACKAGE / "isa" / "accesses"
DRIVER = Path(__file__).with_suffix(".c")
RUN_SECONDS = 60.0
"""How long the program may make accesses without a word about one."""
DEATHS_AT_ONCE = 100
"""How many accesses one process is asked for: a kernel tier's init takes 256 words."""
BOUNDARY_BYTES = 64
"""What the program's memory is aligned to: no instruction asks for more."""


class InstructionState(Record, frozen=True):
    """One of several instruction sets of the same processor: every access is made in each."""

    name: str
    """What it adds to the names of accesses and, for the globs of accesses and modes, of targets; may be empty."""
    attribute: str
    """The attribute of C functions that are compiled for it: `target("arm")`."""
    targets: tuple[str, ...]
    """Globs of the targets that have it."""


class ExemptEncodings(Record, frozen=True):
    """Encodings that programs contain and that no access has to make."""

    encodings: str
    """A pattern that matches them whole."""
    because: str
    """Why none has to, with a source."""
    targets: tuple[str, ...] = ("*",)
    """Globs of the targets whose programs may contain them."""


class AccessTable(Record, frozen=True):
    """harness/isa/accesses/ISA.toml."""

    clobbers: list[str]
    accesses: list[PlannedAccess]
    place: str = ""
    """How the address is written in the plain mode, if there are others."""
    addressing: list[AddressingMode] = msgspec.field(default_factory=list)
    states: list[InstructionState] = msgspec.field(default_factory=list)
    """Empty where compilers write one instruction set."""
    exempt: list[ExemptEncodings] = msgspec.field(default_factory=list)
    constraint: str = "r"
    """GCC's constraint for a register that can hold an address: on PowerPC, z/Architecture and m68k not every
    register can."""


class CanaryCase(Record, frozen=True):
    """One access at every offset: its prescribed outcomes, and whether the emulator's log must record them."""

    access: PlannedAccess
    prescribed: list[rules.Outcome]
    reported: list[bool]


def table(target: Target) -> AccessTable:
    """The part of the instruction set's table that concerns the target, each access in every addressing mode."""
    read = _instruction_set(target.isa)
    model = rules.model(target)
    states = [one for one in read.states if _is_one_of(model, one.targets)]
    mine = [one for state in states or [_ONLY_STATE] for one in _accesses_of(read, model, state)]
    return msgspec.structs.replace(
        read,
        accesses=[one for one in mine if not _is_one_of(target.name, one.lacking)],
        exempt=[one for one in read.exempt if _is_one_of(model, one.targets)],
    )


def plain_accesses(target: Target) -> list[PlannedAccess]:
    """The target's accesses in the plain addressing mode, by the instruction set that its compiler writes."""
    names = {one.name for one in _instruction_set(target.isa).accesses}
    return [one for one in table(target).accesses if one.name in names]


_ONLY_STATE = InstructionState(name="", attribute="", targets=())


def _accesses_of(read: AccessTable, model: str, state: InstructionState) -> list[PlannedAccess]:
    """The accesses of a target in a state, each in every addressing mode."""
    suffix = f"-{state.name}" if state.name else ""
    modes = {mode.name: mode for mode in read.addressing if _is_one_of(model + suffix, mode.targets)}
    found = []
    for one in read.accesses:
        if _is_one_of(model + suffix, one.targets):
            found.append(one)
            found += [_addressed(one, modes[mode], read.place) for mode in one.addressing if mode in modes]
    return [msgspec.structs.replace(one, name=one.name + suffix, attribute=state.attribute) for one in found]


def _is_one_of(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatch(name, glob) for glob in globs)


def _addressed(access: PlannedAccess, mode: AddressingMode, place: str) -> PlannedAccess:
    """An access with its address written in another mode."""
    code = [*mode.setup, *(line.replace(place, mode.place) for line in access.code)]
    clobbers = (*access.clobbers, *mode.clobbers)
    return msgspec.structs.replace(access, name=f"{access.name}-{mode.name}", code=code, clobbers=clobbers)


@functools.cache
def _instruction_set(name: str) -> AccessTable:
    return read_toml(ACCESSES / f"{name}.toml", AccessTable)


def offsets(access: PlannedAccess) -> range:
    """Bytes past the boundary at which an access is made: 0 to 15, or as far as what the instruction asks for goes."""
    return range(max(16, access.hint_bytes))


def cases(runner: Runner) -> list[CanaryCase]:
    """The prescribed outcome of every access on a target under a policy."""
    target, policy = runner.target, runner.policy
    found = []
    for access in table(target).accesses:
        shapes = [rules.shape(access, offset) for offset in offsets(access)]
        found.append(
            CanaryCase(
                access=access,
                prescribed=[rules.prescribed(target, policy, one) for one in shapes],
                reported=[policy.report and rules.forbidden(target, policy, one) for one in shapes],
            )
        )
    return found


def source(accesses: AccessTable, driver: Path = DRIVER) -> str:
    """The C program: a table of functions that make the accesses, and the driver."""
    inputs = f'"{accesses.constraint}"(address), "{accesses.constraint}"(value)'
    functions, rows = [], []
    for access in accesses.accesses:
        name = function_of(access)
        clobbers = ", ".join(f'"{one}"' for one in [*accesses.clobbers, *access.clobbers, "memory"])
        code = " ".join(f'"{line}\\n\\t"' for line in _labelled(access))
        attributes = ", ".join(filter(None, ["noinline", access.attribute]))
        functions.append(
            f"static __attribute__(({attributes})) void {name}(void *address, void *value)\n"
            f"{{\n    __asm__ volatile({code} : : {inputs} : {clobbers});\n}}\n"
        )
        is_store = int(access.direction == "store")
        numbers = f"{access.size_bytes}, {access.unit_bytes}, {len(offsets(access))}, {is_store}"
        rows.append(f'    {{"{access.name}", {numbers}, {name}}},')
    head = "/* Generated by harness/run/canary.py. */\n" + _STRUCTURE
    body = "\n".join(["static const struct access accesses[] = {", *rows, "};"])
    return "\n".join([head, *functions, body, driver.read_text("utf-8")])


_STRUCTURE = """struct access {
    const char *name;
    int size, unit, offsets, is_store;
    void (*perform)(void *, void *);
};
"""


LABEL = "plumb_access."
"""What the symbols behind the instructions that make accesses begin with."""


def _labelled(access: PlannedAccess) -> list[str]:
    """The code of an access, with a label behind each line that may make it: those that do not use the value's place.

    Before it there may be the function's own symbol, and objdump shows only one.
    """
    lines = []
    for number, line in enumerate(access.code):
        lines.append(line)
        if "%1" not in line and not line.startswith("."):
            lines.append(f"{LABEL}{function_of(access)}.{number}:")
    return lines


def function_of(access: PlannedAccess) -> str:
    """The C function that makes an access."""
    return "perform_" + access.name.replace("-", "_")


def compile_canary(
    cache: Cache,
    target: Target,
    tools: Toolchain,
    driver: Path = DRIVER,
    *,
    accesses: Sequence[PlannedAccess] | None = None,
) -> Path:
    """The canary program for a target, or with another driver a program that makes the same accesses.

    `accesses`: those that it makes; by default all of the target's.

    Raises InfrastructureError when it does not compile.
    """
    every = table(target)
    made = every if accesses is None else msgspec.structs.replace(every, accesses=list(accesses))
    return compiled(
        cache,
        tools,
        title=f"the canary for {target.name}",
        kind="canaries",
        owner=target.name,
        file="canary",
        flags=[*target.compiler_flags, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-std=gnu11"],
        generated={"canary.c": source(made, driver)},
        where=ACCESSES / f"{target.isa}.toml",
    )


class Reported(Record, frozen=True):
    """The emulator's records of one instruction of the canary program."""

    direction: str
    access_class: str
    offset: int
    """Of the first record."""
    count: int
    unit_bytes: int
    hint_bytes: int


class CanaryResult(Record, frozen=True):
    """One run of `canary all`: each access's outcome at every offset, and the records by function of the program."""

    outcomes: dict[str, list[str]]
    reports: dict[str, list[Reported]]


class Performance(Record, frozen=True):
    """The result of the canary program, wherever it ran."""

    code: int
    """Exit status; negative for a signal."""
    expired: bool
    text: str


CanaryRunner = Callable[[Sequence[str]], Performance]
"""Runs the canary program with arguments."""


def emulated(
    program: Path, runner: Runner, fault_log: Path | None = None, *, plugin_for: Callable[[Path], str] | None = None
) -> CanaryRunner:
    """Run the program under the user-mode emulator, or natively. `plugin_for` tells what the emulator loads for it."""

    def perform(arguments: Sequence[str]) -> Performance:
        result = process.run(
            runner.command(program, arguments, fault_log, plugin=plugin_for(program) if plugin_for else ""),
            deadline_seconds=runner.target.deadline_seconds(RUN_SECONDS),
            usable=True,
            since_output=True,
        )
        return Performance(code=result.code, expired=result.expired, text=result.text)

    return perform


def on_machine(program: Path, machine: Machine, slowdown: float) -> CanaryRunner:
    """Run the program on a real kernel. `program` is its path in the guest."""

    def perform(arguments: Sequence[str]) -> Performance:
        ran = machine.run([str(program), *arguments], deadline_seconds=RUN_SECONDS * slowdown, traced=False)
        code = ran.end.code if ran.end is not None else 0
        return Performance(code=code, expired=ran.end is None, text=ran.output.decode("utf-8", "replace"))

    return perform


def perform_all(
    perform: CanaryRunner, target: Target, accesses: Sequence[PlannedAccess] | None = None
) -> dict[str, list[str]]:
    """Run `canary all`: access -> its outcome at every offset.

    `accesses`: those that the program was compiled with; by default all of the target's. Raises InfrastructureError
    when it did not reach the end of its table.
    """
    result = perform(["all"])
    outcomes: dict[str, list[str]] = {}
    for line in result.text.splitlines():
        name, _, rest = line.partition(" ")
        outcomes.setdefault(name, []).append(rest.partition(" ")[2])
    made = table(target).accesses if accesses is None else accesses
    expected = {access.name: len(offsets(access)) for access in made}
    complete = expected == {name: len(found) for name, found in outcomes.items()}
    if result.code != 0 or not complete:
        how = "did not end" if result.expired else f"ended with status {result.code}"
        lines = result.text.strip().splitlines() or ["no output"]
        raise InfrastructureError(f"the canary program {how} on {target.name}", because=lines[-1])
    return outcomes


def performed(program: Path, runner: Runner, fault_log: Path, triple: str) -> CanaryResult:
    """Run `canary all` under the user-mode emulator, and read its records if the policy reports accesses.

    Under other policies nothing is recorded: recording a thousand signals takes ten times as long as raising them.
    """
    log = fault_log if runner.policy.report else None
    outcomes = perform_all(emulated(program, runner, log), runner.target)
    return CanaryResult(outcomes=outcomes, reports=_reports(program, log, triple) if log else {})


def _reports(program: Path, log: Path, triple: str) -> dict[str, list[Reported]]:
    recorded = fault_log.read(log)
    names = symbols.Symbols(triple, str(program))
    found: dict[str, list[Reported]] = {}
    for fault in recorded.faults:
        if fault.event == "access":
            one = Reported(
                direction=fault.access,
                access_class=fault.access_class,
                offset=fault.address % BOUNDARY_BYTES,
                count=recorded.counts.get((fault.pid, fault.pc), 1),
                unit_bytes=fault.access_bytes,
                hint_bytes=fault.access_hint,
            )
            found.setdefault(names.frames(fault.maps, fault.pc)[0].function, []).append(one)
    return found


def disagreements(case: CanaryCase, performed: CanaryResult, runner: Runner) -> list[str]:
    """One phrase for each difference between an access or its record and the prescription."""
    access = case.access
    shown = [rules.shown(runner.target, one) for one in case.prescribed]
    pairs = zip(shown, performed.outcomes[access.name], strict=True)
    wrong = [
        f"at {offset} {actual} where {expected} is prescribed"
        for offset, (expected, actual) in enumerate(pairs)
        if actual != expected
    ]
    if not runner.records_faults:
        return wrong
    due = sum(case.reported)
    reports = performed.reports.get(function_of(access), [])
    matching = [one for one in reports if one.access_class == access.access_class]
    if max((one.count for one in matching), default=0) != due:
        wrong.append(f"{due} reports of class {access.access_class} are due, got {reports}")
    elif due and matching[0].offset != case.reported.index(True):
        wrong.append(f"the first report is due at {case.reported.index(True)}, got {matching[0]}")
    elif due and (matching[0].unit_bytes, matching[0].hint_bytes) != (access.unit_bytes, access.hint_bytes):
        wrong.append(f"a unit of {access.unit_bytes} and a hint of {access.hint_bytes} are due, got {matching[0]}")
    elif due and "signal" not in case.prescribed and _direction(access) not in {one.direction for one in matching}:
        # A loop of load and store loads first; if the load raises a signal, the store never happens.
        wrong.append(f"a {_direction(access)} is to be reported, got {matching}")
    return wrong


def _direction(access: PlannedAccess) -> Direction:
    """What the emulator calls an access: one that loads and stores is a store, whichever of the two is looked at."""
    return "store" if access.access_class in {"swap", "cas"} else access.direction


def deaths(perform: CanaryRunner, cases: Sequence[CanaryCase]) -> dict[str, str]:
    """Each deadly access -> how a process of its own ended that made it, and has no handler.

    That is the name of a signal, `lived`, or why it is not known. Each is made at the first offset where a signal is
    prescribed. One process starts them all: under an emulator a child costs a fraction of a process.
    """
    deadly = [(case.access.name, case.prescribed.index("signal")) for case in cases if "signal" in case.prescribed]
    found: dict[str, str] = {}
    for start in range(0, len(deadly), DEATHS_AT_ONCE):
        batch = deadly[start : start + DEATHS_AT_ONCE]
        result = perform(["deaths", *(word for name, offset in batch for word in (name, str(offset)))])
        told = {tuple(words[:2]): words[2] for line in result.text.splitlines() if len(words := line.split(" ", 2)) > 2}
        how = "did not end" if result.expired else f"ended with status {result.code}"
        unknown = f"not known, because the program that starts it {how}"
        found |= {name: told.get((name, str(offset)), unknown) for name, offset in batch}
    return found


def dies(perform: CanaryRunner, access: PlannedAccess, offset: int, target: Target) -> bool:
    """Whether an access, without a signal handler, kills the process by the signal for misaligned accesses."""
    return perform([access.name, str(offset)]).code == -rules.signal_of(target)
