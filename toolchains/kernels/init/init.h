/* Shared by the parts of the guest system (see init.c). SPDX-License-Identifier: Apache-2.0 */
#ifndef PLUMBLINE_INIT_H
#define PLUMBLINE_INIT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* channel.c: frames on the control channel. */

enum { LARGEST_PAYLOAD = 64 * 1024 };

struct request {
    unsigned id;
    char verb[16];
    size_t length;
    char *payload; /* `length` bytes and a NUL */
};

/*
 * Open the channel, and send `ready`. A place is a device, for which the function waits, or `tcp:PORT`, where it waits
 * for the host's connection. It names a device by a pattern, because the name of a virtio port depends on the order of
 * drivers.
 */
void open_channel(const char *place);
int channel_descriptor(void);
/* Read the bytes that have arrived. Returns false if the host is not connected. */
bool receive(void);
/* The next complete request, if there is one. It is valid until the next call. */
bool next_request(struct request *request);
void reply(unsigned id, const char *status, const void *payload, size_t length);
void reply_text(unsigned id, const char *status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void reply_error(unsigned id, const char *what);
/* The next NUL-terminated field of a payload, or NULL at its end. */
char *next_field(char **at, const char *end);

/* signals.c: converts this machine's signal numbers to those of x86 and ARM, and back; 0 if there is none. */
int host_signal(int number);
int guest_signal(int number);

/* trace.c: traces programs and reports their faults. */

/* Trace a stopped child and all of its descendants. */
bool trace(pid_t pid);
/* A traced thread has stopped: record a fault if that is the reason, and let the thread continue. */
void on_stop(pid_t tid, int status);
/* A signal has ended a process or thread that is not reaped yet: report this if it is a traced process. */
void report_death(pid_t tid, int signal);

/* A record under construction. If it is too long, it is cut, and the host sees that it is incomplete. */
void append(const char *format, ...) __attribute__((format(printf, 1, 2)));
void append_hex(const unsigned char *bytes, size_t count);
/* Append a comma, except before the first item of a list. */
void append_separator(void);

/* registers.c: the registers of a stopped thread, and their information about a fault. */

/*
 * The kernel's regset. A 32-bit program on a 64-bit kernel has the 32-bit regset, which its length shows.
 */
struct registers {
    union {
        uint32_t narrow[80];
        uint64_t wide[40];
        unsigned long longs[320 / sizeof(long)];
        unsigned char bytes[320];
    };
    size_t size;
    uint64_t pc, stack;
#if defined(__s390__)
    /* FPC and f0 to f15 (Linux arch/s390/include/uapi/asm/ptrace.h): a function may keep its caller's registers there. */
    struct {
        uint32_t control, unused;
        uint64_t registers[16];
    } floats;
#endif
};

bool read_registers(pid_t tid, const siginfo_t *signal, struct registers *registers);
/* In the order of QEMU's gdb stub. */
void append_registers(const struct registers *registers);
/* The field of a record for a misaligned access whose address siginfo lacks; `memory` is the thread's. */
void append_misaligned_address(const struct registers *registers, const siginfo_t *signal, int memory);
/* Performs an instruction that the real processor has and the emulator lacks: the signal for it is then not delivered. */
bool perform_instruction(pid_t tid, const siginfo_t *signal);

/* setup.c: mounts, limits and the network. It reports a step that fails, and continues with the next. */
void set_up(void);

/* programs.c: verbs, and `reap`, which handles the ends and stops of all processes. */
void start(const struct request *request);
void send_signal(const struct request *request);
void list_processes(const struct request *request);
void reap(void);

/* files.c: verbs. */
void read_file(const struct request *request);
void write_file(const struct request *request);

/* kernel_log.c: opened after /dev is mounted; a verb; and the kernel's messages about a fault since the last one. */
void open_kernel_log(void);
void send_kernel_log(const struct request *request);
void messages_about(pid_t tid, uint64_t pc, uint64_t address, void (*take)(const char *message));

/* init.c */
void complain(const char *what);

#endif
