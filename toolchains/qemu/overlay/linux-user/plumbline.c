/*
 * Plumbline's changes to user-mode QEMU: the alignment policy's option, and a log of faults.
 *
 * A record holds what an offline reader needs to say where a program stood when a synchronous signal hit it
 * (event "fault"), or when it made a misaligned access that is only to be reported (event "access"): registers,
 * the instruction's bytes, a slice of the stack and the map of loaded objects. It is written by the process
 * concerned, so forked children and threads are covered, and it is one write() of one line to a file opened
 * with O_APPEND, so that records of several processes do not mix. A reported access is recorded in full the
 * first time, and its count whenever that has doubled (event "count"), because a killed process tells nothing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/units.h"
#include "qemu/host-utils.h"
#include "qemu/error-report.h"
#include "qemu/selfmap.h"
#include "qemu.h"
#include "user-internals.h"
#include "user/page-protection.h"
#include "exec/gdbstub.h"
#include "exec/cpu-common.h"
#include "tcg/insn-start-words.h"
#include "tcg/plumbline.h"
#include "plumbline.h"

enum { REGISTERS_LOGGED = 96, STACK_LOGGED = 16 * KiB, INSTRUCTION_LOGGED = 16 };

static int fault_log = -1;
static bool reporting;

void plumbline_set_alignment(const char *policy)
{
    static const char *const names[] = { "arch", "fixup", "trap" };
    g_auto(GStrv) words = g_strsplit(policy, ",", -1);

    for (char **word = words; *word; word++) {
        const char *equals = strchr(*word, '=');
        const char *name = equals ? equals + 1 : *word;
        int rule = -1, first = 0, last = 4;

        if (g_str_equal(*word, "report")) {
            reporting = true;
            continue;
        }
        for (int i = 0; i < ARRAY_SIZE(names); i++) {
            if (g_str_equal(name, names[i])) {
                rule = i;
            }
        }
        if (equals) {
            unsigned int size = atoi(*word);
            first = last = is_power_of_2(size) && size <= 16 ? ctz32(size) : -1;
        }
        if (rule < 0 || first < 0) {
            error_report("-alignment: '%s' is neither RULE nor SIZE=RULE nor report "
                         "(RULE: arch, fixup, trap; SIZE: 1, 2, 4, 8, 16)", *word);
            exit(EXIT_FAILURE);
        }
        for (int i = first; i <= last; i++) {
            plumbline_alignment[i] = rule;
        }
    }
}

void plumbline_set_fault_log(const char *path)
{
    fault_log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fault_log < 0) {
        error_report("-fault-log: cannot open '%s': %s", path, strerror(errno));
        exit(EXIT_FAILURE);
    }
    /* Out of the way of the numbers a guest expects its own files to get. */
    int high = fcntl(fault_log, F_DUPFD_CLOEXEC, 900);
    if (high >= 0) {
        close(fault_log);
        fault_log = high;
    }
}

static void append_hex(GString *line, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        g_string_append_printf(line, "%02x", bytes[i]);
    }
}

/* As much of [address, address + length) as is readable, in pieces that do not cross a page. */
static void append_memory(GString *line, CPUState *cpu, vaddr address, size_t length)
{
    while (length) {
        uint8_t bytes[256];
        size_t piece = MIN(MIN(length, sizeof(bytes)), 256 - (address & 255));

        if (cpu_memory_rw_debug(cpu, address, bytes, piece, false) != 0) {
            break;
        }
        append_hex(line, bytes, piece);
        address += piece;
        length -= piece;
    }
}

static void append_maps(GString *line)
{
    IntervalTreeRoot *maps = read_self_maps();
    const char *separator = "";

    for (IntervalTreeNode *node = interval_tree_iter_first(maps, 0, -1); node;
         node = interval_tree_iter_next(node, 0, -1)) {
        const MapInfo *map = container_of(node, MapInfo, itree);

        if (!map->path || map->path[0] != '/' || !h2g_valid((void *)node->start)) {
            continue;
        }
        g_autofree char *path = g_strescape(map->path, NULL);
        g_string_append_printf(line, "%s{\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"offset\":%" PRIu64
                               ",\"path\":\"%s\"}", separator,
                               (uint64_t)h2g_nocheck(node->start), (uint64_t)h2g_nocheck(node->last) + 1,
                               map->offset, path);
        separator = ",";
    }
    free_self_maps(maps);
}

static void write_line(GString *line)
{
    if (write(fault_log, line->str, line->len) != line->len) {
        error_report("-fault-log: a record was cut short: %s", strerror(errno));
    }
}

static void write_record(CPUArchState *env, const char *event, vaddr pc, int host_sig, int code, uint64_t address,
                         const char *access, bool handled)
{
    CPUState *cpu = env_cpu(env);

#ifdef TARGET_SPARC
    /* Callers' registers live in windows until they are spilled, as the kernel does before a signal. */
    flush_windows(env);
#endif
    vaddr stack = get_sp_from_cpustate(env);
    g_autoptr(GString) line = g_string_sized_new(4 * STACK_LOGGED);
    g_string_printf(line, "{\"event\":\"%s\",\"pid\":%d,\"tid\":%d,\"signal\":%d,\"code\":%d,"
                    "\"address\":%" PRIu64 ",\"access\":\"%s\",\"handled\":%s,\"pc\":%" PRIu64
                    ",\"instruction\":\"",
                    event, getpid(), gettid(), host_sig, code, address, access,
                    handled ? "true" : "false", (uint64_t)pc);
    append_memory(line, cpu, pc, INSTRUCTION_LOGGED);
    g_string_append(line, "\",\"registers\":[");
    for (int i = 0; i < MIN(cpu->gdb_num_regs, REGISTERS_LOGGED); i++) {
        g_autoptr(GByteArray) bytes = g_byte_array_new();
        int length = gdb_read_register(cpu, bytes, i);

        g_string_append(line, i ? ",\"" : "\"");
        append_hex(line, bytes->data, length);
        g_string_append(line, "\"");
    }
    g_string_append_printf(line, "],\"stack_address\":%" PRIu64 ",\"stack\":\"", (uint64_t)stack);
    append_memory(line, cpu, stack, STACK_LOGGED);
    g_string_append(line, "\",\"maps\":[");
    append_maps(line);
    g_string_append(line, "]}\n");
    write_line(line);
}

void plumbline_log_fault(CPUArchState *env, int sig, int code, uint64_t address,
                         const char *access, bool handled)
{
    CPUState *cpu = env_cpu(env);

    if (fault_log >= 0) {
        write_record(env, "fault", cpu->cc->get_pc(cpu), target_to_host_signal(sig), code, address, access, handled);
    }
}

/* How often each instruction has made a reported access. */
static uint64_t count_access(vaddr pc)
{
    static GMutex lock;
    static GHashTable *counts;

    g_mutex_lock(&lock);
    if (!counts) {
        counts = g_hash_table_new(g_direct_hash, g_direct_equal);
    }
    gpointer key = (gpointer)(uintptr_t)pc;
    uintptr_t count = (uintptr_t)g_hash_table_lookup(counts, key) + 1;
    g_hash_table_insert(counts, key, (gpointer)count);
    g_mutex_unlock(&lock);
    return count;
}

bool plumbline_report(CPUState *cpu, uint64_t address, bool is_store, uintptr_t host_pc)
{
    uint64_t data[TARGET_INSN_START_WORDS];

    if (!reporting || fault_log < 0) {
        return false;
    }
    /* The first word of a translated instruction's state is its address, on every target that is built here. */
    vaddr pc = cpu_unwind_state_data(cpu, host_pc, data) ? data[0] : cpu->cc->get_pc(cpu);
    uint64_t count = count_access(pc);

    if (count == 1) {
        write_record(cpu_env(cpu), "access", pc, 0, 0, address, is_store ? "store" : "load", false);
    } else if (is_power_of_2(count)) {
        g_autoptr(GString) line = g_string_new(NULL);

        g_string_printf(line, "{\"event\":\"count\",\"pid\":%d,\"pc\":%" PRIu64 ",\"count\":%" PRIu64 "}\n",
                        getpid(), (uint64_t)pc, count);
        write_line(line);
    }
    return true;
}
