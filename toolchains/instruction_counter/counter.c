/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Counts what an emulated server does: instructions by thread and process, executions of translated blocks, and calls
 * that write to files. The emulator loads it: -plugin counter.so,counts=FILE,orders=FIFO,answers=FIFO,wait=N+N,...
 * harness/record/instruction_counts.py reads FILE, whose layout `struct shared` defines.
 *
 * A hold stops the first thread of the server when it waits for events, so that a client can prepare the next events
 * before the server sees any of them. Without it, the number of clients that one wake-up serves would depend on the
 * speed of the host, and the count with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

enum { MAX_ROWS = 256, MAX_BLOCKS = 1 << 17, MAX_NUMBERS = 16, FIRST_OWN_FD = 900 };
enum { ROWS_FULL = 1, BLOCKS_FULL = 2, GATE_LOST = 4 };

/* One thread of one process. */
struct row {
    uint64_t pid;
    uint64_t thread;
    uint64_t forked; /* 1 in a child of the server */
    uint64_t ended;  /* 1 once it has requested its end from the kernel */
    uint64_t instructions;
    uint64_t calls;
    uint64_t writes;
    uint64_t written_bytes;
    uint64_t syncs;
    uint64_t resident_bytes; /* at a child's end: the guest's pages, and those that it does not share */
    uint64_t private_bytes;
    uint64_t reserved[5];
};

struct block {
    uint64_t address;
    uint64_t instructions;
    uint64_t executions;
};

struct shared {
    uint64_t magic;
    _Atomic uint64_t rows;
    _Atomic uint64_t faults;
    _Atomic uint64_t hold;          /* set by the client: hold the next wait for events */
    _Atomic uint64_t hold_children; /* set by the client: hold a child at its first call */
    _Atomic uint64_t waits;         /* how often the server's first thread waited for events */
    _Atomic uint64_t held_children;
    uint64_t blocks;
    uint64_t reserved[504];
    struct row row[MAX_ROWS];
    struct block block[MAX_BLOCKS];
};

/* What each thread counts while it runs, without a call. */
struct counts {
    uint64_t instructions;
    uint64_t executions[MAX_BLOCKS];
};

enum kind { WAIT, WRITE, SYNC, END, KINDS };
static const char *const kind_names[KINDS] = {"wait", "write", "sync", "end"};
static int64_t numbers[KINDS][MAX_NUMBERS];

static struct shared *shared;
static struct qemu_plugin_scoreboard *board;
static int orders = -1, answers = -1;
static uint64_t guest_begin, guest_end;
static pid_t own_pid;
static bool in_child;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block known[MAX_BLOCKS]; /* private: a child translates its own blocks */
static uint32_t places[MAX_BLOCKS * 2]; /* hash table of positions in `known`, plus one */
static uint32_t blocks;

static __thread struct row *own_row;
static __thread pid_t row_pid;
static __thread bool writes_file;

static bool is(enum kind kind, int64_t number)
{
    for (int i = 0; i < MAX_NUMBERS && numbers[kind][i] >= 0; i++) {
        if (numbers[kind][i] == number) {
            return true;
        }
    }
    return false;
}

static struct counts *counts_of(unsigned int thread)
{
    return qemu_plugin_scoreboard_find(board, thread);
}

/* The calling thread's row, which it takes on its first call. */
static struct row *row_of(unsigned int thread)
{
    if (own_row == NULL || row_pid != own_pid) {
        uint64_t number = atomic_fetch_add(&shared->rows, 1);
        if (number >= MAX_ROWS) {
            atomic_fetch_or(&shared->faults, ROWS_FULL);
            number = MAX_ROWS - 1;
        }
        own_row = &shared->row[number];
        row_pid = own_pid;
        own_row->thread = thread;
        own_row->forked = in_child;
        own_row->pid = (uint64_t)own_pid;
    }
    return own_row;
}

static uint32_t position(uint64_t address, uint64_t instructions)
{
    uint64_t hash = (address ^ instructions << 48) * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t at = (uint32_t)(hash >> 46);
    for (;; at = (at + 1) % (MAX_BLOCKS * 2)) {
        if (places[at] == 0) {
            if (blocks == MAX_BLOCKS - 1) {
                /* All further blocks share the last position. */
                atomic_fetch_or(&shared->faults, BLOCKS_FULL);
                return MAX_BLOCKS - 1;
            }
            known[blocks] = (struct block){.address = address, .instructions = instructions};
            places[at] = ++blocks;
        }
        struct block *found = &known[places[at] - 1];
        if (found->address == address && found->instructions == instructions) {
            return places[at] - 1;
        }
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    uint64_t instructions = qemu_plugin_tb_n_insns(tb);
    pthread_mutex_lock(&lock);
    uint32_t at = position(qemu_plugin_tb_vaddr(tb), instructions);
    pthread_mutex_unlock(&lock);
    qemu_plugin_u64 total = {board, offsetof(struct counts, instructions)};
    qemu_plugin_u64 executions = {board, offsetof(struct counts, executions) + at * sizeof(uint64_t)};
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, total, instructions);
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, executions, 1);
}

static void write_blocks(unsigned int thread)
{
    struct counts *counts = counts_of(thread);
    pthread_mutex_lock(&lock);
    for (uint32_t at = 0; at < blocks; at++) {
        shared->block[at] = known[at];
        shared->block[at].executions = counts->executions[at];
    }
    shared->blocks = blocks;
    pthread_mutex_unlock(&lock);
}

static bool transfer(int fd, char *byte, bool reads)
{
    ssize_t done;
    do {
        done = reads ? read(fd, byte, 1) : write(fd, byte, 1);
    } while (done < 0 && errno == EINTR);
    return done == 1;
}

/* Report to the client that the server would wait now, and obey it until it lets the server continue. */
static void wait_for_orders(unsigned int thread)
{
    for (char byte = 'w'; transfer(answers, &byte, false) && transfer(orders, &byte, true);) {
        if (byte == 'g') {
            return;
        }
        if (byte == 'b') {
            write_blocks(thread);
        }
    }
    atomic_fetch_or(&shared->faults, GATE_LOST);
    atomic_store(&shared->hold, 0);
}

/* The guest's resident pages, which are the mappings of this process within the guest's address space. */
static void measure_memory(struct row *row)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char *line = NULL;
    size_t room = 0;
    bool inside = false;
    uint64_t resident = 0, private = 0;
    while (file != NULL && getline(&line, &room, file) > 0) {
        uint64_t begin, end, kib;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
            inside = begin >= guest_begin && end <= guest_end;
        } else if (inside && sscanf(line, "Rss: %" SCNu64, &kib) == 1) {
            resident += kib * 1024;
        } else if (inside && sscanf(line, "Private_Dirty: %" SCNu64, &kib) == 1) {
            private += kib * 1024;
        }
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
    row->resident_bytes = resident;
    row->private_bytes = private;
}

static void called(qemu_plugin_id_t id, unsigned int thread, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                   uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    struct row *row = row_of(thread);
    row->instructions = counts_of(thread)->instructions;
    row->calls++;
    writes_file = false;
    if (in_child && row->calls == 1 && atomic_load(&shared->hold_children)) {
        atomic_fetch_add(&shared->held_children, 1);
        while (atomic_load(&shared->hold_children)) {
            usleep(500);
        }
    }
    if (is(WRITE, number)) {
        struct stat status;
        /* Standard output and error are the server's log. */
        writes_file = a1 > 2 && fstat((int)a1, &status) == 0 && S_ISREG(status.st_mode);
    } else if (is(SYNC, number)) {
        row->syncs++;
    } else if (is(END, number)) {
        if (in_child) {
            measure_memory(row);
        }
        row->ended = 1;
    } else if (thread == 0 && !in_child && is(WAIT, number)) {
        atomic_fetch_add(&shared->waits, 1);
        if (atomic_load(&shared->hold)) {
            wait_for_orders(thread);
        }
    }
}

static void returned(qemu_plugin_id_t id, unsigned int thread, int64_t number, int64_t result)
{
    (void)id;
    if (writes_file && is(WRITE, number)) {
        struct row *row = row_of(thread);
        row->writes++;
        row->written_bytes += result > 0 ? (uint64_t)result : 0;
        writes_file = false;
    }
}

/* A child counts from zero, in rows of its own. */
static void forked(void)
{
    own_pid = getpid();
    in_child = true;
    pthread_mutex_init(&lock, NULL);
    for (int thread = 0; thread < qemu_plugin_num_vcpus(); thread++) {
        memset(counts_of((unsigned int)thread), 0, sizeof(struct counts));
    }
}

static int own_descriptor(const char *path, int flags)
{
    /* A FIFO that is open in both directions does not wait. The guest must not see that a descriptor is in use. */
    int fd = open(path, flags | O_CLOEXEC);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN_FD);
    if (fd >= 0) {
        close(fd);
    }
    return high;
}

static bool map(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    void *mapped = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    shared = mapped == MAP_FAILED ? NULL : mapped;
    return shared != NULL;
}

static bool take(const char *name, const char *value)
{
    if (strcmp(name, "counts") == 0) {
        return map(value);
    }
    if (strcmp(name, "orders") == 0) {
        return (orders = own_descriptor(value, O_RDONLY)) >= 0;
    }
    if (strcmp(name, "answers") == 0) {
        return (answers = own_descriptor(value, O_WRONLY)) >= 0;
    }
    if (strcmp(name, "guest") == 0) {
        return sscanf(value, "%" SCNx64 "-%" SCNx64, &guest_begin, &guest_end) == 2;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (strcmp(name, kind_names[kind]) == 0) {
            char *next = (char *)value;
            for (int i = 0; i < MAX_NUMBERS - 1 && *next != '\0'; i++) {
                numbers[kind][i] = strtoll(next, &next, 10);
                next += *next == '+';
            }
            return *next == '\0';
        }
    }
    return false;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    memset(numbers, 0xff, sizeof(numbers));
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value != NULL) {
            *value++ = '\0';
        }
        if (value == NULL || !take(argv[i], value)) {
            fprintf(stderr, "counter: cannot use %s=%s: %s\n", argv[i], value ? value : "", strerror(errno));
            return -1;
        }
    }
    if (shared == NULL || orders < 0 || answers < 0) {
        fprintf(stderr, "counter: counts, orders and answers are required\n");
        return -1;
    }
    own_pid = getpid();
    board = qemu_plugin_scoreboard_new(sizeof(struct counts));
    pthread_atfork(NULL, NULL, forked);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, returned);
    shared->magic = UINT64_C(0x31544e43424d4c50); /* PLMBCNT1 */
    return 0;
}
