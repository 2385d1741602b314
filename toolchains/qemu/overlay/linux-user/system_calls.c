/*
 * Plumbline's change to user-mode QEMU that kills a program at a system call which a service manager's filter does not
 * allow. A filter of the host cannot do this, because the host sees the emulator's calls instead of the guest's.
 *
 * The emulator behaves like the kernel under SECCOMP_RET_KILL_PROCESS (seccomp(2)): the whole process dies of SIGSYS,
 * whichever thread made the call, and no handler runs. The fault log names the call. Forked children keep the filter.
 *
 * The file has a line for each call that the filter's author knew: its number in the guest's architecture, its name, and
 * `allow` or `kill`. A number without a line kills, too, and has no name.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu.h"
#include "user-internals.h"
#include "plumbline.h"

#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"

typedef struct {
    char *name;
    bool is_allowed;
} FilteredCall;

static GHashTable *filter;

/* Returns false for a line that does not belong to a filter. */
static bool add_call(const char *line)
{
    g_auto(GStrv) words = g_strsplit(line, " ", -1);
    int number;

    if (g_strv_length(words) != 3 || qemu_strtoi(words[0], NULL, 10, &number) || !*words[1]) {
        return false;
    }
    bool is_allowed = g_str_equal(words[2], "allow");
    if (!is_allowed && !g_str_equal(words[2], "kill")) {
        return false;
    }
    FilteredCall *call = g_new(FilteredCall, 1);

    call->name = g_strdup(words[1]);
    call->is_allowed = is_allowed;
    return g_hash_table_insert(filter, GINT_TO_POINTER(number), call);
}

void plumbline_set_system_calls(const char *path)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *text = NULL;

    if (!g_file_get_contents(path, &text, NULL, &error)) {
        error_report("-system-calls: %s", error->message);
        exit(EXIT_FAILURE);
    }
    g_auto(GStrv) rows = g_strsplit(g_strchomp(text), "\n", -1);

    filter = g_hash_table_new(g_direct_hash, g_direct_equal);
    for (int i = 0; rows[i]; i++) {
        if (!add_call(rows[i])) {
            error_report("-system-calls: line %d of '%s' is no new NUMBER NAME allow|kill", i + 1, path);
            exit(EXIT_FAILURE);
        }
    }
}

void plumbline_filter_call(CPUArchState *env, int number)
{
    if (!filter) {
        return;
    }
    const FilteredCall *call = g_hash_table_lookup(filter, GINT_TO_POINTER(number));

    if (call && call->is_allowed) {
        return;
    }
    plumbline_log_call(env, number, call ? call->name : "");
    plumbline_kill(env, TARGET_SIGSYS);
}
