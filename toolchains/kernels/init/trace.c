/*
 * Faults of traced programs. Threads run freely: the kernel stops one only when it is about to deliver a signal. For a
 * synchronous SIGBUS, SIGSEGV, SIGILL or SIGFPE, init then writes the same record as the emulator of the user tier
 * (harness/record/fault_log.py, Fault), so that both have the same readers.
 *
 * Init sends the record as one event frame before the kernel delivers the signal, so it is sent before the program ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init.h"

enum { STACK_LOGGED = 16 * 1024, INSTRUCTION_LOGGED = 16, LARGEST_RECORD = 256 * 1024 };

bool trace(pid_t pid)
{
    return ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE) == 0;
}

static char record[LARGEST_RECORD];
static size_t length;

void append(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int written = vsnprintf(record + length, sizeof record - length, format, arguments);
    va_end(arguments);
    length = (size_t)written < sizeof record - length ? length + (size_t)written : sizeof record - 1;
}

void append_hex(const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < count && length + 2 < sizeof record; i++) {
        record[length++] = digits[bytes[i] >> 4];
        record[length++] = digits[bytes[i] & 15];
    }
}

void append_separator(void)
{
    append("%s", record[length - 1] == '[' ? "" : ",");
}

static void append_escaped(const char *text)
{
    for (; *text; text++) {
        append(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
}

/* The mapped part of [address, address + count). */
static void append_memory(int memory, uint64_t address, size_t count)
{
    unsigned char bytes[256];

    while (count) {
        /* No piece crosses a page, so each is mapped either completely or not at all. */
        size_t piece = sizeof bytes - (address & (sizeof bytes - 1));
        piece = piece < count ? piece : count;
        if (pread(memory, bytes, piece, (off_t)address) != (ssize_t)piece) {
            break;
        }
        append_hex(bytes, piece);
        address += piece;
        count -= piece;
    }
}

/* File-backed mappings, in lines `START-END MODE OFFSET DEVICE INODE PATH` (proc(5)). */
static void append_maps(pid_t tid)
{
    char path[64], line[512];
    const char *separator = "";

    snprintf(path, sizeof path, "/proc/%d/maps", tid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        uint64_t start, end, offset;
        int at = 0;

        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %n", &start, &end, &offset, &at) != 3
            || line[at] != '/') {
            continue;
        }
        append("%s{\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"path\":\"", separator, start,
               end, offset);
        append_escaped(line + at);
        append("\"}");
        separator = ",";
    }
    if (maps) {
        fclose(maps);
    }
}

/* A number from /proc/TID/status: of `Tgid:` in base 10, of `SigCgt:` in base 16. */
static uint64_t status_number(pid_t tid, const char *key, int base)
{
    char path[64], line[256];
    uint64_t number = 0;

    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            number = strtoull(line + strlen(key), NULL, base);
        }
    }
    if (status) {
        fclose(status);
    }
    return number;
}

static bool is_fault(const siginfo_t *signal)
{
    bool synchronous = signal->si_signo == SIGBUS || signal->si_signo == SIGSEGV || signal->si_signo == SIGILL
                       || signal->si_signo == SIGFPE;

    return synchronous && signal->si_code > 0; /* otherwise, a process sent it */
}

static void append_message(const char *message)
{
    append_separator();
    append("\"");
    append_escaped(message);
    append("\"");
}

static void report_fault(pid_t tid, const siginfo_t *signal)
{
    struct registers registers;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/mem", tid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    if (memory < 0 || !read_registers(tid, signal, &registers)) {
        complain("a fault's registers or memory");
    } else {
        bool handled = status_number(tid, "SigCgt:", 16) >> (signal->si_signo - 1) & 1;

        length = 0;
        append("{\"event\":\"fault\",\"session\":%d,\"pid\":%d,\"tid\":%d,\"signal\":%d,\"code\":%d,\"address\":%" PRIu64
               ",\"access\":\"\",\"handled\":%s,\"pc\":%" PRIu64 ",\"instruction\":\"",
               (int)getsid(tid), (int)status_number(tid, "Tgid:", 10), tid, host_signal(signal->si_signo), signal->si_code,
               (uint64_t)(uintptr_t)signal->si_addr, handled ? "true" : "false", registers.pc);
        append_memory(memory, registers.pc, INSTRUCTION_LOGGED);
        append("\",\"registers\":[");
        append_registers(&registers);
        append("],\"stack_address\":%" PRIu64 ",\"stack\":\"", registers.stack);
        append_memory(memory, registers.stack, STACK_LOGGED);
        append("\",\"maps\":[");
        append_maps(tid);
        append("],\"kernel_log\":[");
        messages_about(tid, registers.pc, (uint64_t)(uintptr_t)signal->si_addr, append_message);
        append("]");
        append_misaligned_address(&registers, signal, memory);
        append("}\n");
        reply(0, "fault", record, length);
    }
    if (memory >= 0) {
        close(memory);
    }
}

void report_death(pid_t tid, int signal)
{
    bool is_process = status_number(tid, "Tgid:", 10) == (uint64_t)tid;

    if (is_process && status_number(tid, "TracerPid:", 10) != 0) {
        reply_text(0, "died", "%d %d %d", (int)getsid(tid), (int)tid, host_signal(signal));
    }
}

void on_stop(pid_t tid, int status)
{
    int number = WSTOPSIG(status), event = status >> 16;
    siginfo_t signal;

    if (event == PTRACE_EVENT_STOP && number != SIGTRAP) {
        /* A group stop: it lasts until a process sends SIGCONT. */
        ptrace(PTRACE_LISTEN, tid, 0, 0);
        return;
    }
    if (event == 0 && ptrace(PTRACE_GETSIGINFO, tid, 0, &signal) == 0 && is_fault(&signal)) {
        if (perform_instruction(tid, &signal)) {
            number = 0;
        } else {
            report_fault(tid, &signal);
        }
    }
    ptrace(PTRACE_CONT, tid, 0, (void *)(uintptr_t)(event ? 0 : number));
}
