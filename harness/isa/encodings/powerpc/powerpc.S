/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: r0 to r31 by a word each, of which r3 to r12 and r14 to r31 are set and taken back; a word for CR0;
 * three holes; f0 to f31 by 8 bytes each, of which f1 has a single in the first 4; v0 to v31. CR0 is 8 before a slot,
 * and its word is written where it is something else behind it. A slot branches to sweep_return with the stack as it
 * was. r0, XER and the word at r1 are free for what it does before its instruction, but the word must be kept.
 */
#ifdef __powerpc64__
#define WORD 8
#define LOAD ld
#define STORE std
#define STORE_UPDATE stdu
#define LINK 16
#else
#define WORD 4
#define LOAD lwz
#define STORE stw
#define STORE_UPDATE stwu
#define LINK 4
#endif
#define FLOATS 36 * WORD
#define VECTORS FLOATS + 256
/* On the stack: CR, the register file's address, r3, and what a function preserves. */
#define CONDITION 104
#define FILE 112
#define THIRD 120
#define INTEGERS 128
#define DOUBLES 272
#define QUADS 416
#define FRAME 624
        .text
        .balign 4
        .global sweep_run
#if defined(__powerpc64__) && _CALL_ELF != 2
        .section ".opd", "aw"
        .balign 8
sweep_run:
        .quad   .Lsweep_run, .TOC.@tocbase, 0
        .previous
        .type   sweep_run, @function
.Lsweep_run:
#else
        .type   sweep_run, @function
sweep_run:
#endif
        mflr    0
        STORE   0, LINK(1)
        STORE_UPDATE 1, -FRAME(1)
        mfcr    0
        STORE   0, CONDITION(1)
        .irp    number, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        STORE   \number, INTEGERS + WORD * (\number - 14)(1)
        stfd    \number, DOUBLES + 8 * (\number - 14)(1)
        .endr
        .irp    number, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        li      0, QUADS + 16 * (\number - 20)
        stvx    \number, 1, 0
        .endr
        STORE   3, FILE(1)
        mtctr   4
        .irp    number, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        lfd     \number, FLOATS + 8 * \number(3)
        .endr
        lfs     1, FLOATS + 8(3)
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        li      0, VECTORS + 16 * \number
        lvx     \number, 3, 0
        .endr
        lis     0, -0x8000
        mtcrf   0x80, 0
        .irp    number, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 3
        LOAD    \number, WORD * \number(3)
        .endr
        bctr

sweep_return:
        STORE   3, THIRD(1)
        LOAD    3, FILE(1)
        .irp    number, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        STORE   \number, WORD * \number(3)
        .endr
        LOAD    0, THIRD(1)
        STORE   0, WORD * 3(3)
        mfcr    4
        rlwinm  4, 4, 4, 28, 31
        cmpwi   4, 8
        beq     1f
        STORE   4, WORD * 32(3)
1:
        .irp    number, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        stfd    \number, FLOATS + 8 * \number(3)
        .endr
        stfs    1, FLOATS + 8(3)
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        li      0, VECTORS + 16 * \number
        stvx    \number, 3, 0
        .endr
        .irp    number, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        li      0, QUADS + 16 * (\number - 20)
        lvx     \number, 1, 0
        .endr
        .irp    number, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        LOAD    \number, INTEGERS + WORD * (\number - 14)(1)
        lfd     \number, DOUBLES + 8 * (\number - 14)(1)
        .endr
        LOAD    0, CONDITION(1)
        mtcrf   0xff, 0
        addi    1, 1, FRAME
        LOAD    0, LINK(1)
        mtlr    0
        blr
