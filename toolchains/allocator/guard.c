/*
 * malloc as an adversary: preloaded into a guest (LD_PRELOAD), it replaces libc's.
 *
 * Every block ends before an inaccessible page, so that a read beyond the block faults at once. Every block has the
 * guaranteed alignment and, every second time, no more. Fresh and freed memory is never zero by luck. realloc always
 * moves. malloc_usable_size returns the requested size and not a byte more.
 *
 * The guarantee: C11 7.22.3, an alignment for any object with a fundamental alignment, that is max_align_t's: 8
 * on 32-bit ARM (AAPCS32, Fundamental Data Types), SPARC and MIPS (System V psABI supplements), 16 on AArch64
 * (AAPCS64), SPARC V9 (SCD 2.4) and x86-64 (psABI 3.1.2). With -DNATURAL it is only the alignment that an object of the
 * block's size can need, the largest power of two that is not greater: C++ requires no more (CWG issue 2207).
 *
 * Places of blocks: one range of addresses is reserved at the start, and its bounds are printed to standard error, so that
 * harness.judge.sightings recognises an access to a guard page. Its first part is slots of one page and a guard page, for
 * blocks of up to a page; a freed slot is used again after all slots that were freed before it. The rest gives whole
 * pages and a guard page to larger blocks, which become inaccessible when they are freed. Both parts are bounded, because
 * each block divides mappings, of which Linux grants a process 65530 (vm.max_map_count). Blocks beyond the bounds get a
 * place without a guard page, with the same alignment. SLOTS and EXTENTS below use five sixths of that number.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define PROMISED _Alignof(max_align_t)
#define SLOTS 24576u
#define EXTENTS 3072u
/* Enough for everything but strings near their 512 MiB. */
#define EXTENT_BYTES (sizeof(void *) == 4 ? (size_t)512 << 20 : (size_t)4 << 30)
#define FRESH 0xa5
#define FREED 0xdb
#define MAGIC 0x706c756du
#define VACANT UINT32_MAX
/* Larger blocks are not filled: they are fresh mappings, and filling would make them resident. */
#define FILLED_BYTES ((size_t)1 << 20)

/* The header before every block that is not in a slot: the block's origin. */
typedef struct {
    size_t size;   /* the requested size */
    size_t length; /* of the mapping or the piece, in bytes, without its guard page */
    char *start;
    uint32_t magic;
    uint32_t class; /* of a piece; EXTENT or MAPPING */
} Head;

enum { EXTENT = 64, MAPPING };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t page;
static char *slots, *extents, *end;
static uint32_t asked[SLOTS];     /* size of the block in a slot; VACANT of a free one */
static uint32_t place[SLOTS];     /* where in its page the block begins */
static uint32_t next_free[SLOTS]; /* a queue of freed slots: number + 1 of the one freed after it */
static uint32_t first_free, last_free, slots_made;
static uint8_t *taken; /* one byte for each page of the extents */
static size_t pages, cursor;
static uint32_t extents_there;
static Head *pieces[EXTENT]; /* free pieces without a guard page, by the power of two */
static unsigned turn;

static void lock_it(void) { pthread_mutex_lock(&lock); }

static void unlock_it(void) { pthread_mutex_unlock(&lock); }

static void *map(size_t length, int protection)
{
    void *at = mmap(NULL, length, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* Once, with the lock held. */
static bool prepare(void)
{
    if (page) {
        return true;
    }
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    size_t length = 2 * size * SLOTS + EXTENT_BYTES;

    slots = map(length, PROT_NONE);
    taken = map(EXTENT_BYTES / size, PROT_READ | PROT_WRITE);
    if (!slots || !taken) {
        return false;
    }
    extents = slots + 2 * size * SLOTS;
    end = slots + length;
    pages = EXTENT_BYTES / size;
    page = size;
    return true;
}

/* Prints the bounds before main(). A forked child gets the parent's lock in a usable state. */
__attribute__((constructor)) static void tell(void)
{
    char line[128];

    lock_it();
    bool ready = prepare();
    unlock_it();
    int length = ready ? snprintf(line, sizeof(line), "plumbline-guard: blocks from %#zx to %#zx\n", (size_t)slots,
                                  (size_t)end)
                       : snprintf(line, sizeof(line), "plumbline-guard: no address space\n");
    if (write(STDERR_FILENO, line, (size_t)length) < 0) {
        _exit(127);
    }
    pthread_atfork(lock_it, unlock_it, unlock_it);
}

static size_t promised(size_t size)
{
#ifdef NATURAL
    size_t alignment = 1;

    while (alignment * 2 <= size && alignment < PROMISED) {
        alignment *= 2;
    }
    return alignment;
#else
    (void)size;
    return PROMISED;
#endif
}

/* The last address before `limit` for a block; every second time one with no more than the required alignment. */
static char *fit(char *limit, char *start, size_t size, size_t alignment)
{
    uintptr_t at = ((uintptr_t)limit - size) & ~(uintptr_t)(alignment - 1);

    if ((turn++ & 1) && at % (2 * alignment) == 0 && at - alignment >= (uintptr_t)start) {
        at -= alignment;
    }
    return (char *)at;
}

static char *from_slot(size_t size, size_t alignment)
{
    uint32_t slot;

    if (slots_made < SLOTS) {
        slot = slots_made;
        if (mprotect(slots + 2 * page * slot, page, PROT_READ | PROT_WRITE) != 0) {
            return NULL;
        }
        slots_made++;
    } else if (first_free) {
        slot = first_free - 1;
        first_free = next_free[slot];
    } else {
        return NULL;
    }
    char *start = slots + 2 * page * slot;
    char *block = fit(start + page, start, size, alignment);

    memset(start, FRESH, page);
    asked[slot] = (uint32_t)size;
    place[slot] = (uint32_t)(block - start);
    return block;
}

static bool in_slot(const char *block) { return page && block >= slots && block < extents; }

static uint32_t slot_of(const char *block) { return (uint32_t)((size_t)(block - slots) / (2 * page)); }

/* Reports the free of a block twice, or of something else, where it happens: the emulator records the trap. */
static void refuse(const char *what)
{
    ssize_t written = write(STDERR_FILENO, what, strlen(what));

    (void)written;
    __builtin_trap();
}

static void to_slot(char *block)
{
    uint32_t slot = slot_of(block);
    char *start = slots + 2 * page * slot;

    if (slot >= slots_made || asked[slot] == VACANT || block != start + place[slot]) {
        refuse("plumbline-guard: what is freed is no block, or not any more\n");
    }
    memset(block, FREED, asked[slot]);
    asked[slot] = VACANT;
    next_free[slot] = 0;
    if (first_free) {
        next_free[last_free] = slot + 1;
    } else {
        first_free = slot + 1;
    }
    last_free = slot;
}

/* Consecutive free pages, searched from where the last ones were found: the number of the first, or `pages`. */
static size_t run_of(size_t wanted)
{
    for (int round = 0; round < 2; round++) {
        size_t length = 0;

        for (size_t at = round ? 0 : cursor; at < pages; at++) {
            length = taken[at] ? 0 : length + 1;
            if (length == wanted) {
                return at + 1 - wanted;
            }
        }
    }
    return pages;
}

static char *headed(char *start, size_t length, size_t size, size_t alignment, uint32_t class)
{
    char *block = fit(start + length, start + sizeof(Head) + PROMISED, size, alignment);
    Head *head = (Head *)(((uintptr_t)block & ~(uintptr_t)(PROMISED - 1)) - sizeof(Head));

    *head = (Head){.size = size, .length = length, .start = start, .magic = MAGIC, .class = class};
    return block;
}

static Head *head_of(char *block)
{
    return (Head *)(((uintptr_t)block & ~(uintptr_t)(PROMISED - 1)) - sizeof(Head));
}

static size_t in_pages(size_t bytes) { return (bytes + page - 1) / page; }

static char *from_extent(size_t size, size_t alignment)
{
    size_t wanted = in_pages(size + sizeof(Head) + PROMISED + alignment) + 1;
    size_t at = extents_there < EXTENTS && wanted < pages ? run_of(wanted) : pages;

    if (at == pages) {
        return NULL;
    }
    char *start = extents + at * page;
    size_t length = (wanted - 1) * page;

    if (mprotect(start, length, PROT_READ | PROT_WRITE) != 0) {
        return NULL;
    }
    memset(taken + at, 1, wanted);
    cursor = at + wanted;
    extents_there++;
    return headed(start, length, size, alignment, EXTENT);
}

/* Without a guard page: the bounds have been reached. */
static char *from_piece(size_t size, size_t alignment)
{
    size_t needed = size + sizeof(Head) + PROMISED + 2 * alignment;
    uint32_t class = 6;

    if (needed > (size_t)1 << 20) {
        size_t length = in_pages(needed) * page;
        char *start = map(length, PROT_READ | PROT_WRITE);

        return start ? headed(start, length, size, alignment, MAPPING) : NULL;
    }
    while ((size_t)1 << class < needed) {
        class++;
    }
    size_t length = (size_t)1 << class;

    if (!pieces[class]) {
        size_t chunk = length < (size_t)1 << 16 ? (size_t)1 << 16 : length;
        char *start = map(chunk, PROT_READ | PROT_WRITE);

        if (!start) {
            return NULL;
        }
        for (size_t at = 0; at < chunk; at += length) {
            Head *free_one = (Head *)(start + at);
            free_one->start = (char *)pieces[class];
            pieces[class] = free_one;
        }
    }
    Head *taken_one = pieces[class];
    pieces[class] = (Head *)taken_one->start;
    return headed((char *)taken_one, length, size, alignment, class);
}

static void *allocate(size_t size, size_t alignment)
{
    char *block = NULL;

    if (size > SIZE_MAX / 2 || alignment > SIZE_MAX / 4) {
        errno = ENOMEM;
        return NULL;
    }
    lock_it();
    if (prepare()) {
        block = size + alignment <= page ? from_slot(size, alignment) : from_extent(size, alignment);
        if (!block) {
            block = from_piece(size, alignment);
        }
    }
    unlock_it();
    if (!block) {
        errno = ENOMEM;
    } else if (!in_slot(block) && size <= FILLED_BYTES) {
        memset(block, FRESH, size);
    }
    return block;
}

static void to_others(char *block)
{
    Head *head = head_of(block);

    if (head->magic != MAGIC) {
        /* The dynamic linker has blocks from before any malloc existed; they are ignored. */
        if (block >= extents && block < end) {
            refuse("plumbline-guard: what is freed is no block\n");
        }
        return;
    }
    Head was = *head;

    if (was.class == MAPPING) {
        munmap(was.start, was.length);
    } else if (was.class == EXTENT) {
        madvise(was.start, was.length, MADV_DONTNEED);
        mprotect(was.start, was.length, PROT_NONE);
        memset(taken + (size_t)(was.start - extents) / page, 0, was.length / page + 1);
        extents_there--;
    } else {
        memset(was.start, FREED, was.length);
        ((Head *)was.start)->start = (char *)pieces[was.class];
        pieces[was.class] = (Head *)was.start;
    }
}

PUBLIC void *malloc(size_t size) { return allocate(size, promised(size)); }

PUBLIC void free(void *block)
{
    int error = errno;

    if (block) {
        lock_it();
        if (in_slot(block)) {
            to_slot(block);
        } else {
            to_others(block);
        }
        unlock_it();
    }
    errno = error;
}

PUBLIC size_t malloc_usable_size(void *block)
{
    return !block ? 0 : in_slot(block) ? asked[slot_of(block)] : head_of(block)->size;
}

PUBLIC void *calloc(size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    /* A compiler would turn malloc and memset into a call of this function. */
    void *block = allocate(bytes, promised(bytes));
    return block ? memset(block, 0, bytes) : NULL;
}

/* As in glibc, a size of 0 frees. */
PUBLIC void *realloc(void *block, size_t size)
{
    if (!block) {
        return malloc(size);
    }
    if (!size) {
        free(block);
        return NULL;
    }
    size_t before = malloc_usable_size(block);
    void *moved = malloc(size);

    if (moved) {
        memcpy(moved, block, before < size ? before : size);
        free(block);
    }
    return moved;
}

PUBLIC void *reallocarray(void *block, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

PUBLIC void *memalign(size_t alignment, size_t size)
{
    if (!alignment || (alignment & (alignment - 1))) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(size, alignment);
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

PUBLIC int posix_memalign(void **block, size_t alignment, size_t size)
{
    int error = errno;

    if (alignment % sizeof(void *)) {
        return EINVAL;
    }
    void *made = memalign(alignment, size);
    int told = made ? 0 : errno;

    errno = error;
    if (made) {
        *block = made;
    }
    return told;
}

PUBLIC void *valloc(size_t size) { return memalign((size_t)sysconf(_SC_PAGESIZE), size); }
