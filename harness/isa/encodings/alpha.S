/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: $0 to $31 and $f0 to $f31 by 8 bytes each, of which $0 to $24, $26, $29 and $f0 to $f30 are set and
 * taken back, $f10 and $f13 in the formats S and G. A slot branches to sweep_return with the stack as it
 * was. $25, $27 and 8 bytes at $30 are free for what it does before its instruction.
 */
#define FILE 16
#define INTEGERS 32
#define DOUBLES 112
#define FRAME 192
        .text
        .align  4
        .globl  sweep_run
        .type   sweep_run, @function
sweep_run:
        lda     $30, -FRAME($30)
        .irp    number, 9, 10, 11, 12, 13, 14, 15
        stq     $\number, INTEGERS + 8 * (\number - 9)($30)
        .endr
        stq     $26, INTEGERS + 56($30)
        stq     $29, INTEGERS + 64($30)
        .irp    number, 2, 3, 4, 5, 6, 7, 8, 9
        stt     $f\number, DOUBLES + 8 * (\number - 2)($30)
        .endr
        stq     $16, FILE($30)
        mov     $16, $28
        mov     $17, $27
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
        ldt     $f\number, 256 + 8 * \number($28)
        .endr
        lds     $f10, 256 + 8 * 10($28)
        ldg     $f13, 256 + 8 * 13($28)
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 29
        ldq     $\number, 8 * \number($28)
        .endr
        jmp     $31, ($27), 0

sweep_return:
        ldq     $28, FILE($30)
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 29
        stq     $\number, 8 * \number($28)
        .endr
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
        stt     $f\number, 256 + 8 * \number($28)
        .endr
        sts     $f10, 256 + 8 * 10($28)
        stg     $f13, 256 + 8 * 13($28)
        .irp    number, 9, 10, 11, 12, 13, 14, 15
        ldq     $\number, INTEGERS + 8 * (\number - 9)($30)
        .endr
        ldq     $26, INTEGERS + 56($30)
        ldq     $29, INTEGERS + 64($30)
        .irp    number, 2, 3, 4, 5, 6, 7, 8, 9
        ldt     $f\number, DOUBLES + 8 * (\number - 2)($30)
        .endr
        lda     $30, FRAME($30)
        ret     $31, ($26), 1
