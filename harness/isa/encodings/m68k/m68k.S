/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: %d0 to %d7 and %a0 to %a7 by 4 bytes, 16 bytes of memory for an instruction's other operand, and
 * %fp0 to %fp7 by 12. %d2 to %d7, %a0, %a2 to %a4 and %fp0 to %fp7 are set, and taken back but for %fp0. %a5 is at the begin
 * of the file. A slot branches to sweep_return. %d0, %d1, %a1, %fp0 and the stack pointer are free for what it does beside
 * its instruction, and so is sweep_line.
 */
#define KEPT (11 * 4 + 6 * 12)
#define MEMORY 64
#define FLOATS 80
        .text
        .globl  sweep_run
        .type   sweep_run, @function
sweep_run:
        movem.l %d2-%d7/%a2-%a6, -(%sp)
        fmovem.x %fp2-%fp7, -(%sp)
        move.l  KEPT + 4(%sp), %a5
        move.l  KEPT + 8(%sp), %a1
        move.l  %sp, sweep_stack
        movem.l 4 * 2(%a5), %d2-%d7
        move.l  4 * 8(%a5), %a0
        movem.l 4 * 10(%a5), %a2-%a4
        fmovem.x FLOATS(%a5), %fp0-%fp7
        jmp     (%a1)

sweep_return:
        move.l  sweep_stack, %sp
        movem.l %d2-%d7, 4 * 2(%a5)
        move.l  %a0, 4 * 8(%a5)
        movem.l %a2-%a4, 4 * 10(%a5)
        /* Without the two bytes that are in memory alone. */
        .irp    number, 1, 2, 3, 4, 5, 6, 7
        fmovem.x %fp\number, -(%sp)
        move.w  (%sp), FLOATS + 12 * \number(%a5)
        move.l  4(%sp), FLOATS + 12 * \number + 4(%a5)
        move.l  8(%sp), FLOATS + 12 * \number + 8(%a5)
        lea     12(%sp), %sp
        .endr
        fmovem.x (%sp)+, %fp2-%fp7
        movem.l (%sp)+, %d2-%d7/%a2-%a6
        rts
        .bss
        .balign 16
sweep_line:
        .skip   16
sweep_stack:
        .skip   4
