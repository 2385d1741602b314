/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: x0 to x30 and a hole by 8 bytes each, of which x16 to x18 are neither set nor taken back, and q0 to
 * q31. A slot branches to sweep_return with the stack as it was: no slot uses SP.
 */
        .text
        .balign 4
        .global sweep_run
        .type   sweep_run, %function
        .macro  each_pair what, base
        \what   q0, q1, [\base, 0]
        \what   q2, q3, [\base, 32]
        \what   q4, q5, [\base, 64]
        \what   q6, q7, [\base, 96]
        \what   q8, q9, [\base, 128]
        \what   q10, q11, [\base, 160]
        \what   q12, q13, [\base, 192]
        \what   q14, q15, [\base, 224]
        \what   q16, q17, [\base, 256]
        \what   q18, q19, [\base, 288]
        \what   q20, q21, [\base, 320]
        \what   q22, q23, [\base, 352]
        \what   q24, q25, [\base, 384]
        \what   q26, q27, [\base, 416]
        \what   q28, q29, [\base, 448]
        \what   q30, q31, [\base, 480]
        .endm
        .macro  each_integer what, base
        \what   x0, x1, [\base, 0]
        \what   x2, x3, [\base, 16]
        \what   x4, x5, [\base, 32]
        \what   x6, x7, [\base, 48]
        \what   x8, x9, [\base, 64]
        \what   x10, x11, [\base, 80]
        \what   x12, x13, [\base, 96]
        \what   x14, x15, [\base, 112]
        \what   x20, x21, [\base, 160]
        \what   x22, x23, [\base, 176]
        \what   x24, x25, [\base, 192]
        \what   x26, x27, [\base, 208]
        \what   x28, x29, [\base, 224]
        .endm
sweep_run:
        stp     x29, x30, [sp, -176]!
        stp     x19, x20, [sp, 16]
        stp     x21, x22, [sp, 32]
        stp     x23, x24, [sp, 48]
        stp     x25, x26, [sp, 64]
        stp     x27, x28, [sp, 80]
        stp     d8, d9, [sp, 96]
        stp     d10, d11, [sp, 112]
        stp     d12, d13, [sp, 128]
        stp     d14, d15, [sp, 144]
        str     x0, [sp, 160]
        mov     x16, x0
        mov     x17, x1
        add     x1, x0, 256
        each_pair ldp, x1
        ldr     x19, [x16, 152]
        ldr     x30, [x16, 240]
        each_integer ldp, x16
        br      x17

sweep_return:
        ldr     x16, [sp, 160]
        each_integer stp, x16
        str     x19, [x16, 152]
        str     x30, [x16, 240]
        add     x1, x16, 256
        each_pair stp, x1
        ldp     x19, x20, [sp, 16]
        ldp     x21, x22, [sp, 32]
        ldp     x23, x24, [sp, 48]
        ldp     x25, x26, [sp, 64]
        ldp     x27, x28, [sp, 80]
        ldp     d8, d9, [sp, 96]
        ldp     d10, d11, [sp, 112]
        ldp     d12, d13, [sp, 128]
        ldp     d14, d15, [sp, 144]
        ldp     x29, x30, [sp], 176
        ret
