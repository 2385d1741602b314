"""The table of a 68040: its states, and how it is compared with the emulator's decoder, objdump and gas."""

from __future__ import annotations

from pathlib import Path

from harness.isa.encodings.encoding import DecoderTable, EncodingTable, Exempt, SlotForm
from harness.isa.encodings.m68k.data_movement import data_movement
from harness.isa.encodings.m68k.decoder_rows import row_form
from harness.isa.encodings.m68k.floating_point import floating_point
from harness.isa.encodings.m68k.operations import operations

FOLDER = Path(__file__).parent
LENGTHS = (1, 2, 3, 4, 5, 6)
"""Lengths of instructions, in 16-bit words. Each length is a state of the table."""
_PRIVILEGED = "Only the kernel may use it (6)."
TABLE = EncodingTable(
    encodings=[
        encoding
        for instructions in (data_movement(), operations(), floating_point())
        for one in instructions
        for encoding in one.encodings()
    ],
    preamble={"m68k": ".cpu 68040"},
    syntax="",
    states={
        str(16 * length): SlotForm(
            "",
            "jmp sweep_return",
            ("-m", "m68k:68040", "-EB"),
            lambda word, _, length=length: word.to_bytes(2 * length, "big"),  # type: ignore[misc]
            assembler=("-m68040",),
            bits=16 * length,
            padding=b"\x4e\x71" * 6,
        )
        for length in LENGTHS
    },
    assembly=FOLDER / "m68k.S",
    header=FOLDER / "m68k.h",
    names=r"(?!lea |jmp |jsr )[a-z]\w* .*@|link|unlk",
    decoder_names=r"\w+ (memory|.*\(.*)",
    decoders=[
        DecoderTable(
            "target/m68k/translate.c",
            str(16 * length),
            form=row_form(16 * length),
        )
        for length in LENGTHS
    ],
    unread=[
        Exempt(
            r"\d+ .*(,PC|full).*",
            "The row takes modes that the instruction lacks. What stands relative to PC is no destination.",
        ),
        Exempt(
            r"\d+ fpu (load (several 0|as listed 1)|store (several 0|as listed 1)) .*",
            "Only what stores on the way down has a list of that form.",
        ),
        Exempt(r"\d+ move (An,.*|.*,An)", "A byte is none of an address register's."),
        Exempt(
            r"\d+ (pea|chk2|bf\w+|movem|fpu (load|store) (several|as listed) \d) (\(An\)\+|-\(An\))",
            "The row takes modes that the instruction lacks: those that change the base, or one of the two.",
        ),
    ],
    unassembled=[
        Exempt(
            r"\d+ .*(\)@\(|@\((?![1-9],)-?[\da-f]+,|@\([\da-f]{8}\)).*",
            "objdump prints displacements of extension words in hexadecimal, and gas takes them for decimal.",
        ),
        Exempt(r"48 move16 .*", "objdump prints the absolute address as a symbol, and without it in hexadecimal."),
    ],
    unmade=[
        Exempt(
            r"\d+ .*(@\(.*[,)]@|@\([-\da-f]+,|@\([\da-f]{8}\)|@\(0\)).*",
            "Which index, scale and displacements an address has are samples. Every instruction is made with several.",
        ),
        Exempt(r"\d+ .*%z?pc@.*", "Its address is where its code lies. Without PC, %zpc, each load is made."),
        Exempt(r"\d+ move[bwl] .*@.*,.*@.*", "It has two operands in memory. Each is made beside a simple one."),
        Exempt(r"\d+ ([an]bcd|sbcd|pack|unpk) .*", "Decimal digits by bytes: no address is misaligned for them."),
        Exempt(r"\d+ chk[wl] .*", "It traps where what is there is negative, and has no effect elsewhere."),
        Exempt(
            r"\d+ (cmp2[bwl]|chk2[wl]) .*",
            "No compiler writes it. QEMU 10.0.13 raises SIGILL: it has no CMP2, and its rows of undefined instructions "
            "take CHK2.W and CHK2.L (target/m68k/translate.c, disas_chk2 and register_m68k_insns).",
        ),
        Exempt(
            r"\d+ move[bwl] (0x\w+,.*|.*,0x\w+)",
            "An absolute address is a constant of the code, which the sweep cannot change from offset to offset.",
        ),
        Exempt(r"\d+ pea .*@\(.*", "It calculates an address, as LEA does. What it stores, and where, is made."),
        Exempt(
            r"\d+ f[a-z\d]+p .*@.*",
            "Packed decimal numbers, which a 68040 leaves to the kernel's software (1.6, and FMOVE in 5).",
        ),
        Exempt(
            r"\d+ (asr|lsr)w .*",
            "No compiler writes it. QEMU 10.0.13 tells the two apart by a bit of the addressing mode "
            "(target/m68k/translate.c, disas_shift_mem).",
        ),
        Exempt(
            r"\d+ fmovem?l %\w+@-,.*",
            "No compiler writes it. QEMU 10.0.13 leaves the base as it was "
            "(target/m68k/translate.c, gen_op_fmove_fcr).",
        ),
        Exempt(r"\d+ bfffo .*", "What it finds depends on what is there."),
        Exempt(
            r"\d+ (fsave|frestore|ptest[rw]|pflush\w*|cpush\w*|cinv\w*|moves[bwl]|movew (%sr,.*|.*,%sr)).*", _PRIVILEGED
        ),
    ],
    registers=("--insn-width=24",),
    comment=r";",
    compiler_flags=("-malign-int",),
)
