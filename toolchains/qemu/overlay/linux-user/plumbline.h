/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef LINUX_USER_PLUMBLINE_H
#define LINUX_USER_PLUMBLINE_H

/* The -alignment and -fault-log options. Both refuse bad input by exiting. */
void plumbline_set_alignment(const char *policy);
const char *plumbline_alignment(void);
void plumbline_set_fault_log(const char *path);

/*
 * The -fatal-faults option: a file of the instructions whose misaligned access a process died of, after its own handler
 * had seen the signal. Where one of them faults again, it is logged, and the process dies at once: its handler may take
 * longer than the process has lived, and has nothing new to say. Processes add to the file.
 */
void plumbline_set_fatal_faults(const char *path);

/*
 * The -no-crash-maps option: once a handler of the program has seen a synchronous signal, /proc/self/maps is empty. Crash
 * handlers that test all memory which it names then test none, which would take longer than the process has lived.
 */
void plumbline_set_no_crash_maps(void);
bool plumbline_hides_maps(void);

/* The -coverage option: the host's file, of a size that is a power of two. Refuses bad input by exiting. */
void plumbline_set_coverage(const char *path);
bool plumbline_has_coverage(void);

/*
 * RISC-V: what riscv_hwprobe(2) says of misaligned accesses to integers, by the key RISCV_HWPROBE_KEY_CPUPERF_0. A C
 * library chooses its memcpy by it.
 */
int plumbline_misaligned_scalars(void);

/*
 * The -translations option. Addresses are held by running the emulator again, with these arguments, and translations are
 * kept only where it is plain: without a debugger or plugins. Code is loaded when its place, the program's and the guest's
 * are settled, and kept when the process ends.
 */
void plumbline_set_translations(const char *path);
void plumbline_hold_addresses(char **argv, bool is_plain);
void plumbline_load_translations(const struct image_info *program, const char *cpu);
void plumbline_keep_translations(void);

/*
 * A SIGSEGV or SIGBUS that somebody sent while the program blocked it (signal.c). Before the program waits with a set of
 * blocked signals: -TARGET_EINTR if one is to be delivered, or 0. Taken by sigtimedwait(2): the signal, -TARGET_EFAULT
 * or 0. Added to those that the host says are pending.
 */
int plumbline_suspending(const sigset_t *blocked);
abi_long plumbline_take_arrived(const sigset_t *wanted, abi_ulong into);
void plumbline_add_arrived(sigset_t *pending);

/*
 * The -system-calls option, which refuses bad input by exiting. A call that the file does not allow is logged and does
 * not return.
 */
void plumbline_set_system_calls(const char *path);
void plumbline_filter_call(CPUArchState *env, int number);

/* End the process by a signal, whatever the program would do about it. */
G_NORETURN void plumbline_kill(CPUArchState *env, int target_sig);

/* Append one JSON line about a system call that kills the process; without a name where nobody knew the number. */
void plumbline_log_call(CPUArchState *env, int number, const char *name);

/*
 * 32-bit ARM: the kernel's helpers __kuser_cmpxchg and __kuser_cmpxchg64, whose arguments are in the registers. False:
 * a signal is on its way, and the program counter is the call's.
 */
bool plumbline_cmpxchg32(CPUArchState *env);
bool plumbline_cmpxchg64(CPUArchState *env);
/* After an access that faulted: if it was the exchange of __kuser_cmpxchg in translated code, the program counter is the call's. */
void plumbline_blame_caller(CPUArchState *env);

/* Append one JSON line about a synchronous signal that is about to be delivered. */
void plumbline_log_fault(CPUArchState *env, int sig, int code, uint64_t address, bool handled);

/* The process is about to die of a signal, by the host's number. */
void plumbline_dying(int host_sig);

/* Append the counts that have not been written yet, and how the process ends: with this status, unless it is dying. */
void plumbline_finish(int status);

#endif
