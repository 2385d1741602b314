/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TCG_PLUMBLINE_H
#define TCG_PLUMBLINE_H

#include "exec/memop.h"
#include "exec/vaddr.h"
#include "qemu/int128.h"

enum {
    PLUMBLINE_ARCH,    /* the demand of the emulated architecture */
    PLUMBLINE_NATURAL, /* natural alignment of every access, except for shared libraries, which have the demand of the architecture */
    PLUMBLINE_NONE,    /* nothing is checked */
};

/*
 * Flags of a translator's MemOp: to the architecture, the operand is a string of bytes, which has no natural alignment, or
 * several words, which the emulator moves at once. plumbline_demanded() removes the flags.
 */
enum { PLUMBLINE_BYTES = 1 << 14, PLUMBLINE_WORDS = 1 << 15, PLUMBLINE_FLAGS = PLUMBLINE_BYTES | PLUMBLINE_WORDS };

/*
 * Memory order (linux-user/memory_order.c): the stores of threads wait before they go to memory. Two more flags of a
 * translator's MemOp matter then: a store goes there after all earlier ones, and an atomic access may do so before them.
 */
extern bool plumbline_reorders;
enum { PLUMBLINE_RELEASE = 1 << 16, PLUMBLINE_RELAXED = 1 << 17, PLUMBLINE_ORDER = PLUMBLINE_RELEASE | PLUMBLINE_RELAXED };

/*
 * Barriers of the program: one that orders everything; one that orders stores; the beginning of a load-acquire, before
 * which earlier releases go to memory.
 */
enum { PLUMBLINE_ORDER_ALL, PLUMBLINE_ORDER_STORES, PLUMBLINE_BEFORE_ACQUIRE };

/* The thread begins and ends to execute translated code. No store waits afterwards. */
void plumbline_enter_code(CPUState *cpu);
void plumbline_leave_code(CPUState *cpu);

/* All waiting stores of this thread go to memory, before an access by another way. */
void plumbline_write_stores(CPUState *cpu);

/*
 * A store to the host's address `at`, of a value in memory's order: false if the caller must perform it. If the program
 * may not write there, the store faults like any other.
 */
bool plumbline_delay_store(CPUState *cpu, void *at, int size, MemOp op, Int128 value);

/*
 * It goes to memory. The page was writable when the store was delayed. The kernel makes an exception of a page whose code
 * was translated since, and the emulator's handler of signals makes that writable again.
 */
void plumbline_write_store(CPUState *cpu, void *at, int size, MemOp op, Int128 value);

/* A load: true if `value` is that of a waiting store of this thread; otherwise the caller performs the load. */
bool plumbline_load_own(CPUState *cpu, const void *at, int size, void *value);

/* An atomic access is about to be performed. */
void plumbline_before_atomic(CPUState *cpu, const void *at, int size, MemOp op);

/*
 * The CPU of the thread that creates a new one, while the new CPU is created; NULL for the program's first. Both are of
 * the same type.
 */
CPUState *plumbline_creator(void);

/* The alignment for which the code that this thread translates must check. */
extern __thread int plumbline_demand;

/* Code from `pc` on is about to be translated: determine its demand. */
void plumbline_translating(CPUState *cpu, vaddr pc);

/* The translation of the block at `pc` begins: with coverage, the block must record that it is entered. */
void plumbline_entering(CPUState *cpu, vaddr pc);

/*
 * The block of guest code at `pc` that an earlier process translated from the same instructions in this state of the CPU;
 * NULL if there is none.
 */
TranslationBlock *plumbline_kept(vaddr pc, uint64_t cs_base, uint32_t flags, uint32_t cflags, const void *instructions);

/* All translated code is about to be discarded, including that of earlier processes. */
void plumbline_forget_translations(void);

/* The number of bits by which the loaded word is rotated to the right; always 0 except for the action `ignore`. */
extern __thread unsigned plumbline_rotation;

/*
 * Called before a misaligned access that the demand forbids. Logs it if the policy says so. Returns false if it must raise
 * SIGBUS, and true if it is performed, at *address, which hardware that ignores the low bits changes.
 */
bool plumbline_permit(CPUState *cpu, vaddr *address, MemOp op, bool is_store, uintptr_t host_pc);

/* The same for an atomic access. Only returns the answer, because plumbline_permit() is called for its parts later. */
bool plumbline_permits_atomic(CPUState *cpu, vaddr address, MemOp op, uintptr_t host_pc);

/*
 * A whole misaligned access for whose parts plumbline_permit() is not called: a conditional store that fails before it
 * accesses memory, or an unchecked access of a helper function. Returns the same as plumbline_permit().
 */
bool plumbline_permit_whole(CPUState *cpu, vaddr address, MemOp op, bool is_store, uintptr_t host_pc);

/* The alignment that the demand requires of an access in the code that is being translated. */
MemOp plumbline_demanded(MemOp op);

/* Whether an instruction that moves several words ends if the first of them is misaligned. */
bool plumbline_stops_at_first(void);

/* Whether a stack pointer must be aligned if the architecture demands it. */
bool plumbline_enforces_stack(void);

/* Whether the program can continue after plumbline_permit_stack(). */
bool plumbline_resumes_after_stack(void);

/* An access through a stack pointer that is not a multiple of `size`. Returns the same as plumbline_permit(). */
bool plumbline_permit_stack(CPUState *cpu, vaddr pointer, unsigned size, bool is_store, uintptr_t host_pc);

enum { PLUMBLINE_RAISE, PLUMBLINE_DO, PLUMBLINE_TRUNCATE };

/*
 * 32-bit ARM: the effect of a misaligned access of 4 or 8 bytes by the kernel's helper, which the program called at `pc`.
 */
int plumbline_judge_helper(CPUState *cpu, vaddr pc, vaddr address, int size, bool is_store);

static inline uint32_t plumbline_rotate(uint32_t word)
{
    unsigned rotation = plumbline_rotation;

    if (__builtin_expect(rotation, 0)) {
        plumbline_rotation = 0;
        return word >> rotation | word << (32 - rotation);
    }
    return word;
}

#endif
