/*
 * The system calls that the tracer stops, and the registers of a thread that is stopped in one. This file contains
 * everything that differs between the machines on which the tracer runs.
 */
#ifndef SYSTEM_CALLS_H
#define SYSTEM_CALLS_H
#include <elf.h>
#include <linux/audit.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>

/* The numbers with which programs of one kind call the kernel. */
typedef struct {
    unsigned arch, execve, execveat, clone, clone3, seccomp;
    int is_followed;
} Interface;

/* A call of execve or execveat. */
typedef struct {
    const Interface *interface;
    int is_at;
    uint64_t folder, path, arguments, environment, flags, stack;
} Call;

#if defined(__x86_64__)
#define X32_BIT 0x40000000u
static const Interface interfaces[] = {
    {AUDIT_ARCH_X86_64, SYS_execve, SYS_execveat, SYS_clone, SYS_clone3, SYS_seccomp, 1},
    {AUDIT_ARCH_X86_64, X32_BIT | 520, X32_BIT | 545, X32_BIT | SYS_clone, X32_BIT | SYS_clone3,
     X32_BIT | SYS_seccomp, 1},
    {AUDIT_ARCH_I386, 11, 358, 120, 435, 354, 1},
};

/* Also of a thread of 32 bits, unlike PTRACE_GETREGSET. */
static int read_registers(pid_t tid, struct user_regs_struct *registers)
{
    return ptrace(PTRACE_GETREGS, tid, 0, registers) == 0;
}

static int write_registers(pid_t tid, struct user_regs_struct *registers)
{
    return ptrace(PTRACE_SETREGS, tid, 0, registers) == 0;
}

/* The call becomes execve of another path. */
static int replace_call(pid_t tid, struct user_regs_struct *now, const Call *call, uint64_t path)
{
    now->orig_rax = call->interface->execve;
    if (call->interface->arch == AUDIT_ARCH_I386) {
        now->rbx = path;
        now->rcx = call->arguments;
        now->rdx = call->environment;
    } else {
        now->rdi = path;
        now->rsi = call->arguments;
        now->rdx = call->environment;
    }
    return write_registers(tid, now);
}

static void set_first_argument(struct user_regs_struct *now, const Interface *interface, uint64_t value)
{
    *(interface->arch == AUDIT_ARCH_I386 ? &now->rbx : &now->rdi) = value;
}

static int64_t returned_by(const struct user_regs_struct *now)
{
    return (int64_t)now->rax;
}

/* INT3 */
static const unsigned char breakpoint[] = {0xcc};

/* If the thread has reached a breakpoint, the registers of a thread that is about to execute what was there. */
static int leave_breakpoint(struct user_regs_struct *now, uint64_t place)
{
    if (now->rip != place + sizeof breakpoint)
        return 0;
    now->rip = place;
    return 1;
}

/* Restore the registers of the call, except its result. A call that the kernel makes again keeps its
 * number. */
static void put_back(pid_t tid, struct user_regs_struct *now, const struct user_regs_struct *before, int is_repeated)
{
    uint64_t returned = now->rax;
    *now = *before;
    now->rax = returned;
    if (!is_repeated)
        now->orig_rax = (uint64_t)-1;
    write_registers(tid, now);
}
#elif defined(__aarch64__)
static const Interface interfaces[] = {
    {AUDIT_ARCH_AARCH64, SYS_execve, SYS_execveat, SYS_clone, SYS_clone3, SYS_seccomp, 1},
    {AUDIT_ARCH_ARM, 11, 387, 120, 435, 383, 0},
};

static int read_registers(pid_t tid, struct user_regs_struct *registers)
{
    struct iovec all = {registers, sizeof *registers};
    return ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &all) == 0;
}

static int write_registers(pid_t tid, struct user_regs_struct *registers)
{
    struct iovec all = {registers, sizeof *registers};
    return ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &all) == 0;
}

static int replace_call(pid_t tid, struct user_regs_struct *now, const Call *call, uint64_t path)
{
    int number = SYS_execve;
    struct iovec one = {&number, sizeof number};
    if (call->is_at && ptrace(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &one) != 0)
        return 0;
    now->regs[0] = path;
    now->regs[1] = call->arguments;
    now->regs[2] = call->environment;
    return write_registers(tid, now);
}

static void set_first_argument(struct user_regs_struct *now, const Interface *interface, uint64_t value)
{
    (void)interface;
    now->regs[0] = value;
}

static int64_t returned_by(const struct user_regs_struct *now)
{
    return (int64_t)now->regs[0];
}

/* BRK #0 */
static const unsigned char breakpoint[] = {0x00, 0x00, 0x20, 0xd4};

static int leave_breakpoint(struct user_regs_struct *now, uint64_t place)
{
    return now->pc == place;
}

/* The kernel itself keeps the number and the first argument of a call that it makes again. */
static void put_back(pid_t tid, struct user_regs_struct *now, const struct user_regs_struct *before, int is_repeated)
{
    (void)is_repeated;
    for (int i = 1; i < 31; i++)
        now->regs[i] = before->regs[i];
    write_registers(tid, now);
}
#else
#error "no register layout for this host"
#endif

#define INTERFACES (sizeof interfaces / sizeof *interfaces)

/* The interface of a call that the filter has stopped; NULL if none has such a call. */
static const Interface *interface_of(const struct __ptrace_syscall_info *info)
{
    uint64_t number = info->seccomp.nr;
    for (const Interface *one = interfaces; one < interfaces + INTERFACES; one++)
        if (one->arch == info->arch && (number == one->execve || number == one->execveat || number == one->clone ||
                                        number == one->clone3 || number == one->seccomp))
            return one;
    return NULL;
}

static Call call_of(const struct __ptrace_syscall_info *info, const Interface *interface)
{
    const __typeof__(info->seccomp.args[0]) *given = info->seccomp.args;
    if (info->seccomp.nr == interface->execve)
        return (Call){interface, 0, 0, given[0], given[1], given[2], 0, info->stack_pointer};
    return (Call){interface, 1, given[0], given[1], given[2], given[3], given[4], info->stack_pointer};
}

#endif
