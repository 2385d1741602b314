/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: %r0 to %r15 by 8 bytes, of which %r2 to %r13 are set and taken back; 8 bytes of the condition code;
 * 56 that are memory to an instruction with two operands there, for which %r1 is at the begin of the file; and %v0 to
 * %v31 by 16. A slot begins with the condition code 3 and branches to sweep_return with the stack as it was. The condition
 * code is taken back where it is the byte at 184(%r15), which is 0 if a slot does not set it. %r0, %r1, %r14 and 16 bytes
 * at 160(%r15) are free for what it does before its instruction.
 */
#define CONDITION 128
#define VECTORS 192
#define FILE 176
#define AWAITED 184
#define DOUBLES 192
#define FRAME 256
        .machine arch13
        .text
        .align  8
        .globl  sweep_run
        .type   sweep_run, @function
sweep_run:
        stmg    %r6, %r15, 48(%r15)
        aghi    %r15, -FRAME
        .irp    number, 8, 9, 10, 11, 12, 13, 14, 15
        std     %f\number, DOUBLES + 8 * (\number - 8)(%r15)
        .endr
        stg     %r2, FILE(%r15)
        mvi     AWAITED(%r15), 0
        lgr     %r1, %r2
        lgr     %r14, %r3
        vlm     %v0, %v15, VECTORS(%r1)
        vlm     %v16, %v31, VECTORS + 256(%r1)
        lmg     %r2, %r13, 16(%r1)
        lghi    %r0, 1
        tmll    %r0, 1
        br      %r14

sweep_return:
        ipm     %r0
        srl     %r0, 28
        lg      %r1, FILE(%r15)
        stmg    %r2, %r13, 16(%r1)
        vstm    %v0, %v15, VECTORS(%r1)
        vstm    %v16, %v31, VECTORS + 256(%r1)
        llgc    %r14, AWAITED(%r15)
        cr      %r0, %r14
        jne     0f
        llgfr   %r0, %r0
        stg     %r0, CONDITION(%r1)
0:
        .irp    number, 8, 9, 10, 11, 12, 13, 14, 15
        ld      %f\number, DOUBLES + 8 * (\number - 8)(%r15)
        .endr
        aghi    %r15, FRAME
        lmg     %r6, %r15, 48(%r15)
        br      %r14
