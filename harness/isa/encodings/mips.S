/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: $0 to $31 by a word each, of which $2 to $24, $28, $30 and $31 are set and taken back, and the
 * floating-point registers by 8 bytes each: in 32-bit programs those of even numbers, in 64-bit ones all. Of $f4 the
 * first 4 bytes are set and taken back. A slot branches to sweep_return with the stack as it was. $25 and 8 bytes at
 * $29 are free for what it does before its instruction.
 */
#if _MIPS_SIM == _ABI64
#define WORD 8
#define LOAD ld
#define STORE sd
#define ADD daddiu
#define EACH 1
#else
#define WORD 4
#define LOAD lw
#define STORE sw
#define ADD addiu
#define EACH 2
#endif
/* On the stack: what is free, the register file's address, and what a function preserves, from $16 and $f20 on. */
#define FILE 16
#define SAVED 24
#define DOUBLES 152
#define FRAME 256
        .text
        .balign 4
        .global sweep_run
        .type   sweep_run, %function
sweep_run:
        ADD     $29, $29, -FRAME
        .irp    number, 16, 17, 18, 19, 20, 21, 22, 23, 28, 30, 31
        STORE   $\number, SAVED + WORD * (\number - 16)($29)
        .endr
        .irp    number, 20, 22, 24, 26, 28, 30
        sdc1    $f\number, DOUBLES + 8 * (\number - 20)($29)
        .endr
#if EACH == 1
        .irp    number, 21, 23, 25, 27, 29, 31
        sdc1    $f\number, DOUBLES + 8 * (\number - 20)($29)
        .endr
#endif
        STORE   $4, FILE($29)
        or      $1, $4, $0
        or      $25, $5, $0
        .irp    number, 0, 2, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
        ldc1    $f\number, 32 * WORD + 8 * \number / EACH($1)
        .endr
#if EACH == 1
        .irp    number, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
        ldc1    $f\number, 32 * WORD + 8 * \number($1)
        .endr
#endif
        lwc1    $f4, 32 * WORD + 8 * 4 / EACH($1)
        .irp    number, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 28, 30, 31
        LOAD    $\number, WORD * \number($1)
        .endr
        jr      $25
        nop

sweep_return:
        LOAD    $1, FILE($29)
        .irp    number, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 28, 30, 31
        STORE   $\number, WORD * \number($1)
        .endr
        .irp    number, 0, 2, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
        sdc1    $f\number, 32 * WORD + 8 * \number / EACH($1)
        .endr
#if EACH == 1
        .irp    number, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
        sdc1    $f\number, 32 * WORD + 8 * \number($1)
        .endr
#endif
        swc1    $f4, 32 * WORD + 8 * 4 / EACH($1)
        .irp    number, 20, 22, 24, 26, 28, 30
        ldc1    $f\number, DOUBLES + 8 * (\number - 20)($29)
        .endr
#if EACH == 1
        .irp    number, 21, 23, 25, 27, 29, 31
        ldc1    $f\number, DOUBLES + 8 * (\number - 20)($29)
        .endr
#endif
        .irp    number, 16, 17, 18, 19, 20, 21, 22, 23, 28, 30, 31
        LOAD    $\number, SAVED + WORD * (\number - 16)($29)
        .endr
        jr      $31
        ADD     $29, $29, FRAME
