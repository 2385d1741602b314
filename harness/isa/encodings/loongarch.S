/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: r0 to r31 by 8 bytes each, of which r1, r4 to r18 and r22 to r31 are set and taken back, and the 32
 * vectors by 32 bytes each. Of f10 the file has 8 bytes, of f11 4, and of vr12 16: what is beyond them in these registers
 * is open after the instructions that are for so many. A slot jumps to sweep_return with the stack as it was. r19, r20
 * and 16 bytes at sp are free for what it does before its instruction.
 */
#define FILE 16
#define INTEGERS 32
#define FLOATS 128
#define FRAME 192
        .text
        .balign 4
        .global sweep_run
        .type   sweep_run, @function
sweep_run:
        addi.d  $sp, $sp, -FRAME
        st.d    $r1, $sp, INTEGERS
        .irp    number, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        st.d    $r\number, $sp, INTEGERS + 8 * (\number - 21)
        .endr
        .irp    number, 24, 25, 26, 27, 28, 29, 30, 31
        fst.d   $f\number, $sp, FLOATS + 8 * (\number - 24)
        .endr
        st.d    $r4, $sp, FILE
        move    $r19, $r4
        move    $r20, $r5
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        xvld    $xr\number, $r19, 256 + 32 * \number
        .endr
        .irp    number, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        ld.d    $r\number, $r19, 8 * \number
        .endr
        jr      $r20

sweep_return:
        ld.d    $r19, $sp, FILE
        .irp    number, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        st.d    $r\number, $r19, 8 * \number
        .endr
        .irp    number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        xvst    $xr\number, $r19, 256 + 32 * \number
        .endr
        fst.d   $f10, $r19, 256 + 32 * 10
        fst.s   $f11, $r19, 256 + 32 * 11
        vst     $vr12, $r19, 256 + 32 * 12
        ld.d    $r1, $sp, INTEGERS
        .irp    number, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        ld.d    $r\number, $sp, INTEGERS + 8 * (\number - 21)
        .endr
        .irp    number, 24, 25, 26, 27, 28, 29, 30, 31
        fld.d   $f\number, $sp, FLOATS + 8 * (\number - 24)
        .endr
        addi.d  $sp, $sp, FRAME
        jr      $r1
