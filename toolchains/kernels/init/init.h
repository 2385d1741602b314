/* What the parts of the guest system share. See init.c. SPDX-License-Identifier: Apache-2.0 */
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
    char *payload; /* `length` bytes, and a NUL after them */
};

/*
 * Open the channel, and say `ready`. A place is a device, after waiting for it, as a pattern, because a virtio port's
 * name tells in which order drivers came; or `tcp:PORT`, to wait for the host's connection there.
 */
void open_channel(const char *place);
int channel_descriptor(void);
/* Take in what has arrived; false when the host is not connected. */
bool receive(void);
/* The next whole request, if there is one; valid until the next call. */
bool next_request(struct request *request);
void reply(unsigned id, const char *status, const void *payload, size_t length);
void reply_text(unsigned id, const char *status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void reply_error(unsigned id, const char *what);
/* The next NUL-terminated field of a payload, or NULL at its end. */
char *next_field(char **at, const char *end);

/* signals.c: the number that x86 and ARM have for one of this machine's signals, and the way back; 0 if there is none. */
int host_signal(int number);
int guest_signal(int number);

/* trace.c: programs that run under the eye of init, and what it says of their faults. */

/* Follow a stopped child and whatever it forks. */
bool trace(pid_t pid);
/* A traced thread has stopped: record a fault, then let it go on. */
void on_stop(pid_t tid, int status);
/* A signal has ended a process or a thread, and nobody has waited for it yet: tell it of a traced process. */
void report_death(pid_t tid, int signal);

/* A record under construction: what does not fit is cut, and the host sees that it is not whole. */
void append(const char *format, ...) __attribute__((format(printf, 1, 2)));
void append_hex(const unsigned char *bytes, size_t count);
/* A comma, but for the first of a list. */
void append_separator(void);

/* registers.c: a stopped thread's registers, and what they tell of a fault. */

/*
 * As the kernel's regset has them. A 32-bit program on a 64-bit kernel has the 32-bit regset, which its length tells.
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
/* The field of a record, where siginfo lacks the address of a misaligned access; `memory` is the thread's. */
void append_misaligned_address(const struct registers *registers, const siginfo_t *signal, int memory);

/* setup.c: mounts, limits, network; what fails is complained of, and the rest is done. */
void set_up(void);

/* programs.c: verbs, and `reap` to take in the ends and stops of all processes. */
void start(const struct request *request);
void send_signal(const struct request *request);
void list_processes(const struct request *request);
void reap(void);

/* files.c: verbs. */
void read_file(const struct request *request);
void write_file(const struct request *request);

/* kernel_log.c: opened once /dev is there; a verb; and what the kernel has written of a fault since the last one. */
void open_kernel_log(void);
void send_kernel_log(const struct request *request);
void messages_about(pid_t tid, uint64_t pc, uint64_t address, void (*take)(const char *message));

/* init.c */
void complain(const char *what);

#endif
