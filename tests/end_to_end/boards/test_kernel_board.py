"""A whole separate machine is the board: a real kernel of the kernel tier, which ssh reaches over its emulated network.

Its own kernel raises SIGBUS, or repairs the accesses and counts them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.build import initramfs
from harness.core.cache import Cache
from harness.core.errors import ExitCode, InfrastructureError
from harness.core.processes import process
from harness.run.vm.machine import Machine
from harness.run.vm.snapshot import snapshot
from harness.run.vm.vm_image import VmImage
from tests.end_to_end.kernel.test_machine import built
from tests.end_to_end.support import machine_programs, machines
from tests.end_to_end.support.board_guests import guest_on
from tests.end_to_end.support.plumb_runs import document, run, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.build.kernel import Kernel
    from harness.run.boards.board_guest import BoardGuest

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow(
        instead="test_ssh_board.py, with the emulator as the machine's processor; tests/unit/run/test_board_keeper.py"
    ),
]

SERVERS = ("redis-3.2.6", "redis-7.0.15")
"""What runs there: the archive has their libraries."""
WRONG_RESULT = "wrong-result-protocol_server.testsuite_server_2.4"
"""A finding of redis-7.0.15."""
VERSATILE, SUN4U, MALTA = ("versatile", "armv5"), ("sun4u", "sparc64"), ("malta", "mips")
"""A kernel, and the target whose programs it runs."""
SSH_PORT = 22
FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "/etc/group": "root:x:0:\n",
    "/etc/shells": "/bin/sh\n",
}


def archive_with_ssh(kernel: Kernel, target: str) -> initramfs.Initramfs:
    """A root file system with a server of ssh, a shell, and the libraries of servers."""
    bench = machines.quiet_workbench()
    servers = {f"/srv/{name}": machines.build(bench.open_server(name), target).server_binary for name in SERVERS}
    places = {**initramfs.with_libraries(servers, machines.toolchain_of(target)), **machine_programs.of(target)}
    init = initramfs.compile_init(bench.cache, machines.CATALOG.toolchains[kernel.spec.toolchain])
    return initramfs.assemble(bench.cache, init, places, memory_bytes=kernel.spec.machine.memory_mib << 20)


@pytest.fixture(params=[VERSATILE], ids=lambda kind: kind[0])
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The machine of a test, ARMv5's unless it says otherwise."""
    found: tuple[str, str] = request.param
    return found


on_both = pytest.mark.parametrize("kind", [VERSATILE, SUN4U], ids=lambda kind: kind[0], indirect=True)


@pytest.fixture
def computer(kind: tuple[str, str], tmp_path: Path) -> Iterator[Machine]:
    kernel = built(kind[0])
    archive = archive_with_ssh(kernel, kind[1])
    with tempfile.TemporaryDirectory(prefix="plumb-") as sockets:
        can_resume = kernel.spec.machine.snapshots
        state = snapshot(Cache.default(), kernel, archive, sockets=Path(sockets)) if can_resume else None
        image = VmImage(kernel=kernel, initramfs=archive, snapshot=state)
        with Machine(image, tmp_path / "machine", sockets=Path(sockets), ports=(SSH_PORT,)) as machine:
            yield machine


@pytest.fixture
def board(kind: tuple[str, str], computer: Machine, tmp_path: Path) -> Path:
    """The board's file. Everything there runs as root."""

    def there(*words: str) -> str:
        ran = computer.run(words, deadline_seconds=120, traced=False)
        assert ran.end is not None, ran
        assert ran.end.code == 0, ran
        return ran.output.decode()

    process.run_successfully(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "user"], deadline_seconds=60, problem="no key"
    )
    files = {**FILES, "/root/.ssh/authorized_keys": (tmp_path / "user.pub").read_text("utf-8")}
    for place, content in files.items():
        computer.write(place, content.encode())
    there("/bin/busybox", "--install", "-s", "/bin")
    said = there("/bin/dropbearkey", "-t", "ed25519", "-f", "/run/hostkey")
    key = next(line for line in said.splitlines() if line.startswith("ssh-ed25519"))
    environment = {"PATH": "/bin", "HOME": "/root"}
    words = ["/bin/dropbear", "-F", "-E", "-r", "/run/hostkey", "-p", str(SSH_PORT)]
    computer.start(words, output="/run/dropbear.log", environment=environment, traced=False)
    address, port = computer.endpoint(SSH_PORT)
    (tmp_path / "known").write_text(f"[{address}]:{port} {key}\n", "utf-8")
    (tmp_path / "config").write_text(
        f"Host machine\nHostName {address}\nPort {port}\nUser root\nIdentityFile {tmp_path}/user\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {tmp_path}/known\nGlobalKnownHostsFile none\nBatchMode yes\nExitOnForwardFailure yes\n",
        "utf-8",
    )
    login = ["ssh", "-F", str(tmp_path / "config")]
    # Its server forwards no Unix sockets.
    way = [*login, "-N", "-L", "{port here}:127.0.0.1:{port there}", "machine"]
    path = tmp_path / "board.toml"
    keys = {"start": [*login, "machine"], "reach": way, "target": kind[1]}
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()), "utf-8")
    return path


def left(computer: Machine) -> list[str]:
    """What a run has left there: folders, and processes beside the server of ssh."""
    find = ["/bin/find", "/tmp", "-name", "plumbline-*"]  # noqa: S108 - a folder of the guest, not of the host
    folders = computer.run(find, deadline_seconds=60, traced=False)
    processes = [line for line in computer.processes() if line.split()[3] not in {"init", "dropbear"}]
    return [*folders.output.decode().split(), *processes]


@on_both
def test_each_step_of_reaching_it_works(board: Path, computer: Machine) -> None:
    finished = run("board", board)
    assert finished.returncode == ExitCode.PASS, finished.stdout
    assert left(computer) == []


def test_a_server_dies_there_of_sigbus_and_the_repaired_accesses_are_counted(
    board: Path, computer: Machine, tmp_path: Path
) -> None:
    computer.set_alignment(2)
    words = ["check", "--board", board, "--server", "redis-3.2.6", "--suite", "bitops", "--test", "bitpos_finds"]
    finished = run(*words, "--json", "--run", tmp_path / "signal")
    assert finished.returncode == ExitCode.FINDINGS, finished.stdout
    found = document(finished)
    assert "alignment-redisBitpos-load" in {one["id"] for one in found["findings"]}
    (canaries,) = [cell["reason"] for cell in found["cells"] if cell["suite"] == "canary"]
    assert canaries.endswith("this machine kills words, halfwords, doublewords, multiples, vfp accesses, swap accesses")
    assert "2 (fixup)" in computer.alignment(), "the mode is not put back"
    assert left(computer) == []
    found = document(run(*words, "--json", "--policy", "fixup", "--run", tmp_path / "fixup"))
    (repaired,) = found["findings"]
    assert repaired["kind"] == "alignment-repaired"
    assert "word" in repaired["title"]
    assert left(computer) == []


@pytest.mark.parametrize("kind", [MALTA], ids=["malta"], indirect=True)
def test_a_mips_kernel_kills_in_one_mode_and_counts_in_another(board: Path, computer: Machine, tmp_path: Path) -> None:
    """One canary is not as on silicon: QEMU's SC without an LL does not look at its address."""
    computer.set_alignment(0)
    words = ["check", "--board", board, "--server", "redis-3.2.6", "--suite", "bitops", "--test", "bitpos_finds"]
    found = document(run(*words, "--json", "--run", tmp_path / "signal"))
    (canaries,) = [cell["reason"] for cell in found["cells"] if cell["suite"] == "canary"]
    assert "1 canaries misbehaved: AssertionError: sc-unpaired on mips" in canaries
    titles = [one["title"] for one in found["findings"]]
    assert any(title.endswith("killed by SIGBUS") for title in titles), titles
    assert computer.alignment().strip() == "0", "the mode is not put back"
    found = document(run(*words, "--json", "--policy", "fixup", "--run", tmp_path / "fixup"))
    assert {one["kind"] for one in found["findings"]} == {"alignment-repaired"}
    assert left(computer) == []


SECONDS = 300.0
MODE, MODE_BEFORE = "4 (signal)", "2 (fixup)"


def test_the_mode_is_put_back_when_plumbline_is_killed(board: Path, computer: Machine, tmp_path: Path) -> None:
    computer.set_alignment(2)
    words = ["--board", board, "--server", "redis-3.2.6", "--suite", "bitops", "--run", tmp_path / "run"]
    with running("check", *words) as plumb:
        assert wait_for(lambda: MODE in computer.alignment(), seconds=SECONDS)
        os.killpg(plumb.pid, signal.SIGKILL)
    assert wait_for(lambda: MODE_BEFORE in computer.alignment(), seconds=SECONDS)
    assert wait_for(lambda: left(computer) == [], seconds=SECONDS), left(computer)


def why_unknown(board: Path, folder: Path) -> str:
    """The cells of a check that says nothing about the server."""
    words = ["--server", "redis-3.2.6", "--suite", "bitops", "--test", "bitpos_finds", "--run", folder]
    found = document(run("check", "--board", board, *words, "--json"))
    assert {cell["verdict"] for cell in found["cells"]} == {"UNKNOWN"}
    assert found["findings"] == []
    return json.dumps(found["cells"])


def test_a_full_disk_and_a_wrong_key_say_nothing_about_the_server(
    board: Path, computer: Machine, tmp_path: Path
) -> None:
    words = ["/bin/mount", "-o", "remount,size=256k", "/tmp"]  # noqa: S108 - a folder of the guest, not of the host
    assert computer.run(words, deadline_seconds=60, traced=False).output == b""
    assert "cannot be written there" in why_unknown(board, tmp_path / "full")
    assert left(computer) == []
    (tmp_path / "known").write_text("", "utf-8")
    assert "Host key verification failed" in why_unknown(board, tmp_path / "key")


def test_a_machine_that_stands_still_or_is_gone_says_nothing_about_the_server(
    board: Path, computer: Machine, tmp_path: Path
) -> None:
    with guest_on(board, tmp_path, "redis-3.2.6") as guest:
        os.kill(computer.emulator_pid, signal.SIGSTOP)
        with pytest.raises(InfrastructureError, match="was lost") as raised:
            guest.refuse_silence()
        assert "does not answer" in raised.value.because
        os.kill(computer.emulator_pid, signal.SIGCONT)
        guest.refuse_silence()
        os.kill(computer.emulator_pid, signal.SIGKILL)
        assert wait_for(lambda: is_lost(guest), seconds=SECONDS)
    assert "was lost" in why_unknown(board, tmp_path / "gone")


def test_a_board_that_reboots_in_the_middle_of_a_run_is_unknown(board: Path, computer: Machine, tmp_path: Path) -> None:
    words = ["--board", board, "--server", "redis-3.2.6", "--suite", "bitops", "--run", tmp_path / "run", "--json"]
    with running("check", *words) as plumb:
        assert wait_for(lambda: MODE in computer.alignment(), seconds=SECONDS)
        # Its emulator ends at that (QEMU's -no-reboot), and every connection with it.
        with contextlib.suppress(InfrastructureError):
            computer.run(["/bin/reboot", "-f"], deadline_seconds=60, traced=False)
        told, _ = plumb.communicate(timeout=SECONDS)
    found = json.loads(told)
    assert {cell["verdict"] for cell in found["cells"]} == {"UNKNOWN"}
    assert found["findings"] == []
    assert "was lost" in json.dumps(found["cells"])


def is_lost(guest: BoardGuest) -> bool:
    """Whether the server's state is unknown. It is never taken for dead."""
    try:
        assert guest.alive()
    except InfrastructureError:
        return True
    return False


def test_every_access_is_compared_in_each_mode(board: Path, computer: Machine) -> None:
    computer.set_alignment(2)
    finished = run("compare-tiers", "--board", board, "--json")
    rows = json.loads(finished.stdout)
    assert {row["policy"] for row in rows} == {f"linux-arm-{mode}" for mode in range(6)}
    # This computer differs from hardware in modes 0 and 1 (tier_differences.toml).
    unlike = {row["policy"] for row in rows if row["kernel"] != row["prescribed"]}
    assert unlike == {"linux-arm-0", "linux-arm-1"}
    assert finished.returncode == ExitCode.FINDINGS
    assert "2 (fixup)" in computer.alignment()
    assert left(computer) == []


@pytest.mark.parametrize(
    ("kind", "server", "suite", "test", "some"),
    [
        (VERSATILE, "redis-3.2.6", "bitops", "bitpos_finds", "alignment-redisBitpos-load"),
        (VERSATILE, "redis-7.0.15", "protocol", "server-2.", WRONG_RESULT),
        (SUN4U, "redis-7.0.15", "protocol", "server-2.", WRONG_RESULT),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
    indirect=["kind"],
)
def test_the_findings_are_those_of_the_emulated_target(
    kind: tuple[str, str],
    board: Path,
    computer: Machine,
    tmp_path: Path,
    server: str,
    suite: str,
    test: str,
    some: str,
) -> None:
    words = ["--server", server, "--suite", suite, "--test", test, "--seed", "1"]
    found, expected = (
        {
            (one["id"], one["title"], one["file"], one["line"])
            for one in document(run("check", *way, *words, "--json", "--run", tmp_path / way[0]))["findings"]
            # A board shows neither what an audit adds to the first death, nor a fault in the server's crash handler.
            if any(witness["detector"] != "audit" for witness in one["witnesses"])
            and not one["kind"].startswith("crash-handler")
        }
        for way in (("--board", board), ("--target", kind[1]))
    )
    assert found == expected
    assert some in {one[0] for one in found}
    assert left(computer) == []


@pytest.mark.parametrize("kind", [SUN4U], ids=["sun4u"], indirect=True)
def test_sigbus_is_recognised_where_it_has_another_number(board: Path, computer: Machine, tmp_path: Path) -> None:
    """It is 10 on SPARC. Servers report no place of a fault there, so the finding is the test's.

    The canaries do not end well: QEMU's processor lacks LDQF, and the kernel ends its program by SIGFPE. The kernel
    tier's init performs such instructions, and a board has none.
    """
    words = ["--server", "redis-3.2.6", "--suite", "bitops", "--test", "bitpos_finds", "--seed", "1"]
    finished = run("check", "--board", board, *words, "--json", "--run", tmp_path / "run")
    found = document(finished)
    (canaries,) = [cell["reason"] for cell in found["cells"] if cell["suite"] == "canary"]
    assert "the canary program ended with status -8" in canaries
    assert (finished.returncode, found["verdict"]) == (ExitCode.INCONCLUSIVE, "UNKNOWN")
    titles = [one["title"] for one in found["findings"]]
    assert any(title.endswith("killed by SIGBUS") for title in titles), titles
    assert not any("SIGUSR1" in title for title in titles)
    assert left(computer) == []


def test_a_finding_is_replayed_there_and_an_audit_counts(board: Path, computer: Machine, tmp_path: Path) -> None:
    words = ["--board", board, "--server", "redis-3.2.6", "--suite", "bitops", "--test", "bitpos_finds"]
    found = document(run("check", *words, "--json", "--run", tmp_path / "run"))
    (one,) = [one for one in found["findings"] if one["id"] == "alignment-redisBitpos-load"]
    replayed = run(*one["replay"].split()[1:], "--board", board, "--json")
    assert json.loads(replayed.stdout)["outcome"] == "reproduced", replayed
    found = document(run("audit", *words, "--json", "--run", tmp_path / "audit"))
    assert {one["kind"] for one in found["findings"]} == {"alignment-repaired"}
    assert left(computer) == []
