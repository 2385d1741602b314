/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Notes which functions of an emulated program are entered. The emulator loads it: -plugin reach.so,map=FILE,of=PROGRAM.
 * harness/record/reach/function_map.py makes FILE and reads it; `struct header` is its beginning.
 *
 * FILE lists the addresses of the program's functions. A function that is entered gets a byte. The first thread of the
 * first process has its own bytes, which a reader may clear at any time; all other threads and processes share others.
 * What is compiled into a translated block is a call at the function's first instruction, and nothing elsewhere.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
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

#define MAGIC UINT64_C(0x3148434552424c50) /* PLBRECH1 */

struct header {
    uint64_t magic;
    uint64_t functions;
    uint64_t base; /* the address of the program's first byte, as its own addresses count */
    uint64_t addresses[]; /* ascending; then the bytes of the first thread, then those of all others */
};

static struct header *header;
static uint8_t *first, *others;
static char program[PATH_MAX];
static bool in_child;

/* Find by how much the program's addresses in the guest differ from its own, in the mappings of its file. */
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

static void entered(unsigned int thread, void *function)
{
    /* Two arrays, since a store of a whole byte loses nothing of another's. */
    (thread == 0 && !in_child ? first : others)[(uintptr_t)function] = 1;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    static bool placed;
    static uint64_t bias;
    size_t instructions = qemu_plugin_tb_n_insns(block);

    if (!placed && !(placed = find_bias(qemu_plugin_tb_get_insn(block, 0), &bias))) {
        return;
    }
    for (size_t i = 0; i < instructions; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction) - bias;
        uint64_t low = 0, high = header->functions;
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            if (header->addresses[middle] < address) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low < header->functions && header->addresses[low] == address) {
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, entered, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)low);
        }
    }
}

static void forked(void)
{
    in_child = true;
}

static bool map(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0) {
        return false;
    }
    void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) {
        return false;
    }
    header = mapped;
    uint64_t row = sizeof(uint64_t) + 2;
    if (header->magic != MAGIC || header->functions > ((uint64_t)status.st_size - sizeof(struct header)) / row) {
        errno = EINVAL;
        return false;
    }
    first = (uint8_t *)&header->addresses[header->functions];
    others = first + header->functions;
    return true;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    if (argc != 2 || strncmp(argv[0], "map=", 4) != 0 || strncmp(argv[1], "of=", 3) != 0) {
        fprintf(stderr, "reach: map=FILE,of=PROGRAM is required\n");
        return -1;
    }
    if (!map(argv[0] + 4) || realpath(argv[1] + 3, program) == NULL) {
        fprintf(stderr, "reach: cannot use %s, %s: %s\n", argv[0], argv[1], strerror(errno));
        return -1;
    }
    pthread_atfork(NULL, NULL, forked);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
