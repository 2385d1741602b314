/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: x0 to x31 and f0 to f31 by 8 bytes each, of which x1, x5 to x29 and all of floating point are set
 * and taken back. f11 has a single in its first 4 bytes. A slot jumps to sweep_return with the stack as it was. x30, x31
 * and 16 bytes at sp are free for what it does before its instruction.
 */
#define FILE 16
#define INTEGERS 32
#define DOUBLES 160
#define FRAME 256
        .option norelax
        .text
        .balign 4
        .global sweep_run
        .type   sweep_run, @function
sweep_run:
        addi    sp, sp, -FRAME
        sd      x1, INTEGERS(sp)
        .irp    number, 8, 9
        sd      x\number, INTEGERS + 8 * (\number - 7)(sp)
        fsd     f\number, DOUBLES + 8 * (\number - 8)(sp)
        .endr
        .irp    number, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27
        sd      x\number, INTEGERS + 8 * (\number - 15)(sp)
        fsd     f\number, DOUBLES + 8 * (\number - 16)(sp)
        .endr
        sd      x10, FILE(sp)
        mv      x30, x10
        mv      x31, x11
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        fld     f\number, 256 + 8 * \number(x30)
        .endr
        flw     f11, 256 + 8 * 11(x30)
        .irp    number, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
        ld      x\number, 8 * \number(x30)
        .endr
        jr      x31

sweep_return:
        ld      x30, FILE(sp)
        .irp    number, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
        sd      x\number, 8 * \number(x30)
        .endr
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        fsd     f\number, 256 + 8 * \number(x30)
        .endr
        fsw     f11, 256 + 8 * 11(x30)
        ld      x1, INTEGERS(sp)
        .irp    number, 8, 9
        ld      x\number, INTEGERS + 8 * (\number - 7)(sp)
        fld     f\number, DOUBLES + 8 * (\number - 8)(sp)
        .endr
        .irp    number, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27
        ld      x\number, INTEGERS + 8 * (\number - 15)(sp)
        fld     f\number, DOUBLES + 8 * (\number - 16)(sp)
        .endr
        addi    sp, sp, FRAME
        ret
