"""A fault in a forked child or a thread of a real server is found, located, and attributed to the right process.

The tests plant misaligned loads in a copy of a clean release. Separate data or a separate command triggers each.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from harness.analysis import symbols
from harness.build.sources import source_tree, tree_files
from harness.core.cache import Cache
from harness.core.digests import key_of
from harness.isa.rules import recorded_policies
from harness.judge.findings import judge
from harness.judge.verdict import cell_verdicts
from harness.plan.catalog import Catalog
from harness.protocol.resp import Client, ServerGoneError
from harness.record import cell_events, event_log, evidence_seal, fault_log, run_folder, stored_run
from harness.record.run_record import CellRecord, RunRecord
from harness.run.cell_spec import CellSpec
from harness.run.server_process import Guest
from harness.run.servers.server_spec import ServerSpec
from suites._shared import link
from tests.end_to_end.support import machines
from tests.end_to_end.support.written_suites import run_written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.core.finding import Frame
    from harness.core.model import Build
    from harness.core.processes import process
    from harness.record.fault_log import Fault

pytestmark = pytest.mark.end_to_end

SERVER = "redis-7.0.15"
VERSION = (7, 0, 15)
HEADER = "plumbline_odd.h"
HEADER_TEXT = """\
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
/* A load of a word at 1 mod 4, near a mapped address. */
static inline __attribute__((always_inline)) void plumbline_odd_word(const void *near)
{
    const volatile uint32_t *word = (const volatile uint32_t *)(((uintptr_t)near & ~(uintptr_t)3) | 1);
    /* Without the nop GCC puts the load into a SPARC branch's delay slot, where the load loses its inlined frame. */
    __asm__ volatile("nop" : "+r"(word));
    (void)*word;
}
static sigjmp_buf plumbline_before;
static inline void plumbline_jump(int number)
{
    (void)number;
    siglongjmp(plumbline_before, 1);
}
/* The same load, but the process survives it. */
static inline void plumbline_survive(const void *near)
{
    struct sigaction own = {.sa_handler = plumbline_jump}, old;
    sigaction(SIGBUS, &own, &old);
    if (!sigsetjmp(plumbline_before, 1)) plumbline_odd_word(near);
    sigaction(SIGBUS, &old, NULL);
}
"""
REPORT_SECONDS = 8
"""Duration of the crash handler, in seconds, if database 7 has a key."""
# File, function, the line after which the code is planted (the only one with that text in the function's file, or the
# first one after the function's own line), and the planted code. Databases 7 to 9 are empty unless a test fills them.
PLANTS = {
    "bgsave": (
        "rdb.c",
        "rdbSaveRio",
        ["int rdbSaveRio(int req, rio *rdb, int *error, int rdbflags, rdbSaveInfo *rsi) {"],
        "    if (dictSize(server.db[8].dict)) plumbline_odd_word(&server);",
    ),
    "rewrite": (
        "aof.c",
        "rewriteAppendOnlyFile",
        ["int rewriteAppendOnlyFile(char *filename) {"],
        "    if (dictSize(server.db[9].dict)) plumbline_odd_word(&server);",
    ),
    "lazyfree": (
        "lazyfree.c",
        "lazyfreeFreeObject",
        ["void lazyfreeFreeObject(void *args[]) {"],
        """\
    if (((robj *)args[0])->type == OBJ_ZSET) plumbline_odd_word(&server);
    if (((robj *)args[0])->type == OBJ_HASH) raise(SIGSEGV);""",
    ),
    "report": (
        "debug.c",
        "sigsegvHandler",
        [
            "void sigsegvHandler(int sig, siginfo_t *info, void *secret) {",
            '"Redis %s crashed by signal: %d, si_code: %d", REDIS_VERSION, sig, info->si_code);',
        ],
        f"    for (time_t t = time(NULL) + {REPORT_SECONDS}; dictSize(server.db[7].dict) && time(NULL) < t;) {{}}",
    ),
    "io-thread": (
        "networking.c",
        "IOThreadMain",
        ["void *IOThreadMain(void *myid) {", "} else if (io_threads_op == IO_THREADS_OP_READ) {"],
        "                if (c->name) plumbline_odd_word(&server);",
    ),
    "survived": (
        "lolwut.c",
        "lolwutCommand",
        ["void lolwutCommand(client *c) {"],
        "    plumbline_survive(&server);",
    ),
}


def planted_tree() -> tuple[Path, dict[str, int]]:
    """A copy of the release with the planted loads, and each load's line. It is in the cache, and so are its builds."""
    original = machines.release(SERVER)
    texts: dict[str, str] = {}
    lines: dict[str, int] = {}
    for name, (file, _, anchors, text) in PLANTS.items():
        content = (original / "src" / file).read_text("utf-8").split("\n")
        at = 0
        for anchor in anchors:
            at = next(n for n in range(at, len(content)) if content[n].strip() == anchor) + 1
        content.insert(at, text)
        # After the server's headers, which choose what system headers declare.
        content.insert(content.index('#include "server.h"') + 1, f'#include "{HEADER}"')
        lines[name] = at + 2
        texts[file] = "\n".join(content)

    def fill(into: Path) -> None:
        tree_files.copy_tree(original, into / "planted")
        (into / "planted" / "src" / HEADER).write_text(HEADER_TEXT, "utf-8")
        for file, text in texts.items():
            (into / "planted" / "src" / file).write_text(text, "utf-8")

    key = key_of([HEADER_TEXT, *texts.values()])
    return Cache.default().folder("test-trees", key, fill) / "planted", lines


@cache
def planted_build(target: str) -> Build:
    return machines.build(source_tree.open_tree(planted_tree()[0]), target)


@contextmanager
def planted_server(target: str, folder: Path, *options: str) -> Iterator[Guest]:
    """A guest of the planted server."""
    with (
        tempfile.TemporaryDirectory(prefix="plumbline-") as sockets,
        Guest(
            ServerSpec(build=planted_build(target), version=VERSION, options=options),
            machines.runner(target),
            folder,
            sockets=Path(sockets),
        ) as guest,
    ):
        yield guest


@pytest.fixture(params=["armv5", machines.beyond("sparc64")])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guest]:
    """A guest of the planted server, with a second I/O thread."""
    with planted_server(
        request.param, tmp_path / "guest-1", "--io-threads", "2", "--io-threads-do-reads", "yes"
    ) as one:
        yield one


def client(guest: Guest) -> Client:
    return Client.at_socket(guest.access.path, deadline_seconds=guest.deadline_seconds)


def first_fault(guest: Guest) -> Fault:
    """Wait for the first record, and return it."""
    deadline = time.monotonic() + guest.deadline_seconds
    while not guest.evidence.faults():
        assert time.monotonic() < deadline, "no fault was recorded"
        time.sleep(0.05)
    return fault_log.read_faults(guest.evidence.fault_log)[0]


def server_pid(guest: Guest) -> int:
    """The guest's process number, which is also the host's, because user-mode QEMU does not have its own numbers."""
    with client(guest) as connected:
        text = connected.command("INFO", "server")
    assert isinstance(text, bytes)
    return int(text.partition(b"process_id:")[2].split()[0])


def frames_of(guest: Guest, fault: Fault) -> list[Frame]:
    target = guest.runner.target
    triple = Catalog().toolchain_of(target).triple
    return symbols.Symbols(triple, str(guest.build.server_binary)).backtrace(fault, target.emulator.qemu)


def assert_planted(guest: Guest, fault: Fault, plant: str) -> list[str]:
    """Assert that the fault is the planted one: its kind, and the file and line of both inlined levels. Returns the
    functions of its stack.
    """
    frames = frames_of(guest, fault)
    file, function, _, _ = PLANTS[plant]
    line = HEADER_TEXT.splitlines().index("    (void)*word;") + 1
    assert [(f.function, f.file, f.line, f.origin) for f in frames[:2]] == [
        ("plumbline_odd_word", f"src/{HEADER}", line, "server"),
        (function, f"src/{file}", planted_tree()[1][plant], "server"),
    ]
    assert (fault.signal, fault.code, fault.access, fault.address % 4, fault.handled) == (7, 1, "load", 1, True)
    return [frame.function for frame in frames]


def assert_child_only(guest: Guest, fault: Fault, pid: int) -> None:
    """Assert that a child died, and that neither the server nor its evidence says that the server died."""
    assert (pid, fault.tid) != (fault.pid, pid)
    assert not guest.evidence.has_fault_of(guest.pid, 0)
    assert server_pid(guest) == pid
    assert guest.alive()


def test_a_fault_in_the_child_of_bgsave(server: Guest) -> None:
    pid = server_pid(server)
    with client(server) as connected:
        connected.pipeline([("SELECT", 8), ("SET", "key", "value"), ("BGSAVE",)])
    fault = first_fault(server)
    stack = assert_planted(server, fault, "bgsave")
    assert stack.index("rdbSave") < stack.index("rdbSaveBackground") < stack.index("main"), stack
    assert_child_only(server, fault, pid)


def test_waiting_for_a_synchronisation_ends_if_every_child_crashes(tmp_path: Path) -> None:
    """Otherwise the primary would fork about a hundred crashing children until the deadline."""
    began = time.monotonic()
    with (
        planted_server("armv5", tmp_path / "guest-1", "--repl-diskless-sync-delay", "0") as primary,
        planted_server("armv5", tmp_path / "guest-2") as replica,
    ):
        with client(primary) as connected:
            connected.pipeline([("SELECT", 8), ("SET", "key", "value")])
        with pytest.raises(TimeoutError, match=r"gave up because \d+ children crashed"):
            link.join(replica, primary)
        assert primary.evidence.crashed_children(primary.first_pid) >= link.MAXIMUM_CRASHES
        assert replica.evidence.crashed_children(replica.first_pid) == 0
        assert primary.alive()
    assert time.monotonic() - began < primary.runner.target.deadline_seconds(link.PATIENCE_SECONDS)


def test_a_fault_in_the_child_of_an_append_only_files_rewrite(server: Guest) -> None:
    pid = server_pid(server)
    with client(server) as connected:
        connected.pipeline([("SELECT", 9), ("SET", "key", "value"), ("BGREWRITEAOF",)])
    fault = first_fault(server)
    stack = assert_planted(server, fault, "rewrite")
    assert stack.index("rewriteAppendOnlyFileBackground") < stack.index("main"), stack
    assert_child_only(server, fault, pid)


def assert_thread(guest: Guest, fault: Fault, pid: int) -> None:
    """Assert that another thread of the server faulted, and that the whole server died."""
    assert pid == fault.pid
    assert fault.tid != pid
    assert guest.evidence.has_fault_of(guest.pid, 0)
    assert not guest.settle()
    # The thread is not checked here, because the crash handler ends the main thread, and QEMU 10.0 then crashes.
    assert guest.ended is not None
    assert guest.ended.how == "signal"


def test_a_fault_in_a_background_thread(server: Guest) -> None:
    pid = server_pid(server)
    members = [word for number in range(300) for word in (number, f"member:{number}")]
    with client(server) as connected:
        connected.command("ZADD", "key", *members)
        connected.send(Client.pack([("UNLINK", "key")]))
        # The reply may come before the thread begins, so the connection is lost at an unknown time.
    fault = first_fault(server)
    stack = assert_planted(server, fault, "lazyfree")
    assert "bioProcessBackgroundJobs" in stack
    assert_thread(server, fault, pid)


def test_a_fault_in_an_io_thread(server: Guest) -> None:
    pid = server_pid(server)
    clients = [client(server) for _ in range(16)]
    batch = Client.pack([("PING",)] * 200)
    deadline = time.monotonic() + server.deadline_seconds
    try:
        for one in clients:
            one.command("CLIENT", "SETNAME", "named")
        # The server uses its threads only while many clients send requests at the same time.
        while server.alive() and not server.evidence.faults() and time.monotonic() < deadline:
            for one in clients:
                one.send(batch)
            for one in clients * 200:
                one.receive()
    except (ServerGoneError, TimeoutError):
        pass
    finally:
        for one in clients:
            one.close()
    fault = first_fault(server)
    assert_planted(server, fault, "io-thread")
    assert_thread(server, fault, pid)


SUITE = """
import time
from harness.protocol.resp import Client

def connect(guest):
    return Client.at_socket(guest.access.path, deadline_seconds=guest.deadline_seconds)

def test_saving_in_the_background(guest):
    with connect(guest) as client:
        client.pipeline([("SELECT", 8), ("SET", "key", "value"), ("BGSAVE",)])
        deadline = time.monotonic() + guest.deadline_seconds
        while b"rdb_bgsave_in_progress:1" in (info := client.command("INFO", "persistence")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert b"rdb_last_bgsave_status:ok" in info

def test_the_same_server_still_answers(guest):
    assert guest.name == "guest-1"
    with connect(guest) as client:
        assert client.command("PING") == b"PONG"
"""


def run_cell(target: str, folder: Path, suite: str, place: Path, *, timeout_multiplier: float = 1.0) -> process.Result:
    """Run a suite's text as a cell of the planted server, whose evidence is in the folder."""
    runner = machines.runner(target)
    machine = msgspec.structs.replace(runner.target, timeout_multiplier=timeout_multiplier)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="plumbline-") as sockets:
        spec: dict[str, Any] = {"canary": None, "seed": 1, "tier": "quick", "version": VERSION}
        cell = CellSpec(
            suite="persistence",
            folder=folder,
            shared=Path(sockets),
            sockets=Path(sockets),
            runner=msgspec.structs.replace(runner, target=machine),
            build=planted_build(target),
            **spec,
        )
        return run_written(suite, place / "test_persistence.py", cell, deadline_seconds=300)


DEATHS = """
import pytest
from harness.protocol.resp import Client, ServerGoneError

@pytest.mark.parametrize("name", ["guest-1", "guest-2", "guest-3"])
def test_it_dies(guest, name):
    assert guest.name == name
    with Client.at_socket(guest.access.path, deadline_seconds=guest.deadline_seconds) as client:
        with pytest.raises(ServerGoneError):
            client.command("DEBUG", "SEGFAULT")
    guest.settle()
    assert not guest.alive()
"""


def test_only_the_first_death_of_a_cell_tests_the_machines_memory(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "armv5" / "persistence"
    result = run_cell("armv5", folder, DEATHS, tmp_path)
    logs = [folder / f"guest-{number}" / "log" for number in (1, 2, 3)]
    assert [b"crashed by signal" in log.read_bytes() for log in logs] == [True, True, True], result.text
    assert [b"FAST MEMORY TEST" in log.read_bytes() for log in logs] == [True, False, False]


LONG_REPORT = """
import time
import pytest
from harness.protocol.resp import Client

def test_a_thread_crashes(guest):
    with Client.at_socket(guest.access.path, deadline_seconds=guest.deadline_seconds) as client:
        client.pipeline([("SELECT", 7), ("SET", "key", "value"), ("SELECT", 0)])
        client.command(COMMAND, "key", *[word for number in range(600) for word in (number, f"{number}")])
        client.command("UNLINK", "key")
        deadline = time.monotonic() + guest.deadline_seconds
        while "crashed by signal" not in guest.evidence.log_tail():
            assert time.monotonic() < deadline, "nothing crashed"
            time.sleep(0.05)
        # The main thread does not notice the crash.
        assert client.command("PING") == b"PONG"

def test_another_server_goes_on(guest):
    assert guest.name == "guest-2"
"""


@pytest.mark.parametrize(
    ("target", "command", "timeout_multiplier"),
    [("armv5", "ZADD", 0.2), machines.beyond("native", "HSET", 1.0)],
    ids=["recorded by the emulator", "reported by the server alone"],
)
def test_a_server_with_a_long_crash_report_of_a_thread_has_died_in_that_test(
    tmp_path: Path, target: str, command: str, timeout_multiplier: float
) -> None:
    folder = tmp_path / "run" / target / "persistence"
    suite = LONG_REPORT.replace("COMMAND", repr(command))
    result = run_cell(target, folder, suite, tmp_path, timeout_multiplier=timeout_multiplier)
    assert result.code == 0, result.text
    events = event_log.read_events(folder / event_log.NAME)
    first, second = (event for event in events if isinstance(event, cell_events.GuestEvent))
    # On ARMv5 it is the emulator's SIGSEGV (see assert_thread).
    assert (first.name, first.end) == ("guest-1", "signal")
    assert first.test.endswith("test_a_thread_crashes")
    assert (second.name, second.end) == ("guest-2", "stopped")


SURVIVALS = """
import pytest
from harness.protocol.resp import Client

@pytest.mark.parametrize("number", range(3))
def test_it_goes_on(guest, number):
    assert guest.name == "guest-1"
    with Client.at_socket(guest.access.path, deadline_seconds=guest.deadline_seconds) as client:
        client.command("LOLWUT")
        assert client.command("PING") == b"PONG"
"""


def test_a_server_that_handles_its_faults_does_not_hang(tmp_path: Path) -> None:
    """The harness waits for it once, and the server serves the following tests."""
    folder = tmp_path / "run" / "armv5" / "persistence"
    result = run_cell("armv5", folder, SURVIVALS, tmp_path)
    assert result.code == 0, result.text
    events = event_log.read_events(folder / event_log.NAME)
    (guest,) = [event for event in events if isinstance(event, cell_events.GuestEvent) and not event.oracle]
    assert (guest.end, guest.detail) == ("stopped", "")
    tests = [event for event in events if isinstance(event, cell_events.TestEvent)]
    assert [(test.fault_from, test.fault_to) for test in tests] == [(0, 1), (1, 2), (2, 3)]


def test_a_fault_in_bgsave_is_a_finding_and_the_suite_continues(tmp_path: Path) -> None:
    target = "armv5"
    run, folder = tmp_path / "run", tmp_path / "run" / target / "persistence"
    result = run_cell(target, folder, SUITE, tmp_path)
    assert result.code == 1, result.text
    canary = run / target / "canary"
    canary.mkdir()
    log = event_log.EventLog(canary / event_log.NAME)
    log.append(cell_events.CollectedEvent(tests=1))
    log.append(cell_events.TestEvent(name="canary/load-word@1", outcome="passed", seconds=0))
    log.close(tests=1, failed=0)
    machine = Catalog().targets[target]
    run_folder.write_run(
        run,
        RunRecord(
            server=SERVER,
            family="redis",
            policy="signal",
            optimisation="O2",
            emulator="pinned",
            seed=1,
            targets=[target],
            suites=["canary", "persistence"],
            binaries={target: str(planted_build(target).server_binary)},
            triples={target: Catalog().toolchain_of(machine).triple},
            machines={target: machine},
            policies=recorded_policies(Catalog().policies, "signal", [machine]),
            stages={},
            cells=[
                CellRecord(
                    target=target, suite=suite, seconds=1, status=status, seal=evidence_seal.seal(run / target / suite)
                )
                for suite, status in (("canary", 0), ("persistence", 1))
            ],
        ),
    )
    findings, outcomes, _ = judge(stored_run.read(run))
    _, verdict = cell_verdicts(outcomes, findings)
    # A child's death does not explain its parent's replies. The second fault is a bug of this release: in the child its
    # crash handler cancels threads that only the parent has.
    assert [finding.kind for finding in findings] == ["alignment", "crash-handler-sigsegv", "wrong-result"]
    assert (findings[0].function, findings[0].origin) == ("plumbline_odd_word", "server")
    assert [one.test.rpartition("::")[2] for one in findings[0].witnesses] == ["test_saving_in_the_background"]
    assert (verdict.verdict, verdict.passed, verdict.failed) == ("FAIL", 1, 1)
