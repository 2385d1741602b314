"""The tables of PowerPC's loads and stores, and how they are compared with the emulator's decoder and objdump. Their
rows are in harness.isa.encodings.powerpc.instructions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.target_model import Endianness
from harness.isa.encodings.encoding import DecoderTable, EncodingTable, Exempt, RowForm, SlotForm
from harness.isa.encodings.powerpc.instructions import FORMS
from harness.isa.encodings.powerpc.register_file import PowerpcTarget

if TYPE_CHECKING:
    import re

FOLDER = Path(__file__).parent


def _primary(code: int, two: str, three: str) -> tuple[int, int]:
    """A mask and a value from an opcode of 6 bits and the two halves of its extension, of which 0xFF is none."""
    mask, value = 0x3F << 26, code << 26
    for text, shift in ((two, 1), (three, 6)):
        if int(text, 16) != 0xFF:
            mask, value = mask | 0x1F << shift, value | int(text, 16) << shift
    return mask, value


def _handler(row: re.Match[str]) -> tuple[int, int]:
    return _primary(int(row["one"], 16), row["two"], row["three"])


def _indexed(row: re.Match[str]) -> tuple[int, int]:
    return _primary(0x1F, row["two"], row["three"])


_HANDLERS = RowForm(
    r'^GEN_HANDLER\w*\((?P<name>\w+), *(?:"[\w.]+", *)?0x(?P<one>\w+), *0x(?P<two>\w+), *0x(?P<three>\w+)', _handler
)
_INDEXED = RowForm(r"^GEN_(?:LD|ST)XF?(?:_\w+)?\((?P<name>\w+), *\w+, *0x(?P<two>\w+), *0x(?P<three>\w+)", _indexed)
_ELEMENTS = "Which element of the register it moves depends on the address, which no row of this table can say."
_LATER = "no target's CPU has it."
_BOTH = [
    Exempt(r" [ls]t?[wd]at .*", f"POWER9 (Power ISA 3.0): {_LATER}"),
    Exempt(r" (l|st)ve[bhw]x .*", _ELEMENTS),
    Exempt(r" lvs[lr] .*", "It makes a permutation of an address, and accesses nothing."),
    Exempt(r" (l|st)\w+(cix|epx|epxl) .*", f"Cache-inhibited, or of another process (book III): {_LATER}"),
    Exempt(r" (l|st)f?[bhwd]dx .*", f"Decorated storage of e500mc: {_LATER}"),
    Exempt(r" (l|st)v((sw|t[lr]|f[lr]|ex[bhw]|[lr])xl?|sm) .*", f"AltiVec of e6500 and of Cell: {_LATER}"),
    Exempt(r" (l|st)fqu?x? .*", f"Quadwords of POWER2: {_LATER}"),
    Exempt(r" e[cv]\w+ .*", f"Signal processing of e500, and external control: {_LATER}"),
]


def _table(machines: list[PowerpcTarget], unmade: list[Exempt]) -> EncodingTable:
    return EncodingTable(
        encodings=[encoding for machine in machines for form in FORMS for encoding in form(machine)],
        preamble={machine.target: "" for machine in machines},
        syntax="",
        states={
            "": SlotForm(
                "",
                "b sweep_return",
                ("-m", "powerpc:common64", "-EB", "-M", "any"),
                lambda word, order: word.to_bytes(4, "big" if order is Endianness.BIG else "little"),
                # gas must accept what objdump prints: names of registers, and other processors' instructions.
                assembler=("-Wa,-mregnames", "-Wa,-many"),
            )
        },
        assembly=FOLDER / "powerpc.S",
        header=FOLDER / "powerpc.h",
        names=r"(?!li |lis |la |lv?s[lr] |lnia)(l|st)[a-z]\w*\.? .*[(,]",
        decoder_names=r"(?!lscbx|LVS[LR])([lL]|ST|st(?!op))\w+|dform3[9D]",
        decoders=[
            DecoderTable("target/ppc/insn32.decode", ""),
            DecoderTable("target/ppc/translate.c", "", form=_HANDLERS),
            DecoderTable("target/ppc/translate.c", "", form=_INDEXED),
            DecoderTable("target/ppc/translate/fp-ops.c.inc", "", form=_HANDLERS),
            DecoderTable("target/ppc/translate/fp-ops.c.inc", "", form=_INDEXED),
        ],
        unread=[
            Exempt(
                r" (l|st)\wz?cix", "Cache-inhibited: objdump knows it with a zero in the last bit, as it has to be."
            ),
        ],
        unassembled=[],
        unmade=[*_BOTH, *unmade],
        lists_bytes=True,
    )


TABLE = _table(
    [PowerpcTarget("powerpc", 4)],
    [
        Exempt(
            r" (lwau?x?|[ls]t?d(u|x|ux|brx)?|stdu?x?|ldarx|stdcx\.) .*", "Of 64-bit processors (Power ISA 2.06, 3.3)."
        ),
        Exempt(
            r" (l[bh]arx|st[bh]cx\.|st?fdpx?|[ls]t?fdpx?|lfiw[az]x) .*",
            "Power ISA 2.05 and 2.06: the 7447A has neither.",
        ),
        Exempt(r" (lq|stq|lqarx|stqcx\.) .*", "Power ISA 2.07: the 7447A does not have it."),
        Exempt(r" (l|st)xv?\w+ .*", "VSX of POWER7 and later: the 7447A does not have it."),
    ],
)
TABLE64 = _table(
    [PowerpcTarget("powerpc64", 8), PowerpcTarget("powerpc64le", 8, is_big=False)],
    [
        Exempt(
            r" (?!(lxvdsx|(l|st)x(sdx|vd2x|vw4x|sspx)|lxsiw[az]x|stxsiwx) )(l|st)x\w+ .*",
            f"VSX of POWER9 and later (Power ISA 3.0 and 3.1): {_LATER}",
        ),
    ],
)
