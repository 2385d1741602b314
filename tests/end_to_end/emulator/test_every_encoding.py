"""Every encoding of an instruction set, at every offset and under every policy, does what the manuals prescribe.

The lists are complete: the decoder, the disassembler and the assembler know no access that is neither made nor listed
as omitted.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.runner import with_alignment
from harness.core.processes import process
from harness.isa import rules
from harness.record import fault_log
from harness.run.sweep import comparison, program
from tests.end_to_end.support import machines
from tools import decoders, sweeps

if TYPE_CHECKING:
    from pathlib import Path

    from harness.build.emulators.runner import Runner
    from harness.isa.encodings.encoding import Encoding

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
SWEPT = [name for name in machines.REQUIRED if program.table_of(CATALOG.targets[name]) is not None]
BEYOND = [name for name in machines.OTHERS if program.table_of(CATALOG.targets[name]) is not None]
# The 64-bit toolchain comes last. It also knows the 32-bit instructions, and assembles those of all targets.
ALL_SWEPT = sorted([*SWEPT, *BEYOND], key=lambda name: CATALOG.targets[name].width_bits)
ISAS = sorted({CATALOG.targets[name].isa for name in SWEPT})
ISAS_BEYOND = sorted({CATALOG.targets[name].isa for name in BEYOND})
QUICK = {
    *((name, "signal") for name in [*machines.SAMPLE, "armv7"]),
    ("armv5", "ignore"),
    ("armv7", "strict"),
    ("sparc32plus", "solaris-4s"),
}
CELLS = [
    (name, policy) if (name, policy) in QUICK else machines.beyond(name, policy)
    for name in [*SWEPT, *BEYOND, *machines.STATIC]
    for policy in [*CATALOG.policies, rules.AUDIT]
    if policy == rules.AUDIT or rules.applies(CATALOG.policies[policy], CATALOG.targets[name])
    # Their C library is a part of the program, so `strict` judges its accesses too.
    if not (name in machines.STATIC and policy == "strict")
]


def compiled(name: str, chosen: list[Encoding] | None = None) -> tuple[Path, list[Encoding]]:
    """The program with all or some of a target's encodings."""
    target, cache = CATALOG.targets[name], machines.quiet_workbench().cache
    made = program.encodings(target) if chosen is None else chosen
    return program.compile_sweep(cache, target, machines.toolchain_of(name), made), made


def swept(runner: Runner, chosen: list[Encoding] | None = None) -> comparison.SweepResult:
    made, encodings = compiled(runner.target.name, chosen)
    return comparison.sweep(made, runner, encodings)


@pytest.mark.parametrize(("name", "policy"), CELLS)
def test_every_encoding_does_what_is_prescribed(name: str, policy: str) -> None:
    result = swept(machines.runner(name, policy))
    assert [str(one) for one in result.disagreements] == []
    assert result.executions == 128 * result.encodings
    assert result.outcomes["d"] > 0


@pytest.mark.parametrize("isa", [*ISAS, *map(machines.beyond, ISAS_BEYOND)])
def test_decoder_disassembler_and_assembler_know_no_other_access(isa: str) -> None:
    bench = machines.quiet_workbench()
    sweeps = [decoders.made(bench, CATALOG.targets[name]) for name in ALL_SWEPT if CATALOG.targets[name].isa == isa]
    assert decoders.differences(machines.emulators_source(), sweeps) == []


def test_a_missing_encoding_a_wrong_text_and_a_wrong_code_are_reported() -> None:
    """Simulates a table without SWAP, a disassembler that misreads LDSH, and LDSTUB assembled as a branch."""
    bench = machines.quiet_workbench()
    whole = decoders.made(bench, CATALOG.targets["sparc64"])
    changed = []
    for one, instruction in whole.instructions:
        if one.text == "ldsh [%o4], %o2":
            changed.append((one, instruction._replace(text=instruction.text.replace("ldsh", "lduh"))))
        elif one.text.startswith("ldstub "):
            changed.append((one, instruction._replace(code=0x10800000)))
        elif not one.text.startswith("swap "):
            changed.append((one, instruction))
    found = decoders.differences(machines.emulators_source(), [whole._replace(instructions=changed)])
    for expected in (
        "ldstub [%o4 + %o5], %o2: the decoder takes it for None",
        "lduh [ %o4 ], %o2: the assembler makes d4130000 of it, not d4530000",
        "SWAP (insns.decode:684): no encoding makes it; it is ['swap ",
        "LDSTUB (insns.decode:680): no encoding makes it; it is ['ldstub ",
    ):
        assert [one for one in found if expected in one], f"{expected}: {found}"
    assert len(found) == 4


@pytest.mark.parametrize("name", machines.sampled(*SWEPT, *BEYOND, *machines.STATIC))
def test_an_audit_records_every_encoding_once_as_what_it_is(name: str, tmp_path: Path) -> None:
    made, encodings = compiled(name)
    target = CATALOG.targets[name]
    found = program.instructions(target, machines.toolchain_of(name), made)
    addresses = [found[number].address for number in range(len(encodings))]
    runner, log = machines.runner(name, rules.AUDIT), tmp_path / "faults.jsonl"
    assert comparison.misrecorded(made, runner, encodings, addresses, log) == []


@pytest.mark.parametrize(
    ("name", "setting", "wrong"),
    [
        # The emulator gets an option that differs from the policy, and every affected encoding shows it.
        ("armv5", "demand=none", {"half", "word", "dword", "multi", "vfp", "swap"}),
        ("armv5", "demand=arch,assumed=16,word=fixup", {"word"}),
        ("armv5", "demand=arch,assumed=16,word=ignore", {"word"}),
        ("armv5", "demand=arch,assumed=16,vfp=fixup", {"vfp"}),
    ],
)
def test_an_emulator_with_a_wrong_policy_is_reported(name: str, setting: str, wrong: set[str]) -> None:
    runner = machines.runner(name)
    at = runner.options.index("-alignment") + 1
    options = [*runner.options[:at], setting, *runner.options[at + 1 :]]
    assert with_alignment(options, runner.policy) == runner.options
    result = swept(msgspec.structs.replace(runner, options=options))
    concerned = [one.name for one in program.encodings(runner.target) if one.access_class in wrong]
    # Once in the middle of a page, and once at its end.
    assert sorted(one.encoding for one in result.disagreements) == sorted(2 * concerned)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("ldr r2, [r4, #8]!", {"writeback": 4}),
        ("ldr r2, [r4], r5", {"writeback": 0}),
        ("ldrsh r2, [r4]", {"moves": [("load", 0, 8, 2, 2, False)]}),
        ("strd r2, r3, [r4]", {"moves": [("store", 0, 8, 4, 0, False)]}),
        ("stmib r4!, {r2, r3}", {"moves": [("store", 4, 8, 4, 0, False), ("store", 0, 12, 4, 0, False)]}),
        ("ldr r2, [r4, r5, rrx]", {"displacement": 13}),
        ("vldr s1, [r4]", {"moves": [("load", 0, 64, 4, 0, False)]}),
        ("ldrh r2, [r4]", {"unit_bytes": 1}),
        ("ldrb r2, [r4]", {"unit_bytes": 2, "access_class": "half"}),
    ],
)
def test_an_effect_that_differs_from_the_table_is_reported(text: str, change: dict[str, object]) -> None:
    """Simulates an emulator that is wrong in a register, a byte, an offset or an alignment."""
    right = [one for one in program.encodings(CATALOG.targets["armv5"]) if one.text == text]
    if "moves" in change:
        kind = type(right[0].moves[0])
        change = {**change, "moves": tuple(kind(*row) for row in change["moves"])}  # type: ignore[attr-defined]
    altered = right[0]._replace(**change)  # type: ignore[arg-type]
    result = swept(machines.runner("armv5"), [altered, *right])
    assert [(one.encoding, one.place) for one in result.disagreements] == [
        (altered.name, place) for place in comparison.PLACES
    ]


def test_only_what_does_as_prescribed_under_every_policy_counts_as_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = machines.set_up(("armv5",))["armv5"]
    (right,) = [one for one in program.encodings(setup.target) if one.text == "ldrh r2, [r4, #8]!"]
    monkeypatch.setattr(program, "encodings", lambda _: [right])
    found = sweeps.sweep(setup)
    assert isinstance(found, sweeps.Swept)
    assert {"signal", "fixup", "ignore", "strict", "linux-arm-2", "audit"} <= set(found.policies)
    assert (found.encodings, found.executions) == (1, 128 * len(found.policies))
    assert found.digest == sweeps.digest(setup.target)
    monkeypatch.setattr(program, "encodings", lambda _: [right._replace(writeback=4)])
    wrong = sweeps.sweep(setup)
    assert isinstance(wrong, list)
    assert [line.partition(":")[0] for line in wrong[::2]] == found.policies


@pytest.mark.slow(instead="the other tests of test_every_encoding.py, for wrong rows of the required targets")
@pytest.mark.parametrize(
    ("text", "change"),
    [
        machines.beyond("add.l %d2,(%a0)", {"moves": [("store", 0, 8, 4, 0, False, "or", None)]}),
        machines.beyond("sub.w (%a0),%d2", {"moves": [("load", 0, 10, 2, 0, False, "add", None)]}),
        machines.beyond("adda.w (%a0),%a3", {"moves": [("load", 0, 46, 2, 2, False, "add", None)]}),
        machines.beyond("neg.b (%a0)+", {"writeback": 2}),
        machines.beyond("not.l -(%a0)", {"displacement": -2}),
        machines.beyond("ror.w (%a0)", {"moves": [("store", 0, 64, 2, 0, False, "rol", 0)]}),
        machines.beyond("st (%a0)", {"moves": [("store", 0, 64, 1, 0, False, "", 0)]}),
        machines.beyond("cmp.l (%a0),%d2", {"results": ((3, 0),)}),
        machines.beyond("fmove.s (%a0),%fp0", {"moves": [("load", 0, 64, 4, 0, False, "", None)]}),
        machines.beyond("move16 (%a0)+,(%a1)+", {"truncates": False}),
    ],
)
def test_another_effect_of_a_68000s_instruction_is_told(text: str, change: dict[str, object]) -> None:
    """Simulates an emulator that calculates or extends memory operands wrongly."""
    right = [one for one in program.encodings(CATALOG.targets["m68k"]) if one.text == text]
    if "moves" in change:
        kind = type(right[0].moves[0])
        change = {**change, "moves": tuple(kind(*row) for row in change["moves"])}  # type: ignore[attr-defined]
    altered = right[0]._replace(**change)  # type: ignore[arg-type]
    result = swept(machines.runner("m68k"), [altered, *right])
    assert [(one.encoding, one.place) for one in result.disagreements] == [
        (altered.name, place) for place in comparison.PLACES
    ]


@pytest.mark.parametrize(
    ("name", "text"), [("armv5", "ldrsh r2, [r4]"), ("armv7", "vst4.16 {d0, d2, d4, d6}, [r4:64]!")]
)
def test_without_a_handler_an_encoding_kills_the_process_and_is_in_the_fault_log(
    name: str, text: str, tmp_path: Path
) -> None:
    made, encodings = compiled(name)
    number = next(i for i, one in enumerate(encodings) if one.text == text and one.state != "T16")
    one, log = encodings[number], tmp_path / "faults.jsonl"
    ran = process.run(machines.runner(name).command(made, [str(number), "3"], log), deadline_seconds=60)
    assert ran.code == -signal.SIGBUS
    (fault,) = fault_log.read_faults(log)
    assert (fault.event, fault.signal, fault.code) == ("fault", signal.SIGBUS, fault_log.BUS_ADRALN)
    assert (fault.access, fault.access_class, fault.access_bytes) == (one.direction, one.access_class, one.unit_bytes)
    assert (fault.address % 64, fault.access_hint) == (3, one.hint_bytes)
