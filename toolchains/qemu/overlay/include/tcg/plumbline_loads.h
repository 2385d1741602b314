/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory order (linux-user/memory_order.c): loads that return the value from before another thread's last store. */
#ifndef TCG_PLUMBLINE_LOADS_H
#define TCG_PLUMBLINE_LOADS_H

#include "hw/core/cpu.h"
#include "tcg/plumbline.h"

extern bool plumbline_loads_early;

/*
 * In the MemOp of a translated load: what its address depends on. Nothing is known; nothing but constants; or two globals of
 * TCG, registers of the program, which may be the same, by their numbers.
 */
enum {
    PLUMBLINE_BASE_BITS = 6, PLUMBLINE_BASE_UNKNOWN = 0, PLUMBLINE_BASE_CONSTANT = 1, PLUMBLINE_BASE_GLOBALS = 62,
    PLUMBLINE_BASE_SHIFT = 16, PLUMBLINE_BASE = 0xfff << PLUMBLINE_BASE_SHIFT
};

static inline int plumbline_base(int global, int other)
{
    return (global + 1) << PLUMBLINE_BASE_BITS | (other + 1);
}

/* One more barrier of the program: loads behind it are executed after those before it. */
enum { PLUMBLINE_ORDER_LOADS = PLUMBLINE_BEFORE_ACQUIRE + 1 };

/* Of each thread, in the place of the TLB, which user mode does not have. */
typedef struct PlumblineLoads {
    uint8_t marks[PLUMBLINE_MARKS]; /* by place, as `plumbline_marks`: whether a store of another thread is recorded */
    uint64_t independent; /* globals of TCG: whether their values come from no load since the last fence */
} PlumblineLoads;

QEMU_BUILD_BUG_ON(sizeof(PlumblineLoads) > sizeof(CPUTLB));

static inline PlumblineLoads *plumbline_loads(CPUState *cpu)
{
    return (PlumblineLoads *)&cpu->neg.tlb;
}

/*
 * A load: true if it has been performed into `value`, which may be that of a waiting store of this thread, or an old one.
 * Otherwise the caller performs the load.
 */
bool plumbline_load(CPUState *cpu, const void *at, int size, MemOp op, void *value);

/*
 * Append one JSON line to the fault log about a load that returned the value from before a store of another thread: their
 * program counters, and the place.
 */
void plumbline_log_early_load(vaddr load, vaddr store, uint64_t place);

#endif
