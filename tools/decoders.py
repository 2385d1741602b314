"""Whether harness/isa/encodings has every access that the emulator's decoder, the disassembler and the assembler know.

It reads the decoder's tables where the pinned emulator's source lies, and keeps nothing of them.
"""

from __future__ import annotations

import random
import re
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.build.emulators.qemu_source import pinned_qemu, unpacked_source
from harness.build.toolchain import tool
from harness.core.errors import InfrastructureError
from harness.core.processes import process
from harness.core.target_model import Endianness
from harness.isa import rules
from harness.run.sweep import program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.core.target_model import Target, Toolchain
    from harness.isa.encodings.encoding import Encoding, EncodingTable, Exempt, RowForm, SlotForm
    from harness.workflows.workbench import Workbench

SAMPLES = 16
"""How many instructions of each pattern the disassembler is asked about."""
RANDOM_WORDS = 10_000
"""How many more it is asked about in each state, wherever they lie."""
_FIELD = re.compile(r"\w+:s?(\d+)")


class Pattern(NamedTuple):
    """A line of a decoder's table: what is decoded alike."""

    name: str
    mask: int
    """The bits that the line fixes."""
    value: int
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


def source_folder(bench: Workbench) -> Path:
    """The pinned emulator's source; fetched if it is not in the cache."""
    return unpacked_source(bench.fetcher, pinned_qemu())


def rows(file: Path, form: RowForm) -> list[Pattern]:
    """The rows of a decoder's table in C, in order."""
    found = []
    text = file.read_text("utf-8")
    for row in re.finditer(form.row, text, re.MULTILINE):
        mask, value = form.fixed(row)
        line = text.count("\n", 0, row.start("name")) + 1
        divided = form.divided(row["name"], mask, value) if form.divided else [(row["name"], mask, value)]
        found += [Pattern(*one, file.name, line) for one in divided]
    return found[::-1] if form.is_last_first else found


def patterns(file: Path) -> list[Pattern]:
    """The patterns of a decodetree, in order (QEMU docs/devel/decodetree.rst)."""
    formats: dict[str, str] = {}
    found = []
    for number, line in _logical_lines(file.read_text("utf-8")):
        name, *words = line.split()
        if name[0] in "%&{}[]":
            continue
        bits = "".join(_bits(word) for word in words)
        for word in words:
            if word.startswith("@") and word in formats:
                bits = _merged(bits, formats[word])
        if name.startswith("@"):
            formats[name] = bits
            continue
        mask = int(re.sub(r"[01]", "1", bits).replace(".", "0"), 2)
        found.append(Pattern(name, mask, int(bits.replace(".", "0"), 2), file.name, number))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        plain = before + line.partition("#")[0].strip()
        if plain.endswith("\\"):
            before = plain[:-1] + " "
        elif plain.strip(" {}[]"):
            before = ""
            yield number, plain
        else:
            before = ""


def _bits(word: str) -> str:
    """The bits that a word stands for, with a point for each that is open; empty for a word that is none."""
    if re.fullmatch(r"[01.-]+", word):
        return word.replace("-", ".")
    field = _FIELD.fullmatch(word)
    return "." * int(field[1]) if field else ""


def _merged(bits: str, others: str) -> str:
    return "".join(other if bit == "." else bit for bit, other in zip(bits, others, strict=True))


class DecodedState:
    """The decoder's tables of one instruction set."""

    def __init__(self, source: Path, table: EncodingTable, state: str) -> None:
        self.table, self.state = table, state
        self.decoders = [
            (one, rows(source / one.file, one.form) if one.form else patterns(source / one.file))
            for one in table.decoders
            if one.state == state
        ]
        self._shift = table.states[state].bits - 8
        self._by_first_byte: dict[tuple[int, int], list[Pattern]] = {}

    def pattern_of(self, word: int) -> Pattern | None:
        """The first pattern that an instruction has."""
        for number, (decoder, _) in enumerate(self.decoders):
            if decoder.decodes(word):
                seen = word ^ decoder.flipped
                for one in self._candidates(number, seen >> self._shift):
                    if seen & one.mask == one.value:
                        return one
        return None

    def _candidates(self, number: int, first: int) -> list[Pattern]:
        """Those of a decoder whose first byte is the given one."""
        if (number, first) not in self._by_first_byte:
            bits = 0xFF << self._shift
            self._by_first_byte[number, first] = [
                one for one in self.decoders[number][1] if (first << self._shift ^ one.value) & one.mask & bits == 0
            ]
        return self._by_first_byte[number, first]

    def is_access(self, one: Pattern | None) -> bool:
        """Whether a pattern is of instructions that access memory, by its name."""
        return one is not None and re.fullmatch(self.table.decoder_names, one.name) is not None

    def samples(self, chance: random.Random) -> dict[Pattern | None, list[int]]:
        """Instructions that the decoder takes for each of its patterns."""
        form = self.table.states[self.state]
        found: dict[Pattern | None, list[int]] = {}
        for decoder, listed in self.decoders:
            for one in listed:
                for _ in range(4 * SAMPLES):
                    word = (one.value | chance.getrandbits(form.bits) & ~one.mask) ^ decoder.flipped
                    if self.pattern_of(word) == one and len(found.setdefault(one, [])) < SAMPLES:
                        found[one].append(word)
        return found


def decoded_states(source: Path, table: EncodingTable) -> dict[str, DecodedState]:
    """State -> the decoder's tables of it."""
    return {state: DecodedState(source, table, state) for state in table.states}


def disassembled(table: EncodingTable, tools: Toolchain, state: str, words: Sequence[int]) -> list[str]:
    """The text of instructions."""
    form = table.states[state]
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(form.bytes_of(word, Endianness.BIG) + form.padding for word in words))
        file.flush()
        how = _holding(file.name, form, tools) if form.object_format else ["-b", "binary"]
        command = [tool(tools, "objdump"), "-D", "-z", *how, *form.disassembler, *table.registers, file.name]
        listing = process.run_successfully(command, problem="cannot disassemble", deadline_seconds=300).text
    found = {int(at, 16): (code, program.plain(text, table)) for at, code, text in program.LISTED.findall(listing)}
    step = form.bits // 8 + len(form.padding)
    has_choice = form.bytes_of(1, Endianness.BIG)[0] == 0
    order = Endianness.BIG if has_choice else Endianness.LITTLE
    told = [found.get(step * number, ("", "")) for number in range(len(words))]
    # With padding, what objdump does not know may be shorter than an instruction.
    whole = [
        program.code_of(code, table, order) == word if code else False
        for (code, _), word in zip(told, words, strict=True)
    ]
    assert all(whole) or form.padding, f"{state}: not one line for each instruction"
    return [text if is_whole else "" for (_, text), is_whole in zip(told, whole, strict=True)]


def _holding(file: str, form: SlotForm, tools: Toolchain) -> list[str]:
    """Make of a file's bytes an object's code. No option of the disassembler is needed then."""
    command = [tool(tools, "objcopy"), "-I", "binary", "-O", form.object_format, "--rename-section", ".data=.text,code"]
    process.run_successfully([*command, file, file], problem="cannot make an object", deadline_seconds=300)
    return []


def assembled(target: Target, tools: Toolchain, state: str, lines: Sequence[str]) -> bytes:
    """The bytes of instructions."""
    table = program.table_of(target)
    assert table is not None
    with tempfile.TemporaryDirectory() as folder:
        source, made, plain = (Path(folder) / name for name in ("lines.S", "lines.o", "lines.bin"))
        form = table.states[state]
        head = [table.preamble[rules.model(target)], table.syntax, form.begin]
        source.write_text("\n".join([*head, *lines, ""]), "utf-8")
        commands: list[list[str | Path]] = [
            [tool(tools, "gcc"), *target.compiler_flags, *form.assembler, "-c", source, "-o", made],
            [tool(tools, "objcopy"), "-O", "binary", "-j", ".text", made, plain],
        ]
        for command in commands:
            process.run_successfully(command, problem="cannot assemble", deadline_seconds=300)
        return plain.read_bytes()


class Made(NamedTuple):
    """The instructions that the sweep of a target makes."""

    target: Target
    tools: Toolchain
    instructions: list[tuple[Encoding, program.SweptInstruction]]


def made(bench: Workbench, target: Target) -> Made:
    """The instructions of a target's sweep, from its program."""
    tools, chosen = bench.toolchain_of(target), program.encodings(target)
    found = program.instructions(target, tools, program.compile_sweep(bench.cache, target, tools, chosen))
    return Made(target, tools, [(one, found[number]) for number, one in enumerate(chosen)])


def differences(source: Path, sweeps: Sequence[Made]) -> list[str]:
    """What encodings, decoder, disassembler and assembler do not agree on, for targets of one instruction set.

    What harness/isa/encodings explains is left out.
    """
    table = program.table_of(sweeps[0].target)
    assert table is not None
    found: list[str] = []
    for state, decoded in decoded_states(source, table).items():
        met: set[Pattern | None] = set()
        unread: set[Pattern | None] = set()
        for sweep in sweeps:
            mine = [(one, instruction) for one, instruction in sweep.instructions if one.state == state]
            for one, instruction in mine:
                pattern = decoded.pattern_of(instruction.code)
                met.add(pattern)
                is_read = re.match(table.names, instruction.text) is not None
                if not is_read:
                    unread.add(pattern)
                if not decoded.is_access(pattern):
                    found.append(f"{one.name}: the decoder takes it for {pattern}")
                if is_read == bool(explained(table.unread, f"{state} {one.text}")):
                    found.append(f"{one.name}: the disassembler prints {instruction.text}")
            found += _altered(sweep, state, [instruction for _, instruction in mine])
        found += _unknown(decoded, sweeps[-1], met, unread)
    return found


def _altered(sweep: Made, state: str, instructions: Sequence[program.SweptInstruction]) -> Iterator[str]:
    """The first instruction of which the assembler makes something else than what the disassembler read."""
    table = program.table_of(sweep.target)
    assert table is not None
    again = [
        one
        for one in instructions
        if re.match(table.names, one.text) and not explained(table.unassembled, f"{state} {one.text}")
    ]
    form = table.states[state]
    rest = assembled(sweep.target, sweep.tools, state, [one.text for one in again]) if again else b""
    for one in again:
        expected = form.bytes_of(one.code, sweep.target.endianness)
        if not rest.startswith(expected):
            yield f"{state} {one.text}: the assembler makes {rest[: len(expected)].hex()} of it, not {expected.hex()}"
            return
        rest = rest[len(expected) :]


def _unknown(
    decoded: DecodedState, sweep: Made, met: set[Pattern | None], unread: set[Pattern | None]
) -> Iterator[str]:
    """Accesses of the decoder or of the disassembler that the other does not know, or that no encoding makes.

    `met`: the patterns of encodings; `unread`: those of encodings that the disassembler does not know.
    """
    table, state = decoded.table, decoded.state
    words = _sampled_words(decoded)
    every = [word for listed in words.values() for word in listed]
    texts = dict(zip(every, disassembled(table, sweep.tools, state, every), strict=True))
    for pattern, listed in words.items():
        accesses = [word for word in listed if re.match(table.names, texts[word])]
        unexplained = [word for word in accesses if not explained(table.unmade, f"{state} {texts[word]}")]
        if not decoded.is_access(pattern):
            made_so = (word for word in unexplained if _is_made(sweep, state, texts[word], word))
            yield from (f"{state} {texts[word]}: the decoder takes it for {pattern}" for word in islice(made_so, 1))
        elif pattern is None or (not accesses and explained(table.unread, f"{state} {pattern.name}")):
            continue
        elif not accesses and pattern not in unread:
            yield f"{state} {pattern}: the disassembler knows no access, but {[texts[word] for word in listed[:3]]}"
        elif pattern not in met and unexplained:
            yield f"{state} {pattern}: no encoding makes it; it is {[texts[word] for word in unexplained[:3]]}"


def _sampled_words(decoded: DecodedState) -> dict[Pattern | None, list[int]]:
    """Pattern -> words that it decodes: samples of each pattern, and random words; None for words without one."""
    chance = random.Random(1)
    words = decoded.samples(chance)
    bits = decoded.table.states[decoded.state].bits
    for word in (chance.getrandbits(bits) for _ in range(RANDOM_WORDS)):
        if any(decoder.decodes(word) for decoder, _ in decoded.decoders):
            words.setdefault(decoded.pattern_of(word), []).append(word)
    return words


def _is_made(sweep: Made, state: str, text: str, word: int) -> bool:
    """Whether the assembler makes this instruction of its text: disassemblers overlook bits that have to be zero."""
    table = program.table_of(sweep.target)
    assert table is not None
    try:
        return assembled(sweep.target, sweep.tools, state, [text]) == table.states[state].bytes_of(
            word, sweep.target.endianness
        )
    except InfrastructureError:
        return False


def explained(listed: Sequence[Exempt], name: str) -> str:
    """The reason that is listed for an instruction; empty if none is."""
    return next((one.because for one in listed if re.fullmatch(one.text, name)), "")
