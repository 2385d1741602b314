"""The data about encodings, their prescribed effects, and the parser of decoder tables."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from harness.build.emulators.runner import Runner
from harness.core.errors import InfrastructureError
from harness.isa.encodings.encoding import RowForm
from harness.isa.encodings.m68k import decoder_rows
from harness.isa.encodings.s390x import decoder_rows as s390x_rows
from harness.plan.catalog import Catalog
from harness.run.sweep import comparison, program
from harness.run.sweep.comparison import Disagreement
from tests.support import fakes
from tools import decoders, sweeps

if TYPE_CHECKING:
    from pathlib import Path

    from harness.isa.encodings.encoding import Encoding

CATALOG = Catalog()
SWEPT = [name for name, target in CATALOG.targets.items() if program.table_of(target) is not None]


def encoding(target: str, name: str) -> Encoding:
    return next(one for one in program.encodings(CATALOG.targets[target]) if one.name == name)


def prescribed(target: str, policy: str, name: str) -> str:
    return comparison.prescription(CATALOG.targets[target], CATALOG.policies[policy], encoding(target, name))


def test_each_target_has_the_expected_number_of_encodings() -> None:
    """The count shows a form that is lost during generation."""
    counts = {name: Counter(one.state for one in program.encodings(CATALOG.targets[name])) for name in SWEPT}
    assert counts["armv5"] == {"A32": 418}
    assert counts["armv6"] == {"A32": 430}
    assert counts["armv7"] == {"A32": 1614, "T32": 1353, "T16": 17}
    assert counts["aarch64"] == counts["aarch64_be"] == {"": 1091}
    assert counts["sparc32plus"] == counts["sparc64"] == {"": 208}
    assert counts["mips"] == counts["mipsel"] == {"": 93}
    assert counts["mips64"] == counts["mips64el"] == {"": 129}
    assert counts["powerpc"] == {"": 226}
    assert counts["powerpc64"] == {"": 351}
    assert counts["powerpc64le"] == {"": 345}
    assert counts["riscv64"] == {"RVG": 165, "RVC": 18}
    assert counts["loongarch64"] == {"": 363}
    assert counts["alpha"] == {"": 110}
    assert counts["hppa"] == {"": 301}
    assert counts["s390x"] == {"32": 160, "48": 1082}
    assert counts["m68k"] == {"16": 335, "32": 1004, "48": 1269, "64": 1109, "80": 619, "96": 35}


def test_every_table_of_a_required_target_has_been_executed() -> None:
    swept = sweeps.swept_targets(CATALOG)
    assert {name for name in swept if "required" in CATALOG.targets[name].groups} <= set(sweeps.stored())
    assert set(sweeps.stored()) <= set(swept)


@pytest.mark.parametrize("name", list(sweeps.stored()))
def test_the_emulator_has_executed_the_tables_as_they_are(name: str) -> None:
    """Every encoding at every offset under every policy, which takes minutes. A table that was changed since fails."""
    found = sweeps.stored()[name]
    assert found.encodings == len(program.encodings(CATALOG.targets[name]))
    assert found.digest == sweeps.digest(CATALOG.targets[name]), f"execute it: python -m tools.sweeps {name}"


def test_a_tables_digest_changes_with_what_is_prescribed_and_not_with_what_is_cited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = CATALOG.targets["alpha"]
    every = program.encodings(target)
    before = sweeps.digest(target)

    def digest_with(changed: Encoding) -> str:
        monkeypatch.setattr(program, "encodings", lambda _: [changed, *every[:0:-1]])
        return sweeps.digest(target)

    assert digest_with(every[0]._replace(section="elsewhere")) == before
    move = every[0].moves[0]
    for changed in (
        every[0]._replace(writeback=4),
        every[0]._replace(moves=(move._replace(memory=move.memory + 1), *every[0].moves[1:])),
        every[0]._replace(unit_bytes=2 * every[0].unit_bytes),
        every[0]._replace(before=("nop",)),
    ):
        assert digest_with(changed) != before


@pytest.mark.parametrize("name", SWEPT)
def test_the_parts_of_an_encoding_are_consistent(name: str) -> None:
    every = program.encodings(CATALOG.targets[name])
    assert len({one.name for one in every}) == len(every)
    for one in every:
        # The bytes that sweep.c reserves before and after the 64 places of an access.
        assert all(move.memory >= 0 and move.memory + move.size <= 128 for move in one.moves), one.name
        assert one.moves or one.results, one.name
        stores = any(move.direction == "store" for move in one.moves)
        assert one.direction == "store" or not stores, one.name
        assert one.section
        registers = [move.register for move in one.moves if move.direction == "load" and move.size]
        assert len(set(registers)) == len(registers), one.name


@pytest.mark.parametrize(
    ("target", "policy", "name", "first"),
    [
        ("armv5", "signal", "A32 ldr r2, [r4]", "dsssdsss"),
        ("armv5", "ignore", "A32 ldr r2, [r4]", "drrrdrrr"),
        ("armv5", "ignore", "A32 str r2, [r4]", "dtttdttt"),
        ("armv5", "ignore", "A32 swp r2, r3, [r4]", "drrrdrrr"),
        ("armv5", "fixup", "A32 ldr r2, [r4]", "dddddddd"),
        ("armv7", "signal", "T32 ldr.w r2, [r4]", "dddddddd"),
        ("armv7", "strict", "T32 ldr.w r2, [r4]", "dsssdsss"),
        ("armv7", "signal", "T16 ldrb.n r2, [r4, #8]", "dddddddd"),
        ("armv7", "fixup", "A32 vld1.32 {d0, d1}, [r4:64]", "dsssssss"),
        ("armv7", "unchecked", "A32 ldrexd r2, r3, [r4]", "dddddddd"),
        ("sparc64", "signal", "ldd [%o4], %f34", "dsssdsss"),
        ("sparc64", "signal", "ldd [%o4], %o2", "dsssssss"),
        ("sparc64", "strict", "ldd [%o4], %f34", "dsssssss"),
        ("sparc32plus", "solaris-4s", "ldx [%o4], %o2", "dsssdsss"),
        # An access that drops the low bits of its address does so under every policy.
        ("mips", "signal", "luxc1 $f2, $5($4)", "dttttttt"),
        ("mips64", "strict", "suxc1 $f2, $5($4)", "dttttttt"),
        ("mips", "signal", "lwl $2, 0($4); lwr $2, 3($4)", "dddddddd"),
        ("mips", "linux-mips", "ll $2, 0($4)", "dsssdsss"),
        ("mipsel", "linux-mips", "lw $2, 0($4)", "dddddddd"),
        ("mips64el", "strict", "ldl $2, 7($4); ldr $2, 0($4)", "dddddddd"),
        ("powerpc", "signal", "lmw 29,0(4)", "dsssdsss"),
        ("powerpc", "signal", "lfd 2,0(4)", "dsssdsss"),
        ("powerpc", "signal", "stw 3,0(4)", "dddddddd"),
        ("powerpc64", "signal", "lmw 29,0(4)", "dddddddd"),
        ("powerpc64", "strict", "lxvw4x 34,0,4", "dsssdsss"),
        ("loongarch64", "signal", "ldptr.w $a2, $a0, 8", "dsssdsss"),
        ("loongarch64", "linux-loongarch", "fldx.d $f10, $a0, $a4", "dddddddd"),
        ("loongarch64", "linux-loongarch", "ldgt.w $a2, $a0, $a4", "dsssdsss"),
        ("loongarch64", "linux-loongarch", "vldrepl.h $vr12, $a0, 8", "dsdsdsds"),
        ("riscv64", "sbi-riscv", "RVG ld a2, 0(a0)", "dddddddd"),
        ("s390x", "signal", "32 l %r3,0(%r4)", "dddddddd"),
        ("s390x", "strict", "32 l %r3,0(%r4)", "dsssdsss"),
        ("hppa", "signal", "ldws,ma 8(%r4),%r3", "dsssdsss"),
        ("hppa", "linux-parisc", "fldds 8(%r4),%fr5", "dddddddd"),
        ("hppa", "linux-parisc", "ldcws 8(%r4),%r3", "dsssdsss"),
        ("m68k", "linux-m68k", "32 cas.l %d7,%d3,(%a0)", "dddddddd"),
        ("m68k", "strict", "16 add.l %d2,(%a0)", "dsssdsss"),
        ("riscv64", "sbi-riscv", "RVG amoswap.d a3, a2, (a0)", "dsssssss"),
    ],
)
def test_a_prescription_has_a_letter_for_each_offset(target: str, policy: str, name: str, first: str) -> None:
    assert prescribed(target, policy, name) == first * 8


def test_a_disagreement_is_reported_with_its_place() -> None:
    one = Disagreement(
        encoding="A32 ldr r2, [r4]",
        section="A8.8.62",
        place="inside a page",
        prescribed="dsssd" + "d" * 59,
        actual="ddddd" + "d" * 58 + "?",
        details="at 63: signal 11",
    )
    text = "A32 ldr r2, [r4], inside a page: 'd' where 's' is prescribed at 1-3, 63 (at 63: signal 11)"
    assert str(one) == text


@pytest.mark.parametrize("body", ["echo 0 0 dddd", "kill -SEGV $$", "printf '0 0 %064d\\n' 0 | tr 0 d"])
def test_a_program_that_does_not_complete_gives_no_sweep(tmp_path: Path, body: str) -> None:
    target = CATALOG.targets["armv5"]
    runner = Runner(target=target, policy=CATALOG.policies["signal"], program=None, options=[], records_faults=False)
    made = fakes.write(tmp_path / "sweep", f"#!/bin/sh\n{body}\n", mode=0o755)
    with pytest.raises(InfrastructureError, match="the sweep ended with status"):
        comparison.sweep(made, runner, program.encodings(target))


def test_a_program_has_a_slot_and_a_row_for_each_encoding() -> None:
    target = CATALOG.targets["armv7"]
    chosen = [encoding("armv7", "T32 ldrd r2, r3, [r4], #-8"), encoding("armv7", "A32 clrex; strex r6, r2, [r4]")]
    text = program.assembly(target, chosen)
    assert ".thumb\nsweep_slot.0:\nldrd r2, r3, [r4], #-8\nsweep_behind.0:\n" in text
    assert ".arm\nsweep_slot.1:\nclrex\nstrex r6, r2, [r4]\nsweep_behind.1:\nb sweep_return\n" in text
    one = ".long sweep_slot.0 + 1, sweep_behind.0, sweep_behind.0\n"
    assert one + ".long sweep_slot.1, sweep_behind.1, sweep_behind.1\n" in text
    source = program.source(target, chosen)
    assert "{8, 4, 0, -1, 0, -8, 0, 0, 2, 0, 0}" in source
    assert "{4, 4, 0, -1, 0, 0, 0, 2, 0, 0, 1}" in source
    assert "{0, 4, 4, 0, 0, COPY, 0, 12, 0}" in source


@pytest.mark.parametrize(
    ("target", "name", "places"),
    [
        # The lowest bytes of a 4-byte register are its last ones.
        ("armeb", "A32 ldrh r2, [r4]", [10]),
        ("armeb", "A32 ldrd r2, r3, [r4]", [8, 12]),
        # s1 is the high half of d0, which comes first.
        ("armeb", "A32 vldr s1, [r4]", [64]),
        ("armeb", "A32 vldr d1, [r4]", [72]),
        ("armeb", "A32 vld2.32 {d0[1], d2[1]}, [r4]", [64, 80]),
        ("armv7", "A32 vld2.32 {d0[1], d2[1]}, [r4]", [68, 84]),
        ("aarch64_be", "ldrb w2, [x4]", [23]),
        # The sign fills the low word, and zeros the high one.
        ("aarch64_be", "ldrsb w2, [x4]", [23, 20]),
        ("aarch64", "ldrsb w2, [x4]", [16, 20]),
        ("aarch64_be", "ldr q2, [x4]", [288]),
        ("aarch64_be", "ldr s2, [x4]", [300]),
    ],
)
def test_the_bytes_of_a_move_are_at_the_places_that_the_byte_order_prescribes(
    target: str, name: str, places: list[int]
) -> None:
    machine, one = CATALOG.targets[target], encoding(target, name)
    table = program.table_of(machine)
    assert table is not None
    assert [table.place(move, machine.endianness) for move in one.moves] == places


@pytest.mark.parametrize(
    ("target", "name", "moves", "address"),
    [
        # Direction, bytes past the address, place in the register file, size, and how many bytes of the register a load
        # fills besides. Then unit, displacement, and what is added to the base. Registers lie one behind the other.
        # ARM DDI 0406C, A8.8.320: the base moves by the bytes of the list.
        ("armv7", "A32 vld1.16 {d0}, [r4]!", [("load", 2 * i, 64 + 2 * i, 2, 0) for i in range(4)], (2, 0, 8)),
        # ARM DDI 0487, C7.2: a vector of 8 bytes clears the rest of its register, and a lane does not. Lanes of 16
        # bytes are numbered to 15. Structures lie one behind the other, in registers of 16 bytes behind the integers'.
        (
            "aarch64",
            "ld1 {v0.4h}, [x4], #8",
            [("load", 2 * i, 256 + 2 * i, 2, 8 * (i == 3)) for i in range(4)],
            (2, 0, 8),
        ),
        ("aarch64", "ld1 {v0.b}[15], [x4]", [("load", 0, 271, 1, 0)], (1, 0, 0)),
        ("aarch64", "st2 {v0.h, v1.h}[0], [x4], #4", [("store", 0, 256, 2, 0), ("store", 2, 272, 2, 0)], (2, 0, 4)),
        ("aarch64", "ldtrh w2, [x4, #-7]", [("load", 0, 16, 2, 6)], (2, -7, 0)),
        # The SPARC Architecture Manual V9, 6.3.1.2: in the other order the first byte is the lowest. %o2 is number 10.
        ("sparc64", "lduha [%o4] 0x88, %o2", [("load", 0, 87, 1, 0), ("load", 1, 86, 1, 6)], (2, 0, 0)),
        ("sparc64", "ldx [%o4 - 8], %o2", [("load", 0, 80, 8, 0)], (8, -8, 0)),
        # The RISC-V Instruction Set Manual, 2.6: displacements have a sign.
        ("riscv64", "RVG lw a2, -8(a0)", [("load", 0, 96, 4, 4)], (4, -8, 0)),
        # PA-RISC 1.1, LDWM: a negative displacement is added before, a positive one afterwards.
        ("hppa", "ldwm 17(%r4),%r3", [("load", 0, 12, 4, 0)], (4, 0, 17)),
        ("hppa", "ldwm -18(%r4),%r3", [("load", 0, 12, 4, 0)], (4, -18, -18)),
        ("hppa", "ldhs,mb 8(%r4),%r3", [("load", 0, 14, 2, 2)], (2, 8, 8)),
        # Power ISA, Load String: the bytes fill registers from the left, and zeros the rest of the last one.
        ("powerpc", "lswi 7,4,7", [("load", 0, 28, 4, 0), ("load", 4, 32, 3, 0), ("load", 4, 36, 0, 1)], (1, 0, 0)),
        # z/Architecture Principles of Operation, 7: an even register and the next one, of which the low words count.
        ("s390x", "32 cds %r6,%r8,0(%r4)", [("load", 0, 52, 4, 0), ("load", 4, 60, 4, 0)], (8, 0, 0)),
        # M68000 Family Programmer's Reference Manual, 2.2.8 (a scaled index), and chapters 4 and 5: DIVU.W divides by a
        # word, MOVEM.W stores the low words, and an immediate byte takes a word of the instruction.
        ("m68k", "48 move.b (0x1234,%a0,%d4.l*2),%d2", [("load", 0, 11, 1, 0)], (1, 0x1234 + 2 * 8, 0)),
        ("m68k", "16 divu.w (%a0)+,%d2", [("load", 0, 0, 0, 0)], (2, 0, 2)),
        ("m68k", "32 movem.w %d2-%d3,-(%a0)", [("store", 0, 10, 2, 0), ("store", 2, 14, 2, 0)], (2, -4, -4)),
        ("m68k", "32 cmpi.b #-77,(%a0)+", [("load", 0, 0, 0, 0)], (1, 0, 1)),
        ("m68k", "32 fmove.b 11(%a5),%fp0; fmove.b %fp0,(%a0)", [("store", 0, 11, 1, 0)], (1, 0, 0)),
        ("m68k", "32 fmove.d 64(%a5),%fp0; fmove.d %fp0,(%a0)", [("store", 0, 64, 8, 0)], (8, 0, 0)),
    ],
)
def test_an_encoding_moves_what_the_manual_says(
    target: str, name: str, moves: list[tuple[str, int, int, int, int]], address: tuple[int, int, int]
) -> None:
    one = encoding(target, name)
    assert [(move.direction, move.memory, move.register, move.size, move.extension) for move in one.moves] == moves
    assert (one.unit_bytes, one.displacement, one.writeback) == address


def test_a_store_after_a_successful_comparison_is_of_the_second_pair() -> None:
    """CDS compares with a pair that is fetched before, and stores %r8 and %r9."""
    (one,) = (
        each
        for each in program.encodings(CATALOG.targets["s390x"])
        if each.text == "cds %r0,%r8,8(%r4)" and each.moves[0].direction == "store"
    )
    assert [(move.memory, move.register, move.size) for move in one.moves] == [(0, 68, 4), (4, 76, 4)]
    assert one.results == ((16, 0),), "the condition code is 0"


def test_a_program_continues_after_the_instructions_that_show_an_effect() -> None:
    target = CATALOG.targets["m68k"]
    compared, set_to = encoding("m68k", "16 move.l (%a0),%d2; cmp.l (%a0),%d2"), encoding("m68k", "32 bset #7,(%a0)")
    text = program.assembly(target, [compared, set_to])
    slot = "sweep_slot.0:\nmove.l (%a0),%d2\ncmp.l (%a0),%d2\nsweep_behind.0:\nseq %d3\nextb.l %d3\nsweep_end.0:\njmp"
    assert slot in text
    assert ".long sweep_slot.0, sweep_behind.0, sweep_end.0\n.long sweep_slot.1, sweep_behind.1, sweep_behind.1" in text
    source = program.source(target, [compared, set_to])
    assert "{1, 0, 1, 0, 0, OR, 1, 64, 128}" in source


def test_an_outcome_that_is_not_prescribed_is_reported_with_its_place(tmp_path: Path) -> None:
    """The example is FMOVE.X on a 68040, which accepts any address."""
    target, one = CATALOG.targets["m68k"], encoding("m68k", "32 fmove.x (%a0),%fp1")
    for letters, wrong in (("dd", 0), ("ds", 2), ("d?", 2)):
        rows = "\n".join(f"0 {place} {letters * 32}" for place in (0, 1))
        made = fakes.write(tmp_path / "sweep", f"#!/bin/sh\necho '{rows}'\n", mode=0o755)
        chosen = CATALOG.policies["signal"]
        runner = Runner(target=target, policy=chosen, program=None, options=[], records_faults=False)
        assert len(comparison.sweep(made, runner, [one]).disagreements) == wrong


def test_a_decoders_table_is_read_with_formats_fields_and_groups(tmp_path: Path) -> None:
    table = tmp_path / "some.decode"
    table.write_text(
        "# A comment\n"
        "&args !extern rd rn\n"
        "%field 0:4\n"
        "@format ....  .... rd:4 1111 &args \\\n"
        "        rn=%field\n"
        "{\n"
        "  FIRST 0001 0--- .... .... @format # one\n"
        "  [\n"
        "    SECOND 0001 .... rd:4 rn:4\n"
        "  ]\n"
        "}\n"
        "THIRD 1000 \\\n"
        "      0000 ........\n",
        "utf-8",
    )
    found = [(one.name, one.mask, one.value) for one in decoders.patterns(table)]
    assert found == [("FIRST", 0xF80F, 0x100F), ("SECOND", 0xF000, 0x1000), ("THIRD", 0xFF00, 0x8000)]


def test_a_decoders_rows_in_c_are_read(tmp_path: Path) -> None:
    table = tmp_path / "some.c"
    table.write_text("enum {\n    FIRST = (0x2 << 4),\n    OTHER = FIRST,\n    SECOND = (0x3 << 4),\n};\n", "utf-8")
    form = RowForm(r"(?P<name>\w+) = \(0x(?P<code>\d) << 4\)", lambda row: (0xF0, int(row["code"], 16) << 4))
    assert [tuple(one) for one in decoders.rows(table, form)] == [
        ("FIRST", 0xF0, 0x20, "some.c", 2),
        ("SECOND", 0xF0, 0x30, "some.c", 4),
    ]


def test_rows_of_the_68000_are_split_by_addressing_mode_and_later_ones_take_precedence(tmp_path: Path) -> None:
    table = tmp_path / "translate.c"
    table.write_text(
        "    BASE(undef,     0000, 0000);\n"
        "    INSN(negx,      4080, fff8, CF_ISA_A);\n"
        "    INSN(negx,      4000, ff00, M68K);\n"
        "    INSN(cas,       0ec0, ffc0, CAS);\n"
        "    BASE(swap,      4840, fff8);\n",
        "utf-8",
    )
    short = [(one.name, one.mask, one.value) for one in decoders.rows(table, decoder_rows.row_form(16))]
    assert short[0] == ("swap", 0xFFF8, 0x4840)
    assert ("negx (An)+", 0xFF38, 0x4018) in short
    assert short[-1] == ("undef", 0, 0)
    assert not [name for name, *_ in short if name.startswith("cas") or "d16" in name]
    long = [(one.name, one.mask, one.value) for one in decoders.rows(table, decoder_rows.row_form(32))]
    assert ("negx (d16,An)", 0xFF380000, 0x40280000) in long
    assert ("negx (d8,An,Xn)", 0xFF380100, 0x40300000) in long
    assert ("cas (An)", 0xFFF8FE38, 0x0ED00000) in long


def test_a_move_of_the_68000_has_two_operands_of_which_one_is_simple_if_both_are_in_memory(tmp_path: Path) -> None:
    """M68000 Family Programmer's Reference Manual, 4, MOVE: source in the lowest six bits, destination above them."""
    table = tmp_path / "translate.c"
    table.write_text("    BASE(move, 1000, f000);\n", "utf-8")
    found = {
        bits: {name: (mask, value) for name, mask, value, *_ in decoders.rows(table, decoder_rows.row_form(bits))}
        for bits in (16, 32, 48)
    }
    short = ["Dn", "An", "(An)", "(An)+", "-(An)"]
    assert set(found[16]) == {f"move {source},{place}" for source in short for place in short}
    assert found[16]["move (An)+,-(An)"] == (0xF1F8, 0x1118)
    assert found[32]["move Dn,(d8,An,Xn)"] == (0xF1F80100, 0x11800000)
    assert found[32]["move (d16,An),Dn"] == (0xF1F80000, 0x10280000)
    assert found[32]["move immediate,(An)"] == (0xF1FF0000, 0x10BC0000)
    assert found[48]["move (d16,An),(d8,An,Xn)"] == (0xF1F800000100, 0x11A800000000)
    assert found[48]["move (d8,An,Xn),short"] == (0xFFF801000000, 0x11F000000000)
    assert "move (d8,An,Xn),(d8,An,Xn)" not in found[48]
    # What is relative to PC is no destination.
    assert not [name for rows in found.values() for name in rows if "relative" in name.partition(",")[2]]


@pytest.mark.parametrize(
    ("target", "state", "instruction", "expected"),
    [
        # lwz %r3,0(%r4)
        ("powerpc64", "", 0x80640000, "80640000"),
        ("powerpc64le", "", 0x80640000, "00006480"),
        ("mips", "", 0x8C820004, "8c820004"),
        ("mipsel", "", 0x8C820004, "0400828c"),
        # BE8 (ARM DDI 0406C, A3.3), and AArch64: instructions are little-endian on big-endian machines, too.
        ("armv7", "A32", 0xE5942000, "002094e5"),
        ("armeb", "A32", 0xE5942000, "002094e5"),
        ("armv7", "T32", 0xF8D42000, "d4f80020"),
        ("aarch64_be", "", 0xF9400082, "820040f9"),
        ("sparc64", "", 0xD45B0000, "d45b0000"),
        ("s390x", "48", 0xE33040000004, "e33040000004"),
        ("m68k", "32", 0x24280008, "24280008"),
    ],
)
def test_an_instruction_lies_in_memory_in_the_order_of_its_machine(
    target: str, state: str, instruction: int, expected: str
) -> None:
    machine = CATALOG.targets[target]
    table = program.table_of(machine)
    assert table is not None
    assert table.states[state].bytes_of(instruction, machine.endianness).hex() == expected


@pytest.mark.parametrize(
    ("code", "form", "mask", "value"),
    [
        # z/Architecture Principles of Operation, 5, instruction formats: where a format has the rest of its opcode.
        ("5800", "RX_a", 0xFF000000, 0x58000000),
        ("a708", "RI_a", 0xFF0F0000, 0xA7080000),
        ("b222", "RRE", 0xFFFF0000, 0xB2220000),
        ("b20c", "S", 0xFFFF0000, 0xB20C0000),
        ("c004", "RIL_c", 0xFF0F00000000, 0xC00400000000),
        ("d200", "SS_a", 0xFF0000000000, 0xD20000000000),
        ("e304", "RXY_a", 0xFF00000000FF, 0xE30000000004),
        ("e544", "SIL", 0xFFFF00000000, 0xE54400000000),
        ("ed09", "RXE", 0xFF000000FFFF, 0xED0000000009),
        ("ed0e", "RXF", 0xFF0000000FFF, 0xED000000000E),
    ],
)
def test_rows_of_z_architecture_have_their_opcode_where_their_format_has_it(
    tmp_path: Path, code: str, form: str, mask: int, value: int
) -> None:
    table = tmp_path / "rows.inc"
    table.write_text(f"    C(0x{code}, ONE,  {form}, Z)\n", "utf-8")
    here, elsewhere = s390x_rows.row_form(32, "[4-9ab]"), s390x_rows.row_form(48, "[c-f]")
    if value >= 1 << 32:
        here, elsewhere = elsewhere, here
    (found,) = decoders.rows(table, here)
    assert (found.mask, found.value) == (mask, value)
    assert decoders.rows(table, elsewhere) == []


def test_a_quadword_requires_its_alignment_under_every_policy() -> None:
    """Objects of portable C require at most 8 bytes, LPQ requires 16: a stricter policy must not require less."""
    for policy in ("signal", "strict"):
        assert prescribed("s390x", policy, "48 lpq %r6,0(%r4)") == 4 * ("d" + 15 * "s")
    assert prescribed("s390x", "unchecked", "48 lpq %r6,0(%r4)") == 64 * "d"
    # A vector is also not split if it is wider than anything that compilers are assumed to split.
    for policy in ("signal", "strict", "linux-loongarch"):
        assert prescribed("loongarch64", policy, "xvst $xr13, $a0, 0") == 2 * ("d" + 31 * "s")


@pytest.mark.parametrize("name", SWEPT)
def test_an_encoding_that_is_not_generated_has_a_state_and_a_reason(name: str) -> None:
    table = program.table_of(CATALOG.targets[name])
    assert table is not None
    for one in table.unmade:
        assert any(re.match(rf"\(?({state}|\w+\|{state}|\\d\+ )", one.text) for state in table.states), one.text
        assert len(one.because) > 20
    assert {one.state for one in table.decoders} == set(table.states)
