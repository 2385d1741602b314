/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Plumbline's change to user-mode QEMU that shows a program the weak order of memory accesses of its own machine, on a
 * host with a stronger one.
 *
 * With `-memory-order`, the stores of each thread wait in a small buffer of that thread, and go to memory later, in an
 * order drawn from a seed. Its own loads see them; those of other threads do not. A waiting store goes to memory only after its blockers. These are the earlier stores that still wait
 * and
 * - overlap it: every thread sees the stores to one location in one order;
 * - precede a barrier that orders stores (DMB ST, WMB, LWSYNC and their like), unless the store precedes it too;
 * - all of them, if the store is a release, or the machine keeps its stores in order (SPARC and s390x).
 * The buffer is emptied by a full barrier, by an atomic access unless the architecture lets this one overtake stores, by
 * a load-acquire that follows a store-release, and whenever the thread leaves translated code: at a system call, a
 * signal or its end. So a thread that does not run has no waiting stores, and the emulator's exclusive sections see all
 * memory. A store becomes visible to all other threads at once: the model is multi-copy atomic. Therefore the program
 * sees nothing that its architecture forbids, and not everything that it allows: no load is executed late.
 *
 * With early-loads=PERCENT, a load may return the value from before another thread's last store to the place, as if it had
 * been executed before that. This happened after the thread's last fence, acquire, atomic access or entry to translated
 * code, and after its last access to the place; and the load's address depends on no load since then
 * (tcg/plumbline_loads.c.inc). So the architecture may have executed it early. Some of the stores that go to memory are
 * recorded with what they overwrite, in one entry for many places. Before, all threads that load early get a mark at the
 * place. Translated code loads first and looks for a mark then: no load that sees the store escapes. The helper notes the
 * time of a load from a marked place. Time is the number of recorded stores.
 *
 * A store to the thread's own stack rarely matters to others, and goes to memory at once if it may. One of sixteen others
 * is lazy: it waits until nothing else can go, so that many later ones overtake it. After a store has overtaken an older
 * one, the thread sometimes pauses, until other threads have made some stores: few or very many. It waits no longer if they
 * make none. At any time, some threads do so often and others never. One that makes fewer stores than the others is at
 * times slow: it pauses again and again, so that the queues before it become full. Without pauses, other threads would
 * hardly see the few instructions' time between the two.
 *
 * During a pause, the other threads' loads are watched. If a thread reads from the place of one of the last stores that have
 * overtaken others, and then from that of an overtaken one a value that this has yet to change, the fault log names the
 * three instructions.
 * The words early=PC and late=PC allow only this: that the store at the first address overtakes that at the second one,
 * and those between the two. Stores to the stack go to memory at once all the same: those of one job alone would fill the
 * buffer, and the effect of two stores often shows only jobs later. early-load=PC allows only that the load there returns
 * an old value.
 *
 * On x86-64, translated code performs most accesses itself (tcg/i386/tcg-target.c.inc). It calls for loads from places
 * that have marks, for one load of several, so that stores do not wait for ever, and for stores outside the window.
 */
#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/host-utils.h"
#include "qemu/lockable.h"
#include "qemu/bitops.h"
#include "qemu.h"
#include "user-internals.h"
#include "exec/cpu_ldst.h"
#include "exec/helper-proto-common.h"
#include "tcg/tcg.h"
#include "tcg/tcg-ldst.h"
#include "tcg/plumbline.h"
#include "tcg/plumbline_loads.h"
#include "exec/tb-flush.h"
#include "plumbline.h"

#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"
#pragma GCC diagnostic ignored "-Wsign-compare" /* as in plumbline.c */

enum {
    SLOTS = 64, LAZINESS = 16, NUDGE_MS = 5, EMPTY = 4096 /* loads while no store waits */, HOST_PAGE_BITS = 12,
    KNOWN_PAGES = 64, KNOWN_PLACES = 1024,
    OUT_OF = 100000, SHORTEST_PAUSE = 1024, COUNTED_TOGETHER = 64, PASSED_OVER = 16, IDLE_US = 20000,
    IDLE_PROCESSOR_US = 500, SHORTEST_MOOD = 1 << 14, MOODS = 7, SELDOM_SLOW = 4, SLOW_GAP = 96, SLOWEST = 5,
    SLOW_SHARE = 8,
    WATCHES = 4, WATCHED_STORES = 1 << 16, EARLY = 16, PLACES_LOGGED = 256,
    OVERWRITES = 1024, RECORDED = 4 /* one of so many stores */, SELDOM_LATE = 4
};
/* A place that the thread has accessed at an unknown time since its last fence. */
#define JUST_NOW UINT64_MAX

typedef struct WaitingStore {
    uintptr_t at; /* on the host */
    uintptr_t from; /* the place in translated code */
    uint64_t blockers; /* slots of the stores that go to memory before it */
    MemOp op;
    uint8_t size;
    bool is_private; /* to the stack */
    union {
        uint64_t half[2];
        uint8_t bytes[16];
    };
} WaitingStore;

/* A store that has overtaken others. */
typedef struct EarlyStore {
    uintptr_t at;
    uintptr_t from;
    uint64_t overtaken; /* the slots of those that still wait */
    uint8_t size;
} EarlyStore;

struct PlumblineStores {
    uint64_t ready; /* the slots of waiting stores without blockers */
    uint64_t fenced; /* those before a barrier that orders stores */
    uint64_t releases;
    uint64_t lazy; /* those that wait as long as others can go */
    uint64_t late; /* those that late= names */
    uint64_t random;
    uint64_t written, overtakes, pauses_made; /* counts */
    uint64_t seen; /* `written`, by the nudging thread */
    unsigned next; /* the slot of the next store: it follows that of the youngest */
    int waiting; /* stores */
    int until_next; /* accesses until a store goes to memory */
    unsigned pauses; /* for every OUT_OF stores of the other threads */
    uint64_t next_pause; /* not before `pause_clock` is there */
    unsigned slowness; /* of a slow thread: how often its pauses are doubled; otherwise 0 */
    uint64_t slow_until; /* the others have made so many */
    uint64_t counted; /* stores of this thread that `made_by_all` has */
    int uncounted; /* those that it does not have yet */
    int until_mood; /* stores, until that number is drawn anew */
    unsigned mappings; /* `mappings` when the known pages became known */
    bool has_released; /* a release went to memory since the last fence of the host */
    bool is_pausing;
    bool is_patient; /* only lazy ones can go, and have been given more time */
    bool loads_early;
    bool has_fence; /* since `fence` was noted */
    bool is_idle; /* no store has waited for EMPTY loads */
    uint64_t fence; /* the time when all earlier loads had been executed */
    uint64_t accessed[PLUMBLINE_MARKS]; /* the time of the last access to a place that has the mark; 0: before the fence */
    uint64_t stack, stack_end; /* guest addresses to which stores have gone at once since then */
    WaitingStore slot[SLOTS];
    EarlyStore early[EARLY]; /* the last ones */
    unsigned next_early;
    uintptr_t known_page[KNOWN_PAGES]; /* to which the program may write */
    struct {
        uintptr_t from;
        vaddr pc;
    } known_place[KNOWN_PLACES];
};

/* A rule that the self-test breaks on purpose: `without=RULE`. */
enum {
    RULE_OVERLAP, RULE_OWN, RULE_FENCE, RULE_RELEASE, RULE_ACQUIRE, RULE_FULL, RULE_ATOMIC, RULE_MAPPING, RULE_MEMBARRIER,
    RULE_NUDGE, RULE_EARLY_FENCE, RULE_EARLY_PLACE, RULE_EARLY_ADDRESS, RULES
};
static const char *const rule_names[RULES] = {
    "overlap", "own", "fence", "release", "acquire", "full", "atomic", "mapping", "membarrier", "nudge",
    "early-fence", "early-place", "early-address"
};
static bool is_broken[RULES];

bool plumbline_reorders, plumbline_loads_early;
static bool keeps_stores_in_order;
static bool forwards = true; /* a load sees the thread's own waiting store; otherwise it waits for it */
static uint64_t seed = 1;
static uint64_t early_pc, late_pc, early_load_pc, early_loads;
static QemuMutex watch_lock;
static unsigned mappings; /* the number of system calls that took memory away */
static uint64_t depth = 16, latest = 64, pauses = 5, longest_pause = 1 << 20, longest_pause_us = 10000000;
static __thread struct PlumblineStores stores;

#ifdef __x86_64__
enum { HAVE_LOADS_BEFORE_MARKS = 1 };
#else
enum { HAVE_LOADS_BEFORE_MARKS = 0 };
#endif

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
           (g_str_equal(key, "early") && set_number(value, UINT64_MAX, &early_pc)) ||
           (g_str_equal(key, "early-load") && set_number(value, UINT64_MAX, &early_load_pc)) ||
           (g_str_equal(key, "early-loads") && set_number(value, 100, &early_loads)) ||
           (g_str_equal(key, "late") && set_number(value, UINT64_MAX, &late_pc)) ||
           (g_str_equal(key, "depth") && set_number(value, SLOTS, &depth) && depth) ||
           (g_str_equal(key, "latest") && set_number(value, 1000000, &latest) && latest) ||
           (g_str_equal(key, "pauses") && set_number(value, OUT_OF, &pauses)) ||
           (g_str_equal(key, "longest-pause") && set_number(value, UINT32_MAX, &longest_pause)) ||
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
                         "depth=1..%d, latest=ACCESSES, pauses=0..%d, longest-pause=STORES, longest-pause-us=MICROSECONDS, "
                         "early=PC, late=PC, early-loads=PERCENT, early-load=PC, without=RULE", *word, SLOTS, OUT_OF);
            exit(EXIT_FAILURE);
        }
    }
    if (early_pc || late_pc) {
        if (keeps_stores_in_order || !early_pc || !late_pc) {
            error_report("-memory-order: early=PC and late=PC need each other and stores=unordered");
            exit(EXIT_FAILURE);
        }
        keeps_stores_in_order = true;
    }
    keeps_stores_in_order |= early_load_pc != 0;
    /* Elsewhere, translated code looks for marks before it loads. */
    early_loads = HAVE_LOADS_BEFORE_MARKS && !early_pc ? early_loads : 0;
    plumbline_loads_early = early_loads;
    qemu_mutex_init(&watch_lock);
}

static uint64_t draw(struct PlumblineStores *s, uint32_t below)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return ((s->random >> 32) * below) >> 32;
}

/* Marks, or removes the marks of, each place where an access of up to 8 bytes that overlaps the store may begin. */
static void mark(CPUState *cpu, const WaitingStore *store, int change)
{
    uintptr_t last = (store->at + store->size - 1) >> PLUMBLINE_MARK_BITS;

    for (uintptr_t place = (store->at - 7) >> PLUMBLINE_MARK_BITS; place <= last; place++) {
        cpu->neg.plumbline_marks[place % PLUMBLINE_MARKS] += change;
    }
}

static bool overlaps(const WaitingStore *store, uintptr_t at, int size)
{
    return store->at < at + size && at < store->at + store->size;
}

static bool is_marked(CPUState *cpu, uintptr_t at)
{
    return cpu->neg.plumbline_marks[(at >> PLUMBLINE_MARK_BITS) % PLUMBLINE_MARKS];
}

/* The waiting stores that overlap a place. */
static uint64_t overlapping(CPUState *cpu, uintptr_t at, int size)
{
    const struct PlumblineStores *s = cpu->neg.plumbline_stores;
    uint64_t found = 0;

    if (is_marked(cpu, at) || (size > 8 && is_marked(cpu, at + 8))) {
        for (uint64_t left = cpu->neg.plumbline_waiting; left; left &= left - 1) {
            int i = ctz64(left);

            found |= (uint64_t)overlaps(&s->slot[i], at, size) << i;
        }
    }
    return found;
}

/* Slots with the oldest store in the lowest bit, and back. */
static uint64_t by_age(const struct PlumblineStores *s, uint64_t slots)
{
    return ror64(slots, s->next);
}

static int slot_of(const struct PlumblineStores *s, int place_by_age)
{
    return (s->next + place_by_age) % SLOTS;
}

/* The youngest waiting store that overlaps a place; NULL if none does. */
static inline const WaitingStore *youngest_at(CPUState *cpu, uintptr_t at, int size)
{
    const struct PlumblineStores *s = cpu->neg.plumbline_stores;

    if (is_marked(cpu, at) || (size > 8 && is_marked(cpu, at + 8))) {
        uint64_t left = by_age(s, cpu->neg.plumbline_waiting);

        while (left) {
            int place = 63 - clz64(left);
            const WaitingStore *store = &s->slot[slot_of(s, place)];

            if (overlaps(store, at, size)) {
                return store;
            }
            left &= ~(1ull << place);
        }
    }
    return NULL;
}

/* The waiting stores that are older than one. */
static uint64_t older(CPUState *cpu, const struct PlumblineStores *s, int slot)
{
    uint64_t below = (1ull << ((slot - s->next) % SLOTS)) - 1;

    return rol64(by_age(s, cpu->neg.plumbline_waiting) & below, s->next);
}

/* The stores of a thread that have overtaken others, while it pauses. */
static struct Watch {
    CPUState *of; /* NULL: none */
    struct {
        EarlyStore store;
        vaddr pc;
        uint64_t readers; /* other threads that have read it */
    } early[EARLY];
    int count;
    uint64_t places; /* a bit for each place of these, of which others may have the same */
    uint64_t readers; /* of any */
    WaitingStore late[SLOTS];
    vaddr late_pc[SLOTS];
} watch[WATCHES];
static unsigned watches;

/* Other threads report each load. One that decrements the number at the same time misses it, until the next step. */
static void watch_loads(CPUState *of)
{
    CPUState *cpu;

    cpu_list_lock();
    CPU_FOREACH(cpu) {
        if (cpu != of) {
            qatomic_set(&cpu->neg.plumbline_countdown, 0);
        }
    }
    cpu_list_unlock();
}

static uint64_t bit_of_place(uintptr_t at)
{
    return 1ull << (at / 8 % 64);
}

/* A thread may read any of the last stores that have overtaken others, and not only the one at which this one pauses. */
static struct Watch *begin_watch(CPUState *cpu, const struct PlumblineStores *s)
{
    uint64_t overtaken = 0;

    QEMU_LOCK_GUARD(&watch_lock);
    for (struct Watch *w = watch; w < watch + WATCHES; w++) {
        if (w->of) {
            continue;
        }
        w->count = 0;
        w->places = w->readers = 0;
        for (int i = 0; i < EARLY; i++) {
            const EarlyStore *early = &s->early[i];

            if (early->overtaken) {
                w->early[w->count].store = *early;
                w->early[w->count].pc = plumbline_pc_of(cpu, early->from);
                w->early[w->count++].readers = 0;
                w->places |= bit_of_place(early->at) | bit_of_place(early->at + early->size - 1);
                overtaken |= early->overtaken;
            }
        }
        for (uint64_t left = overtaken; left; left &= left - 1) {
            int i = ctz64(left);

            w->late[i] = s->slot[i];
            w->late_pc[i] = plumbline_pc_of(cpu, s->slot[i].from);
        }
        w->of = cpu;
        qatomic_inc(&watches);
        return w;
    }
    return NULL;
}

static void end_watch(struct Watch *w)
{
    if (w) {
        QEMU_LOCK_GUARD(&watch_lock);
        w->of = NULL;
        qatomic_dec(&watches);
    }
}

/* In a forked child, threads that paused do not exist. */
static void forget_watches(void)
{
    qemu_mutex_init(&watch_lock);
    memset(watch, 0, sizeof(watch));
    watches = 0;
}

static void log_once(CPUState *cpu, uintptr_t from, const struct Watch *w, int early, int late)
{
    static struct {
        vaddr early, late, reader;
    } logged[PLACES_LOGGED];
    static int count;
    vaddr reader = plumbline_pc_of(cpu, from);

    for (int i = 0; i < count; i++) {
        if (logged[i].early == w->early[early].pc && logged[i].late == w->late_pc[late] && logged[i].reader == reader) {
            return;
        }
    }
    if (count < PLACES_LOGGED) {
        logged[count].early = w->early[early].pc;
        logged[count].late = w->late_pc[late];
        logged[count++].reader = reader;
        plumbline_log_overtake(w->early[early].pc, w->late_pc[late], reader, h2g_nocheck(w->early[early].store.at),
                               h2g_nocheck(w->late[late].at));
    }
}

/* Whether a load may concern a watch. It is asked of each load, and so without the lock. */
static bool may_matter(CPUState *cpu, uint64_t me, uintptr_t at, int size)
{
    for (struct Watch *w = watch; w < watch + WATCHES; w++) {
        CPUState *of = qatomic_read(&w->of);

        if (of && of != cpu && ((qatomic_read(&w->places) & (bit_of_place(at) | bit_of_place(at + size - 1))) ||
                                qatomic_read(&w->readers) & me)) {
            return true;
        }
    }
    return false;
}

/* The waiting stores that some of the stores which the thread has read have overtaken. */
static uint64_t overtaken_for(const struct Watch *w, uint64_t me)
{
    uint64_t overtaken = 0;

    for (int i = 0; w->readers & me && i < w->count; i++) {
        overtaken |= w->early[i].readers & me ? w->early[i].store.overtaken : 0;
    }
    return overtaken;
}

/* Whether a load is one of a store that has overtaken others. */
static bool reads_early(struct Watch *w, uint64_t me, uintptr_t at, int size)
{
    bool does = false;

    for (int i = 0; i < w->count; i++) {
        const EarlyStore *early = &w->early[i].store;

        if (early->at < at + size && at < early->at + early->size) {
            w->early[i].readers |= me;
            w->readers |= me;
            does = true;
        }
    }
    return does;
}

/*
 * A load while others pause: true if it has been performed here, while no watch could end. An atomic access, whose value
 * is not asked for, can be the first of the two.
 */
static bool look(CPUState *cpu, uintptr_t at, int size, void *value, uintptr_t from)
{
    uint64_t me = 1ull << (cpu->cpu_index % 64);

    if (!may_matter(cpu, me, at, size)) {
        return false;
    }
    QEMU_LOCK_GUARD(&watch_lock);
    for (struct Watch *w = watch; w < watch + WATCHES; w++) {
        if (!w->of || w->of == cpu || reads_early(w, me, at, size) || !value) {
            continue;
        }
        for (uint64_t left = overtaken_for(w, me); left; left &= left - 1) {
            const WaitingStore *late = &w->late[ctz64(left)];

            /* What the program might see change. Its memory stays: system calls that take it away wait for this thread. */
            if (late->at <= at && at + size <= late->at + late->size && size <= 8 && at % size == 0) {
                uint64_t seen = size == 8 ? qatomic_read((uint64_t *)at) : size == 4 ? qatomic_read((uint32_t *)at) :
                                size == 2 ? qatomic_read((uint16_t *)at) : qatomic_read((uint8_t *)at);

                if (memcmp(&seen, late->bytes + (at - late->at), size)) {
                    for (int i = 0; i < w->count; i++) {
                        if (w->early[i].readers & me && w->early[i].store.overtaken & (left & -left)) {
                            log_once(cpu, from, w, i, ctz64(left));
                        }
                    }
                    memcpy(value, &seen, size);
                    return true;
                }
            }
        }
    }
    return false;
}

/* What the stores of all threads did. The log gets it whenever the number has doubled, since processes may be killed. */
static struct {
    uint64_t stores, overtakes, pauses;
} counts;

static uint64_t made_by_all; /* stores that have gone to memory, but for the last few of each thread */

/* The processor time of all threads. */
static int64_t processor_us(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000 + used.tv_nsec / 1000;
}

static uint64_t made_by_others(const struct PlumblineStores *s)
{
    return qatomic_read(&made_by_all) - s->counted;
}

/* Pauses of a slow thread depend on what it does: it may do much while no other runs. */
static uint64_t pause_clock(const struct PlumblineStores *s)
{
    return s->slowness ? s->counted + s->uncounted : made_by_others(s);
}

/* Until the next pause. A thread pauses for the others: seldom if it makes nearly all stores, as a server's first one. */
static void draw_gap(struct PlumblineStores *s)
{
    uint64_t mean = s->slowness ? SLOW_GAP : OUT_OF / MAX(s->pauses, 1);

    /* Stores of the others are counted in lots. */
    s->next_pause = !s->pauses && !s->slowness ? UINT64_MAX : mean < COUNTED_TOGETHER ? 0 :
                    pause_clock(s) + draw(s, 2 * mean);
}

/* Each doubling of the shortest pause is half as likely, but all of a slow thread's are alike. Whoever needs it ends it. */
static void pause_thread(CPUState *cpu, struct PlumblineStores *s, struct Watch *w)
{
    uint64_t length = SHORTEST_PAUSE << s->slowness;

    while (!s->slowness && length < longest_pause && draw(s, 2)) {
        length *= 2;
    }
    int64_t now = g_get_monotonic_time(), end = now + longest_pause_us, idle_since = now;
    int64_t used = processor_us(), idle_used = used;
    uint64_t begun = qatomic_read(&made_by_all), made = begun, enough = begun + MIN(length, longest_pause);

    s->pauses_made++;
    s->is_pausing = true;
    while (now < end && now - idle_since < IDLE_US && used - idle_used < IDLE_PROCESSOR_US && made < enough &&
           !qatomic_read(&cpu->exit_request)) {
        struct timespec step = { .tv_nsec = MIN(end - now, 1000) * 1000 };
        uint64_t before = made;

        if (w && made - begun >= WATCHED_STORES) {
            /* It slows the other threads down, and whoever needs the store has probably read it. */
            end_watch(w);
            w = NULL;
        }
        if (w) {
            watch_loads(cpu);
        }
        nanosleep(&step, NULL);
        now = g_get_monotonic_time();
        made = qatomic_read(&made_by_all);
        used = processor_us();
        if (made > before) {
            idle_since = now;
            idle_used = used;
        }
    }
    s->is_pausing = false;
    end_watch(w);
    draw_gap(s);
}

/*
 * How often the thread pauses from now on. One that makes fewer stores than the others may be slow for a while, and then the
 * queues before it become full.
 */
static void draw_mood(struct PlumblineStores *s)
{
    static const unsigned factors[] = { 0, 1, 10 };
    uint64_t others = made_by_others(s);
    bool is_slow = pauses && s->counted < others && !draw(s, SELDOM_SLOW);

    s->pauses = pauses * factors[draw(s, ARRAY_SIZE(factors))];
    s->until_mood = SHORTEST_MOOD << draw(s, MOODS);
    s->slowness = is_slow ? 1 + draw(s, SLOWEST) : 0;
    s->slow_until = others + SLOW_SHARE * s->until_mood;
    if (early_loads) {
        bool was_early = s->loads_early;

        qatomic_set(&s->loads_early, early_load_pc || draw(s, SELDOM_LATE));
        s->has_fence |= s->loads_early != was_early;
    }
    draw_gap(s);
}

/* A recorded store of at most 8 bytes, and what it has overwritten. */
static struct Overwrite {
    bool is_busy;
    uint64_t time; /* 0: none, or it is being recorded */
    uintptr_t at, from;
    CPUState *by;
    uint64_t old;
    uint8_t size;
} overwrites[OVERWRITES];

static uint64_t overwrites_made; /* the time */

static struct Overwrite *overwrite_of(uintptr_t at)
{
    return &overwrites[(at >> PLUMBLINE_MARK_BITS) % OVERWRITES];
}

/* From now on, an early load of this thread must not be executed before this. It is noted later, which is safe. */
static void order_loads(struct PlumblineStores *s)
{
    s->has_fence |= !is_broken[RULE_EARLY_FENCE];
}

/* The thread accesses a place, at a time that is not known. */
static void note_access(struct PlumblineStores *s, uintptr_t at, int size)
{
    if (s->loads_early) {
        for (uintptr_t place = at >> PLUMBLINE_MARK_BITS; place <= (at + size - 1) >> PLUMBLINE_MARK_BITS; place++) {
            s->accessed[place % PLUMBLINE_MARKS] = JUST_NOW;
        }
    }
}

/* A mark that another thread sets at the same time may be lost: then the store is recorded as earlier than the fence. */
static void note_fence(CPUState *cpu, struct PlumblineStores *s)
{
    bool has_window = cpu->neg.plumbline_window_size != 0;

    if (!s->has_fence) {
        return;
    }
    s->has_fence = false;
    if (!early_loads) {
        return;
    }
    memset(plumbline_loads(cpu)->marks, 0, PLUMBLINE_MARKS);
    if (!s->loads_early) {
        return;
    }
    smp_mb();
    s->fence = qatomic_read(&overwrites_made);
    memset(s->accessed, 0, sizeof(s->accessed));
    s->stack = has_window ? cpu->neg.plumbline_window : UINT64_MAX;
    s->stack_end = has_window ? cpu->neg.plumbline_window + cpu->neg.plumbline_window_size + 16 : 0;
}

/* Threads whose loads are early must come here for this place. Those that begin to be so later have a later fence. */
static void mark_for_others(CPUState *of, uintptr_t at, int size)
{
    CPUState *cpu;

    cpu_list_lock();
    CPU_FOREACH(cpu) {
        struct PlumblineStores *s = qatomic_read(&cpu->neg.plumbline_stores);

        if (cpu == of || !s || !qatomic_read(&s->loads_early)) {
            continue;
        }
        for (uintptr_t place = (at - 7) >> PLUMBLINE_MARK_BITS; place <= (at + size - 1) >> PLUMBLINE_MARK_BITS; place++) {
            qatomic_set(&plumbline_loads(cpu)->marks[place % PLUMBLINE_MARKS], 1);
        }
    }
    cpu_list_unlock();
}

static uint64_t exchange(uintptr_t at, int size, uint64_t value)
{
    switch (size) {
    case 1:
        return qatomic_xchg((uint8_t *)at, (uint8_t)value);
    case 2:
        return qatomic_xchg((uint16_t *)at, (uint16_t)value);
    case 4:
        return qatomic_xchg((uint32_t *)at, (uint32_t)value);
    default:
        return qatomic_xchg((uint64_t *)at, value);
    }
}

/*
 * A store goes to memory and is recorded; false if it is not. Whoever has not seen the mark has loaded before the exchange,
 * and so nothing newer than the value that this finds.
 */
static bool record_store(CPUState *cpu, const WaitingStore *store)
{
    struct Overwrite *one = overwrite_of(store->at);

    if (store->size > 8 || store->at % store->size || qatomic_xchg(&one->is_busy, true)) {
        return false;
    }
    qatomic_set(&one->time, 0);
    uint64_t time = qatomic_add_fetch(&overwrites_made, 1);

    mark_for_others(cpu, store->at, store->size);
    qatomic_set(&one->at, store->at);
    qatomic_set(&one->from, store->from);
    qatomic_set(&one->by, cpu);
    qatomic_set(&one->size, store->size);
    qatomic_set(&one->old, exchange(store->at, store->size, store->half[0]));
    qatomic_store_release(&one->time, time);
    qatomic_store_release(&one->is_busy, false);
    return true;
}

/* A store goes to memory: it has no blockers. */
static void write_slot(CPUState *cpu, struct PlumblineStores *s, int i)
{
    WaitingStore *store = &s->slot[i];
    uint64_t slot = 1ull << i, overtaken = older(cpu, s, i);
    /* Not at the first overtake: a thread that has waited for work would always pause at its begin. */
    bool will_pause = overtaken && !store->is_private && pause_clock(s) >= s->next_pause &&
                      (s->slowness || !draw(s, PASSED_OVER));
    struct Watch *w = NULL;

    for (int early = 0; early < EARLY; early++) {
        s->early[early].overtaken &= ~slot;
    }
    if (overtaken && !store->is_private) {
        s->early[s->next_early++ % EARLY] = (EarlyStore){ store->at, store->from, overtaken, store->size };
    }
    if (will_pause && plumbline_has_fault_log() && (w = begin_watch(cpu, s))) {
        watch_loads(cpu);
    }
    if (!early_loads || store->is_private || draw(s, RECORDED) || !record_store(cpu, store)) {
        plumbline_write_store(cpu, (void *)store->at, store->size, store->op,
                              int128_make128(store->half[0], store->half[1]));
    }
    note_access(s, store->at, store->size);
    s->has_released |= (s->releases & slot) != 0;
    qatomic_set(&cpu->neg.plumbline_waiting, cpu->neg.plumbline_waiting & ~slot);
    s->ready &= ~slot;
    s->fenced &= ~slot;
    s->releases &= ~slot;
    s->lazy &= ~slot;
    s->late &= ~slot;
    s->waiting--;
    mark(cpu, store, -1);
    for (uint64_t left = cpu->neg.plumbline_waiting & ~s->ready; left; left &= left - 1) {
        WaitingStore *other = &s->slot[ctz64(left)];

        other->blockers &= ~slot;
        s->ready |= other->blockers ? 0 : left & -left;
    }
    qatomic_set(&s->written, s->written + 1);
    if (++s->uncounted == COUNTED_TOGETHER) {
        qatomic_add(&made_by_all, COUNTED_TOGETHER);
        s->counted += COUNTED_TOGETHER;
        s->uncounted = 0;
    }
    if (--s->until_mood <= 0 || (s->slowness && made_by_others(s) >= s->slow_until)) {
        draw_mood(s);
    }
    s->overtakes += overtaken != 0;
    if (will_pause) {
        pause_thread(cpu, s, w);
    }
}

/* The lazy stores that may go to memory: those that others wait for, if there are any. */
static uint64_t lazy_ones(CPUState *cpu, const struct PlumblineStores *s)
{
    uint64_t in_the_way = 0;

    for (uint64_t left = cpu->neg.plumbline_waiting & ~s->ready; left; left &= left - 1) {
        in_the_way |= s->slot[ctz64(left)].blockers;
    }
    return s->ready & in_the_way ? s->ready & in_the_way : s->ready;
}

/* One of the stores that may, the lazy ones last. The oldest always may. */
static void write_one(CPUState *cpu, struct PlumblineStores *s)
{
    uint64_t left = s->ready & ~s->lazy ? s->ready & ~s->lazy : lazy_ones(cpu, s);

    for (int others = draw(s, ctpop64(left)); others; others--) {
        left &= left - 1;
    }
    s->is_patient = false;
    write_slot(cpu, s, ctz64(left));
}

static void write_all(CPUState *cpu, struct PlumblineStores *s)
{
    while (cpu->neg.plumbline_waiting) {
        write_one(cpu, s);
    }
}

/* The stores that overlap a place, and before them those that they wait for. */
static void write_at(CPUState *cpu, struct PlumblineStores *s, uintptr_t at, int size)
{
    uint64_t wanted = overlapping(cpu, at, size);

    while (wanted & cpu->neg.plumbline_waiting) {
        if (wanted & s->ready) {
            write_slot(cpu, s, ctz64(wanted & s->ready));
            continue;
        }
        for (uint64_t left = wanted & cpu->neg.plumbline_waiting; left; left &= left - 1) {
            wanted |= s->slot[ctz64(left)].blockers;
        }
    }
}

void plumbline_write_stores(CPUState *cpu)
{
    if (cpu->neg.plumbline_stores) {
        order_loads(cpu->neg.plumbline_stores);
        write_all(cpu, cpu->neg.plumbline_stores);
    }
}

static void add_counts(struct PlumblineStores *s)
{
    if (s->written) {
        uint64_t before = qatomic_fetch_add(&counts.stores, s->written);

        qatomic_add(&counts.overtakes, s->overtakes);
        qatomic_add(&counts.pauses, s->pauses_made);
        if (!before || clz64(before) != clz64(before + s->written)) {
            plumbline_log_order(counts.stores, counts.overtakes, counts.pauses);
        }
        s->written = s->overtakes = s->pauses_made = 0;
    }
}

void plumbline_finish_order(void)
{
    if (counts.stores) {
        plumbline_log_order(counts.stores, counts.overtakes, counts.pauses);
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
                uint64_t now = qatomic_read(&s->written);

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
    forget_watches();
    memset(&counts, 0, sizeof(counts));
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
    start_nudging();
    /* SplitMix64 (Steele, Lea, Flood 2014), so that neighbouring seeds and threads differ. */
    uint64_t mixed = (seed * 65536 + cpu->cpu_index + 1) * 0x9e3779b97f4a7c15ull;

    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
    mixed ^= mixed >> 31;
    stores.random = mixed + !mixed;
    draw_mood(&stores);
}

void plumbline_enter_code(CPUState *cpu)
{
    if (!plumbline_reorders) {
        return;
    }
    if (!CPU_NEXT(first_cpu)) {
        /* A program's only thread sees its own stores in any case. */
        cpu->neg.plumbline_window = 0;
        cpu->neg.plumbline_window_size = UINT64_MAX;
        return;
    }
    if (!stores.random) {
        begin_thread(cpu);
    }
    if (stores.mappings != mappings) {
        stores.mappings = mappings;
        memset(stores.known_page, 0, sizeof(stores.known_page));
    }
    if (early_pc || early_load_pc) {
        memset(stores.known_place, 0, sizeof(stores.known_place)); /* translated code may have been discarded */
    }
    stores.until_next = 0;
    cpu->neg.plumbline_countdown = 0;
    cpu->neg.plumbline_window_size = 0;
    qatomic_set(&cpu->neg.plumbline_stores, &stores);
    stores.has_fence = true;
    stores.is_idle = false;
    plumbline_loads(cpu)->independent = UINT64_MAX;
}

void plumbline_leave_code(CPUState *cpu)
{
    if (cpu->neg.plumbline_stores) {
        write_all(cpu, &stores);
        qatomic_set(&cpu->neg.plumbline_stores, NULL);
        add_counts(&stores);
    }
}

/* The address of the program's instruction, for one of which accesses are chosen. */
static vaddr known_pc(CPUState *cpu, struct PlumblineStores *s, uintptr_t from)
{
    int i = (from >> 2) % KNOWN_PLACES;

    if (s->known_place[i].from != from) {
        s->known_place[i].from = from;
        s->known_place[i].pc = plumbline_pc_of(cpu, from);
    }
    return s->known_place[i].pc;
}

/* Once for each pair of instructions. */
static void log_early_load(CPUState *cpu, uintptr_t load_from, uintptr_t store_from, uintptr_t at)
{
    static struct {
        vaddr load, store;
    } logged[PLACES_LOGGED];
    static int count;
    vaddr load = plumbline_pc_of(cpu, load_from), store = plumbline_pc_of(cpu, store_from);

    if (!plumbline_has_fault_log()) {
        return;
    }
    QEMU_LOCK_GUARD(&watch_lock);
    for (int i = 0; i < count; i++) {
        if (logged[i].load == load && logged[i].store == store) {
            return;
        }
    }
    if (count < PLACES_LOGGED) {
        logged[count].load = load;
        logged[count++].store = store;
        plumbline_log_early_load(load, store, h2g_nocheck(at));
    }
}

/* Whether no load since the last fence decides the address of a load (tcg/plumbline_loads.c.inc). */
static bool is_independent(CPUState *cpu, MemOp op)
{
    int base = (op & PLUMBLINE_BASE) >> PLUMBLINE_BASE_SHIFT, first = base >> PLUMBLINE_BASE_BITS;
    int second = base & ((1 << PLUMBLINE_BASE_BITS) - 1);
    uint64_t independent = plumbline_loads(cpu)->independent;

    return is_broken[RULE_EARLY_ADDRESS] || base == PLUMBLINE_BASE_CONSTANT ||
           (first && independent >> (first - 1) & 1 && independent >> (second - 1) & 1);
}

/* The value before another thread's last store to the place, if that is recorded and the load may have missed it. */
static bool load_early(CPUState *cpu, struct PlumblineStores *s, uintptr_t at, int size, uint64_t *value, uintptr_t from)
{
    struct Overwrite *one = overwrite_of(at);
    uint64_t *accessed = &s->accessed[(at >> PLUMBLINE_MARK_BITS) % PLUMBLINE_MARKS];
    uint64_t time = qatomic_load_acquire(&one->time), guest = at - (uintptr_t)g2h_untagged(0);
    uintptr_t first = qatomic_read(&one->at), store_from = qatomic_read(&one->from);
    uint64_t old = qatomic_read(&one->old);
    int bytes = qatomic_read(&one->size);
    bool is_own = qatomic_read(&one->by) == cpu;

    smp_rmb();
    if (qatomic_read(&one->time) != time || time <= s->fence || is_own || at < first || at + size > first + bytes ||
        (time <= *accessed && !is_broken[RULE_EARLY_PLACE]) || (s->stack <= guest && guest < s->stack_end)) {
        return false;
    }
    if (early_load_pc && known_pc(cpu, s, from) != early_load_pc) {
        return false;
    }
    old >>= (at - first) * 8;
    if (memcmp(&old, value, size)) {
        log_early_load(cpu, from, store_from, at);
    }
    memcpy(value, &old, size);
    *accessed = MAX(*accessed, time - 1); /* it may do so again */
    return true;
}

/* A load of a thread whose loads may be early: false if the caller must perform it. */
static bool load(CPUState *cpu, struct PlumblineStores *s, uintptr_t at, int size, MemOp op, void *value, uintptr_t from)
{
    unsigned place = (at >> PLUMBLINE_MARK_BITS) % PLUMBLINE_MARKS;
    uint64_t seen;

    if (size > 8 || at % size) {
        note_access(s, at, size);
        return false;
    }
    set_helper_retaddr(from);
    seen = size == 8 ? qatomic_read((uint64_t *)at) : size == 4 ? qatomic_read((uint32_t *)at) :
           size == 2 ? qatomic_read((uint16_t *)at) : qatomic_read((uint8_t *)at);
    clear_helper_retaddr();
    smp_rmb();
    if (qatomic_read(&plumbline_loads(cpu)->marks[place]) &&
        !(is_independent(cpu, op) && draw(s, 100) < early_loads && load_early(cpu, s, at, size, &seen, from)) &&
        s->accessed[place] != JUST_NOW) {
        s->accessed[place] = qatomic_read(&overwrites_made);
    }
    memcpy(value, &seen, size);
    return true;
}

/* The access ages the waiting stores. Translated code counts loads, and only the last of them comes here. */
static void age(CPUState *cpu, struct PlumblineStores *s)
{
    bool is_watching = qatomic_read(&watches);

    if (--cpu->neg.plumbline_countdown <= 0 && !(is_watching && --s->until_next > 0)) {
        if (s->is_idle && s->loads_early && !cpu->neg.plumbline_waiting) {
            cpu_exit(cpu); /* it enters again: what its registers depend on is past then */
        }
        s->is_idle = !cpu->neg.plumbline_waiting;
        s->until_next = EMPTY;
        if (cpu->neg.plumbline_waiting && !(s->ready & ~s->lazy) && !s->is_patient) {
            s->is_patient = true;
            s->until_next = 1 + draw(s, latest * LAZINESS);
        } else if (cpu->neg.plumbline_waiting) {
            write_one(cpu, s);
            s->until_next = 1 + draw(s, latest);
        }
    }
    if (is_watching || cpu->neg.plumbline_countdown <= 0) {
        cpu->neg.plumbline_countdown = is_watching ? 0 : s->until_next;
    }
}

/* A store to the stack goes to memory at once, if it may. Others to there need not come here, until a barrier of stores. */
static bool is_private(CPUState *cpu, struct PlumblineStores *s, uintptr_t at)
{
    enum { BELOW = 4096, ABOVE = 61440 };
    uint64_t from = (uintptr_t)g2h(cpu, get_sp_from_cpustate(cpu_env(cpu))) - (uintptr_t)g2h_untagged(0) - BELOW;

    if ((keeps_stores_in_order && !early_pc) || at - (uintptr_t)g2h_untagged(from) >= BELOW + ABOVE) {
        return false;
    }
    if (!s->fenced || is_broken[RULE_FENCE]) {
        cpu->neg.plumbline_window = from;
        cpu->neg.plumbline_window_size = BELOW + ABOVE - 16;
        s->stack = MIN(s->stack, from);
        s->stack_end = MAX(s->stack_end, from + BELOW + ABOVE);
    }
    return true;
}

/* In two halves: to read 16 bytes just after two writes of 8 bytes would stall the processor. */
static void append(CPUState *cpu, struct PlumblineStores *s, uintptr_t at, int size, MemOp op, uint64_t low,
                   uint64_t high, uintptr_t from)
{
    bool is_release = op & PLUMBLINE_RELEASE;
    uint64_t blockers;
    int i = s->next;
    uint64_t slot = 1ull << i;

    while (s->waiting >= depth) {
        write_one(cpu, s);
    }
    if (cpu->neg.plumbline_waiting & slot) {
        write_slot(cpu, s, i); /* the oldest */
    }
    bool is_to_stack = is_private(cpu, s, at);

    if ((keeps_stores_in_order && !is_to_stack) || (is_release && !is_broken[RULE_RELEASE])) {
        blockers = cpu->neg.plumbline_waiting;
    } else {
        blockers = (is_broken[RULE_FENCE] ? 0 : s->fenced) | (is_broken[RULE_OVERLAP] ? 0 : overlapping(cpu, at, size));
    }
    bool is_lazy = !draw(s, LAZINESS);

    if (early_pc || late_pc) {
        vaddr pc = known_pc(cpu, s, from);

        is_lazy = pc == late_pc && draw(s, 2);
        if (pc == early_pc && s->late && !is_release && !s->fenced) {
            int first_late = slot_of(s, ctz64(by_age(s, s->late)));

            blockers = older(cpu, s, first_late) | overlapping(cpu, at, size);
        }
        s->late |= pc == late_pc ? slot : 0;
    }
    if (is_to_stack && !blockers && !is_release) {
        plumbline_write_store(cpu, (void *)at, size, op, int128_make128(low, high));
        note_access(s, at, size);
        return;
    }
    WaitingStore *store = &s->slot[i];

    store->at = at;
    store->from = from;
    store->blockers = blockers;
    store->op = op;
    store->size = size;
    store->is_private = is_to_stack;
    store->half[0] = low;
    store->half[1] = high;
    s->next = (i + 1) % SLOTS;
    s->waiting++;
    s->releases |= is_release ? slot : 0;
    s->ready |= blockers ? 0 : slot;
    s->lazy |= is_lazy ? slot : 0;
    mark(cpu, store, 1);
    qatomic_set(&cpu->neg.plumbline_waiting, cpu->neg.plumbline_waiting | slot);
    if (s->waiting == 1) {
        s->until_next = 1 + draw(s, latest);
        cpu->neg.plumbline_countdown = MIN(cpu->neg.plumbline_countdown, s->until_next);
    }
}

/* The program's fault if it may not write here. Nothing else can be seen of it. A page stays writable until a call. */
static void try_writing(struct PlumblineStores *s, uintptr_t at)
{
    uintptr_t page = at >> HOST_PAGE_BITS;

    if (s->known_page[page % KNOWN_PAGES] != page) {
        qatomic_or((uint8_t *)at, 0);
        s->known_page[page % KNOWN_PAGES] = page;
    }
}

bool plumbline_delay_store(CPUState *cpu, void *at, int size, MemOp op, Int128 value)
{
    struct PlumblineStores *s = cpu->neg.plumbline_stores;
    MemOp atomicity = op & MO_ATOM_MASK;
    uintptr_t place = (uintptr_t)at, from = helper_retaddr;
    uint64_t low = int128_getlo(value), high = int128_gethi(value);

    if (!HAVE_CMPXCHG128 && (size > 8 || place & (size - 1))) {
        /* The host may have to stop other threads for it, which is impossible from here. */
        clear_helper_retaddr();
        write_all(cpu, s);
        note_access(s, place, size);
        set_helper_retaddr(from);
        return false;
    }
    try_writing(s, place);
    try_writing(s, place + size - 1);
    clear_helper_retaddr();
    if (size == 16 && atomicity != MO_ATOM_IFALIGN && atomicity != MO_ATOM_WITHIN16 &&
        !(atomicity == MO_ATOM_WITHIN16_PAIR && place % 16 == 0)) {
        /* Two stores to the architecture: those of a pair, or of a vector's elements. */
        MemOp half = (op & ~(MO_SIZE | MO_ATOM_MASK)) | MO_64 | (atomicity == MO_ATOM_WITHIN16_PAIR ? MO_ATOM_WITHIN16 :
                     atomicity == MO_ATOM_IFALIGN_PAIR ? MO_ATOM_IFALIGN : atomicity);

        append(cpu, s, place, 8, half, low, 0, from);
        append(cpu, s, place + 8, 8, half, high, 0, from);
    } else {
        append(cpu, s, place, size, op, low, high, from);
    }
    age(cpu, s);
    note_fence(cpu, s);
    return true;
}

bool plumbline_load_own(CPUState *cpu, const void *at, int size, void *value)
{
    struct PlumblineStores *s = cpu->neg.plumbline_stores;
    uintptr_t place = (uintptr_t)at, from = helper_retaddr;

    if (!s) {
        cpu->neg.plumbline_countdown = INT32_MAX;
        return false;
    }
    clear_helper_retaddr();
    age(cpu, s);
    note_fence(cpu, s);
    const WaitingStore *youngest = is_broken[RULE_OWN] ? NULL : youngest_at(cpu, place, size);

    if (!youngest) {
        bool is_seen = qatomic_read(&watches) && look(cpu, place, size, value, from);

        if (is_seen) {
            note_access(s, place, size);
        }
        return is_seen;
    }
    if (forwards && youngest->at <= place && place + size <= youngest->at + youngest->size) {
        memcpy(value, youngest->bytes + (place - youngest->at), size);
        return true;
    }
    /* It would see the bytes of several stores, some of them before other threads do and some after. */
    write_at(cpu, s, place, size);
    return false;
}

bool plumbline_load(CPUState *cpu, const void *at, int size, MemOp op, void *value)
{
    struct PlumblineStores *s = cpu->neg.plumbline_stores;
    uintptr_t from = helper_retaddr;

    return plumbline_load_own(cpu, at, size, value) ||
           (s && s->loads_early && load(cpu, s, (uintptr_t)at, size, op, value, from));
}

void plumbline_before_atomic(CPUState *cpu, const void *at, int size, MemOp op)
{
    struct PlumblineStores *s = cpu->neg.plumbline_stores;

    if (qatomic_read(&watches)) {
        look(cpu, (uintptr_t)at, size, NULL, 0);
    }
    order_loads(s);
    if (is_broken[RULE_ATOMIC] || !cpu->neg.plumbline_waiting) {
        return;
    }
    if (!(op & PLUMBLINE_RELAXED) || keeps_stores_in_order || s->releases || s->fenced) {
        write_all(cpu, s);
    } else {
        write_at(cpu, s, (uintptr_t)at, size);
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
        if (s->fenced && !is_broken[RULE_FENCE]) {
            cpu->neg.plumbline_window_size = 0;
        }
        return;
    case PLUMBLINE_ORDER_LOADS:
        order_loads(s);
        plumbline_loads(cpu)->independent = UINT64_MAX;
        return;
    case PLUMBLINE_BEFORE_ACQUIRE:
        if (is_broken[RULE_ACQUIRE] || (!s->releases && !s->has_released)) {
            return;
        }
        order_loads(s);
        if (s->releases) {
            write_all(cpu, s);
        }
        break;
    default:
        order_loads(s);
        plumbline_loads(cpu)->independent = UINT64_MAX;
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
        mappings++;
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
