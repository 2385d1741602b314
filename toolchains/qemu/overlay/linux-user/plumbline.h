/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef LINUX_USER_PLUMBLINE_H
#define LINUX_USER_PLUMBLINE_H

/* The -alignment and -fault-log options. Bad input ends the emulator. */
void plumbline_set_alignment(const char *policy);
const char *plumbline_alignment(void);
void plumbline_set_fault_log(const char *path);

/*
 * The -fatal-faults option: a file of the instructions whose misaligned accesses killed a process after its own handler
 * had received the signal. If one of them faults again, the fault is logged, and the process dies at once: its handler
 * may take longer than the process has lived, and would report nothing new. Processes add to the file.
 */
void plumbline_set_fatal_faults(const char *path);

/*
 * The -no-crash-maps option: after a handler of the program has received a synchronous signal, /proc/self/maps is empty.
 * Some crash handlers test all memory that the file lists, which would take longer than the process has lived.
 */
void plumbline_set_no_crash_maps(void);
bool plumbline_hides_maps(void);

/*
 * The -log-ends option, see plumbline_finish(). The second function tells whether the emulator must receive a signal that
 * ends the program, and that unmodified QEMU leaves to the host.
 */
void plumbline_set_log_ends(void);
bool plumbline_logs_end_by(int sig);

/* The -coverage option: a file of the host, whose size is a power of two. Bad input ends the emulator. */
void plumbline_set_coverage(const char *path);
bool plumbline_has_coverage(void);

/*
 * The -memory-order option. Bad input ends the emulator. Around each system call: one that takes memory away from other
 * threads is made while none of them runs. The first function returns what the second one needs.
 */
void plumbline_set_memory_order(const char *model);
void plumbline_finish_order(void);
bool plumbline_begin_call(int number, abi_ulong first, abi_ulong fourth);
void plumbline_end_call(bool is_alone);

/*
 * RISC-V: the answer of riscv_hwprobe(2) about misaligned accesses to integers, for RISCV_HWPROBE_KEY_CPUPERF_0. C
 * libraries choose their memcpy by it.
 */
int plumbline_misaligned_scalars(void);

/*
 * The -translations option. To hold addresses, the emulator runs itself again with these arguments. It keeps translations
 * only if it is plain: without a debugger or plugins. Kept code is loaded as soon as the places of the code, the program
 * and the guest's memory are known, and written when the process ends.
 */
void plumbline_set_translations(const char *path);
void plumbline_hold_addresses(char **argv, bool is_plain);
void plumbline_load_translations(const struct image_info *program, const char *cpu);
void plumbline_keep_translations(void);

/*
 * A SIGSEGV or SIGBUS that another process sent while the program blocked it (signal.c). The first function is called
 * before the program waits with a set of blocked signals, and returns -TARGET_EINTR if one is to be delivered, or 0. The
 * second takes one for sigtimedwait(2), and returns the signal, -TARGET_EFAULT or 0. The third adds them to those that
 * the host reports as pending.
 */
int plumbline_suspending(const sigset_t *blocked);
abi_long plumbline_take_arrived(const sigset_t *wanted, abi_ulong into);
void plumbline_add_arrived(sigset_t *pending);

/*
 * The -system-calls option. Bad input ends the emulator. A call that the file does not allow is logged and does not
 * return.
 */
void plumbline_set_system_calls(const char *path);
void plumbline_filter_call(CPUArchState *env, int number);

/* End the process by a signal, whatever handler the program has. */
G_NORETURN void plumbline_kill(CPUArchState *env, int target_sig);

/* Append one JSON line about a system call that kills the process; without a name if the file lacks the number. */
void plumbline_log_call(CPUArchState *env, int number, const char *name);

/*
 * 32-bit ARM: the kernel's helpers __kuser_cmpxchg and __kuser_cmpxchg64, whose arguments are in the registers. Returns
 * false if a signal is pending instead; the program counter is then that of the call.
 */
bool plumbline_cmpxchg32(CPUArchState *env);
bool plumbline_cmpxchg64(CPUArchState *env);
/* After a faulting access: if it was the exchange of __kuser_cmpxchg in translated code, set the PC to the call. */
void plumbline_blame_caller(CPUArchState *env);

/* The name of a system call of the guest; NULL for a number that strace.list does not have. */
const char *plumbline_call_name(int number);

/* With the -log-ends option: append one JSON line about a system call that the emulator lacks, once in a process. */
void plumbline_log_lacking(int number);

/* Append one JSON line about a synchronous signal that is about to be delivered. */
void plumbline_log_fault(CPUArchState *env, int sig, int code, uint64_t address, bool handled);

/*
 * Append one JSON line about a store that another thread saw before an older one of the same thread: the program counters
 * of the two and of that thread's load, which read the older one's place, and both places. And one about the numbers of
 * stores, of those that overtook others, and of pauses until now.
 */
bool plumbline_has_fault_log(void);
void plumbline_log_overtake(vaddr early, vaddr late, vaddr reader, uint64_t early_place, uint64_t late_place);
void plumbline_log_order(uint64_t stores, uint64_t overtakes, uint64_t pauses);

/* The program counter of the guest's instruction whose translation the host executed. */
vaddr plumbline_pc_of(CPUState *cpu, uintptr_t host_pc);

/* The process is about to die of a signal, which has the host's number. */
void plumbline_dying(int host_sig);

/*
 * Append the counts that are not written yet, and the end of the process: this status, unless a signal kills it. With
 * the -log-ends option, also where the process was if it failed and no fault shows that.
 */
void plumbline_finish(CPUArchState *env, int status);

#endif
