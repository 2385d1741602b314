"""objdump's output is converted to encodings. Canaries make those that programs contain, or an exemption says why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from harness.analysis import encodings
from harness.isa import access_table, registry
from harness.plan.catalog import Catalog
from tools import encodings as census

if TYPE_CHECKING:
    from harness.isa.architecture import AccessNotation

CATALOG = Catalog()


def notation(isa: str) -> AccessNotation:
    found = registry.of_isa(isa).notation
    assert found is not None
    return found


# Instruction set; code and text in the form of objdump (binutils 2.40); encoding.
INSTRUCTIONS = [
    ("arm", "e5906014", "ldr\tr6, [r0, #20]", "A32 ldr r, [r, #]"),
    ("arm", "e59f1010", "ldr\tr1, [pc, #16]\t@ 6c320 <_start+0x20>", "A32 ldr r, [r, #]"),
    ("arm", "15942004", "ldrne\tr2, [r4, #4]", "A32 ldr r, [r, #]"),
    ("arm", "e7191105", "ldr\tr1, [r9, -r5, lsl #2]", "A32 ldr r, [r, r]"),
    ("arm", "e6814004", "str\tr4, [r1], r4", "A32 str r, [r], r"),
    ("arm", "e52de004", "push\t{lr}\t\t@ (str lr, [sp, #-4]!)", "A32 str r, [r, #]!"),
    ("arm", "e92d4800", "push\t{fp, lr}", "A32 stmdb r!, {registers}"),
    ("arm", "e88d0009", "stm\tsp, {r0, r3}", "A32 stmia r, {registers}"),
    ("arm", "91c450b8", "strhls\tr5, [r4, #8]", "A32 strh r, [r, #]"),
    ("arm", "b580", "push\t{r7, lr}", "T16 push {registers}"),
    ("arm", "9901", "ldr\tr1, [sp, #4]", "T16 ldr r, [sp, #]"),
    ("arm", "f8dd c034", "ldr.w\tip, [sp, #52]\t@ 0x34", "T32 ldr.w r, [r, #]"),
    ("arm", "f854 3c08", "ldr.w\tr3, [r4, #-8]", "T32 ldr.w r, [r, #-]"),
    ("arm", "f850 2d04", "ldr.w\tr2, [r0, #-4]!", "T32 ldr.w r, [r, #]!"),
    ("arm", "e8bd 83f0", "ldmia.w\tsp!, {r4, r5, r6, r7, r8, r9, pc}", "T32 ldmia.w r!, {registers}"),
    ("arm", "ed2d 8b04", "vpush\t{d8-d9}", "T32 vstmdb r!, {d}"),
    ("arm", "f4400acd", "vst1.64\t{d16-d17}, [r0]!", "A32 vst1.64 {2 d}, [r]!"),
    ("arm", "f4622aef", "vld1.64\t{d18-d19}, [r2 :128]", "A32 vld1.64 {2 d}, [r:128]"),
    ("arm", "f4e3d8bf", "vld1.32\t{d29[1]}, [r3 :32]", "A32 vld1.32 {1 d[#]}, [r:32]"),
    ("arm", "f4e31dbf", "vld2.32\t{d17[], d18[]}, [r3 :64]", "A32 vld2.32 {2 d[]}, [r:64]"),
    ("arm", "ed900b00", "vldr\td0, [r0]", "A32 vldr d, [r, #]"),
    ("aarch64", "f942ec63", "ldr\tx3, [x3, #1496]", "ldr x, [x, #]"),
    ("aarch64", "f9400274", "ldr\tx20, [x19]", "ldr x, [x, #]"),
    ("aarch64", "f879dae8", "ldr\tx8, [x23, w25, sxtw #3]", "ldr x, [x, w]"),
    ("aarch64", "a8c17bfd", "ldp\tx29, x30, [sp], #16", "ldp x, x, [x], #"),
    ("aarch64", "b81fc3bf", "stur\twzr, [x29, #-4]", "stur w, [x, #]"),
    ("aarch64", "c8dffd2a", "ldar\tx10, [x9]", "ldar x, [x]"),
    ("aarch64", "4c400024", "ld4\t{v4.16b-v7.16b}, [x1]", "ld4 {4 v.16b}, [x]"),
    ("aarch64", "0d408020", "ld1\t{v0.s}[0], [x1]", "ld1 {1 v.s}[#], [x]"),
    ("aarch64", "58000040", "ldr\tx0, 107d2e4 <_start+0x8>", "ldr x, literal"),
    ("sparc", "fa 5f a7 df", "ldx  [ %fp + 0x7df ], %i5", "ldx [ r + # ], r"),
    ("sparc", "c0 77 a7 d7", "clrx  [ %fp + 0x7d7 ]", "stx r, [ r + # ]"),
    ("sparc", "e2 5e 40 00", "ldx  [ %i1 ], %l1", "ldx [ r + r ], r"),
    ("sparc", "d4 18 80 00", "ldtw  [ %g2 ], %o2", "ldd [ r + r ], r"),
    ("sparc", "d1 1f a7 f7", "ldd  [ %fp + 0x7f7 ], %f8", "ldd [ r + # ], f"),
    ("sparc", "c7 f5 d0 01", "casx  [ %l7 ], %g1, %g3", "casx [ r ], r, r"),
    ("sparc", "d6 da 10 40", "ldxa  [ %o0 ] #ASI_PNF, %o3", "ldxa [ r + r ] #ASI_PNF, r"),
    ("mips", "8fbc0010", "lw\tgp,16(sp)", "lw r,#(r)"),
    ("mips", "4e020001", "ldxc1\t$f0,v0(s0)", "ldxc1 f,r(r)"),
    ("alpha", "20 00 5e b7", "stq\tra,32(sp)", "stq r,#(r)"),
    ("alpha", "00 00 21 a8", "ldl_l\tt0,0(t0)", "ldl_l r,#(r)"),
    ("alpha", "10 00 5e 8d", "ldt\t$f10,16(sp)", "ldt f,#(r)"),
    ("hppa", "0c 90 10 83", "ldw 8(r4),r3", "ldw #5(r),r"),
    ("hppa", "0c 9e 10 23", "ldh,ma f(r4),ret0", "ldh,ma #5(r),r"),
    ("hppa", "4b c2 3f 69", "ldw -4c(sp),rp", "ldw #(r),r"),
    ("hppa", "0c 81 10 03", "ldw -10(r4),r3", "ldw #5(r),r"),
    ("hppa", "2c 90 10 25", "fldd,ma 8(arg0),fr5", "fldd,ma #5(r),f"),
    ("hppa", "24 85 22 44", "fstw,s fr4R,r5(dp)", "fstw,s f,r(r)"),
    ("hppa", "0d 20 40 89", "ldw 0(sr1,r9),r9", "ldw #5(sr,r),r"),
    ("loongarch64", "84 04 c0 28", "ld.d\t$a0, $a0, 1", "ld.d r, r, #"),
    ("loongarch64", "86 14 6a 38", "amadd_db.w\t$a2, $a1, $a0", "amadd_db.w r, r, r"),
    ("loongarch64", "80 04 1d 31", "vstelm.d\t$vr0, $a0, 8, 1", "vstelm.d v, r, #, #"),
    ("loongarch64", "61 21 80 2b", "fld.d\t$fa1, $s9, 8", "fld.d f, r, #"),
    ("riscv64", "e822", "sd\ts0,16(sp)", "RVC sd r,#(sp)"),
    ("riscv64", "c388", "sw\ta0,0(a5)", "RVC sw r,#(r)"),
    ("riscv64", "0007b783", "ld\ta5,0(a5) # 16 <__libc_init_first+0x16>", "RVG ld r,#(r)"),
    ("riscv64", "fe113c23", "sd\tra,-8(sp)", "RVG sd r,#(r)"),
    ("riscv64", "04d7a7af", "amoadd.w.aq\ta5,a3,(a5)", "RVG amoadd.w.aq r,r,(r)"),
    ("powerpc", "94 21 ff e0", "stwu    r1,-32(r1)", "stwu r,#(r)"),
    ("powerpc", "7c 00 18 28", "lwarx   r0,0,r3", "lwarx r,r,r"),
    ("powerpc", "7c 00 19 2d", "stwcx.  r0,0,r3", "stwcx. r,r,r"),
    ("powerpc", "7c 1d f4 ae", "lfdx    f0,r29,r30", "lfdx f,r,r"),
    ("powerpc", "7c 00 1e 99", "lxvd2x  vs32,0,r3", "lxvd2x vs,r,r"),
    ("s390x", "e3 10 f0 a0 00 04", "lg\t%r1,160(%r15)", "lg r,#(r)"),
    ("s390x", "58 12 30 04", "l\t%r1,4(%r2,%r3)", "l r,#(r)"),
    ("s390x", "58 00 03 d8", "l\t%r0,984", "l r,#(r)"),
    ("s390x", "e5 48 f0 a8 ff ff", "mvghi\t168(%r15),-1", "mvghi #(r),#"),
    ("s390x", "c4 28 00 00 00 00", "lgrl\t%r2,16 <__libc_init_first+0x16>", "lgrl r,literal"),
    ("s390x", "eb 21 30 00 20 e2", "locgh\t%r2,0(%r3)", "locgcc r,#(r)"),
    ("s390x", "eb 21 30 00 a0 f3", "stoche\t%r2,0(%r3)", "stoccc r,#(r)"),
    ("s390x", "ed 0f f0 a0 00 1a", "adb\t%f0,160(%r15)", "adb f,#(r)"),
]


@pytest.mark.parametrize(("isa", "code", "text", "encoding"), INSTRUCTIONS, ids=[one[2] for one in INSTRUCTIONS])
def test_an_instruction_has_its_encoding(isa: str, code: str, text: str, encoding: str) -> None:
    assert encodings.encodings(f"   6c3a0:\t{code} \t{text}\n", notation(isa)) == {encoding: 1}
    # The form of llvm-objdump 19.
    assert encodings.encodings(f"   6c3a0: {code}  \t{text}\n", notation(isa)) == {encoding: 1}


@pytest.mark.parametrize(
    ("isa", "code", "text"),
    [
        ("arm", "e5d01004", "ldrb\tr1, [r0, #4]"),
        ("arm", "15d01004", "ldrbne\tr1, [r0, #4]"),
        ("arm", "e1d03f9f", "ldrexb\tr3, [r0]"),
        ("arm", "eed00bb0", "vmov.u8\tr0, d16[1]"),
        ("arm", "e1a00001", "mov\tr0, r1"),
        ("arm", "f890 f040", "pld\t[r0, #64]\t@ 0x40"),
        ("arm", "e8df f000", "tbb\t[pc, r0]"),
        ("aarch64", "39408a89", "ldrb\tw9, [x20, #34]"),
        ("aarch64", "0e0f3c0e", "umov\tw14, v0.b[7]"),
        ("aarch64", "f9800000", "prfm\tpldl1keep, [x0]"),
        ("sparc", "f8 2e 20 32", "stb  %i4, [ %i0 + 0x32 ]"),
        ("sparc", "c3 6a 20 00", "prefetch  [ %o0 ], #n_reads"),
        ("mips", "a0820000", "sb\tv0,0(a0)"),
        ("alpha", "e0 ff de 23", "lda\tsp,-32(sp)"),
        ("alpha", "00 00 21 28", "ldbu\tt0,0(t0)"),
        ("hppa", "0c 80 10 03", "ldb 0(r4),r3"),
        ("hppa", "0c 83 13 28", "stby,b,m r3,4(r4)"),
        ("hppa", "34 42 00 10", "ldo 8(rp),rp"),
        ("loongarch64", "85 08 00 2a", "ld.bu\t$a1, $a0, 2"),
        ("loongarch64", "c0 02 c0 2a", "preld\t0, $fp, 0"),
        ("riscv64", "0007c703", "lbu\ta4,0(a5)"),
        ("riscv64", "000780e7", "jalr\t0(a5)"),
        ("powerpc", "38 60 00 01", "li      r3,1"),
        ("powerpc", "7c 00 18 0c", "lvsl    v0,0,r3"),
        ("powerpc", "7c 00 1f ec", "dcbz    0,r3"),
        ("s390x", "41 10 f0 a0", "la\t%r1,160(%r15)"),
        ("s390x", "89 10 00 08", "sll\t%r1,8(%r2)"),
        ("s390x", "d2 07 f0 a0 10 00", "mvc\t160(8,%r15),0(%r1)"),
        ("s390x", "bf 13 20 00", "icm\t%r1,3,0(%r2)"),
        ("s390x", "c0 10 00 00 00 00", "larl\t%r1,6 <__libc_init_first+0x6>"),
        ("s390x", "e3 10 20 00 00 90", "llgc\t%r1,0(%r2)"),
    ],
)
def test_an_instruction_that_no_address_misaligns_has_no_encoding(isa: str, code: str, text: str) -> None:
    assert encodings.encodings(f"   6c3a0:\t{code} \t{text}\n", notation(isa)) == {}


def test_encodings_are_counted_and_those_before_a_label_are_found() -> None:
    text = (
        "00010970 <perform_ldr>:\n"
        "   10970:\te5902000 \tldr\tr2, [r0]\n\n"
        "00010974 <made.perform_ldr.0>:\n"
        "   10974:\te5812000 \tstr\tr2, [r1]\n"
        "   10978:\te5913004 \tldr\tr3, [r1, #4]\n"
        "   1097c:\te12fff1e \tbx\tlr\n\n"
        "00010980 <made.perform_ldr.4>:\n"
    )
    assert encodings.encodings(text, notation("arm")) == {"A32 ldr r, [r, #]": 2, "A32 str r, [r, #]": 1}
    assert encodings.labelled(text, notation("arm"), "made.") == {"A32 ldr r, [r, #]"}


@pytest.mark.parametrize("name", census.readable())
def test_every_counted_encoding_is_proved_or_exempt(name: str) -> None:
    found = census.stored()[name]
    occurring = {one for program in found.programs.values() for one in program}
    assert len(occurring) >= 15
    assert census.unproved(CATALOG.targets[name], found.made, occurring) == []


@pytest.mark.parametrize("name", census.readable())
def test_an_exempt_encoding_occurs_and_no_canary_makes_it(name: str) -> None:
    found = census.stored()[name]
    occurring = {one for program in found.programs.values() for one in program}
    for exempt in access_table.of_target(CATALOG.targets[name]).exempt:
        concerned = {one for one in occurring if re.fullmatch(exempt.encodings, one)}
        assert concerned, f"{name}: nothing is {exempt.encodings}"
        assert not concerned & set(found.made), f"{name}: a canary makes {exempt.encodings}"
