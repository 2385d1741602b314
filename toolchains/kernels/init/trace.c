/*
 * Faults of traced programs: init lets every thread run freely, and the kernel stops one only when a signal is about
 * to be delivered. Of a synchronous SIGBUS, SIGSEGV, SIGILL or SIGFPE it then writes the record that the emulator of
 * the user tier writes too (harness/record/run_folder.py, Fault), so that all that reads those reads these.
 *
 * What is sent is one event frame, before the signal is delivered: once the program is gone, the record is out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

enum { STACK_LOGGED = 16 * 1024, INSTRUCTION_LOGGED = 16, LARGEST_RECORD = 256 * 1024 };

bool trace(pid_t pid)
{
    return ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE) == 0;
}

/* A record under construction; what does not fit is cut, and the host sees that it is not whole. */
static char record[LARGEST_RECORD];
static size_t length;

static void append(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void append(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int written = vsnprintf(record + length, sizeof record - length, format, arguments);
    va_end(arguments);
    length = (size_t)written < sizeof record - length ? length + (size_t)written : sizeof record - 1;
}

static void append_hex(const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < count && length + 2 < sizeof record; i++) {
        record[length++] = digits[bytes[i] >> 4];
        record[length++] = digits[bytes[i] & 15];
    }
}

static void append_escaped(const char *text)
{
    for (; *text; text++) {
        append(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

/* As much of [address, address + count) as is mapped. */
static void append_memory(int memory, uint64_t address, size_t count)
{
    unsigned char bytes[256];

    while (count) {
        /* A piece never crosses a page, so that one is either wholly there or not at all. */
        size_t piece = sizeof bytes - (address & (sizeof bytes - 1));
        piece = piece < count ? piece : count;
        if (pread(memory, bytes, piece, (off_t)address) != (ssize_t)piece) {
            break;
        }
        append_hex(bytes, piece);
        address += piece;
        count -= piece;
    }
}

/* File-backed mappings: lines `START-END MODE OFFSET DEVICE INODE PATH` (proc(5)). */
static void append_maps(pid_t tid)
{
    char path[64], line[512];
    const char *separator = "";

    snprintf(path, sizeof path, "/proc/%d/maps", tid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        uint64_t start, end, offset;
        int at = 0;

        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %n", &start, &end, &offset, &at) != 3
            || line[at] != '/') {
            continue;
        }
        append("%s{\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"path\":\"", separator, start,
               end, offset);
        append_escaped(line + at);
        append("\"}");
        separator = ",";
    }
    if (maps) {
        fclose(maps);
    }
}

/* A number from /proc/TID/status: of `Tgid:` in base 10, of `SigCgt:` in base 16. */
static uint64_t status_number(pid_t tid, const char *key, int base)
{
    char path[64], line[256];
    uint64_t number = 0;

    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            number = strtoull(line + strlen(key), NULL, base);
        }
    }
    if (status) {
        fclose(status);
    }
    return number;
}

/*
 * Registers as the kernel's regset has them, to be told in the order of QEMU's gdb stub. A 32-bit program on a 64-bit
 * kernel has the 32-bit regset, which its length tells.
 */
struct registers {
    union {
        uint32_t narrow[80];
        uint64_t wide[40];
        unsigned char bytes[320];
    };
    size_t size;
    uint64_t pc, stack;
};

static void append_register(const struct registers *registers, size_t width, size_t index)
{
    append("%s\"", record[length - 1] == '[' ? "" : ",");
    if ((index + 1) * width <= registers->size) {
        append_hex(registers->bytes + index * width, width);
    }
    append("\"");
}

#if !defined(__riscv) && !defined(__mips__)
static void append_absent_registers(int count)
{
    while (count--) {
        append(",\"\"");
    }
}
#endif

#if defined(__mips__)
/* Words of the 32-bit regset (Linux arch/mips/include/uapi/asm/reg.h). */
enum { MIPS_R0 = 6, MIPS_LO = 38, MIPS_HI, MIPS_EPC, MIPS_BADVADDR, MIPS_STATUS, MIPS_CAUSE };
#endif

static bool read_registers(pid_t tid, struct registers *registers)
{
    struct iovec place = {.iov_base = registers->bytes, .iov_len = sizeof registers->bytes};

    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &place) != 0) {
        return false;
    }
    registers->size = place.iov_len;
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
    /* Of an instruction in a branch's delay slot EPC has the branch (MIPS32 PRA, MD00090, Cause.BD). */
    registers->pc = registers->narrow[MIPS_EPC] + (registers->narrow[MIPS_CAUSE] >> 31 ? 4 : 0);
    registers->stack = registers->narrow[MIPS_R0 + 29];
#else
#error "no register layout for this machine"
#endif
    return true;
}

#if defined(__arm__) || defined(__aarch64__)
/* r0 to pc, nine registers of the floating-point unit that nobody has, cpsr. */
static void append_arm_registers(const struct registers *registers)
{
    for (size_t i = 0; i < 16; i++) {
        append_register(registers, 4, i);
    }
    append_absent_registers(9);
    append_register(registers, 4, 16);
}
#endif

static void append_registers(const struct registers *registers)
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
    append("\"%016d\"", 0); /* x0, in whose place the regset has the pc */
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
#else
    append_arm_registers(registers);
#endif
}

/*
 * What siginfo does not tell of a misaligned access and the processor's registers do. MIPS has the address in BadVAddr and
 * in Cause.ExcCode why it is there: 4 for a load or a jump, 5 for a store (MIPS32 PRA, MD00090, Cause and BadVAddr). Both
 * also stand for any address in the kernel's half.
 */
static void append_misaligned_address(const struct registers *registers, const siginfo_t *signal)
{
#if defined(__mips__)
    unsigned cause = registers->narrow[MIPS_CAUSE] >> 2 & 31;

    uint32_t address = registers->narrow[MIPS_BADVADDR];

    if (signal->si_signo == SIGBUS && signal->si_code == SI_KERNEL && (cause == 4 || cause == 5) && address >> 31 == 0) {
        append(",\"misaligned_address\":%" PRIu32, address);
    }
#else
    (void)registers;
    (void)signal;
#endif
}

static bool is_fault(const siginfo_t *signal)
{
    bool synchronous = signal->si_signo == SIGBUS || signal->si_signo == SIGSEGV || signal->si_signo == SIGILL
                       || signal->si_signo == SIGFPE;

    return synchronous && signal->si_code > 0; /* else somebody sent it */
}

static void append_message(const char *message)
{
    append("%s\"", record[length - 1] == '[' ? "" : ",");
    append_escaped(message);
    append("\"");
}

static void report_fault(pid_t tid, const siginfo_t *signal)
{
    struct registers registers;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/mem", tid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    if (memory < 0 || !read_registers(tid, &registers)) {
        complain("a fault's registers or memory");
    } else {
        bool handled = status_number(tid, "SigCgt:", 16) >> (signal->si_signo - 1) & 1;

        length = 0;
        append("{\"event\":\"fault\",\"session\":%d,\"pid\":%d,\"tid\":%d,\"signal\":%d,\"code\":%d,\"address\":%" PRIu64
               ",\"access\":\"\",\"handled\":%s,\"pc\":%" PRIu64 ",\"instruction\":\"",
               (int)getsid(tid), (int)status_number(tid, "Tgid:", 10), tid, host_signal(signal->si_signo), signal->si_code,
               (uint64_t)(uintptr_t)signal->si_addr, handled ? "true" : "false", registers.pc);
        append_memory(memory, registers.pc, INSTRUCTION_LOGGED);
        append("\",\"registers\":[");
        append_registers(&registers);
        append("],\"stack_address\":%" PRIu64 ",\"stack\":\"", registers.stack);
        append_memory(memory, registers.stack, STACK_LOGGED);
        append("\",\"maps\":[");
        append_maps(tid);
        append("],\"kernel_log\":[");
        messages_about(tid, registers.pc, (uint64_t)(uintptr_t)signal->si_addr, append_message);
        append("]");
        append_misaligned_address(&registers, signal);
        append("}\n");
        reply(0, "fault", record, length);
    }
    if (memory >= 0) {
        close(memory);
    }
}

void on_stop(pid_t tid, int status)
{
    int number = WSTOPSIG(status), event = status >> 16;
    siginfo_t signal;

    if (event == PTRACE_EVENT_STOP && number != SIGTRAP) {
        /* Stopped as a group: it stays so until somebody sends SIGCONT. */
        ptrace(PTRACE_LISTEN, tid, 0, 0);
        return;
    }
    if (event == 0 && ptrace(PTRACE_GETSIGINFO, tid, 0, &signal) == 0 && is_fault(&signal)) {
        report_fault(tid, &signal);
    }
    ptrace(PTRACE_CONT, tid, 0, (void *)(uintptr_t)(event ? 0 : number));
}
