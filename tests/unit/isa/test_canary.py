"""The source of the canary program, and the messages if its output or the log contradicts the prescribed outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.runner import Runner, alignment_option, with_alignment
from harness.core.errors import InfrastructureError
from harness.isa import access_table, rules
from harness.plan.catalog import Catalog
from harness.run import canary
from harness.run.canary import CanaryCase, CanaryResult, Reported
from tests.support import fakes

if TYPE_CHECKING:
    from harness.core.target_model import Policy, Target

CATALOG = Catalog()
SIGNAL = CATALOG.policies["signal"]
ARMV5 = CATALOG.targets["armv5"]
AUDIT = rules.audited(SIGNAL)


def runner_of(target: Target, policy: Policy = SIGNAL, *, program: Path | None = None) -> Runner:
    return Runner(target=target, policy=policy, program=program, options=[], records_faults=True)


def case(name: str, policy: Policy = SIGNAL, target: str = "armv5") -> CanaryCase:
    return next(one for one in canary.cases(runner_of(CATALOG.targets[target], policy)) if one.access.name == name)


def behaving(one: CanaryCase) -> CanaryResult:
    """A run in which everything happens as prescribed."""
    reports = []
    if any(one.reported):
        reports = [
            Reported(
                direction=one.access.direction,
                access_class=one.access.access_class,
                offset=one.reported.index(True),
                count=sum(one.reported),
                unit_bytes=one.access.unit_bytes,
                hint_bytes=one.access.hint_bytes,
            )
        ]
    return CanaryResult(
        outcomes={one.access.name: list(one.prescribed)}, reports={canary.function_of(one.access): reports}
    )


@pytest.mark.parametrize("target", sorted(CATALOG.targets))
def test_the_program_contains_every_access(target: str) -> None:
    text = canary.source(access_table.of_target(CATALOG.targets[target]))
    accesses = access_table.of_target(CATALOG.targets[target]).accesses
    assert len({access.name for access in accesses}) == len(accesses)
    for access in accesses:
        assert f"void {canary.function_of(access)}(" in text
        assert f'{{"{access.name}", {access.size_bytes}, {access.unit_bytes}, ' in text
        # The stack pointer must always be a multiple of 16, even for small loads.
        assert access.size_bytes % access.unit_bytes == 0 or access.access_class == "stack"


@pytest.mark.parametrize("target", sorted(CATALOG.targets))
def test_every_class_with_a_demand_has_an_access_that_tests_it(target: str) -> None:
    machine = CATALOG.targets[target]
    shown = {one.access.access_class for one in canary.cases(runner_of(machine)) if "signal" in one.prescribed}
    # Cortex-A53 has no CAS, and Thumb has no SWP. A window spill is not an instruction's own access, so
    # tests/end_to_end/emulator/test_beyond_accesses.py tests it.
    elsewhere = {"aarch64": {"cas"}, "armv7": {"swap"}, "sparc64": {"stack"}, "sparc32plus": {"stack"}}
    unproved = elsewhere.get(rules.model(machine), set()) | ({"stack"} if machine.emulator.has_kernel else set())
    assert set(machine.demand) - shown <= unproved, f"{target}: no access tests its demands"
    assert shown <= set(machine.demand) | {"neon"}


def test_an_instruction_that_a_target_does_not_have_is_omitted() -> None:
    names = {
        target: {a.name for a in access_table.of_target(CATALOG.targets[target]).accesses}
        for target in ("armv5", "armv7")
    }
    assert "ldrex" in names["armv7"] - names["armv5"]
    assert "swp" in names["armv5"] - names["armv7"]


def test_prescribed_outcomes_are_not_reported() -> None:
    for policy in (SIGNAL, AUDIT):
        one = case("ldr", policy)
        assert canary.disagreements(one, behaving(one), runner_of(CATALOG.targets["armv5"], policy)) == []


def test_a_wrong_outcome_at_one_offset_is_reported() -> None:
    one = case("ldr")
    performed = behaving(one)
    performed.outcomes["ldr"][3] = "done"
    problems = canary.disagreements(one, performed, runner_of(CATALOG.targets["armv5"]))
    assert problems == ["at 3 done where signal is prescribed"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"count": 11}, "12 reports of class word are due"),
        ({"access_class": "half"}, "12 reports of class word are due"),
        ({"offset": 2}, "the first report is due at 1"),
        ({"direction": "store"}, "a load is to be reported"),
        ({"unit_bytes": 2}, "a unit of 4 and a hint of 0 are due"),
        ({"hint_bytes": 4}, "a unit of 4 and a hint of 0 are due"),
    ],
)
def test_a_wrong_report_is_detected(change: dict[str, object], expected: str) -> None:
    one = case("ldr", AUDIT)
    performed = behaving(one)
    (report,) = performed.reports["perform_ldr"]
    performed.reports["perform_ldr"] = [msgspec.structs.replace(report, **change)]
    (problem,) = canary.disagreements(one, performed, runner_of(CATALOG.targets["armv5"], AUDIT))
    assert expected in problem


@pytest.mark.parametrize(
    ("target", "access", "outcome"), [("mips-kernel", "lw", "unaddressed"), ("riscv64-kernel", "lr-w", "at-pc")]
)
def test_a_real_kernel_must_send_the_signals_that_it_defines(target: str, access: str, outcome: str) -> None:
    found = CATALOG.targets[target]
    policy = rules.policy_for(CATALOG.policies, "signal", found)
    runner = Runner(target=found, policy=policy, program=None, options=[], records_faults=False)
    one = next(each for each in canary.cases(runner) if each.access.name == access)
    assert one.prescribed[1] == "signal"
    as_told = CanaryResult(
        outcomes={access: [outcome if expected == "signal" else expected for expected in one.prescribed]}, reports={}
    )
    assert canary.disagreements(one, as_told, runner) == []
    problems = canary.disagreements(one, behaving(one), runner)
    assert problems[0] == f"at 1 signal where {outcome} is prescribed"


def test_an_unexpected_report_is_detected() -> None:
    one = case("ldr", target="armv6", policy=AUDIT)
    performed = behaving(one)
    report = Reported(direction="load", access_class="word", offset=1, count=1, unit_bytes=4, hint_bytes=0)
    performed.reports["perform_ldr"] = [report]
    (problem,) = canary.disagreements(one, performed, runner_of(CATALOG.targets["armv6"], AUDIT))
    assert "0 reports of class word are due" in problem


@pytest.mark.parametrize(
    ("body", "because"),
    [
        ("echo ldr 0 done", "the canary program ended with status 0"),
        ("echo oops; exit 1", "oops"),
        ("kill -BUS $$", "ended with status -7"),
    ],
)
def test_a_program_that_does_not_reach_its_end_is_no_canary(tmp_path: Path, body: str, because: str) -> None:
    program = fakes.write(tmp_path / "canary", f"#!/bin/sh\n{body}\n", mode=0o755)
    with pytest.raises(InfrastructureError, match=because):
        canary.performed(program, runner_of(CATALOG.targets["armv5"]), tmp_path / "log", "fake")


def test_a_program_of_some_accesses_must_make_exactly_these(tmp_path: Path) -> None:
    accesses = access_table.plain_accesses(ARMV5)
    assert 20 < len(accesses) < len(access_table.of_target(ARMV5).accesses) / 1.5
    text = canary.source(msgspec.structs.replace(access_table.of_target(ARMV5), accesses=accesses))
    assert text.count("static __attribute__((noinline)) void perform_") == len(accesses)
    lines = [f"{one.name} {offset} done" for one in accesses for offset in canary.offsets(one)]
    program = fakes.write(tmp_path / "canary", "#!/bin/sh\ncat << end\n" + "\n".join(lines) + "\nend\n", mode=0o755)
    perform = canary.emulated(
        program, Runner(target=ARMV5, policy=SIGNAL, program=None, options=[], records_faults=False)
    )
    assert list(canary.perform_all(perform, ARMV5, accesses)) == [one.name for one in accesses]
    with pytest.raises(InfrastructureError, match="ended with status 0"):
        canary.perform_all(perform, ARMV5)


def test_only_sigbus_is_the_expected_death(tmp_path: Path) -> None:
    access = case("ldr").access
    for body, expected in (("kill -BUS $$", True), ("kill -SEGV $$", False), ("exit 0", False)):
        program = fakes.write(tmp_path / "canary", f"#!/bin/sh\n{body}\n", mode=0o755)
        assert canary.dies(canary.emulated(program, runner_of(ARMV5)), access, 1, ARMV5) is expected


def test_a_process_dies_by_the_signal_at_the_first_offset_where_it_is_prescribed(tmp_path: Path) -> None:
    cases = canary.cases(runner_of(ARMV5))
    assert len(cases) > 50
    body = (
        "shift\n[ $# -le 200 ] || exit 1\n"
        "while [ $# -gt 0 ]; do case $1 in ldr) echo $1 $2 SIGSEGV;; ldrh) echo $1 2 SIGBUS;; str) echo $1 $2 lived;; "
        "ldm) echo $1 $2;; *) echo $1 $2 SIGBUS;; esac; shift 2; done"
    )
    program = fakes.write(tmp_path / "canary", f'#!/bin/sh\n[ "$1" = deaths ] || exit 1\n{body}\n', mode=0o755)
    perform = canary.emulated(program, runner_of(ARMV5))
    every = {one.access.name for one in cases if "signal" in one.prescribed}
    unknown = "not known, because the program that starts it ended with status 0"
    others = {"ldr": "SIGSEGV", "str": "lived", "ldrh": unknown, "ldm": unknown}
    assert canary.deaths(perform, cases) == dict.fromkeys(every, "SIGBUS") | others


def test_the_program_may_take_long_if_it_reports_each_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a slow machine took longer than the deadline for all accesses, and the remaining ones failed."""
    monkeypatch.setattr(canary, "RUN_SECONDS", 0.6)
    cases = [one for one in canary.cases(runner_of(ARMV5)) if "signal" in one.prescribed][:6]
    names = [one.access.name for one in cases]
    one = '[ $1 != "$STUCK" ] || exec sleep 60; sleep 0.6; echo $1 $2 SIGBUS; shift 2'
    seconds = ARMV5.deadline_seconds(canary.RUN_SECONDS)
    # The access that takes 0.6 s has five times as long; all six together have not.
    assert 2.8 < seconds < 3.2 < 0.6 * len(names)
    program = tmp_path / "canary"
    for stuck, count in (("", len(names)), (names[2], 2)):
        fakes.write(program, f"#!/bin/sh\nSTUCK={stuck}\nshift\nwhile [ $# -gt 0 ]; do {one}; done\n", mode=0o755)
        ends = canary.deaths(canary.emulated(program, runner_of(ARMV5)), cases)
        late = "not known, because the program that starts it did not end"
        assert ends == dict.fromkeys(names[:count], "SIGBUS") | dict.fromkeys(names[count:], late)


def test_the_program_gets_access_and_offset(tmp_path: Path) -> None:
    program = fakes.write(tmp_path / "canary", '#!/bin/sh\n[ "$1 $2" = "ldr 3" ] && kill -BUS $$\n', mode=0o755)
    assert canary.dies(canary.emulated(program, runner_of(ARMV5)), case("ldr").access, 3, ARMV5)


def test_an_emulators_command_line_is_pure() -> None:
    runner = Runner(
        target=fakes.target(),
        policy=SIGNAL,
        program=Path("/e/qemu-arm"),
        options=["-cpu", "arm926", "-L", "/root", "-alignment", "demand=arch"],
        records_faults=True,
    )
    expected = ["/e/qemu-arm", *runner.options, "-fault-log", "/r/f", "/b", "x"]
    assert expected == runner.command(Path("/b"), ["x"], Path("/r/f"))


def test_a_policy_is_translated_into_the_emulators_option() -> None:
    policies = CATALOG.policies
    assert alignment_option(policies["signal"]) == "demand=arch,assumed=16"
    assert alignment_option(policies["solaris-4s"]) == "demand=arch,assumed=4"
    assert alignment_option(policies["linux-arm64-compat"]) == "demand=arch,assumed=16,dword=fixup,multi=fixup"
    assert alignment_option(policies["linux-arm-1"]).startswith("demand=arch,assumed=16,report,half=ignore,")


def test_only_the_policy_is_replaced() -> None:
    options = ["-cpu", "arm926", "-alignment", "demand=none", "-L", "/root"]
    expected = ["-cpu", "arm926", "-alignment", "demand=arch,assumed=16", "-L", "/root"]
    assert expected == with_alignment(options, SIGNAL)
    assert with_alignment(["-L", "/root"], SIGNAL) == ["-L", "/root"]


def test_only_the_instruction_of_an_access_has_a_label_behind_it() -> None:
    text = canary.source(access_table.of_target(ARMV5))
    assert r'"ldr r2, [%0]\n\t" "plumb_access.perform_ldr.0:\n\t" "str r2, [%1]\n\t" : :' in text
    assert r'"ldr r2, [%1]\n\t" "str r2, [%0]\n\t" "plumb_access.perform_str.1:\n\t" : :' in text


def test_an_access_is_made_in_each_mode_and_state_that_its_target_has() -> None:
    accesses = {one.name: one for one in access_table.of_target(CATALOG.targets["armv7"]).accesses}
    assert accesses["ldr-pre-indexed"].code == ["sub r12, %0, #8", "ldr r2, [r12, #8]!", "str r2, [%1]"]
    assert "ldr-index" not in accesses
    assert "ldr-narrow-index-a32" not in accesses
    assert accesses["ldr-narrow-index"].attribute == 'target("thumb")'
    assert accesses["ldr-index-a32"].attribute == 'target("arm")'
    plain = {one.name for one in access_table.plain_accesses(CATALOG.targets["armv7"])}
    assert {"ldr", "vld1-hinted"} <= plain
    assert not {"ldr-pre-indexed", "ldr-a32"} & plain


@pytest.mark.parametrize(
    ("target", "policy", "words"),
    [
        ("armv5", "linux-arm-2", "repairs words, halfwords, doublewords, multiples; kills vfp accesses, swap accesses"),
        (
            "armv6",
            "linux-arm-4",
            "allows words, halfwords; kills doublewords, multiples, vfp accesses, swap accesses, exclusive accesses",
        ),
        (
            "armv5",
            "ignore",
            (
                "cuts the addresses of or rotates words, swap accesses; "
                "cuts the addresses of halfwords, doublewords, multiples, vfp accesses"
            ),
        ),
    ],
)
def test_what_a_machine_does_is_said_in_words(target: str, policy: str, words: str) -> None:
    machine = CATALOG.targets[target]
    runner = runner_of(machine, rules.policy_for(CATALOG.policies, policy, machine))
    every = canary.cases(runner)
    outcomes = {one.access.name: [str(outcome) for outcome in one.prescribed] for one in every}
    assert canary.in_words(every, outcomes, runner) == f"at misaligned addresses, this machine {words}"
