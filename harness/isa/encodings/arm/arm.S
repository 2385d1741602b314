/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: r0 to r15, of which SP and PC are neither set nor taken back, and DOUBLES registers of 8 bytes.
 * A slot jumps to sweep_return in the state of A32, whose stack is as it was: no slot uses SP.
 */

        .text
        .arm
        .balign 4
        .global sweep_run
        .type   sweep_run, %function
sweep_run:
        push    {r4-r11, lr}
        vpush   {d8-d15}
        push    {r0, r1}
        add     r2, r0, #64
        vldmia  r2!, {d0-d15}
        .if DOUBLES > 16
        vldmia  r2!, {d16-d31}
        .endif
        ldr     lr, [r0, #56]
        /* The carry is clear, which RRX shifts in. */
        cmn     r0, #0
        ldm     r0, {r0-r12}
        /* To the slot; the stack keeps the register file's address and a place for r0. */
        sub     sp, sp, #4
        push    {r0}
        ldr     r0, [sp, #12]
        str     r0, [sp, #4]
        pop     {r0, pc}

sweep_return:
        str     r0, [sp, #4]
        ldr     r0, [sp]
        add     r0, r0, #4
        stm     r0, {r1-r12}
        str     lr, [r0, #52]
        ldr     r1, [sp, #4]
        str     r1, [r0, #-4]
        add     r0, r0, #60
        vstmia  r0!, {d0-d15}
        .if DOUBLES > 16
        vstmia  r0!, {d16-d31}
        .endif
        add     sp, sp, #8
        vpop    {d8-d15}
        pop     {r4-r11, pc}
