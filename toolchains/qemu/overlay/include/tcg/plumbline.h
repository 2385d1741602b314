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

/* How much alignment the code that this thread is translating is to check for. */
extern __thread int plumbline_demand;

/* Code from `pc` on is about to be translated: settle its demand. */
void plumbline_translating(CPUState *cpu, vaddr pc);

/* The block at `pc` begins to be translated: have it tell when it is entered, if coverage is asked for. */
void plumbline_entering(CPUState *cpu, vaddr pc);

/* By how many bits the word that is being loaded is rotated to the right; 0 but under the action `ignore`. */
extern __thread unsigned plumbline_rotation;

/*
 * A misaligned access that the demand forbids, before it is made: log it if the policy says so. False: it is to
 * raise SIGBUS. True: it is to be done, at *address, which hardware that ignores the low bits changes.
 */
bool plumbline_permit(CPUState *cpu, vaddr *address, MemOp op, bool is_store, uintptr_t host_pc);

/* The same for an access that must be atomic: only an answer, because its parts come to plumbline_permit() after it. */
bool plumbline_permits_atomic(CPUState *cpu, vaddr address, MemOp op, uintptr_t host_pc);

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
