/*
 * Plumbline's change to user-mode QEMU that shows a program the weak order of memory accesses of its own machine, on a
 * host with a stronger one.
 *
 * With `-memory-order`, the stores of each thread wait in a small buffer of that thread, and go to memory later, in an
 * order drawn from a seed. Its own loads see them; those of other threads do not. Loads are executed when the program
 * executes them. A waiting store goes to memory only after its blockers. These are the earlier stores that still wait
 * and
 * - overlap it: every thread sees the stores to one location in one order;
 * - precede a barrier that orders stores (DMB ST, WMB, LWSYNC and their like), unless the store precedes it too;
 * - all of them, if the store is a release, or the machine keeps its stores in order (SPARC and s390x).
 * The buffer is emptied by a full barrier, by an atomic access unless the architecture lets this one overtake stores, by
 * a load-acquire that follows a store-release, and whenever the thread leaves translated code: at a system call, a
 * signal or its end. So a thread that does not run has no waiting stores, and the emulator's exclusive sections see all
 * memory. A store becomes visible to all other threads at once: the model is multi-copy atomic. Therefore the program
 * sees nothing that its architecture forbids, and not everything that it allows: no load is executed late or early.
 *
 * A store to the thread's own stack rarely matters to others, and goes to memory first if it may. After a store has
 * overtaken an older one, the thread sometimes pauses, for a time between 0.1 ms and the longest pause. Some threads do
 * so often and others never. Without pauses, other threads would hardly see the few instructions' time between the two.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/host-utils.h"
#include "qemu.h"
#include "user-internals.h"
#include "exec/cpu_ldst.h"
#include "exec/helper-proto-common.h"
#include "tcg/tcg.h"
#include "tcg/tcg-ldst.h"
#include "tcg/plumbline.h"
#include "plumbline.h"

#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"
#pragma GCC diagnostic ignored "-Wsign-compare" /* as in plumbline.c */

enum { DEEPEST = 64, NUDGE_MS = 5, OUT_OF = 100000, SHORTEST_PAUSE_US = 100 };

typedef struct WaitingStore {
    uintptr_t at; /* on the host */
    uint64_t blockers; /* slots of the stores that go to memory before it */
    uint64_t number; /* of the thread's stores */
    MemOp op;
    uint8_t size;
    bool is_private; /* to the stack */
    union {
        uint64_t value;
        Int128 wide;
        uint8_t bytes[16];
    };
} WaitingStore;

struct PlumblineStores {
    uint64_t ready; /* the slots of waiting stores without blockers */
    uint64_t fenced; /* those before a barrier that orders stores */
    uint64_t releases;
    uint64_t granules; /* hashes of the places of waiting stores: a load elsewhere need not look at them */
    uint64_t number, random;
    uint64_t seen; /* by the nudging thread */
    uint32_t accesses; /* wraps */
    int until_next; /* accesses until a store goes to memory */
    unsigned pauses; /* for every OUT_OF overtakes */
    bool has_released; /* a release went to memory since the last fence of the host */
    bool is_pausing;
    WaitingStore slot[DEEPEST];
};

/* A rule that the self-test breaks on purpose: `without=RULE`. */
enum {
    RULE_OVERLAP, RULE_OWN, RULE_FENCE, RULE_RELEASE, RULE_ACQUIRE, RULE_FULL, RULE_ATOMIC, RULE_MAPPING, RULE_MEMBARRIER,
    RULE_NUDGE, RULES
};
static const char *const rule_names[RULES] = {
    "overlap", "own", "fence", "release", "acquire", "full", "atomic", "mapping", "membarrier", "nudge"
};
static bool is_broken[RULES];

bool plumbline_reorders;
static bool keeps_stores_in_order;
static bool forwards = true; /* a load sees the thread's own waiting store; otherwise it waits for it */
static uint64_t seed = 1;
static uint64_t depth = 8, latest = 64, pauses = 2, longest_pause_us = 400000;
static __thread struct PlumblineStores stores;

static bool set_number(const char *text, uint64_t most, uint64_t *number)
{
    uint64_t value;

    if (qemu_strtou64(text, NULL, 10, &value) || value > most) {
        return false;
    }
    *number = value;
    return true;
}

static bool set_word(const char *key, const char *value)
{
    if (!value) {
        return false;
    }
    if (g_str_equal(key, "stores")) {
        keeps_stores_in_order = g_str_equal(value, "ordered");
        return keeps_stores_in_order || g_str_equal(value, "unordered");
    }
    if (g_str_equal(key, "forwarding")) {
        forwards = g_str_equal(value, "yes");
        return forwards || g_str_equal(value, "no");
    }
    for (int rule = 0; rule < RULES && g_str_equal(key, "without"); rule++) {
        if (g_str_equal(value, rule_names[rule])) {
            return is_broken[rule] = true;
        }
    }
    return (g_str_equal(key, "seed") && set_number(value, UINT64_MAX, &seed)) ||
           (g_str_equal(key, "depth") && set_number(value, DEEPEST, &depth) && depth) ||
           (g_str_equal(key, "latest") && set_number(value, 1000000, &latest) && latest) ||
           (g_str_equal(key, "pauses") && set_number(value, OUT_OF, &pauses)) ||
           (g_str_equal(key, "longest-pause-us") && set_number(value, 10000000, &longest_pause_us));
}

void plumbline_set_memory_order(const char *model)
{
    g_auto(GStrv) words = g_strsplit(model, ",", -1);

    plumbline_reorders = true;
    for (char **word = words; *word; word++) {
        g_auto(GStrv) pair = g_strsplit(*word, "=", 2);

        if (!set_word(pair[0], pair[1])) {
            error_report("-memory-order: '%s' is none of stores=unordered|ordered, forwarding=yes|no, seed=NUMBER, "
                         "depth=1..%d, latest=ACCESSES, pauses=0..%d, longest-pause-us=MICROSECONDS, without=RULE",
                         *word, DEEPEST, OUT_OF);
            exit(EXIT_FAILURE);
        }
    }
}

static uint64_t draw(struct PlumblineStores *s, uint32_t below)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return ((s->random >> 32) * below) >> 32;
}

static uint64_t granules_of(uintptr_t at, int size)
{
    return 1ull << (at >> 4 & 63) | 1ull << ((at + size - 1) >> 4 & 63);
}

static bool overlaps(const WaitingStore *store, uintptr_t at, int size)
{
    return store->at < at + size && at < store->at + store->size;
}

/* The waiting stores that overlap a place. */
static uint64_t overlapping(CPUState *cpu, uintptr_t at, int size)
{
    const struct PlumblineStores *s = cpu->neg.plumbline_stores;
    uint64_t found = 0;

    if (s->granules & granules_of(at, size)) {
        for (uint64_t left = cpu->neg.plumbline_waiting; left; left &= left - 1) {
            int i = ctz64(left);

            found |= (uint64_t)overlaps(&s->slot[i], at, size) << i;
        }
    }
    return found;
}

/* From the shortest to the longest pause, each power of two as often as the others. Whoever needs the thread ends it. */
static void pause_thread(CPUState *cpu, struct PlumblineStores *s)
{
    int doublings = 0;

    while (longest_pause_us >> (doublings + 1) >= SHORTEST_PAUSE_US) {
        doublings++;
    }
    int64_t end = g_get_monotonic_time() + (longest_pause_us >> draw(s, doublings + 1));

    s->is_pausing = true;
    for (int64_t left; (left = end - g_get_monotonic_time()) > 0 && !qatomic_read(&cpu->exit_request);) {
        struct timespec step = { .tv_nsec = MIN(left, 1000) * 1000 };

        nanosleep(&step, NULL);
    }
    s->is_pausing = false;
}

/* One of the stores that may goes to memory. */
static void write_one(CPUState *cpu, struct PlumblineStores *s)
{
    uint64_t from = s->ready;

    for (uint64_t skipped = draw(s, ctpop64(from)); skipped; skipped--) {
        from &= from - 1;
    }
    uint64_t slot = from & -from;
    WaitingStore *store = &s->slot[ctz64(slot)];
    uint64_t number = store->number, granules = 0;
    bool has_overtaken = false, is_private = store->is_private;

    plumbline_write_store(cpu, (void *)store->at, store->size, store->op, store->wide);
    s->has_released |= (s->releases & slot) != 0;
    cpu->neg.plumbline_waiting &= ~slot;
    s->ready &= ~slot;
    s->fenced &= ~slot;
    s->releases &= ~slot;
    for (uint64_t left = cpu->neg.plumbline_waiting; left; left &= left - 1) {
        WaitingStore *other = &s->slot[ctz64(left)];

        other->blockers &= ~slot;
        s->ready |= other->blockers ? 0 : left & -left;
        granules |= granules_of(other->at, other->size);
        has_overtaken |= other->number < number;
    }
    s->granules = granules;
    if (has_overtaken && !is_private && s->pauses && draw(s, OUT_OF) < s->pauses) {
        pause_thread(cpu, s);
    }
}

static void write_all(CPUState *cpu, struct PlumblineStores *s)
{
    while (cpu->neg.plumbline_waiting) {
        write_one(cpu, s);
    }
}

void plumbline_write_stores(CPUState *cpu)
{
    if (cpu->neg.plumbline_stores) {
        write_all(cpu, cpu->neg.plumbline_stores);
    }
}

/* So that no store waits for ever in a thread that accesses no memory any more: it leaves translated code. */
static void *nudge(void *unused)
{
    (void)unused;
    for (;;) {
        CPUState *cpu;

        g_usleep(NUDGE_MS * 1000);
        cpu_list_lock();
        CPU_FOREACH(cpu) {
            struct PlumblineStores *s = qatomic_read(&cpu->neg.plumbline_stores);

            if (s && qatomic_read(&cpu->neg.plumbline_waiting) && !qatomic_read(&s->is_pausing)) {
                uint64_t now = qatomic_read(&s->accesses);

                if (now == s->seen) {
                    cpu_exit(cpu);
                }
                s->seen = now;
            }
        }
        cpu_list_unlock();
    }
    return NULL;
}

static bool is_nudging, is_told_of_forks;

/* A forked child has no other thread. */
static void stop_nudging(void)
{
    is_nudging = false;
}

static void start_nudging(void)
{
    QemuThread thread;
    sigset_t all, before;

    if (is_broken[RULE_NUDGE] || qatomic_xchg(&is_nudging, true)) {
        return;
    }
    if (!qatomic_xchg(&is_told_of_forks, true)) {
        pthread_atfork(NULL, NULL, stop_nudging);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    qemu_thread_create(&thread, "nudge", nudge, NULL, QEMU_THREAD_DETACHED);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void begin_thread(CPUState *cpu)
{
    static const unsigned factors[] = { 0, 1, 10 };

    start_nudging();
    /* SplitMix64 (Steele, Lea, Flood 2014), so that neighbouring seeds and threads differ. */
    uint64_t mixed = (seed * 65536 + cpu->cpu_index + 1) * 0x9e3779b97f4a7c15ull;

    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
    mixed ^= mixed >> 31;
    stores.random = mixed + !mixed;
    stores.pauses = MIN(pauses * factors[draw(&stores, ARRAY_SIZE(factors))], OUT_OF);
    stores.until_next = 1;
}

void plumbline_enter_code(CPUState *cpu)
{
    /* A program's only thread sees its own stores in any case. */
    if (plumbline_reorders && CPU_NEXT(first_cpu)) {
        if (!stores.random) {
            begin_thread(cpu);
        }
        qatomic_set(&cpu->neg.plumbline_stores, &stores);
    }
}

void plumbline_leave_code(CPUState *cpu)
{
    if (cpu->neg.plumbline_stores) {
        write_all(cpu, &stores);
        qatomic_set(&cpu->neg.plumbline_stores, NULL);
    }
}

/* The access ages the waiting stores. */
static void age(CPUState *cpu, struct PlumblineStores *s)
{
    qatomic_set(&s->accesses, s->accesses + 1);
    if (--s->until_next <= 0) {
        s->until_next = 1 + draw(s, latest);
        if (cpu->neg.plumbline_waiting) {
            write_one(cpu, s);
        }
    }
}

static bool is_private(CPUState *cpu, uintptr_t at)
{
    enum { BELOW = 4096, ABOVE = 61440 };
    uintptr_t stack = (uintptr_t)g2h(cpu, get_sp_from_cpustate(cpu_env(cpu)));

    return at - (stack - BELOW) < BELOW + ABOVE;
}

static void append(CPUState *cpu, struct PlumblineStores *s, uintptr_t at, int size, MemOp op, Int128 value)
{
    bool is_release = op & PLUMBLINE_RELEASE;
    WaitingStore store = {
        .at = at, .size = size, .op = op, .wide = value, .number = s->number++, .is_private = is_private(cpu, at)
    };

    while (ctpop64(cpu->neg.plumbline_waiting) >= depth) {
        write_one(cpu, s);
    }
    store.blockers = is_broken[RULE_FENCE] ? 0 : s->fenced;
    store.blockers |= is_broken[RULE_OVERLAP] ? 0 : overlapping(cpu, at, size);
    if (keeps_stores_in_order || (is_release && !is_broken[RULE_RELEASE])) {
        store.blockers = cpu->neg.plumbline_waiting;
    }
    if (store.is_private && !store.blockers && !is_release) {
        plumbline_write_store(cpu, (void *)at, size, op, value);
        return;
    }
    uint64_t slot = ~cpu->neg.plumbline_waiting & -~cpu->neg.plumbline_waiting;

    s->slot[ctz64(slot)] = store;
    s->releases |= is_release ? slot : 0;
    s->ready |= store.blockers ? 0 : slot;
    s->granules |= granules_of(at, size);
    qatomic_set(&cpu->neg.plumbline_waiting, cpu->neg.plumbline_waiting | slot);
}

/* The program's fault if it may not write here. Nothing else can be seen of it. */
static void try_writing(void *at, int size)
{
    enum { HOST_PAGE = 4096 };

    qatomic_or((uint8_t *)at, 0);
    if (((uintptr_t)at & (HOST_PAGE - 1)) + size > HOST_PAGE) {
        qatomic_or((uint8_t *)at + size - 1, 0);
    }
}

bool plumbline_delay_store(CPUState *cpu, void *at, int size, MemOp op, Int128 value)
{
    struct PlumblineStores *s = cpu->neg.plumbline_stores;
    MemOp atomicity = op & MO_ATOM_MASK;
    uintptr_t place = (uintptr_t)at;

    if (!HAVE_CMPXCHG128 && (size > 8 || place & (size - 1))) {
        /* The host may have to stop other threads for it, which is impossible from here. */
        uintptr_t from = helper_retaddr;

        clear_helper_retaddr();
        write_all(cpu, s);
        set_helper_retaddr(from);
        return false;
    }
    try_writing(at, size);
    clear_helper_retaddr();
    if (size == 16 && atomicity != MO_ATOM_IFALIGN && atomicity != MO_ATOM_WITHIN16 &&
        !(atomicity == MO_ATOM_WITHIN16_PAIR && place % 16 == 0)) {
        /* Two stores to the architecture: those of a pair, or of a vector's elements. */
        MemOp half = (op & ~(MO_SIZE | MO_ATOM_MASK)) | MO_64 | (atomicity == MO_ATOM_WITHIN16_PAIR ? MO_ATOM_WITHIN16 :
                     atomicity == MO_ATOM_IFALIGN_PAIR ? MO_ATOM_IFALIGN : atomicity);

        append(cpu, s, place, 8, half, int128_make64(int128_getlo(value)));
        append(cpu, s, place + 8, 8, half, int128_make64(int128_gethi(value)));
    } else {
        append(cpu, s, place, size, op, value);
    }
    age(cpu, s);
    return true;
}

bool plumbline_load_own(CPUState *cpu, const void *at, int size, void *value)
{
    struct PlumblineStores *s = cpu->neg.plumbline_stores;
    uint64_t found;
    WaitingStore *latest_store = NULL;

    clear_helper_retaddr();
    age(cpu, s);
    found = is_broken[RULE_OWN] ? 0 : overlapping(cpu, (uintptr_t)at, size);
    for (; found; found &= found - 1) {
        WaitingStore *store = &s->slot[ctz64(found)];

        latest_store = !latest_store || latest_store->number < store->number ? store : latest_store;
    }
    if (!latest_store) {
        return false;
    }
    if (forwards && latest_store->at <= (uintptr_t)at && (uintptr_t)at + size <= latest_store->at + latest_store->size) {
        memcpy(value, latest_store->bytes + ((uintptr_t)at - latest_store->at), size);
        return true;
    }
    /* It would see the bytes of several stores, some of them before other threads do and some after. */
    write_all(cpu, s);
    return false;
}

void plumbline_before_atomic(CPUState *cpu, const void *at, int size, MemOp op)
{
    struct PlumblineStores *s = cpu->neg.plumbline_stores;

    if (is_broken[RULE_ATOMIC] || !cpu->neg.plumbline_waiting) {
        return;
    }
    if (!(op & PLUMBLINE_RELAXED) || keeps_stores_in_order || s->releases || s->fenced ||
        overlapping(cpu, (uintptr_t)at, size)) {
        write_all(cpu, s);
    }
}

void HELPER(plumbline_barrier)(CPUArchState *env, uint32_t kind)
{
    CPUState *cpu = env_cpu(env);
    struct PlumblineStores *s = cpu->neg.plumbline_stores;

    if (!s) {
        return;
    }
    switch (kind) {
    case PLUMBLINE_ORDER_STORES:
        s->fenced = cpu->neg.plumbline_waiting;
        return;
    case PLUMBLINE_BEFORE_ACQUIRE:
        if (is_broken[RULE_ACQUIRE] || (!s->releases && !s->has_released)) {
            return;
        }
        if (s->releases) {
            write_all(cpu, s);
        }
        break;
    default:
        if (is_broken[RULE_FULL]) {
            return;
        }
        write_all(cpu, s);
        break;
    }
    smp_mb();
    s->has_released = false;
}

static uint64_t load_value(CPUArchState *env, uint64_t address, uint32_t oi, uintptr_t from)
{
    switch (get_memop(oi) & MO_SSIZE) {
    case MO_UB:
        return helper_ldub_mmu(env, address, oi, from);
    case MO_SB:
        return (int8_t)helper_ldub_mmu(env, address, oi, from);
    case MO_UW:
        return helper_lduw_mmu(env, address, oi, from);
    case MO_SW:
        return (int16_t)helper_lduw_mmu(env, address, oi, from);
    case MO_UL:
        return helper_ldul_mmu(env, address, oi, from);
    case MO_SL:
        return (int32_t)helper_ldul_mmu(env, address, oi, from);
    default:
        return helper_ldq_mmu(env, address, oi, from);
    }
}

uint32_t HELPER(plumbline_load_i32)(CPUArchState *env, uint64_t address, uint32_t oi)
{
    return load_value(env, address, oi, GETPC());
}

uint64_t HELPER(plumbline_load_i64)(CPUArchState *env, uint64_t address, uint32_t oi)
{
    return load_value(env, address, oi, GETPC());
}

static void store_value(CPUArchState *env, uint64_t address, uint64_t value, uint32_t oi, uintptr_t from)
{
    switch (get_memop(oi) & MO_SIZE) {
    case MO_8:
        helper_stb_mmu(env, address, value, oi, from);
        break;
    case MO_16:
        helper_stw_mmu(env, address, value, oi, from);
        break;
    case MO_32:
        helper_stl_mmu(env, address, value, oi, from);
        break;
    default:
        helper_stq_mmu(env, address, value, oi, from);
        break;
    }
}

void HELPER(plumbline_store_i32)(CPUArchState *env, uint64_t address, uint32_t value, uint32_t oi)
{
    store_value(env, address, value, oi, GETPC());
}

void HELPER(plumbline_store_i64)(CPUArchState *env, uint64_t address, uint64_t value, uint32_t oi)
{
    store_value(env, address, value, oi, GETPC());
}

/* Whether a system call takes memory, or the right to write it, away: perhaps from under the stores of other threads. */
static bool takes_memory_away(int number, abi_ulong first, abi_ulong fourth)
{
    static abi_ulong end_of_heap;
    abi_ulong before;

    (void)fourth;
    switch (number) {
#ifdef TARGET_NR_mmap2
    case TARGET_NR_mmap2:
        return fourth & TARGET_MAP_FIXED;
#endif
#ifdef TARGET_NR_mmap
    case TARGET_NR_mmap:
#ifdef TARGET_ARCH_WANT_SYS_OLD_MMAP
        return true; /* its arguments are in memory */
#else
        return fourth & TARGET_MAP_FIXED;
#endif
#endif
    case TARGET_NR_brk:
        before = first ? qatomic_xchg(&end_of_heap, first) : 0; /* 0 asks for the end and does not move it */
        return first < before;
#ifdef TARGET_NR_shmat
    case TARGET_NR_shmat:
#endif
#ifdef TARGET_NR_shmdt
    case TARGET_NR_shmdt:
#endif
    case TARGET_NR_munmap:
    case TARGET_NR_mprotect:
    case TARGET_NR_mremap:
    case TARGET_NR_madvise:
        return true;
#ifdef TARGET_NR_ipc
    case TARGET_NR_ipc:
        return (first & 0xffff) == IPCOP_shmat || (first & 0xffff) == IPCOP_shmdt;
#endif
    }
    return false;
}

bool plumbline_begin_call(int number, abi_ulong first, abi_ulong fourth)
{
    bool is_alone = false;

    if (!stores.random) {
        return false; /* this program has had no second thread yet */
    }
#ifdef TARGET_NR_membarrier
    if (number == TARGET_NR_membarrier && !is_broken[RULE_MEMBARRIER]) {
        start_exclusive();
        end_exclusive();
    }
#endif
    if (takes_memory_away(number, first, fourth) && !is_broken[RULE_MAPPING]) {
        start_exclusive();
        is_alone = true;
    }
    return is_alone;
}

void plumbline_end_call(bool is_alone)
{
    if (is_alone) {
        end_exclusive();
    }
}
