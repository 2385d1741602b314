/*
 * Runs one instruction with a register file of its own.
 *
 *   void sweep_run(void *registers, const void *slot);
 *
 * The register file: r0 to r31 by 4 bytes and fr0 to fr31 by 8, of which r1 to r26, r28, r29 and fr4 to fr31 are set and
 * taken back. A slot branches to sweep_return with the stack as it was. r31 is free for what it does before its
 * instruction. The stack grows upward.
 */
#define FRAME 256
#define INTEGERS 8
#define DOUBLES 80
#define FILE 168
#define LINK 172
        .text
        .align  4
        .globl  sweep_run
        .type   sweep_run, @function
        .macro  each_integer what
        .irp    number, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28, 29
        \what   \number
        .endr
        .endm
        .macro  each_kept what
        .irp    number, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
        \what   \number
        .endr
        .endm
        .macro  each_double what
        .irp    number, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
        \what   \number
        .endr
        .endm
        .macro  each_kept_double what
        .irp    number, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21
        \what   \number
        .endr
        .endm
        .macro  keep number
        stw     %r\number, INTEGERS - FRAME + 4 * (\number - 3)(%r30)
        .endm
        .macro  give_back number
        ldw     INTEGERS - FRAME + 4 * (\number - 3)(%r30), %r\number
        .endm
        .macro  set number
        ldw     4 * \number(%r1), %r\number
        .endm
        .macro  take number
        stw     %r\number, 4 * \number(%r31)
        .endm
        .macro  load_double number
        fldds,ma 8(%r22), %fr\number
        .endm
        .macro  store_double number
        fstds,ma %fr\number, 8(%r22)
        .endm
sweep_run:
        ldo     FRAME(%r30), %r30
        each_kept keep
        stw     %r26, FILE - FRAME(%r30)
        stw     %r2, LINK - FRAME(%r30)
        ldo     DOUBLES - FRAME(%r30), %r22
        each_kept_double store_double
        copy    %r26, %r1
        copy    %r25, %r31
        ldo     128 + 8 * 4(%r1), %r22
        each_double load_double
        each_integer set
        bv      %r0(%r31)
        ldw     4(%r1), %r1

sweep_return:
        ldw     FILE - FRAME(%r30), %r31
        take    1
        each_integer take
        ldo     128 + 8 * 4(%r31), %r22
        each_double store_double
        ldo     DOUBLES - FRAME(%r30), %r22
        each_kept_double load_double
        each_kept give_back
        ldw     LINK - FRAME(%r30), %r2
        bv      %r0(%r2)
        ldo     -FRAME(%r30), %r30
