/*
 * The processor's part of a fault's record: the registers in the order of QEMU's gdb stub, and the address of a
 * misaligned access if siginfo lacks it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include "init.h"

static void append_register(const struct registers *registers, size_t width, size_t index)
{
    append_separator();
    append("\"");
    if ((index + 1) * width <= registers->size) {
        append_hex(registers->bytes + index * width, width);
    }
    append("\"");
}

#if !defined(__riscv) && !defined(__mips__) && !defined(__s390__)
static void append_absent_registers(int count)
{
    while (count--) {
        append(",\"\"");
    }
}
#endif

#if defined(__powerpc__)
/* Longs of the regset (Linux arch/powerpc/include/uapi/asm/ptrace.h). */
enum { POWERPC_NIP = 32, POWERPC_MSR, POWERPC_CTR = 35, POWERPC_LINK, POWERPC_XER, POWERPC_CR };

/* Registers that have 32 bits in the stub on every machine. */
static void append_low_word(const struct registers *registers, size_t index)
{
    size_t words = sizeof(long) / 4;

    append_register(registers, 4, index * words + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? words - 1 : 0));
}
#endif

#if defined(__mips__)
/* Words of the 32-bit regset (Linux arch/mips/include/uapi/asm/reg.h). */
enum { MIPS_R0 = 6, MIPS_LO = 38, MIPS_HI, MIPS_EPC, MIPS_BADVADDR, MIPS_STATUS, MIPS_CAUSE };
#endif

bool read_registers(pid_t tid, const siginfo_t *signal, struct registers *registers)
{
    struct iovec place = {.iov_base = registers->bytes, .iov_len = sizeof registers->bytes};

    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &place) != 0) {
        return false;
    }
    registers->size = place.iov_len;
    (void)signal;
#if defined(__sparc__)
    /* 64 bits: g, o, l, i, tstate, tpc, tnpc, y. 32 bits: g, o, l, i, psr, pc, npc, y, wim, tbr. */
    bool wide = registers->size >= 36 * 8;
    registers->pc = wide ? registers->wide[33] : registers->narrow[33];
    registers->stack = wide ? registers->wide[14] : registers->narrow[14];
    registers->stack += registers->stack & 1 ? 2047 : 0;
#elif defined(__aarch64__)
    bool wide = registers->size >= 34 * 8;
    registers->pc = wide ? registers->wide[32] : registers->narrow[15];
    registers->stack = wide ? registers->wide[31] : registers->narrow[13];
#elif defined(__arm__)
    registers->pc = registers->narrow[15];
    registers->stack = registers->narrow[13];
#elif defined(__riscv)
    registers->pc = registers->wide[0];
    registers->stack = registers->wide[2];
#elif defined(__mips__)
    /* For an instruction in a delay slot, EPC contains the address of the branch (MIPS32 PRA, MD00090, Cause.BD). */
    registers->pc = registers->narrow[MIPS_EPC] + (registers->narrow[MIPS_CAUSE] >> 31 ? 4 : 0);
    registers->stack = registers->narrow[MIPS_R0 + 29];
#elif defined(__powerpc__)
    registers->pc = registers->longs[POWERPC_NIP];
    registers->stack = registers->longs[1];
#elif defined(__s390__)
    /* PSW, r0 to r15 (Linux arch/s390/include/uapi/asm/ptrace.h). The PSW points past an instruction with these faults. */
    registers->pc = signal->si_signo == SIGILL || signal->si_signo == SIGFPE ? (uint64_t)(uintptr_t)signal->si_addr
                                                                              : registers->wide[1];
    registers->stack = registers->wide[2 + 15];
    place = (struct iovec){.iov_base = &registers->floats, .iov_len = sizeof registers->floats};
    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRFPREG, &place) != 0) {
        return false;
    }
#else
#error "no register layout for this machine"
#endif
    return true;
}

#if defined(__arm__) || defined(__aarch64__)
/* r0 to pc, nine registers of an obsolete floating-point unit, cpsr. */
static void append_arm_registers(const struct registers *registers)
{
    for (size_t i = 0; i < 16; i++) {
        append_register(registers, 4, i);
    }
    append_absent_registers(9);
    append_register(registers, 4, 16);
}
#endif

void append_registers(const struct registers *registers)
{
#if defined(__sparc__)
    bool wide = registers->size >= 36 * 8;
    for (size_t i = 0; i < 32; i++) {
        append_register(registers, wide ? 8 : 4, i);
    }
    if (wide) {
        append_absent_registers(48); /* floating point */
        append_register(registers, 8, 33);
        append_register(registers, 8, 34);
    } else {
        append_absent_registers(32);
        append_register(registers, 4, 35); /* y */
        append_register(registers, 4, 32); /* psr */
        append_absent_registers(2);
        append_register(registers, 4, 33);
        append_register(registers, 4, 34);
    }
#elif defined(__aarch64__)
    if (registers->size < 34 * 8) {
        append_arm_registers(registers);
        return;
    }
    for (size_t i = 0; i < 33; i++) {
        append_register(registers, 8, i);
    }
    append_register(registers, 4, 66); /* the low word of pstate */
#elif defined(__riscv)
    append("\"%016d\"", 0); /* x0: the regset has the pc in its place */
    for (size_t i = 1; i < 32; i++) {
        append_register(registers, 8, i);
    }
    append_register(registers, 8, 0);
#elif defined(__mips__)
    static const unsigned char after_r31[] = {MIPS_STATUS, MIPS_LO, MIPS_HI, MIPS_BADVADDR, MIPS_CAUSE, MIPS_EPC};

    for (size_t i = 0; i < 32; i++) {
        append_register(registers, 4, MIPS_R0 + i);
    }
    for (size_t i = 0; i < sizeof after_r31; i++) {
        append_register(registers, 4, after_r31[i]);
    }
#elif defined(__powerpc__)
    for (size_t i = 0; i < 32; i++) {
        append_register(registers, sizeof(long), i);
    }
    append_absent_registers(32);
    append_register(registers, sizeof(long), POWERPC_NIP);
    append_register(registers, sizeof(long), POWERPC_MSR);
    append_low_word(registers, POWERPC_CR);
    append_register(registers, sizeof(long), POWERPC_LINK);
    append_register(registers, sizeof(long), POWERPC_CTR);
    append_low_word(registers, POWERPC_XER);
#elif defined(__s390__)
    for (size_t i = 0; i < 18; i++) {
        append_register(registers, 8, i);
    }
    for (size_t i = 36; i < 52; i++) { /* the access registers */
        append_register(registers, 4, i);
    }
    append(",\"%08" PRIx32 "\"", registers->floats.control);
    for (size_t i = 0; i < 16; i++) {
        append(",\"%016" PRIx64 "\"", registers->floats.registers[i]);
    }
#else
    append_arm_registers(registers);
#endif
}

#if defined(__s390__)
/*
 * The instructions that raise a specification exception for a misaligned operand (z/Architecture Principles of Operation,
 * 5, boundary alignment, and 7): compare and swap, load and OPERATION, and pairs of doublewords.
 */
static const struct {
    unsigned char first, last; /* bytes of the operation code; `last` is unused if it has one byte */
    unsigned char boundary;
    bool is_indexed;
} aligned_operands[] = {
    /* CS, CDS */
    {0xba, 0, 4, false},
    {0xbb, 0, 8, false},
    /* CSY, CDSY, CSG, CDSG */
    {0xeb, 0x14, 4, false},
    {0xeb, 0x31, 8, false},
    {0xeb, 0x30, 8, false},
    {0xeb, 0x3e, 16, false},
    /* LAN, LAO, LAX, LAA, LAAL, and the same with G */
    {0xeb, 0xf4, 4, false},
    {0xeb, 0xf6, 4, false},
    {0xeb, 0xf7, 4, false},
    {0xeb, 0xf8, 4, false},
    {0xeb, 0xfa, 4, false},
    {0xeb, 0xe4, 8, false},
    {0xeb, 0xe6, 8, false},
    {0xeb, 0xe7, 8, false},
    {0xeb, 0xe8, 8, false},
    {0xeb, 0xea, 8, false},
    /* LPQ, STPQ */
    {0xe3, 0x8f, 16, true},
    {0xe3, 0x8e, 16, true},
};

static uint64_t general_register(const struct registers *registers, unsigned number)
{
    return number ? registers->wide[2 + number] : 0; /* a field of 0 means no register */
}

/* Formats RS, RSY and RXY: a base and a displacement, which has 20 signed bits if the operation code has two bytes. */
static uint64_t operand_address(const struct registers *registers, const unsigned char *code, bool is_long,
                                bool is_indexed)
{
    int64_t displacement = (code[2] & 15) << 8 | code[3];

    if (is_long) {
        displacement += (int64_t)(signed char)code[4] * 4096;
    }
    return general_register(registers, code[2] >> 4) + (uint64_t)displacement
           + (is_indexed ? general_register(registers, code[1] & 15) : 0);
}
#endif

/*
 * The address of a misaligned access that siginfo lacks, from the registers. On MIPS, it is in BadVAddr, and
 * Cause.ExcCode is 4 for a load or a jump and 5 for a store (MIPS32 PRA, MD00090, Cause and BadVAddr). These codes also
 * stand for accesses to the kernel's half. z/Architecture has no such register: the instruction determines the address.
 */
void append_misaligned_address(const struct registers *registers, const siginfo_t *signal, int memory)
{
#if defined(__mips__)
    (void)memory;
    unsigned cause = registers->narrow[MIPS_CAUSE] >> 2 & 31;

    uint32_t address = registers->narrow[MIPS_BADVADDR];

    if (signal->si_signo == SIGBUS && signal->si_code == SI_KERNEL && (cause == 4 || cause == 5) && address >> 31 == 0) {
        append(",\"misaligned_address\":%" PRIu32, address);
    }
#elif defined(__s390__)
    unsigned char code[6] = {0};

    if (signal->si_signo != SIGILL || signal->si_code != ILL_ILLOPN
        || pread(memory, code, sizeof code, (off_t)registers->pc) < 4) {
        return;
    }
    for (size_t i = 0; i < sizeof aligned_operands / sizeof *aligned_operands; i++) {
        bool is_long = aligned_operands[i].last;

        if (code[0] == aligned_operands[i].first && (!is_long || code[5] == aligned_operands[i].last)) {
            uint64_t address = operand_address(registers, code, is_long, aligned_operands[i].is_indexed);

            if (address % aligned_operands[i].boundary) {
                append(",\"misaligned_address\":%" PRIu64, address);
            }
        }
    }
#else
    (void)registers;
    (void)signal;
    (void)memory;
#endif
}

/*
 * Before Power ISA 3.0, bits 11 to 15 of MFFS are reserved and ignored, so that the C library uses MFFSCRNI and MFFSL, which
 * older processors perform as MFFS. QEMU 7.2 raises an exception for them (8.1 does not): init performs them instead.
 */
bool perform_instruction(pid_t tid, const siginfo_t *signal)
{
#if defined(__powerpc__)
    enum { FPSCR = 32 };
    uint64_t floats[FPSCR + 1];
    struct iovec place = {.iov_base = floats, .iov_len = sizeof floats};
    uintptr_t pc = (uintptr_t)signal->si_addr;

    if (signal->si_signo != SIGILL || signal->si_code != ILL_ILLOPC) {
        return false;
    }
    errno = 0;
    unsigned long word = (unsigned long)ptrace(PTRACE_PEEKTEXT, tid, (void *)(pc & ~(sizeof word - 1)), 0);
    bool is_second = pc % sizeof word != 0, is_big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    uint32_t code = (uint32_t)(sizeof word > 4 && is_second != is_big ? (uint64_t)word >> 32 : word);
    /* Opcode 63, extended opcode 583, and no update of the condition register. */
    if (errno != 0 || (code & 0xfc0007ff) != 0xfc00048e
        || ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRFPREG, &place) != 0) {
        return false;
    }
    floats[code >> 21 & 31] = floats[FPSCR];
    return ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRFPREG, &place) == 0
           && ptrace(PTRACE_POKEUSER, tid, (void *)(POWERPC_NIP * sizeof(long)), (void *)(pc + 4)) == 0;
#else
    (void)tid;
    (void)signal;
    return false;
#endif
}
