/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: %g0 to %g7 and %o0 to %o7 by 8 bytes each, of which %g1 to %g4 and %o0 to %o5 are set and taken
 * back, and the 64 words of floating point. A slot branches to sweep_return, in the window that sweep_run has opened;
 * %l6 and %l7 are free for what it does before its instruction.
 */
        .register %g2, #scratch
        .register %g3, #scratch
        .text
        .align  4
        .global sweep_run
        .type   sweep_run, #function
        .macro  each_double what
        \what   0
        \what   2
        \what   4
        \what   6
        \what   8
        \what   10
        \what   12
        \what   14
        \what   16
        \what   18
        \what   20
        \what   22
        \what   24
        \what   26
        \what   28
        \what   30
        \what   32
        \what   34
        \what   36
        \what   38
        \what   40
        \what   42
        \what   44
        \what   46
        \what   48
        \what   50
        \what   52
        \what   54
        \what   56
        \what   58
        \what   60
        \what   62
        .endm
        .macro  set_double number
        ldd     [%i0 + 128 + 4 * \number], %f\number
        .endm
        .macro  take_double number
        std     %f\number, [%i0 + 128 + 4 * \number]
        .endm
sweep_run:
        save    %sp, -208, %sp
        each_double set_double
        ldx     [%i0 + 8], %g1
        ldx     [%i0 + 16], %g2
        ldx     [%i0 + 24], %g3
        ldx     [%i0 + 32], %g4
        ldx     [%i0 + 64], %o0
        ldx     [%i0 + 72], %o1
        ldx     [%i0 + 80], %o2
        ldx     [%i0 + 88], %o3
        ldx     [%i0 + 96], %o4
        jmp     %i1
        ldx     [%i0 + 104], %o5

sweep_return:
        stx     %g1, [%i0 + 8]
        stx     %g2, [%i0 + 16]
        stx     %g3, [%i0 + 24]
        stx     %g4, [%i0 + 32]
        stx     %o0, [%i0 + 64]
        stx     %o1, [%i0 + 72]
        stx     %o2, [%i0 + 80]
        stx     %o3, [%i0 + 88]
        stx     %o4, [%i0 + 96]
        stx     %o5, [%i0 + 104]
        each_double take_double
        ret
        restore
