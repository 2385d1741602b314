"""The unwinder finds in stored stacks of real programs the callers that the source has."""

from __future__ import annotations

import itertools
import struct
import subprocess
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analysis.function_symbols import function_symbols
from harness.analysis.unwind import DEEPEST, Stack, call_chain, function_bounds, locate, may_be_in_handler_of
from harness.record import fault_log
from tests.support import fakes

if TYPE_CHECKING:
    from pathlib import Path

# Recorded when the emulator ran tests/support/data/stacks/program.c: main's callers in libc, then its _start.
CALLERS = {"arm": [0x408553F3], "sparc32plus": [0x70887A98, 0x70887BB4, 0x78000564]}


def stored(machine: str) -> fault_log.Fault:
    (record,) = fault_log.read_faults(fakes.DATA / "stacks" / f"{machine}.jsonl")
    data = str(fakes.DATA / "stacks")
    maps = [msgspec.structs.replace(m, path=m.path.replace("@DATA@", data)) for m in record.maps]
    return msgspec.structs.replace(record, maps=maps)


@pytest.mark.parametrize("machine", list(CALLERS))
def test_a_stored_stack_has_the_expected_callers_innermost_first(machine: str) -> None:
    assert CALLERS[machine] == call_chain(stored(machine), machine)


@pytest.mark.parametrize("machine", list(CALLERS))
def test_a_truncated_slice_gives_fewer_callers_and_no_wrong_one(machine: str) -> None:
    whole = stored(machine)
    for length in range(0, len(whole.stack), 64):
        chain = call_chain(msgspec.structs.replace(whole, stack=whole.stack[:length]), machine)
        assert CALLERS[machine][: len(chain)] == chain, f"with {length // 2} bytes of stack"


@pytest.mark.parametrize("machine", list(CALLERS))
def test_missing_binaries_do_not_make_unwinding_fail(machine: str) -> None:
    record = stored(machine)
    maps = [msgspec.structs.replace(m, path="/absent" + m.path) for m in record.maps]
    chain = call_chain(msgspec.structs.replace(record, maps=maps), machine)
    assert all(isinstance(caller, int) for caller in chain)


def test_a_machine_without_rules_has_no_callers() -> None:
    assert call_chain(stored("arm"), "mips") == []


@pytest.mark.parametrize("machine", list(CALLERS))
@given(stack=st.binary(max_size=256), seed=st.integers(0, 2**32))
@settings(max_examples=40)
def test_unwinding_arbitrary_stacks_terminates(machine: str, stack: bytes, seed: int) -> None:
    import random

    record = stored(machine)
    numbers = random.Random(seed)
    registers = [numbers.randbytes(len(r) // 2).hex() for r in record.registers]
    chain = call_chain(msgspec.structs.replace(record, stack=stack.hex(), registers=registers), machine)
    assert len(chain) <= DEEPEST + 1


def sparc_stack(frames: list[tuple[int, int]], *, word_bytes: int, start: int) -> bytes:
    """A stack slice in which the window of each frame holds the next (frame pointer, call)."""
    bias = 2047 if word_bytes == 8 else 0
    slice_bytes = bytearray(4096)
    for (frame, _), (next_frame, call) in itertools.pairwise(frames):
        for slot, value in ((14, next_frame), (15, call)):
            offset = frame + bias + slot * word_bytes - start
            slice_bytes[offset : offset + word_bytes] = value.to_bytes(word_bytes)
    return bytes(slice_bytes)


@pytest.mark.parametrize(("machine", "word_bytes"), [("sparc64", 8), ("sparc32plus", 4)])
def test_sparc_windows_are_followed_by_their_abis_bias(machine: str, word_bytes: int) -> None:
    bias = 2047 if word_bytes == 8 else 0
    start = 0x70000
    frames = [(start + 64 - bias, 0x1100), (start + 512 - bias, 0x1200), (start + 1024 - bias, 0x1300)]
    values = [0] * 32
    values[30], values[31] = frames[0]
    record = msgspec.structs.replace(
        fakes.fault(registers=[value.to_bytes(word_bytes).hex() for value in values]),
        stack_address=start,
        stack=sparc_stack(frames, word_bytes=word_bytes, start=start).hex(),
    )
    assert call_chain(record, machine) == [0x1100, 0x1200, 0x1300]


@pytest.mark.parametrize(("changed_bytes", "expected"), [(16 * 8, True), (200, False)])
def test_a_window_that_is_stored_when_a_handler_is_called_does_not_end_the_handler(
    changed_bytes: int, *, expected: bool
) -> None:
    interrupted = bytes(range(256))
    earlier = msgspec.structs.replace(fakes.fault(handled=True), stack_address=0x7000, stack=interrupted.hex())
    below = bytes(0x40) + bytes(changed_bytes) + interrupted[changed_bytes:]
    later = msgspec.structs.replace(fakes.fault(), stack_address=0x6FC0, stack=below.hex())
    assert may_be_in_handler_of(earlier, later, "sparc64") is expected
    assert not may_be_in_handler_of(earlier, later, "arm"), "without windows, the interrupted stack must be unchanged"
    assert may_be_in_handler_of(earlier, later, "hppa"), "its stack grows upwards, so that it is uncertain"


def test_unwinding_a_circular_stack_terminates() -> None:
    values = [0] * 32
    values[30], values[31] = 0x70000, 0x1100
    frames = [(0x70000, 0x1100), (0x70000, 0x1200)]
    record = msgspec.structs.replace(
        fakes.fault(registers=[value.to_bytes(4).hex() for value in values]),
        stack_address=0x70000,
        stack=sparc_stack(frames, word_bytes=4, start=0x70000).hex(),
    )
    assert call_chain(record, "sparc32plus") == [0x1100]


@given(offset=st.integers(-16, 80), word_bytes=st.sampled_from([4, 8]), big_endian=st.booleans())
def test_a_word_is_read_in_the_guests_order_and_never_outside_the_slice(
    offset: int, word_bytes: int, *, big_endian: bool
) -> None:
    content = bytes(range(64))
    record = msgspec.structs.replace(fakes.fault(), stack_address=0x1000, stack=content.hex())
    word = Stack(record, word_bytes=word_bytes, big_endian=big_endian).word(0x1000 + offset)
    inside = 0 <= offset <= 64 - word_bytes
    expected = (
        int.from_bytes(content[offset : offset + word_bytes], "big" if big_endian else "little") if inside else None
    )
    assert expected == word


def test_an_address_is_located_only_in_the_mapping_that_contains_it() -> None:
    low = fault_log.MapRecord(start=0x1000, end=0x2000, offset=0, path="/absent/low")
    high = fault_log.MapRecord(start=0x2000, end=0x3000, offset=0x800, path="/absent/high")
    assert (low, 0xFFF) == locate([low, high], 0x1FFF)
    assert (high, 0x800) == locate([low, high], 0x2000)
    assert locate([low, high], 0x3000) is None


STRIPPED = """
__attribute__((noinline)) static int inner(int *at) { return at[0] + at[1]; }
int outer(int *at) { return inner(at) + 1; }
"""


def test_a_function_of_a_stripped_library_is_known_by_its_call_frame_information(tmp_path: Path) -> None:
    """For example the memcpy() that glibc chooses for a processor, which is no exported symbol."""
    (tmp_path / "own.c").write_text(STRIPPED, "utf-8")
    command = ["gcc", "-O1", "-shared", "-fPIC", "-falign-functions=16", "-fasynchronous-unwind-tables", "-o"]
    for name, option in (("whole.so", "-g0"), ("stripped.so", "-s")):
        subprocess.run([*command, name, option, "own.c"], cwd=tmp_path, check=True)
    symbols = {one.name: one.start for one in function_symbols(str(tmp_path / "whole.so")).found}
    whole = function_bounds(tmp_path / "whole.so", symbols["inner"] + 1)
    assert whole is not None
    assert whole[0] == symbols["inner"]
    assert function_bounds(tmp_path / "stripped.so", symbols["inner"] + 1) == whole
    assert function_bounds(tmp_path / "stripped.so", 0) is None


PUSH, POP = 0xE92D4030, 0xE8BD8030  # push {r4, r5, lr}; pop {r4, r5, pc}
DOWN, UP = 0xE24DD008, 0xE28DD008  # sub sp, sp, #8; add sp, sp, #8
CALL, LOAD = 0xEB000010, 0xE4DE3001  # bl; ldrb r3, [lr], #1
CODE, MAPPED, STACK = 0x200, 0x10000, 0x70000
FUNCTION = 0x12


def arm_object(path: Path, functions: dict[str, list[int]], *, stripped: bool = False) -> dict[str, int]:
    """Write an object (ELF, 32-bit ARM) with these functions, one behind the other, and no unwind tables.

    Function -> its address when the file is mapped.
    """
    starts, code, names, rows = {}, b"", b"\0", [bytes(16)]
    for name, words in functions.items():
        starts[name] = MAPPED + CODE + len(code)
        rows.append(struct.pack("<IIIBBH", len(names), CODE + len(code), 4 * len(words), FUNCTION, 0, 1))
        names += name.encode() + b"\0"
        code += b"".join(word.to_bytes(4, "little") for word in words)
    # Offset of the name, type, linked section of names, bytes of an entry.
    parts = [(1, 3, 0, 0, b"\0.names\0.symtab\0")]
    if not stripped:
        parts += [(1, 3, 0, 0, names), (8, 2, 2, 16, b"".join(rows))]
    head, content = [bytes(40)], code
    for place, kind, link, entry, part in parts:
        head.append(struct.pack("<10I", place, kind, 0, 0, CODE + len(content), len(part), link, 0, 1, entry))
        content += part
    size = CODE + len(code)
    segment = struct.pack("<8I", 1, 0, 0, 0, size, size, 5, 0x1000)
    first = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\1\1\1", 3, 40, 1, 0, 52, 84, 0, 52, 32, 1, 40, len(head), 1)
    path.write_bytes((first + segment + b"".join(head)).ljust(CODE, b"\0") + content)
    return starts


def fault_in_arm(path: Path, pc: int, link: int, words: list[int]) -> fault_log.Fault:
    """A fault in an object of `arm_object`, with these words on the stack."""
    registers = [0] * 13 + [STACK, link, pc]
    return msgspec.structs.replace(
        fakes.fault(
            pc=pc,
            registers=[value.to_bytes(4, "little").hex() for value in registers],
            maps=[fault_log.MapRecord(start=MAPPED, end=MAPPED + 0x1000, offset=0, path=str(path))],
        ),
        stack_address=STACK,
        stack=b"".join(word.to_bytes(4, "little") for word in words).hex(),
    )


CALLING = [PUSH, DOWN, CALL, UP, POP]
"""A function that calls another one; its call ends after three instructions."""
BEHIND = 12
LOCALS = [1, 2]


def test_without_tables_the_code_of_functions_tells_what_they_have_pushed(tmp_path: Path) -> None:
    starts = arm_object(tmp_path / "code", {"main": CALLING, "outer": CALLING, "inner": [PUSH, DOWN, LOAD]})
    in_outer, in_main = starts["outer"] + BEHIND, starts["main"] + BEHIND
    stack = [*LOCALS, 4, 5, in_outer, *LOCALS, 4, 5, in_main, *LOCALS, 4, 5, 0]
    fault = fault_in_arm(tmp_path / "code", starts["inner"] + 8, 0, stack)
    assert call_chain(fault, "arm") == [in_outer - 1, in_main - 1]


def test_a_caller_that_has_not_pushed_its_return_address_is_the_last_one_known(tmp_path: Path) -> None:
    starts = arm_object(tmp_path / "code", {"outer": [DOWN, LOAD, CALL, UP], "inner": [PUSH, DOWN, LOAD]})
    in_outer = starts["outer"] + BEHIND
    fault = fault_in_arm(tmp_path / "code", starts["inner"] + 8, 0, [*LOCALS, 4, 5, in_outer, *LOCALS, 4, 5, in_outer])
    assert call_chain(fault, "arm") == [in_outer - 1]


def test_what_another_function_pushes_does_not_count_for_a_leaf_without_a_symbol(tmp_path: Path) -> None:
    """The stack still has a return address where the function before the leaf would have pushed its own."""
    starts = arm_object(tmp_path / "code", {"caller": CALLING, "other": CALLING, "leaf": [LOAD, LOAD]}, stripped=True)
    left = starts["other"] + BEHIND
    in_caller = starts["caller"] + BEHIND
    fault = fault_in_arm(tmp_path / "code", starts["leaf"] + 4, in_caller, [*LOCALS, 4, 5, left, *LOCALS, 4, 5, left])
    assert call_chain(fault, "arm") == [in_caller - 1]


def test_a_function_without_a_symbol_that_has_called_another_one_is_known_by_its_code(tmp_path: Path) -> None:
    starts = arm_object(tmp_path / "code", {"outer": CALLING, "inner": [PUSH, DOWN, CALL, LOAD]}, stripped=True)
    in_outer, link = starts["outer"] + BEHIND, starts["inner"] + BEHIND
    fault = fault_in_arm(tmp_path / "code", starts["inner"] + BEHIND, link, [*LOCALS, 4, 5, in_outer, *LOCALS, 4, 5, 0])
    assert call_chain(fault, "arm") == [in_outer - 1]
