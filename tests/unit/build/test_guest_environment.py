"""Environments: the targets that support them, the command line, and the calls that Debian's service allows."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build.emulators.runner import Runner
from harness.build.environments import guest_environment, system_call_filter
from harness.build.environments.system_call_filter import ServiceFilter
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import UsageError
from harness.core.strict_toml import read_toml
from harness.judge.findings import judge
from harness.judge.reproducer import Reproducer
from harness.plan.catalog import Catalog
from harness.record import stored_run
from harness.run.environments import environment_canary
from tests.support import fakes
from tests.support.reproducers import reproducer
from tests.support.stored import StoredRun
from tools import service_filter

if TYPE_CHECKING:
    from harness.core.model import Flavour, GuestEnvironment

CATALOG = Catalog()
LISTING = """@default
    # System calls that are always permitted
    exit
    read

@file
    open
    @sync

@sync
    fsync

@resources
    nice
    read
"""


@pytest.mark.parametrize(
    ("environment", "target", "flavour", "why"),
    [
        ("musl-stack", "native", "pinned", "the oracle is one of them"),
        ("debian-service", "native-asan", "pinned", "directly on the host"),
        ("musl-stack", "armv5-kernel", "pinned", "it is a machine with its own kernel"),
        ("debian-service", "armv5", "distro", "does not filter system calls"),
        ("debian-service", "sparc64", "pinned", "which has arm64, armel, armhf, mips64el, mipsel, ppc64el, s390x"),
        ("debian-service", "riscv64", "pinned", "redis-server.service of Debian bookworm"),
    ],
)
def test_an_impossible_environment_is_refused_with_the_reason(
    environment: GuestEnvironment, target: str, flavour: Flavour, why: str
) -> None:
    named = CATALOG.targets[target]
    with pytest.raises(UsageError, match=f"environment '{environment}' is not available on {target}") as refused:
        guest_environment.check_supported(environment, named, CATALOG.toolchain_of(named), flavour)
    assert why in str(refused.value)


def test_nothing_is_preloaded_into_a_program_that_contains_musl(tmp_path: Path) -> None:
    static = msgspec.structs.replace(CATALOG.toolchain_of(CATALOG.targets["armv5"]), is_static=True)
    runner = guest_environment.surrounded(Cache(tmp_path), emulated(), static, "musl-stack")
    assert (runner.guest_environment, runner.preloads) == ("musl-stack", ())


@pytest.mark.parametrize(
    ("environment", "target"), [("usual", "native"), ("musl-stack", "sparc64"), ("debian-service", "armv7")]
)
def test_others_are_not(environment: GuestEnvironment, target: str) -> None:
    named = CATALOG.targets[target]
    guest_environment.check_supported(environment, named, CATALOG.toolchain_of(named), "pinned")


def emulated(target: str = "armv5") -> Runner:
    return Runner(
        target=CATALOG.targets[target],
        policy=CATALOG.policies["signal"],
        program=Path("/qemu-arm"),
        options=["-L", "/root"],
        records_faults=True,
    )


def test_an_environments_object_is_preloaded_together_with_the_programs_own() -> None:
    runner = msgspec.structs.replace(emulated(), preloads=(Path("/cache/thread-stack.so"),))
    both = runner.command(Path("/server"), [], preload=Path("/cache/guard.so"))
    assert both[3:5] == ["-E", "LD_PRELOAD=/cache/thread-stack.so:/cache/guard.so"]
    assert runner.command(Path("/server"), [])[3:5] == ["-E", "LD_PRELOAD=/cache/thread-stack.so"]
    assert "-E" not in emulated().command(Path("/server"), [])


def test_the_emulator_gets_the_calls_of_the_targets_architecture(tmp_path: Path) -> None:
    named = CATALOG.targets["armv5"]
    runner = guest_environment.surrounded(Cache(tmp_path), emulated(), CATALOG.toolchain_of(named), "debian-service")
    assert runner.guest_environment == "debian-service"
    assert runner.options[:-1] == ["-L", "/root", "-system-calls"]
    lines = Path(runner.options[-1]).read_text("ascii").splitlines()
    assert {"3 read allow", "241 sched_setaffinity kill", "341 arm_sync_file_range kill"} <= set(lines)
    assert len({line.split()[0] for line in lines}) == len(lines)


def test_debians_service_allows_synchronising_a_part_of_a_file_except_on_32_bit_arm() -> None:
    service = system_call_filter.read_filter()
    words = {"sync_file_range", "sync_file_range2", "arm_sync_file_range"}
    by_architecture = {
        name: {tuple(line.split()[1:]) for line in service.lines(name) if line.split()[1] in words}
        for name in service.architectures
    }
    assert {name for name, calls in by_architecture.items() if len(calls) != 1} == set()
    assert {name: word for name, ((_, word),) in by_architecture.items() if word == "kill"} == {
        "armel": "kill",
        "armhf": "kill",
    }


def test_the_canarys_forbidden_call_is_really_forbidden() -> None:
    service = system_call_filter.read_filter()
    assert set(service.killed[environment_canary.FORBIDDEN]) == set(service.architectures.values())
    assert "getppid" in service.allowed
    assert set(service.allowed).isdisjoint(service.killed)


def test_a_units_allowed_calls_are_computed_as_in_systemd() -> None:
    groups = service_filter.groups_in(LISTING)
    assert groups["@file"] == ["open", "@sync"]
    assert service_filter.allowed_by(["@file"], groups) == {"exit", "read", "open", "fsync"}
    assert service_filter.allowed_by(["@file", "~ @resources @sync"], groups) == {"exit", "open"}
    with pytest.raises(AssertionError, match="does not list what is allowed"):
        service_filter.allowed_by(["~@resources"], groups)


def test_the_written_filter_is_read_again(tmp_path: Path) -> None:
    service = ServiceFilter(
        unit="a unit",
        packages={"systemd": "1"},
        directives=["@a", "~ @b"],
        architectures={"armel": "arm"},
        allowed={"read": {"arm": 3}},
        killed={"nice": {"arm": 34, "s390x": 34}},
    )
    written = fakes.write(tmp_path / "filter.toml", service_filter.text_of(service))
    assert read_toml(written, ServiceFilter) == service
    assert service.lines("armel") == ["3 read allow", "34 nice kill"]


def test_the_published_filter_is_current() -> None:
    service = system_call_filter.read_filter()
    assert system_call_filter.FILE.read_text("utf-8") == service_filter.text_of(service)


@pytest.mark.parametrize("environment", ["musl-stack", "debian-service"])
def test_each_environment_must_kill_some_program_and_the_usual_one_none(environment: GuestEnvironment) -> None:
    expected = dict(environment_canary.expectations(environment))
    assert environment_canary.LIVED in expected.values()
    assert any(outcome.startswith("killed by") for outcome in expected.values())
    assert {outcome for _, outcome in environment_canary.expectations("usual")} == {environment_canary.LIVED}


def test_a_reproducer_without_an_environment_uses_the_usual_one() -> None:
    old = reproducer()
    text = json_codec.decode(json_codec.encode(old), dict)
    assert text.pop("environment") == "usual"
    assert json_codec.decode(json_codec.encode(text), Reproducer) == old


def test_a_forbidden_call_is_a_finding_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.fake_symbols(tmp_path / "symbols", monkeypatch)
    run = StoredRun(tmp_path / "run")
    run.canary("armv5")
    for number, (call, code) in enumerate((("arm_sync_file_range", 341), ("", 999)), 1):
        record = fakes.fault(
            number=signal.SIGSYS,
            code=1,
            pc=run.place("armv5", "rioFileWrite"),
            access="",
            access_class="",
            access_bytes=0,
        )
        guest = f"guest-{number}"
        run.fault("armv5", "bitops", guest, msgspec.structs.replace(record, call=call, call_number=code))
        run.test("armv5", "bitops", f"t{number}", outcome="failed", guest=guest, faults=(0, 1), transcript=b"x")
        run.guest("armv5", "bitops", guest, end="signal", detail="killed by SIGSYS", test=f"t{number}")
    findings, _, _ = judge(stored_run.read(run.finish()))
    assert {one.id: one.title for one in findings} == {
        "forbidden-call-arm_sync_file_range": "the system call arm_sync_file_range is forbidden",
        "forbidden-call-system-call-999": "the system call system-call-999 is forbidden",
    }
    for finding in findings:
        (witness,) = finding.witnesses
        assert (finding.kind, finding.origin, witness.instruction) == ("forbidden-call", "kernel", "")
        assert [frame.function for frame in witness.backtrace[1:]] == ["rioFileWrite"]
