/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TCG_PLUMBLINE_H
#define TCG_PLUMBLINE_H

#include "exec/memop.h"
#include "exec/vaddr.h"

enum {
    PLUMBLINE_ARCH,    /* what the emulated architecture asks for */
    PLUMBLINE_NATURAL, /* natural alignment of every access; shared libraries may do what the architecture allows */
    PLUMBLINE_NONE,    /* nothing is checked */
};

/*
 * Flags of a MemOp, as translators have it: to its architecture the operand is a string of bytes, of which no alignment
 * is natural, or several words, which the emulator moves at once. plumbline_demanded() takes them away.
 */
enum { PLUMBLINE_BYTES = 1 << 14, PLUMBLINE_WORDS = 1 << 15, PLUMBLINE_FLAGS = PLUMBLINE_BYTES | PLUMBLINE_WORDS };

/*
 * The CPU of the thread that begins another one, whose CPU is being made; NULL while the program's first is made. Both are
 * of one type.
 */
CPUState *plumbline_creator(void);

/* How much alignment the code that this thread is translating is to check for. */
extern __thread int plumbline_demand;

/* Code from `pc` on is about to be translated: settle its demand. */
void plumbline_translating(CPUState *cpu, vaddr pc);

/* The block at `pc` begins to be translated: have it tell when it is entered, if coverage is asked for. */
void plumbline_entering(CPUState *cpu, vaddr pc);

/*
 * The block of guest code at `pc`, translated by an earlier process from the same instructions and in this state of the
 * CPU; NULL where there is none.
 */
TranslationBlock *plumbline_kept(vaddr pc, uint64_t cs_base, uint32_t flags, uint32_t cflags, const void *instructions);

/* Translated code is about to be thrown away, that of earlier processes too. */
void plumbline_forget_translations(void);

/* By how many bits the word that is being loaded is rotated to the right; 0 but under the action `ignore`. */
extern __thread unsigned plumbline_rotation;

/*
 * A misaligned access that the demand forbids, before it is made: log it if the policy says so. False: it is to
 * raise SIGBUS. True: it is to be done, at *address, which hardware that ignores the low bits changes.
 */
bool plumbline_permit(CPUState *cpu, vaddr *address, MemOp op, bool is_store, uintptr_t host_pc);

/* The same for an access that must be atomic: only an answer, because its parts come to plumbline_permit() after it. */
bool plumbline_permits_atomic(CPUState *cpu, vaddr address, MemOp op, uintptr_t host_pc);

/*
 * A whole access at a misaligned address, whose parts do not come to plumbline_permit(): a conditional store that fails
 * before it comes to its memory, or what a helper function makes unchecked. The answer is that of plumbline_permit().
 */
bool plumbline_permit_whole(CPUState *cpu, vaddr address, MemOp op, bool is_store, uintptr_t host_pc);

/* The alignment that the code being translated asks of an access, as the demand has it. */
MemOp plumbline_demanded(MemOp op);

/* Whether an instruction that moves several words is over where the first of them is misaligned. */
bool plumbline_stops_at_first(void);

/* Whether a stack pointer has to be aligned where the architecture says so. */
bool plumbline_enforces_stack(void);

/* Whether the program may go on after plumbline_permit_stack(). */
bool plumbline_resumes_after_stack(void);

/* An access through a stack pointer that is no multiple of `size`. The answer is that of plumbline_permit(). */
bool plumbline_permit_stack(CPUState *cpu, vaddr pointer, unsigned size, bool is_store, uintptr_t host_pc);

enum { PLUMBLINE_RAISE, PLUMBLINE_DO, PLUMBLINE_TRUNCATE };

/*
 * 32-bit ARM: what becomes of a misaligned access of 4 or 8 bytes that the kernel's helper makes for the program,
 * which called it at `pc`.
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
