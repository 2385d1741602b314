/*
 * Plumbline's change to user-mode QEMU that records which edges of the program's control flow were taken.
 *
 * An edge leads from one translation block of the program to the next. Each edge has a byte in a file that the host
 * shares with the emulator. Taking the edge sets the byte, and the host may clear it at any time. Blocks outside of the
 * program's own text are left out, so an edge may lead through libc. The code that sets the byte is part of the
 * translated block, so chained blocks execute it, too. Without coverage, blocks do not contain it.
 *
 * A block is identified by its distance from the start of the text, so edges keep their bytes from run to run. Forked
 * children and threads share the file; each thread has its own last block.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/host-utils.h"
#include "qemu/units.h"
#include "qemu.h"
#include "user-internals.h"
#include "tcg/tcg.h"
#include "tcg/tcg-temp-internal.h"
#include "tcg/tcg-op-common.h"
#include "tcg/plumbline.h"
#include "plumbline.h"

#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"
#pragma GCC diagnostic ignored "-Wsign-compare" /* as in plumbline.c */

enum { LEAST_BYTES = 4 * KiB, MOST_BYTES = 64 * MiB };

/* Two odd numbers without a pattern, so that a block's numbers as a source and as a destination are unrelated. */
enum { SOURCE = 0x9e3779b1u, DESTINATION = 0x85ebca77u };

static uint8_t *edges;
static unsigned half_bits;

void plumbline_set_coverage(const char *path)
{
    struct stat status;
    int file = open(path, O_RDWR | O_CLOEXEC);

    if (file < 0 || fstat(file, &status) < 0) {
        error_report("-coverage: cannot open '%s': %s", path, strerror(errno));
        exit(EXIT_FAILURE);
    }
    if (!is_power_of_2(status.st_size) || status.st_size < LEAST_BYTES || status.st_size > MOST_BYTES) {
        error_report("-coverage: '%s' has %" PRId64 " bytes; make it a power of two from %d to %d, of zeros",
                     path, (int64_t)status.st_size, LEAST_BYTES, MOST_BYTES);
        exit(EXIT_FAILURE);
    }
    edges = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (edges == MAP_FAILED) {
        error_report("-coverage: cannot map '%s': %s", path, strerror(errno));
        exit(EXIT_FAILURE);
    }
    close(file);
    half_bits = ctz64(status.st_size) - 1;
}

bool plumbline_has_coverage(void)
{
    return edges;
}

/* A number below half of the file's size. Those of a source and a destination make an offset. */
static uint32_t number_of(uint32_t block, uint32_t multiplier)
{
    block = (block ^ block >> 15) * multiplier;
    return (block ^ block >> 13) * multiplier >> (32 - half_bits);
}

void plumbline_entering(CPUState *cpu, vaddr pc)
{
    const struct image_info *program = get_task_state(cpu)->info;
    intptr_t last_block = offsetof(ArchCPU, parent_obj.neg.plumbline_last_block) - offsetof(ArchCPU, env);

    if (!edges || pc < program->start_code || pc >= program->end_code) {
        return;
    }
    uint32_t block = pc - program->start_code;
    TCGv_ptr edge = tcg_temp_ebb_new_ptr();

    tcg_gen_ld_ptr(edge, tcg_env, last_block);
    tcg_gen_addi_ptr(edge, edge, (intptr_t)edges + number_of(block, DESTINATION));
    tcg_gen_st8_i32(tcg_constant_i32(1), edge, 0);
    tcg_gen_st_ptr(tcg_constant_ptr((uintptr_t)number_of(block, SOURCE)), tcg_env, last_block);
    tcg_temp_free_ptr(edge);
}
