"""One factor multiplies the deadlines of a slow machine: slow programs start, and hanging ones are still found."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from harness.build import toolchain
from harness.build.helper_program import compiled
from harness.build.initramfs import Initramfs
from harness.build.kernel import Kernel
from harness.build.server_build import Builder
from harness.build.sources.source_tree import open_tree
from harness.build.workshop.build_plan import BuildPlan
from harness.cli import run_options
from harness.core import json_codec
from harness.core.cache import Cache
from harness.core.errors import ExitCode, InfrastructureError, UsageError
from harness.core.processes import process
from harness.core.processes.scheduling import UsableTime
from harness.core.processes.timeouts import LARGEST_MULTIPLIER, if_slow
from harness.core.target_model import DEFAULT_FAMILY
from harness.judge.merge import join
from harness.judge.reproducer import read_reproducer
from harness.plan.catalog import Catalog
from harness.plan.plan import make_plan
from harness.record import cell_events
from harness.run.server_process import Guest, StartError
from harness.run.servers.server_spec import ServerSpec
from harness.run.vm.machine import Machine
from harness.run.vm.qemu_process import QemuProcess
from harness.run.vm.vm_image import VmImage
from harness.workflows import cell_process
from harness.workflows.campaign import spread
from harness.workflows.campaign.engine.local_machines import LocalMachines
from harness.workflows.campaign.job import check_jobs, command_jobs
from harness.workflows.porting.attempt import attempt
from harness.workflows.workbench import Workbench
from tests.support import campaigns, cells, fakes, judgements
from tests.support.reproducers import reproducer as usual_reproducer
from tests.support.stored import StoredRun, concluded, reproducer

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.target_model import Target, Toolchain
    from harness.workflows.porting.attempt import Attempt
    from tests.support.fakes import Plumb

pytestmark = pytest.mark.costly

SLOW_SERVER = fakes.answering_server("time.sleep(1)")
"""A server that answers its first PING after a second."""


def patient(multiplier: float, *, slowdown: float = 1) -> Target:
    return msgspec.structs.replace(fakes.target(slowdown=slowdown), timeout_multiplier=multiplier)


def patient_tools(multiplier: float) -> Toolchain:
    return msgspec.structs.replace(fakes.toolchain(), timeout_multiplier=multiplier)


@pytest.mark.parametrize("slowdown", [1, 3, 15])
def test_every_deadline_of_a_target_is_multiplied(slowdown: float) -> None:
    usual, slow = patient(1, slowdown=slowdown), patient(20, slowdown=slowdown)
    for name in ("deadline_seconds", "whole_deadline_seconds", "host_deadline_seconds"):
        assert getattr(slow, name)(10.0) == pytest.approx(20 * getattr(usual, name)(10.0)), name


def test_the_catalog_gives_the_factor_to_its_targets_and_toolchains() -> None:
    catalog = Catalog(timeout_multiplier=20)
    families = [catalog, *(catalog.through(family, "/compilers") for family in catalog.families.values())]
    for each in families:
        assert each.timeout_multiplier == 20
        assert {target.timeout_multiplier for target in each.targets.values()} == {20}
        assert {tools.timeout_multiplier for tools in each.toolchains.values()} == {20}


def test_by_default_nothing_is_multiplied() -> None:
    catalog = run_options.workbench(DEFAULT_FAMILY, offline=True).catalog
    assert catalog.timeout_multiplier == 1
    assert {target.timeout_multiplier for target in catalog.targets.values()} == {1}
    assert {tools.timeout_multiplier for tools in catalog.toolchains.values()} == {1}


def test_the_option_sets_the_workbenchs_factor() -> None:
    run = msgspec.structs.replace(run_options.RunOptions.usual(folder=None, seed=1), timeout_multiplier=20.0)
    assert run.workbench().catalog.timeout_multiplier == 20


@pytest.mark.parametrize("multiplier", ["0", "0.5", "1001", "much"])
def test_no_deadline_becomes_shorter_or_endless(plumb: Plumb, multiplier: str) -> None:
    code, _, err = plumb("check", "--timeout-multiplier", multiplier)
    assert (code, "--timeout-multiplier" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize(("own", "other", "longest"), [(1, 20, 20), (20, 1, 20), (2, 3, 3)])
def test_a_workbench_waits_at_least_as_long_as_the_larger_factor(own: float, other: float, longest: float) -> None:
    bench = Workbench.default(timeout_multiplier=own).with_timeouts(other)
    assert bench.catalog.timeout_multiplier == longest
    assert bench.catalog.targets["armv5"].timeout_multiplier == longest


@pytest.mark.parametrize("place", ["targets/armv5.toml", "toolchains/gcc-arm-linux-gnueabi.toml"])
def test_no_file_sets_the_factor(tmp_path: Path, place: str) -> None:
    usual = Catalog()
    for folder in ("targets", "toolchains"):
        for path in (usual.root / folder).glob("*.toml"):
            text = path.read_text("utf-8")
            head = "timeout_multiplier = 2\n" if place == f"{folder}/{path.name}" else ""
            fakes.write(tmp_path / folder / path.name, head + text)
    catalog = Catalog(tmp_path, usual.package)
    with pytest.raises(UsageError, match="key 'timeout_multiplier' cannot be set in a file"):
        _ = catalog.targets, catalog.toolchains


def guest_of(folder: Path, script: str, target: Target) -> Guest:
    build = fakes.build(folder)
    fakes.write(build.server_binary, script, mode=0o755)
    spec = ServerSpec(build=build, version=(7, 0, 15))
    return Guest(spec, fakes.unemulated(target), folder / "guest-1", sockets=folder)


def test_a_server_that_starts_slowly_hangs_without_the_factor_and_starts_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.server_process.START_SECONDS", 0.3)
    with pytest.raises(StartError) as refused:
        guest_of(tmp_path, SLOW_SERVER, patient(1)).__enter__()
    assert (refused.value.end, refused.value.detail) == ("hang", cell_events.NO_PONG)
    with guest_of(tmp_path, SLOW_SERVER, patient(200)) as guest:
        assert guest.alive()


def test_a_server_that_never_answers_also_hangs_with_the_factor_but_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.server_process.START_SECONDS", 0.2)
    began = time.monotonic()
    with pytest.raises(StartError) as refused:
        guest_of(tmp_path, "#!/bin/sh\nsleep 600\n", patient(5)).__enter__()
    assert (refused.value.end, refused.value.detail) == ("hang", cell_events.NO_PONG)
    assert time.monotonic() - began >= 1


def test_the_factor_applies_to_a_servers_reply_and_to_a_probe(tmp_path: Path) -> None:
    usual, slow = (guest_of(tmp_path, "", patient(each, slowdown=15)) for each in (1, 20))
    assert (usual.deadline_seconds, slow.deadline_seconds) == (75, 1500)
    assert (usual.probe_seconds, slow.probe_seconds) == (1, 20)


def image_of(folder: Path, multiplier: float) -> VmImage:
    """A machine whose emulator creates no control socket."""
    spec = Catalog().kernels["versatile"]
    silent = msgspec.structs.replace(spec.machine, emulator="qemu-system-silent")
    kernel = Kernel(
        spec=msgspec.structs.replace(spec, machine=silent), key="", image=folder / "image", device_tree=None, seconds=0
    )
    archive = Initramfs(key="", archive=folder / "archive", places={})
    return VmImage(kernel=kernel, initramfs=archive, timeout_multiplier=multiplier)


def test_the_factor_applies_to_an_emulated_machine(plain_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.run.vm.qemu_process.SOCKET_SECONDS", 0.2)
    fakes.write(plain_path / "bin" / "qemu-system-silent", "#!/bin/sh\nsleep 600\n", mode=0o755)
    fakes.put_on_path(plain_path / "bin", monkeypatch)
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match="it has made no control socket"):
        Machine(image_of(plain_path, 5), plain_path / "machine", sockets=plain_path).__enter__()
    assert time.monotonic() - began >= 1


def test_the_factor_applies_to_an_answer_of_a_machines_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []

    class Init:
        def request(self, _verb: str, _payload: bytes, *, deadline_seconds: float) -> bytes:
            waited.append(deadline_seconds)
            return b""

    monkeypatch.setattr(QemuProcess, "channel", Init())
    for multiplier in (1, 20):
        Machine(image_of(tmp_path, multiplier), tmp_path, sockets=tmp_path).request("ping")
    assert waited == [30, 600]


def test_the_factor_applies_to_a_cell_and_not_to_the_users_own_limit(tmp_path: Path) -> None:
    def seconds(multiplier: float, limit_seconds: float | None = None) -> float:
        spec = cells.spec_of("bitops", tmp_path, fakes.unemulated(patient(multiplier)))
        return cell_process.deadline_seconds(msgspec.structs.replace(spec, limit_seconds=limit_seconds))

    assert seconds(20) == 20 * seconds(1) == 20 * cell_process.CELL_SECONDS["quick"]
    margin = cell_process.MARGIN_SECONDS
    assert [seconds(each, 5e5) for each in (1, 20)] == [5e5 + margin, 5e5 + 20 * margin]


def test_a_late_cell_suggests_a_command(tmp_path: Path) -> None:
    late = process.Result(["pytest"], -9, b"", expired=True, seconds=8400)
    problem = cell_process.cell_problem(late, tmp_path, multiplier=20)
    assert problem == "it did not end within 8400 s; on a slow machine, --timeout-multiplier 80"


def test_the_suggested_factor_is_valid_for_the_option() -> None:
    assert if_slow(1).endswith(" 4")
    assert if_slow(LARGEST_MULTIPLIER).endswith(f" {LARGEST_MULTIPLIER}")


SLEEPING = """#!/bin/sh
case $1 in --version | -print-*) echo 'fake-gcc 1.0'; exit 0 ;; esac
sleep 2
for last; do :; done
echo program >"$last"
"""


def test_the_factor_applies_to_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.build.helper_program.COMPILE_SECONDS", 0.2)
    toolchain.version.cache_clear()
    fakes.write(tmp_path / "bin" / "fake-gcc", SLEEPING, mode=0o755)
    fakes.put_on_path(tmp_path / "bin", monkeypatch)
    source = fakes.write(tmp_path / "program.c", "int main(void);\n")

    def make(multiplier: float) -> Path:
        return compiled(
            Cache(tmp_path / "cache"),
            patient_tools(multiplier),
            title="the program",
            kind="programs",
            owner="armv5",
            file="program",
            flags=[],
            sources=[source],
        )

    with pytest.raises(InfrastructureError) as late:
        make(1)
    assert (late.value.because, late.value.remedy) == ("it did not end within 0.2 s", if_slow(1))
    assert make(300).is_file()


def test_a_late_build_is_blamed_on_the_machine_and_not_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.build.workshop.build_directory.BUILD_SECONDS", 0.2)
    toolchain.version.cache_clear()
    fakes.fake_compiler(tmp_path / "bin", monkeypatch)
    path = fakes.server_tree(tmp_path / "redis-7.0.15")
    fakes.write(path / "src" / "Makefile", "redis-server:\n\tsleep 2\n\ttouch redis-server\n")
    tree = open_tree(path)

    def build(multiplier: float) -> Path:
        plan = BuildPlan(tree=tree, target=fakes.target(), tools=patient_tools(multiplier), optimisation="O2")
        return Builder(Cache(tmp_path / "cache"), fakes.quiet()).build(plan).server_binary

    with pytest.raises(InfrastructureError, match=r"the build of .* for armv5 did not end within 0.2 s") as late:
        build(1)
    assert late.value.remedy == if_slow(1)
    assert build(300).is_file()


def test_a_hang_is_a_finding_whatever_the_factor_and_a_note_suggests_a_command(tmp_path: Path) -> None:
    remarks = []
    for multiplier in (1.0, 20.0):
        run = StoredRun(tmp_path / f"run-{multiplier:g}")
        run.timeout_multiplier = multiplier
        run.canary("armv5")
        run.guest("armv5", "bitops", "guest-1", end="hang", detail="no reply within 75 s", test="test_bitop")
        run.test("armv5", "bitops", "test_bitop", outcome="failed", message="TimeoutError", guest="guest-1")
        judgement, code = concluded(tmp_path, run)
        (finding,) = judgement.findings
        assert (judgement.verdict, code, finding.kind) == ("FAIL", ExitCode.FINDINGS, "hang")
        assert judgement.timeout_multiplier == reproducer(finding).timeout_multiplier == multiplier
        remarks += [remark for remark in judgement.remarks if "did not answer in time" in remark]
    assert remarks == [
        f"servers did not answer in time on armv5; {if_slow(multiplier)} tells whether they hang"
        for multiplier in (1, 20)
    ]


def test_a_crash_is_not_attributed_to_the_machines_speed(tmp_path: Path) -> None:
    run = StoredRun(tmp_path / "run")
    run.canary("armv5")
    run.guest("armv5", "bitops", "guest-1", end="signal", detail="killed by SIGSEGV", test="test_bitop")
    run.test("armv5", "bitops", "test_bitop", outcome="failed", message="closed by the server", guest="guest-1")
    assert not [remark for remark in concluded(tmp_path, run)[0].remarks if "--timeout-multiplier" in remark]


def test_joined_runs_of_a_fast_and_a_slow_machine_record_the_larger_factor() -> None:
    fast = judgements.judgement()
    slow = msgspec.structs.replace(fast, run="runs/slow", timeout_multiplier=20.0)
    assert join([fast, slow]).timeout_multiplier == join([slow, fast]).timeout_multiplier == 20


def test_the_factor_applies_to_a_campaigns_jobs(tmp_path: Path) -> None:
    def jobs(catalog: Catalog) -> list[tuple[str, float]]:
        plan = make_plan(catalog, targets=("armv5",), server="redis-7.0.15", suites=("bitops",), tier="quick")
        request = fakes.quick_request(plan, server="redis-7.0.15", known=tmp_path, run=tmp_path)
        found = check_jobs(catalog, request, version="1", known="")
        return [(job.words[job.words.index("--timeout-multiplier") + 1], job.deadline_seconds) for job in found]

    (usual,), (slow,) = jobs(Catalog()), jobs(Catalog(timeout_multiplier=20))
    assert (usual[0], slow[0]) == ("1", "20")
    assert slow[1] == 20 * usual[1]


def test_the_factor_applies_to_the_jobs_of_commands() -> None:
    def seconds(multiplier: float) -> float:
        (job,) = command_jobs({"one": ["mutate"]}, expected_seconds=60, version="1", timeout_multiplier=multiplier)
        return job.deadline_seconds

    assert seconds(20) == 20 * seconds(1)


def test_the_factor_applies_to_the_scheduler_of_a_local_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.workflows.campaign.engine.local_machines.READY_SECONDS", 0.1)
    with pytest.raises(InfrastructureError, match="scheduler does not start") as late:
        LocalMachines(tmp_path / "usual", 0).__enter__()
    assert late.value.remedy == if_slow(1)
    with LocalMachines(tmp_path / "slow", 0, timeout_multiplier=900) as local:
        assert local.scheduler.pid


def test_the_factor_applies_to_waiting_for_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.workflows.campaign.spread.PATIENCE_SECONDS", 0.2)
    campaign = campaigns.begin(tmp_path / "campaign", campaigns.standin_jobs(1))
    with LocalMachines(tmp_path / "cluster", 0) as local:
        began = time.monotonic()
        with pytest.raises(InfrastructureError, match="no worker took a job within"):
            spread.carry_out(fakes.quiet(), campaign, local.cluster, timeout_multiplier=20)
        assert time.monotonic() - began >= 4


# An emulator that takes a second to load its state.
LOADING = """#!{python} -SI
import json, socket, sys, time

def listener(option):
    found = next(word for word in sys.argv if option in word).partition(option)[2].partition(",")[0]
    made = socket.socket(socket.AF_UNIX)
    made.bind(found)
    made.listen()
    return made

control = listener("id=control,path=")
monitor, _ = listener("unix:").accept()
stream = monitor.makefile("rwb", 0)
stream.write(b'{{"QMP": {{}}}}\\n')
began = None
for line in stream:
    command = json.loads(line)["execute"]
    began = time.monotonic() if command == "migrate-incoming" else began
    status = "completed" if began is not None and time.monotonic() - began > 1 else "active"
    stream.write(json.dumps({{"return": {{"status": status}}}}).encode() + b"\\n")
"""


def test_the_factor_applies_to_loading_a_machines_saved_state(
    plain_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.run.vm.qemu_process.MIGRATION_SECONDS", 0.2)
    script = LOADING.format(python=fakes.PYTHON)
    fakes.write(plain_path / "bin" / "qemu-system-silent", script, mode=0o755)
    fakes.put_on_path(plain_path / "bin", monkeypatch)

    def computer(multiplier: float) -> QemuProcess:
        image = msgspec.structs.replace(image_of(plain_path, multiplier), snapshot=plain_path / "state")
        return QemuProcess(image, plain_path / "machine", lambda _: None, sockets=plain_path, ports=())

    late, patient = computer(1), computer(100)
    try:
        with pytest.raises(InfrastructureError, match=r"migration: active, and not completed within 0.2 s"):
            late.start()
        patient.start()
        assert patient.alive()
    finally:
        late.stop()
        patient.stop()


SLOW_STEPS = """#!/bin/sh
case "$*" in *--version* | *-print-*) echo 'fake-gcc 1.0'; exit 0 ;; *{slow}*) sleep 2 ;; esac
for last; do :; done
echo "$@" >>"{log}"
"""


@pytest.mark.parametrize(("step", "slow"), [("PREPROCESS_SECONDS", "-dD"), ("CONFIGURE_SECONDS", "configuring")])
def test_the_factor_applies_to_each_step_of_a_porting_report(
    plain_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, slow: str
) -> None:
    monkeypatch.setattr(f"harness.workflows.porting.attempt.{step}", 0.2)
    toolchain.version.cache_clear()
    fakes.fake_compiler(plain_path / "bin", monkeypatch)
    script = SLOW_STEPS.format(slow=slow, log=plain_path / "calls")
    fakes.write(plain_path / "bin" / "fake-gcc", script, mode=0o755)
    path = fakes.server_tree(plain_path / "redis-7.0.15")
    compiles = "redis-server:\n\t$(CC) -c server.c -o server.o\n\ttouch redis-server\n"
    fakes.write(path / "src" / "Makefile", compiles)
    configure = "#!/bin/sh\nfor one; do case $one in CC=*) ${one#CC=} configuring ;; esac; done\n"
    fakes.write(path / "deps" / "jemalloc" / "configure", configure, mode=0o755)
    tree = open_tree(path)

    def tried(multiplier: float) -> Attempt:
        plan = BuildPlan(tree=tree, target=fakes.target(), tools=patient_tools(multiplier), optimisation="O2")
        return attempt(Builder(Cache(plain_path / "cache"), fakes.quiet()), plan)

    with pytest.raises(InfrastructureError, match=r"did not end within 0.2 s") as late:
        tried(1)
    assert late.value.remedy == if_slow(1)
    assert tried(300).configured.result == "ok"
    assert slow in (plain_path / "calls").read_text("utf-8")


@pytest.mark.parametrize("multiplier", [0.5, LARGEST_MULTIPLIER + 1])
def test_a_reproducer_from_elsewhere_cannot_shorten_or_lengthen_deadlines_without_bounds(
    tmp_path: Path, multiplier: float
) -> None:
    path = tmp_path / "reproducer.json"
    path.write_bytes(json_codec.encode(usual_reproducer(timeout_multiplier=2.0)))
    assert read_reproducer(str(path)).timeout_multiplier == 2
    text = path.read_text("utf-8")
    path.write_text(text.replace('"timeout_multiplier":2.0', f'"timeout_multiplier":{multiplier}'), "utf-8")
    with pytest.raises(UsageError, match="not a reproducer"):
        read_reproducer(str(path))


def test_a_cell_that_runs_when_the_time_of_the_whole_run_is_over_is_ended_and_says_so(tmp_path: Path) -> None:
    spec = cells.spec_of("sds", tmp_path / "cell", fakes.unemulated(Catalog().targets["armv5"]))
    record = cell_process.run_cell(spec, fakes.quiet(), until=time.monotonic() + 0.01)
    assert record.problem == cell_process.OUT_OF_TIME
    assert record.problem_kind == "deadline"


def test_a_cell_whose_result_is_no_longer_of_use_is_ended_and_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UsableTime, "SAMPLE_SECONDS", 0.01)
    spec = cells.spec_of("sds", tmp_path / "cell", fakes.unemulated(Catalog().targets["armv5"]))
    record = cell_process.run_cell(spec, fakes.quiet(), needless=lambda: "another failed")
    assert (record.problem, record.problem_kind) == ("another failed", "absent")
