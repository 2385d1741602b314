/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Records which blocks of an emulated program are executed. The emulator loads it: -plugin blocks.so,map=FILE,of=PROGRAM.
 * harness/record/executed_blocks/block_map.py makes FILE and reads it; `struct header` is its beginning.
 *
 * A translated block of the program begins with a store of one word to FILE. No function is called for it. The first
 * thread of the first process has its own words, which a reader may clear at any time; all other threads and processes
 * share others. Code outside of the program, such as its libraries, has no such store.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qemu-plugin.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define MAGIC UINT64_C(0x314b4c4258454c50) /* PLEXBLK1 */

/* No machine has pages that are larger than a part. */
enum { PART_BYTES = 1 << 16, PART_PLACES = PART_BYTES / sizeof(uint64_t), HEADER_BYTES = PART_BYTES };
enum { MOST_PARTS = 16, THREADS = 1 << 10 };
/* Limits of a block's size (512 instructions have no more bytes) and of its distance from the beginning of the code. */
enum { SIZE_BITS = 13, BLOCK_BITS = SIZE_BITS + 32 };

/* Four arrays of `places` words follow the header: a hash table from blocks to their numbers, then by these numbers the
 * blocks, the first thread's marks, and the others'. Numbers are dense, so that a reader looks at few words. */
struct header {
    uint64_t magic;
    uint64_t places; /* a power of two, and a multiple of PART_PLACES */
    uint64_t begin;  /* the program's code, as its own addresses count */
    uint64_t end;
    uint64_t base; /* the address of the program's first byte */
    _Atomic uint64_t full; /* 1 once a block has found no place */
    _Atomic uint64_t used; /* numbers in use */
};

static struct header *header;
static _Atomic uint64_t *table; /* place -> block and its number; 0 if it is free */
static _Atomic uint64_t *blocks;
static uint8_t *others;
static uint64_t parts;
static uint8_t *marks; /* the first part of each thread's, one after the other, then the second, and so on */
static struct qemu_plugin_scoreboard *board;
static char program[PATH_MAX];

/* Find the difference between the program's addresses in the guest and in its file, from the mappings of the file. */
static bool find_bias(const struct qemu_plugin_insn *any, uint64_t *bias)
{
    uint64_t guest_base = (uint64_t)(uintptr_t)qemu_plugin_insn_haddr(any) - qemu_plugin_insn_vaddr(any);
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    while (maps != NULL && !found && getline(&line, &room, maps) > 0) {
        uint64_t begin, offset;
        int name = 0;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%" SCNx64 "-%*x %*s %" SCNx64 " %*s %*s %n", &begin, &offset, &name) == 2 && name > 0 &&
            strcmp(line + name, program) == 0) {
            *bias = begin - offset - guest_base - header->base;
            found = true;
        }
    }
    free(line);
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

static uint8_t *part_of(unsigned int thread, uint64_t part)
{
    return marks + (part * THREADS + thread) * PART_BYTES;
}

/* The number of a block, the same in every process; -1 if there is none left. */
static int64_t number_of(uint64_t block)
{
    uint64_t last = header->places - 1, number = UINT64_MAX;
    uint64_t place = (block * UINT64_C(0x9E3779B97F4A7C15) >> 40) & last;
    for (uint64_t tried = 0; tried <= last; tried++, place = (place + 1) & last) {
        uint64_t there = atomic_load(&table[place]);
        if (there == 0) {
            if (number == UINT64_MAX && (number = atomic_fetch_add(&header->used, 1)) > last) {
                break;
            }
            atomic_store(&blocks[number], block);
            if (atomic_compare_exchange_strong(&table[place], &there, block | number << BLOCK_BITS)) {
                return (int64_t)number;
            }
        }
        /* Another process may have been faster. The number that this one took then has no marks. */
        if ((there & ((UINT64_C(1) << BLOCK_BITS) - 1)) == block) {
            return (int64_t)(there >> BLOCK_BITS);
        }
    }
    atomic_store(&header->full, 1);
    return -1;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    static bool placed;
    static uint64_t bias;
    struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, 0);
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);

    if (!placed && !(placed = find_bias(first, &bias))) {
        return;
    }
    uint64_t begin = qemu_plugin_insn_vaddr(first) - bias;
    uint64_t end = qemu_plugin_insn_vaddr(last) - bias + qemu_plugin_insn_size(last);
    if (begin < header->begin || begin >= header->end) {
        return;
    }
    int64_t number = number_of((begin - header->begin) << SIZE_BITS | (end - begin));
    if (number >= 0) {
        /* The emulator adds the thread's number, times the size of a row, to an address within the board. It does not
         * check the result. Small rows make a small board, which the emulator fills with zeros. */
        uint8_t *mark = part_of(0, (uint64_t)number / PART_PLACES) + (uint64_t)number % PART_PLACES * sizeof(uint64_t);
        qemu_plugin_u64 word = {board, (size_t)(mark - (uint8_t *)qemu_plugin_scoreboard_find(board, 0))};
        qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_STORE_U64, word, 1);
    }
}

/* Give a thread the marks that all threads but the first share: a second view of the same memory. */
static void share(unsigned int thread)
{
    for (uint64_t part = 0; part < parts; part++) {
        if (thread >= THREADS || mremap(others + part * PART_BYTES, 0, PART_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
                                        part_of(thread, part)) == MAP_FAILED) {
            fprintf(stderr, "blocks: cannot note what thread %u executes\n", thread);
            abort();
        }
    }
}

static void began(qemu_plugin_id_t id, unsigned int thread)
{
    (void)id;
    if (thread > 0) {
        share(thread);
    }
}

static void forked(void)
{
    share(0);
}

static bool map(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0) {
        return false;
    }
    uint8_t *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED || status.st_size < HEADER_BYTES) {
        return false;
    }
    header = (struct header *)mapped;
    uint64_t places = header->places;
    parts = places / PART_PLACES;
    if (header->magic != MAGIC || parts < 1 || parts > MOST_PARTS || (places & (places - 1)) != 0 ||
        (uint64_t)status.st_size != HEADER_BYTES + 4 * parts * PART_BYTES) {
        errno = EINVAL;
        return false;
    }
    table = (_Atomic uint64_t *)(mapped + HEADER_BYTES);
    blocks = table + places;
    others = mapped + HEADER_BYTES + 3 * parts * PART_BYTES;
    size_t room = parts * THREADS * PART_BYTES;
    marks = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (uint64_t part = 0; part < parts && marks != MAP_FAILED; part++) {
        off_t offset = (off_t)(HEADER_BYTES + (2 * parts + part) * PART_BYTES);
        if (mmap(part_of(0, part), PART_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) ==
            MAP_FAILED) {
            return false;
        }
    }
    close(fd);
    return marks != MAP_FAILED;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    if (argc != 2 || strncmp(argv[0], "map=", 4) != 0 || strncmp(argv[1], "of=", 3) != 0) {
        fprintf(stderr, "blocks: map=FILE,of=PROGRAM is required\n");
        return -1;
    }
    if (!map(argv[0] + 4) || realpath(argv[1] + 3, program) == NULL) {
        fprintf(stderr, "blocks: cannot use %s, %s: %s\n", argv[0], argv[1], strerror(errno));
        return -1;
    }
    board = qemu_plugin_scoreboard_new(PART_BYTES);
    pthread_atfork(NULL, NULL, forked);
    qemu_plugin_register_vcpu_init_cb(id, began);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
