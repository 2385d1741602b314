/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TCG_PLUMBLINE_H
#define TCG_PLUMBLINE_H

enum {
    PLUMBLINE_ARCH,  /* what the emulated architecture says */
    PLUMBLINE_FIXUP, /* let a misaligned access succeed, as a kernel's fixup makes it */
    PLUMBLINE_TRAP,  /* demand natural alignment */
};

/* By log2 of the access size: 1, 2, 4, 8, 16 bytes. Set once, before anything is translated. */
extern uint8_t plumbline_alignment[5];

/*
 * A misaligned access that the rules forbid, before it is made. True: it has been logged, and is to succeed.
 * False: nothing is reported, and it is to fault.
 */
bool plumbline_report(CPUState *cpu, uint64_t address, bool is_store, uintptr_t host_pc);

#endif
