/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "qemu/osdep.h"
#include "qemu/bitops.h"
#include "qemu.h"
#include "user-internals.h"
#include "signal-common.h"
#include "user/page-protection.h"
#include "tcg/plumbline.h"
#include "plumbline.h"

#if defined(TARGET_ARM) && !defined(TARGET_AARCH64)
/*
 * The kernel's helpers for programs that may run on a CPU without LDREX. This code makes the same accesses as the
 * kernel's own (Linux arch/arm/kernel/entry-armv.S). Before ARMv6, these are LDR and STR for words, and LDM and STM for
 * doublewords, which are treated like any other LDR or LDM if they are misaligned. From ARMv6K on, they are LDREX, LDREXD
 * and their stores. If a signal is raised, the program counter is that of the call.
 */

/* The call that entered the helper: BL and BLX have 4 bytes, except for Thumb's BLX of a register, which has 2. */
static uint32_t call_before(uint32_t link)
{
    uint32_t after = link & ~1u;
    uint16_t half;

    if (!(link & 1) || get_user_u16(half, after - 2) != 0) {
        return after - 4;
    }
    /* It was read in the byte order of data. Instructions are little-endian in BE8, too. */
    if (TARGET_BIG_ENDIAN) {
        half = bswap16(half);
    }
    return (half & 0xff87) == 0x4780 ? after - 2 : after - 4;
}

void plumbline_blame_caller(CPUARMState *env)
{
    if (env->regs[15] == 0xffff0fc0) {
        env->regs[15] = call_before(env->regs[14]);
        env->thumb = env->regs[14] & 1;
    }
}

static bool fail_helper(CPUARMState *env, int sig, int code, uint32_t address)
{
    env->regs[15] = call_before(env->regs[14]);
    env->thumb = env->regs[14] & 1;
    force_sig_fault(sig, code, address);
    return false;
}

/*
 * The address that a helper's access of so many bytes really uses. Returns false if a signal is pending instead.
 * `rotation` is the number of bits by which a CPU whose check is off rotates the loaded word.
 */
static bool helper_access(CPUARMState *env, uint32_t *address, int size, int alignment, bool is_store, int *rotation)
{
    int needed = is_store ? PAGE_READ | PAGE_WRITE_ORG | PAGE_VALID : PAGE_READ | PAGE_VALID;
    uint32_t place = *address;

    *rotation = 0;
    if (place & (alignment - 1)) {
        switch (plumbline_judge_helper(env_cpu(env), call_before(env->regs[14]), place, size, is_store)) {
        case PLUMBLINE_RAISE:
            return fail_helper(env, TARGET_SIGBUS, TARGET_BUS_ADRALN, place);
        case PLUMBLINE_TRUNCATE:
            *rotation = size == 4 ? place % 4 * 8 : 0;
            place &= ~(uint32_t)(MIN(alignment, 4) - 1);
            break;
        case PLUMBLINE_DO:
            break;
        }
    }
    for (uint32_t end = place + size - 1; ; end = place) {
        int flags = page_get_flags(end);

        if ((flags & needed) != needed) {
            return fail_helper(env, TARGET_SIGSEGV, flags & PAGE_VALID ? TARGET_SEGV_ACCERR : TARGET_SEGV_MAPERR, end);
        }
        if (end == place) {
            break;
        }
    }
    *address = place;
    return true;
}

static uint64_t helper_load(CPUARMState *env, uint32_t address, int size)
{
    uint64_t value = 0;

    memcpy(&value, g2h(env_cpu(env), address), size);
    return value;
}

/* Output: r0 = 0 and C set if *ptr was changed, r0 = -1 and C clear if not. */
static void end_helper(CPUARMState *env, bool changed)
{
    cpsr_write(env, changed ? CPSR_C : 0, CPSR_C, CPSRWriteByInstr);
    env->regs[0] = changed ? 0 : -1;
}

/* The exchange itself, with the mmap lock held. The values are in the byte order of memory. */
static bool exchange(CPUARMState *env, uint32_t address, uint64_t old, uint64_t new, int size, int rotation)
{
    void *host = g2h(env_cpu(env), address);

    if ((uintptr_t)host % size == 0 && !rotation) {
        return size == 4 ? qatomic_cmpxchg__nocheck((uint32_t *)host, (uint32_t)old, (uint32_t)new) == (uint32_t)old
                         : qatomic_cmpxchg__nocheck((uint64_t *)host, old, new) == old;
    }
    /*
     * The host has no such access. These CPUs have one core, and the kernel restarts an interrupted helper: all other
     * threads stop. One of them may be waiting for the lock.
     */
    mmap_unlock();
    start_exclusive();
    uint64_t found = helper_load(env, address, size);
    bool changes = (rotation ? tswap32(ror32(tswap32(found), rotation)) : found) == old;
    if (changes) {
        memcpy(host, &new, size);
    }
    end_exclusive();
    mmap_lock();
    return changes;
}

/* r0 = oldval, r1 = newval, r2 = pointer to the target. Returns false if a signal is pending. */
bool plumbline_cmpxchg32(CPUARMState *env)
{
    uint32_t address = env->regs[2];
    int rotation;

    mmap_lock();
    bool goes_on = helper_access(env, &address, 4, 4, true, &rotation);
    bool changed = goes_on && exchange(env, address, tswap32(env->regs[0]), tswap32(env->regs[1]), 4, rotation);
    mmap_unlock();
    if (goes_on) {
        end_helper(env, changed);
    }
    return goes_on;
}

/* r0 = pointer to oldval, r1 = pointer to newval, r2 = pointer to the target. Returns false if a signal is pending. */
bool plumbline_cmpxchg64(CPUARMState *env)
{
    int alignment = arm_feature(env, ARM_FEATURE_V6) ? 8 : 4, rotation;
    uint32_t old = env->regs[0], new = env->regs[1], address = env->regs[2];
    bool changed = false;

    mmap_lock();
    bool goes_on = helper_access(env, &old, 8, 4, false, &rotation) && helper_access(env, &new, 8, 4, false, &rotation)
                   && helper_access(env, &address, 8, alignment, true, &rotation);
    if (goes_on) {
        changed = exchange(env, address, helper_load(env, old, 8), helper_load(env, new, 8), 8, 0);
    }
    mmap_unlock();
    if (goes_on) {
        end_helper(env, changed);
    }
    return goes_on;
}
#endif
