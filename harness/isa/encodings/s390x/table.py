"""The table of z/Architecture: its states, and how it is compared with the emulator's decoder, objdump and gas."""

from __future__ import annotations

from pathlib import Path

from harness.isa.encodings.encoding import DecoderTable, EncodingTable, Exempt, SlotForm
from harness.isa.encodings.s390x.decoder_rows import row_form
from harness.isa.encodings.s390x.instruction import LONG, SHORT
from harness.isa.encodings.s390x.loads_and_stores import loads_and_stores
from harness.isa.encodings.s390x.operations import operations
from harness.isa.encodings.s390x.vector_registers import vector_registers

FOLDER = Path(__file__).parent
_FORMATS = r"RX_\w|RXY_\w|RXE|RXF|RS_\w|RSY_\w|RSL|S|SI|SIY|SIL|SS_\w|SSE|SSF|VRX|VRV|VRS_\w|VSI"
_ADDRESS_ALONE = (
    r"nop\w*|b\w*|j\w*|lay?|laey?|ex|ecag|pfd|s[lr]d?[al][gk]*|rllg?|srnm\w*|t[cd]\w+|v(lgv|lvg|erll)\w?|ves\w+|lcbb"
)
_PRIVILEGED = (
    r"csp|cspg|diag|iske|ipde|ipte|lctlg?|lpp|lpswe?|lra[gy]?|lurag?|mvc[psk]|ptlb|rrbe|servc|sck\w*|spt|spx|spka|sske|ssm"
    r"|sigp|stckc|stctl|stctg|stap|stidp|stpt|stfl|stpx|stsi|stnsm|stosm|stura|sturg|tb|tprot|\w*sch|rchp|sal|schm|siga"
    r"|stcps|stcrw|sacf?|lasp|mvc[ds]k|trace|tracg|stpt|msta|pr|pgin|qadtm|vsch|l?bear|stbear|lpswey|lptea|mc"
)
_STATE = "The processor's own state or clock, no datum; the emulator checks LAM, STAM and STFLE under every policy."
_NO_ACCESS = (
    r"B\w*|LAY?|LAEY?|LAA?EY?|EX|ECAG|PFD|S[LR][AL][GK]?|S[LR]D[AL]|S[LR][AL]G?K|RLLG?|SRNM\w*|TC[EDX]B|TD[CG][EDX]T"
    r"|VLGV|VLVG|VERLL|VES\w+|LCBB|SVC|CU\w*|J\w*|PTLB|[XCHR]SCH|RCHP|SAL|SCHM"
)
TABLE = EncodingTable(
    encodings=[*loads_and_stores(), *operations(), *vector_registers()],
    preamble={"s390x": ".machine arch13"},
    syntax="",
    states={
        SHORT: SlotForm(
            "", "jg sweep_return", ("-m", "s390:64-bit", "-EB"), lambda word, _: word.to_bytes(4, "big"), bits=32
        ),
        LONG: SlotForm(
            "",
            "jg sweep_return",
            ("-m", "s390:64-bit", "-EB"),
            lambda word, _: word.to_bytes(6, "big"),
            bits=48,
            padding=b"\x07\x00" * 3,
        ),
    },
    assembly=FOLDER / "s390x.S",
    header=FOLDER / "s390x.h",
    names=rf"(?!(?:{_ADDRESS_ALONE}) )[a-z]\w* .*\(",
    decoder_names=rf"(?!(?:{_NO_ACCESS}),)\w+, *(?:{_FORMATS})",
    decoders=[
        DecoderTable(
            "target/s390x/tcg/insn-data.h.inc",
            SHORT,
            lambda word: word >> 30 in {1, 2},
            form=row_form(32, "[4-9ab]"),
        ),
        DecoderTable(
            "target/s390x/tcg/insn-data.h.inc",
            LONG,
            lambda word: word >> 46 == 3,
            form=row_form(48, "[c-f]"),
        ),
    ],
    unread=[
        Exempt(
            r"48 (PCISTB|SIC|MPCIFC|STPCIFC|TP), *\w+",
            "objdump knows it with zeros alone in fields that it does not use.",
        ),
    ],
    unassembled=[],
    unmade=[
        Exempt(r"(32|48) ([nox]iy?|cliy?|tmy?|ts) .*", "Of a single byte, for which no address is misaligned."),
        Exempt(
            r"(32|48) (clcl[eu]|mvcl[eu]|mvcin|mvcrl|mvcos|mv[noz]|pack|pk[au]|unpk[au]?|trtr?|tr) .*",
            "Strings of bytes or digits, which lie anywhere (5, boundary alignment). MVC, CLC, NC, OC and XC are made.",
        ),
        Exempt(r"(32|48) (cv[bd][yg]?|\w*p|zap|edm?k?|srp) .*", "Decimal numbers, which the memory here is none of."),
        Exempt(
            r"(32|48) (d|dlg?|dsgf?) .*",
            "Which dividend has a quotient to see depends on what is there. Canaries make some.",
        ),
        Exempt(
            r"(32|48) (?!l[de]y? |st[de]y? |v)\w+ .*%f.*",
            "It calculates with a number, and some offsets have none. Canaries make these.",
        ),
        Exempt(r"48 c[lhgf]*hsi .*", "It compares with a constant. The canaries make it."),
        Exempt(r"48 cl?g?t\w* .*", "It traps or does nothing: there is no effect to see."),
        Exempt(r"48 llgt(at)? .*", "It clears a bit of what it loads."),
        Exempt(r"48 (csst|ectg|lpdg?|lmd|plo) .*", "It makes several accesses at once, and no compiler writes it."),
        Exempt(r"48 vlbb .*", "How many bytes it loads depends on the address."),
        Exempt(r"(32|48) (l|st)(amy?|fpc|fas|fle|ck[ef]?) .*", _STATE),
        Exempt(rf"(32|48) ({_PRIVILEGED})\b.*", "Only the kernel may use it (10, control instructions)."),
        Exempt(
            r"48 stmh .*",
            "No compiler writes it. QEMU 10.0.13 has it wrong: it stores zeros, because it shifts the high half out in "
            "place of down (target/s390x/tcg/translate.c, op_stmh).",
        ),
    ],
)
