"""Translated code that an emulator keeps for the next process is used only if the emulator would translate it in the
same way again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import resource
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.build import toolchain
from harness.build.emulators.runner import with_alignment
from tests.end_to_end.support import machines

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.end_to_end

CATALOG = machines.CATALOG
HOLDS = subprocess.run(["setarch", "--addr-no-randomize", "true"], check=False, capture_output=True).returncode == 0
keeps = pytest.mark.skipif(
    not HOLDS, reason="seccomp keeps programs from fixing addresses, so no translations are kept in this container"
)
# libc has enough code to be kept. The exit status is a constant in the code, and so is the alignment of its load.
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *elsewhere(void *sum)
{
    for (int i = 0; i < 1000; i++) {
        __atomic_add_fetch((int *)sum, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static __attribute__((noinline, noclone)) int load(const char *address)
{
    return *(const volatile int *)address;
}

int main(int count, char **words)
{
    static int numbers[4];
    char text[200];
    if (count > 2) {
        puts("waiting");
        fflush(stdout);
        return getchar() == 'x' ? ANSWER : 0;
    }
    pthread_t threads[2];
    int sum = 0;

    snprintf(text, sizeof(text), "%s %d %f %Lf %p", words[0], count, count / 3.0, (long double)count, (void *)words);
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, elsewhere, &sum);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    qsort(text, strlen(text), 1, (int (*)(const void *, const void *))strcmp);
    pid_t child = fork();
    if (child == 0) {
        _exit(sum == 2000 ? 3 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("%d %d %d\n", sum, WEXITSTATUS(status), count > 1 ? load((char *)numbers + 1) : 0);
    return ANSWER;
}
"""
TARGETS = ["armv5", "armv7", "aarch64", "sparc32plus", "sparc64"]
"""Targets whose blocks are identified by their page, and by their address. Guest addresses may equal the host's, or
not."""


class Kept:
    """A program, its file of translations, and the command that runs it."""

    def __init__(self, target: str, folder: Path) -> None:
        self.target = target
        self.folder = folder
        self.program = folder / "program"
        self.file = folder / "kept" / "code"
        self.answer(7)

    def answer(self, number: int) -> None:
        """Compile the program again at the same path, with this exit status."""
        target = CATALOG.targets[self.target]
        source = self.folder / "program.c"
        source.write_text(PROGRAM, "utf-8")
        compiler = toolchain.tool(CATALOG.toolchain_of(target), "gcc")
        flags = [*target.compiler_flags, "-O1", "-pthread", f"-DANSWER={number}"]
        subprocess.run([compiler, str(source), *flags, "-o", str(self.program)], check=True)

    def command(self, *words: str, policy: str = "signal", log: Path = Path(os.devnull)) -> list[str]:
        """The command that runs it, and that logs each block when it is translated."""
        runner = machines.runner(self.target)
        emulator, *options = [str(runner.program), *with_alignment(runner.options, CATALOG.policies[policy])]
        traced = ["-d", "in_asm", "-D", str(log), "-translations", str(self.file)]
        return [emulator, *options, *traced, str(self.program), *words]

    def run(self, *words: str, policy: str = "signal", limit: Callable[[], None] | None = None) -> tuple[int, int]:
        """The exit status or the negative signal number, and the number of blocks that the emulator translated."""
        log = self.folder / "translated"
        ended = subprocess.run(
            self.command(*words, policy=policy, log=log),
            check=False, capture_output=True, encoding="utf-8", timeout=60, preexec_fn=limit,
        )  # fmt: skip
        if not words:
            assert ended.stdout == "2000 3 0\n", ended.stderr
        return ended.returncode, len(re.findall(r"^IN: ", log.read_text("utf-8", "replace"), re.MULTILINE))


@pytest.fixture(params=TARGETS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return Kept(request.param, tmp_path)


@pytest.fixture
def on_arm(tmp_path: Path) -> Kept:
    return Kept("armv5", tmp_path)


@keeps
def test_the_second_process_translates_almost_nothing_and_behaves_the_same(kept: Kept) -> None:
    status, all_of_it = kept.run()
    assert status == 7
    assert all_of_it > 1000
    again, left = kept.run()
    assert again == 7
    assert left < all_of_it / 10
    assert [path.name for path in kept.file.parent.iterdir()] == ["code"]


ARENA_BYTES = 64 << 20
"""Size and alignment of the area that malloc maps for a thread's own arena: glibc's malloc/arena.c."""


@keeps
def test_the_emulators_own_thread_uses_no_address_that_the_program_may_get_next_time(on_arm: Kept) -> None:
    with subprocess.Popen(on_arm.command("a", "b"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"waiting\n"
        running = Path(f"/proc/{waiting.pid}")
        threads = [*(running / "task").iterdir()]
        maps = (running / "maps").read_text("utf-8")
        waiting.communicate(b"x")
    assert len(threads) > 1
    assert waiting.returncode == 7
    arenas = [
        line
        for line in maps.splitlines()
        if int(line.split("-")[0], 16) % ARENA_BYTES == 0 and re.match(r"\S+ rw-p 00000000 00:00 0 *$", line)
    ]
    assert arenas == []


def test_code_of_a_recompiled_program_is_not_used(kept: Kept) -> None:
    assert kept.run()[0] == 7
    before = kept.program.stat().st_size
    kept.answer(9)
    assert kept.program.stat().st_size == before, "its addresses are the same"
    status, translated = kept.run()
    assert status == 9
    assert translated > 0


@pytest.mark.parametrize("kept", ["armv5", machines.beyond("sparc32plus"), "sparc64"], indirect=True)
@pytest.mark.parametrize(("first", "then", "signal"), [("unchecked", "signal", 7), ("signal", "unchecked", 0)])
def test_code_of_another_policy_is_not_used(kept: Kept, first: str, then: str, signal: int) -> None:
    kept.run("load", policy=first)
    kept.run(policy=first)
    assert kept.file.exists()
    assert kept.run("load", policy=then)[0] == (-signal if signal else 7)


def changed_at(content: bytes, *places: int) -> bytes:
    changed = bytearray(content)
    for place in places:
        changed[place] ^= 0x40
    return bytes(changed)


PAGE = 4096
"""Length of the file's header."""
BLOCK = 64
"""Translated blocks begin at a multiple of this number of bytes."""
ENTRY = 48
"""Length of a block's entry in the file: overlay/linux-user/translations.c, `struct entry`."""


class Layout:
    """The offsets of the parts of a file, according to its header: code, entries, buckets, instructions."""

    def __init__(self, content: bytes) -> None:
        code, self.count, instructions = struct.unpack_from("=QQQ", content, 104)
        self.code = range(PAGE, PAGE + code)
        self.entries = range(self.code.stop, self.code.stop + self.count * ENTRY)
        self.buckets = range(self.entries.stop, len(content) - instructions)
        self.instructions = range(self.buckets.stop, len(content))


def with_buckets(content: bytes, number: int) -> bytes:
    """The content with this entry number in each bucket, and as each entry's successor."""
    layout = Layout(content)
    changed = bytearray(content)
    changed[layout.buckets.start : layout.buckets.stop] = struct.pack("=I", number) * (len(layout.buckets) // 4)
    for entry in layout.entries[::ENTRY]:
        struct.pack_into("=I", changed, entry + 36, number)
    return bytes(changed)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "of the header alone": lambda content: content[:PAGE],
    "cut in the code": lambda content: content[: len(content) // 2],
    "cut by a byte": lambda content: content[:-1],
    "longer": lambda content: content + b"\0" * 4096,
    "changed in the header": lambda content: changed_at(content, 20),
    "with another length of code": lambda content: changed_at(content, 104),
    "with another number of entries": lambda content: changed_at(content, 112),
    "with more instructions": lambda content: changed_at(content, 120),
    "zeros": lambda content: b"\0" * len(content),
    "changed in each block": lambda content: changed_at(content, *Layout(content).code[::BLOCK]),
    "changed in each entry": lambda content: changed_at(content, *Layout(content).entries[24::ENTRY]),
    "changed in each length": lambda content: changed_at(content, *Layout(content).entries[31::ENTRY]),
    "changed in each instruction": lambda content: changed_at(content, *Layout(content).instructions),
    "with buckets beyond the entries": lambda content: with_buckets(content, 0x7FFFFFFF),
}
EXAMPLES = {"cut in the code", "changed in the header", "changed in each block", "changed in each entry"}
"""Those that `ci/test` tries."""


@keeps
@pytest.mark.parametrize("damage", [one if one in EXAMPLES else machines.beyond(one) for one in DAMAGES])
def test_a_damaged_file_costs_only_time(on_arm: Kept, damage: str) -> None:
    _, all_of_it = on_arm.run()
    content = on_arm.file.read_bytes()
    on_arm.file.write_bytes(DAMAGES[damage](content))
    status, translated = on_arm.run()
    assert status == 7
    # With threads the number of blocks varies a little.
    assert translated > 0.9 * all_of_it
    # The file was replaced.
    assert on_arm.run()[1] < all_of_it / 10


@keeps
def test_a_damaged_block_costs_only_its_own_translation(on_arm: Kept) -> None:
    _, all_of_it = on_arm.run()
    content = on_arm.file.read_bytes()
    _, left = on_arm.run()
    layout = Layout(content)
    # Damage about a tenth of the blocks, in their code and in their entries.
    for places in (layout.code[:: 100 * BLOCK], layout.entries[40 :: 10 * ENTRY]):
        on_arm.file.write_bytes(changed_at(content, *places))
        status, translated = on_arm.run()
        assert status == 7
        assert left + 10 < translated < all_of_it / 2


@keeps
def test_a_file_with_a_cycle_of_entries_does_not_hang_the_search(on_arm: Kept) -> None:
    on_arm.run()
    content = on_arm.file.read_bytes()
    on_arm.file.write_bytes(with_buckets(content, Layout(content).count))
    assert on_arm.run()[0] == 7


@keeps
def test_many_simultaneous_processes_leave_a_complete_file(on_arm: Kept) -> None:
    runner = machines.runner("armv5")
    words = [str(runner.program), *runner.options, "-translations", str(on_arm.file), str(on_arm.program)]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(16)]
    assert {process.communicate()[0] for process in processes} == {b"2000 3 0\n"}
    assert {process.returncode for process in processes} == {7}
    assert on_arm.run()[1] < 200


@keeps
def test_the_rest_of_a_killed_writer_is_overwritten(on_arm: Kept) -> None:
    on_arm.file.parent.mkdir()
    on_arm.file.with_name("code.new").write_bytes(b"half of it")
    on_arm.run()
    assert [path.name for path in on_arm.file.parent.iterdir()] == ["code"]


def test_without_a_writable_folder_the_program_behaves_the_same(on_arm: Kept) -> None:
    def no_large_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    assert on_arm.run(limit=no_large_files)[0] == 7
    assert not on_arm.file.exists()
    on_arm.file.parent.write_text("no folder", "utf-8")
    assert on_arm.run()[0] == 7


def refuse_held_addresses() -> None:
    """Behave like Docker's default seccomp profile: personality() may read the flags, but not set the one for fixed
    addresses.
    """
    number = {"x86_64": 135, "aarch64": 92}[os.uname().machine]
    load, equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    # Offsets of the call's number and of its first argument: Linux Documentation/userspace-api/seccomp_filter.rst.
    lines = [
        (load, 0, 0, 0),
        (equal, 0, 3, number),
        (load, 0, 0, 16),
        (equal, 1, 0, 0xFFFFFFFF),
        (answer, 0, 0, refuse),
    ]
    filtering = b"".join(struct.pack("HBBI", *line) for line in [*lines, (answer, 0, 0, allow)])
    program = ctypes.create_string_buffer(filtering)
    description = struct.pack("HxxxxxxQ", len(filtering) // 8, ctypes.addressof(program))
    no_new_privileges, set_seccomp, by_filter = 38, 22, 2
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_seccomp, by_filter, description, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")


def test_where_addresses_cannot_be_fixed_everything_is_translated_and_nothing_is_kept(on_arm: Kept) -> None:
    status, all_of_it = on_arm.run(limit=refuse_held_addresses)
    assert status == 7
    again, translated = on_arm.run(limit=refuse_held_addresses)
    assert again == 7
    assert translated > 0.9 * all_of_it
    assert not on_arm.file.exists()
