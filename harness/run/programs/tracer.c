/*
 * Runs a host command. Every target program that the command or its descendants execute runs under the emulator.
 *
 *   tracer PLACE HOME STARTER EMULATOR HEADERS FILE PROGRAM [ARGUMENT …]
 *
 * FILE is the executed file, and PROGRAM the name that it receives.
 *
 * A filter stops execve(2) and execveat(2) of all processes, and almost nothing else, so that other system calls cost
 * nothing. It also stops calls that could hide a process: clone(2) with CLONE_UNTRACED, which the tracer clears, and
 * a filter of the command that lets another process decide on system calls.
 * The header of the file shows whether it is a program of the target: HEADERS has the class, byte order and machine of
 * such programs, `1,1,40` (ELF, e_ident and e_machine), separated by spaces. A script counts like its interpreter.
 * The tracer then replaces the path of the call with PLACE/N, a link to STARTER, which becomes the emulator. PLACE is
 * short: its name is written below the caller's stack pointer, in memory that is not in use.
 *
 * A program of this machine does not see a library of the target in LD_PRELOAD before it begins: its dynamic loader would
 * print that it cannot load it.
 *
 * Another emulator of the target that the command itself calls would run programs unwatched. The tracer recognises it by
 * the name of EMULATOR.
 *
 * HOME/guest-N/       a ledger for the emulator's fault log
 * HOME/guest-N/refused  the kernel refused the execution, as it would have refused the program: the error's number
 * HOME/guest-N/ends   a line for each end of a process that was guest N: `PID exited STATUS N MS NUMBER CALLER`, `PID
 *                     killed SIGNAL N MS NUMBER CALLER`, where N counts the ends of all guests, MS is the time in ms
 *                     since 1970, NUMBER counts the processes, and CALLER is the number of what made this one, or 0;
 *                     and `PID replaced` if it executed something else
 * HOME/guest-N/log    the last bytes that guest N wrote to its standard output and error, once a process of it failed
 * HOME/guest-N/input  what it has read of its standard input, if that is a pipe, a socket or a terminal; replaced by
 *                     input-lost once it is too long
 * HOME/strangers      a line for each program of another machine that ran: `MACHINE PATH`
 * HOME/refused        the same for each that this machine could not run
 * HOME/natives        the names of this machine's programs that ran, each once, a line each
 * HOME/natives-here   the paths of those below the command's working folder
 * HOME/trouble        a line for everything that could not be traced
 * HOME/guest-N/left   a line for each process of guest N that still ran when the tracer ended it: `PID`
 * HOME/left           the number of processes that the command left running, which the tracer ended
 * HOME/callers        the processes above those of guests that failed, whatever they execute. Words, each ended by a NUL
 *                     byte: number, number of the process that made it or 0, working folder, number of arguments, and
 *                     these, as they were when the guest failed. A process that had ended before has no folder and none
 * HOME/caller-ends    how these processes ended: `NUMBER exited STATUS MS LAST STATUS`, `NUMBER killed SIGNAL MS LAST
 *                     STATUS`, where LAST is the number of the last process to end that it made, and its status as
 *                     shells count it: 128 more than a signal; 0 and 0 without one
 * PLACE/environment   the variables with which the command began
 * PLACE/N.words       the words that the starter puts before the arguments, see there
 * PLACE/status        how the command ended, and the number of guests: `exited STATUS N` or `killed SIGNAL N`
 */
#define _GNU_SOURCE
#include "system_calls.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_HEADERS 8
#define LEDGER_BYTES 16
#define SCRIPT_BYTES 256 /* that the kernel reads of a script's first line (BINPRM_BUF_SIZE) */
#define MOST_INTERPRETERS 5 /* Linux' exec_binprm() begins a sixth program, but no seventh */
#define SCRATCH_BYTES 96 /* for PLACE/N */
#define BELOW_STACK 512  /* beyond the red zone of the x86-64 ABI, 128 bytes, with room to spare */
#define LINGER_SECONDS 5 /* for processes in the background to end when the command has ended */
#define GRACE_SECONDS 2  /* to end after SIGTERM */
#define OWN_FAILURE 125
#define LAST_BYTES 4096  /* of what a program writes */
#define MOST_INPUT (1 << 20)
#define MOST_NATIVES 64
#define MOST_CALLER_WORDS (1 << 14) /* bytes of the arguments of a process above a guest */
#define SEEN_BYTES (PATH_MAX + 64) /* a path below /proc/PID */

typedef struct {
    unsigned class, order, machine;
} Header;

/* A process of the command. It is kept until it has ended, and all that it made. */
typedef struct Process {
    struct Process *caller; /* what made it; NULL for the command, and if it is unknown */
    long number;
    size_t users; /* its threads, and the processes that it made */
    pid_t pid;
    int is_noted, has_ended, status;
    long long ended_ms;
    long last; /* the number of the last process to end that it made, which ended so: */
    int last_status;
} Process;

/* A thread that is traced. */
typedef struct {
    pid_t tid, pid;
    Process *process;
    long guest, pending; /* `pending`: the guest that it will become, while the kernel executes the starter */
    char *path;          /* of that execution */
    const char *unread; /* why it is unknown what it executes; NULL if that is known */
    int stranger;       /* the machine of the program that it executes, if that is neither the target nor this one; else 0 */
    int is_starting;    /* the starter runs, and is about to become the emulator */
    int is_restored;    /* its registers must be restored at the end of the system call */
    uint64_t reads_into; /* its memory that a call fills with standard input; 0 outside of such a call */
    uint64_t entry;      /* where its program begins, and a breakpoint is; 0 without one */
    uint64_t hidden;     /* the variable that its loader must not see */
    unsigned char under[sizeof breakpoint]; /* what was at the breakpoint */
    struct user_regs_struct before;
} Thread;

/* What the processes of a guest have written to their standard output and error. */
typedef struct Output {
    struct Output *next;
    long guest;
    size_t length; /* of everything; `last` is a ring */
    char last[LAST_BYTES];
} Output;

static const char *place, *home, *starter, *emulator;
static char folder[PATH_MAX]; /* the command's; empty if it is unknown */
static Header wanted[MOST_HEADERS], own;
static size_t wanted_count;
static Thread *threads;
static size_t thread_count, thread_room;
static long last_number, last_end, last_process;
static Output *outputs;
static volatile sig_atomic_t alarms;

static void fail(const char *what, const char *subject)
{
    fprintf(stderr, "plumbline tracer: %s %s: %s\n", what, subject, strerror(errno));
    exit(OWN_FAILURE);
}

/* Add a line to a file below a folder. */
static void note(const char *folder, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void note(const char *folder, const char *name, const char *format, ...)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "ae");
    va_list values;
    va_start(values, format);
    if (!file || vfprintf(file, format, values) < 0 || fclose(file) != 0)
        fail("cannot write", path);
    va_end(values);
}

static void note_of_guest(long guest, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void note_of_guest(long guest, const char *name, const char *format, ...)
{
    char folder[PATH_MAX], line[128];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    snprintf(folder, sizeof folder, "%s/guest-%ld", home, guest);
    note(folder, name, "%s", line);
}

static Thread *thread_of(pid_t tid)
{
    for (size_t i = 0; i < thread_count; i++)
        if (threads[i].tid == tid)
            return &threads[i];
    return NULL;
}

static Process *new_process(pid_t pid, Process *caller)
{
    Process *process = malloc(sizeof *process);
    if (!process)
        fail("no memory for", "processes");
    *process = (Process){.caller = caller, .number = ++last_process, .users = 1, .pid = pid};
    if (caller)
        caller->users++;
    return process;
}

static void release(Process *process)
{
    while (process && !--process->users) {
        Process *caller = process->caller;
        free(process);
        process = caller;
    }
}

/* Whether a thread is traced by this process. Its parent may still wait for one whose end was seen here. */
static int is_traced(pid_t tid)
{
    char path[64], line[128];
    pid_t tracer = 0;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "TracerPid: %d", &tracer) != 1)
        ;
    if (file)
        fclose(file);
    return tracer == getpid();
}

/* The thread, which may be new: it belongs to the guest of its process or, in a new process, of its parent. */
static Thread *add_thread(pid_t tid)
{
    char path[64], line[128];
    pid_t pid = tid, parent = 0;
    Thread *known = thread_of(tid);
    if (known)
        return known;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "PPid: %d", &parent) != 1)
        sscanf(line, "Tgid: %d", &pid);
    if (file)
        fclose(file);
    const Thread *above = thread_of(pid != tid ? pid : parent);
    long guest = above ? above->guest : 0;
    Process *process = above ? above->process : NULL;
    if (process && pid != tid)
        process->users++;
    else
        process = new_process(pid, process);
    /* `above` does not hold beyond this point. */
    if (thread_count == thread_room) {
        thread_room = thread_room ? 2 * thread_room : 64;
        if (!(threads = realloc(threads, thread_room * sizeof *threads)))
            fail("no memory for", "threads");
    }
    threads[thread_count] = (Thread){.tid = tid, .pid = pid, .process = process, .guest = guest};
    return &threads[thread_count++];
}

static void forget(Thread *thread)
{
    free(thread->path);
    release(thread->process);
    *thread = threads[--thread_count];
}

/* ---- Memory and registers of a thread that is stopped ---- */

/* A string of the thread, up to PATH_MAX; NULL if it cannot be read. */
static char *string_of(pid_t tid, uint64_t address, char *text)
{
    char path[64];
    size_t length = 0;
    snprintf(path, sizeof path, "/proc/%d/mem", tid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    while (memory >= 0 && length < PATH_MAX) {
        /* Only up to the next page: the page after it may not be mapped. */
        size_t most = 4096 - (address + length) % 4096;
        if (most > PATH_MAX - length)
            most = PATH_MAX - length;
        ssize_t some = pread(memory, text + length, most, (off_t)(address + length));
        if (some <= 0)
            break;
        if (memchr(text + length, 0, (size_t)some)) {
            close(memory);
            return text;
        }
        length += (size_t)some;
    }
    if (memory >= 0)
        close(memory);
    return NULL;
}

/* Read or write memory of the thread, even memory that is not writable. */
static int move_memory(pid_t tid, uint64_t address, void *bytes, size_t length, int is_written)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", tid);
    int memory = open(path, O_RDWR | O_CLOEXEC);
    if (memory < 0)
        return 0;
    off_t at = (off_t)address;
    ssize_t moved = is_written ? pwrite(memory, bytes, length, at) : pread(memory, bytes, length, at);
    close(memory);
    return moved == (ssize_t)length;
}

/* ---- What a file is ---- */

/* The class, byte order and machine of an ELF header; 0 if it is none. */
static int header_in(const unsigned char *start, ssize_t length, Header *found)
{
    if (length < 20 || memcmp(start, ELFMAG, SELFMAG) != 0)
        return 0;
    int is_big = start[EI_DATA] == ELFDATA2MSB;
    *found = (Header){start[EI_CLASS], start[EI_DATA], (unsigned)(start[18 + !is_big] << 8 | start[18 + is_big])};
    return 1;
}

static int is_wanted(const Header *one)
{
    for (size_t i = 0; i < wanted_count; i++)
        if (one->class == wanted[i].class && one->order == wanted[i].order && one->machine == wanted[i].machine)
            return 1;
    return 0;
}

static int is_of_this_machine(const Header *one)
{
    return one->order == own.order && (one->machine == own.machine || one->machine == EM_386);
}

/* The path under which this process reaches a file that the thread names. */
static void seen_from_here(pid_t tid, const char *path, char *seen)
{
    snprintf(seen, SEEN_BYTES, path[0] == '/' ? "/proc/%d/root%s" : "/proc/%d/cwd/%s", tid, path);
}

#define OF_TARGET (-1)
#define UNREADABLE (-2)

/* The kind of a file at the path `seen`: of the target, of another machine, or neither. `words` receives the interpreters
 * of a script and their arguments, each ended by a NUL byte. Returns the machine's number for another machine, 0 for
 * others, OF_TARGET, or UNREADABLE if only the kernel can read the file. */
static int kind_of(pid_t tid, const char *seen, char *words, size_t *used, int depth)
{
    unsigned char start[SCRIPT_BYTES + 1] = {0};
    struct stat status;
    Header header;
    /* The kernel refuses files that cannot be executed, with the reason. */
    if (stat(seen, &status) < 0 || !S_ISREG(status.st_mode) || !(status.st_mode & 0111))
        return 0;
    int file = open(seen, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return UNREADABLE;
    ssize_t length = read(file, start, SCRIPT_BYTES);
    close(file);
    if (header_in(start, length, &header))
        return is_wanted(&header) ? OF_TARGET : is_of_this_machine(&header) ? 0 : (int)header.machine;
    if (length < 3 || start[0] != '#' || start[1] != '!' || depth == MOST_INTERPRETERS)
        return 0;
    /* The interpreter's path and, as one word, the rest of the line (execve(2)). */
    char *line = (char *)start + 2;
    line[strcspn(line, "\n")] = 0;
    line += strspn(line, " \t");
    char *argument = line + strcspn(line, " \t");
    if (*argument)
        *argument++ = 0;
    argument += strspn(argument, " \t");
    size_t end = strlen(argument);
    while (end && (argument[end - 1] == ' ' || argument[end - 1] == '\t'))
        argument[--end] = 0;
    char inner[PATH_MAX], interpreter[SEEN_BYTES];
    size_t inner_used = 0;
    seen_from_here(tid, line, interpreter);
    int kind = *line ? kind_of(tid, interpreter, inner, &inner_used, depth + 1) : 0;
    /* The interpreter of an interpreter comes first. */
    memcpy(words, inner, inner_used);
    *used = inner_used;
    *used += (size_t)sprintf(words + *used, "%s", line) + 1;
    if (*argument)
        *used += (size_t)sprintf(words + *used, "%s", argument) + 1;
    return kind;
}

/* The rest of a path after the folder of /proc for the process itself; NULL for another path. */
static const char *own_entry(const char *path)
{
    static const char *const own_folders[] = {"/proc/self/", "/proc/thread-self/"};
    for (size_t i = 0; i < 2; i++)
        if (!strncmp(path, own_folders[i], strlen(own_folders[i])))
            return path + strlen(own_folders[i]);
    return !strncmp(path, "/dev/fd/", 8) ? path + 5 : NULL;
}

/* Whether an entry links to an open file, which may have no path: `exe`, `fd/3`. */
static int is_open_file(const char *entry)
{
    return !strcmp(entry, "exe") || (!strncmp(entry, "fd/", 3) && !strchr(entry + 3, '/'));
}

/* The path of the file that a call names, and the path under which this process reaches the same file. If the call names
 * an open file, `path` is the one that the kernel shows. */
static int path_of(const Thread *thread, const Call *call, char *path, char *seen)
{
    char given[PATH_MAX], entry[PATH_MAX + 32];
    if (!string_of(thread->tid, call->path, given))
        return 0;
    const char *own = own_entry(given);
    if (call->is_at && given[0] != '/' && (int)call->folder != AT_FDCWD)
        snprintf(entry, sizeof entry, given[0] ? "fd/%d/%s" : "fd/%d", (int)call->folder, given);
    else if (own)
        snprintf(entry, sizeof entry, "%s", own);
    else {
        strcpy(path, given);
        seen_from_here(thread->tid, path, seen);
        return 1;
    }
    snprintf(seen, SEEN_BYTES, "/proc/%d/%s", thread->tid, entry);
    if (is_open_file(entry)) {
        ssize_t length = readlink(seen, path, PATH_MAX - 1);
        if (length > 0)
            path[length] = 0;
        return length > 0;
    }
    /* The number of the process remains, unlike that of a thread. */
    return snprintf(path, PATH_MAX, "/proc/%d/%s", thread->pid, entry) < PATH_MAX;
}

/* Whether a path of the thread leads to the file at the path `seen`: a removed file has no path. */
static int leads_to(pid_t tid, const char *path, const char *seen)
{
    struct stat named, file;
    char named_from_here[SEEN_BYTES];
    seen_from_here(tid, path, named_from_here);
    return stat(named_from_here, &named) == 0 && stat(seen, &file) == 0 && named.st_dev == file.st_dev &&
           named.st_ino == file.st_ino;
}

/* Whether a program has the name that distributions give to the target's emulator. */
static int is_emulator(const char *path)
{
    const char *name = strrchr(path, '/'), *ours = strrchr(emulator, '/');
    name = name ? name + 1 : path;
    ours = ours ? ours + 1 : emulator;
    size_t length = strlen(ours);
    return !strncmp(name, ours, length) && (!name[length] || !strcmp(name + length, "-static"));
}

/* ---- The calls ---- */

static void write_file(const char *path, const char *content, size_t length)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0 || write(file, content, length) != (ssize_t)length || close(file) < 0)
        fail("cannot write", path);
}

/* Make the next guest's folder, with a ledger for its fault log, and everything that the starter reads. */
static long make_guest(const char *path, const char *words, size_t used)
{
    char name[PATH_MAX], content[2 * PATH_MAX];
    long number = ++last_number;
    static const char zeros[LEDGER_BYTES];
    snprintf(name, sizeof name, "%s/guest-%ld", home, number);
    if (mkdir(name, 0700) < 0)
        fail("cannot make", name);
    snprintf(name, sizeof name, "%s/guest-%ld/faults.jsonl.counts", home, number);
    write_file(name, zeros, sizeof zeros);
    memcpy(content, words, used);
    used += (size_t)sprintf(content + used, "%s", path) + 1;
    snprintf(name, sizeof name, "%s/%ld.words", place, number);
    write_file(name, content, used);
    snprintf(name, sizeof name, "%s/%ld", place, number);
    if (symlink(starter, name) < 0)
        fail("cannot make", name);
    return number;
}

/* Whether an entry of /proc is the same file for a thread as for the tracer. */
static int shares(pid_t tid, const char *entry)
{
    char path[64], own_path[64];
    struct stat its, ours;
    snprintf(path, sizeof path, "/proc/%d/%s", tid, entry);
    snprintf(own_path, sizeof own_path, "/proc/self/%s", entry);
    if (stat(own_path, &ours) < 0)
        return 1; /* a kernel without namespaces */
    return stat(path, &its) == 0 && its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
}

/* Why no emulator can replace a program of the target that the thread executes; NULL if one can. */
static const char *hindrance(pid_t tid, const char *path, const char *seen)
{
    if (!shares(tid, "root/"))
        return "by a process that has another root folder";
    /* The first process of the namespace would not die of a signal that the emulator sends itself. */
    if (!shares(tid, "ns/pid_for_children"))
        return "by a process that has a PID namespace of its own";
    return leads_to(tid, path, seen) ? NULL : "an open file that no path leads to";
}

/* Make the kernel execute the starter instead of a program of the target. */
static void begin_guest(Thread *thread, const Call *call, const char *path, const char *words, size_t used)
{
    char target[SCRATCH_BYTES];
    struct user_regs_struct now;
    if (!read_registers(thread->tid, &now))
        return; /* it was killed meanwhile */
    long number = make_guest(path, words, used);
    size_t length = (size_t)snprintf(target, sizeof target, "%s/%ld", place, number) + 1;
    uint64_t scratch = (call->stack - BELOW_STACK - SCRATCH_BYTES) & ~(uint64_t)15;
    thread->before = now;
    if (!move_memory(thread->tid, scratch, target, length, 1) || !replace_call(thread->tid, &now, call, scratch)) {
        note(home, "trouble", "%s: its call could not be replaced: %s\n", path, strerror(errno));
        return;
    }
    thread->pending = number;
    free(thread->path);
    thread->path = strdup(path);
    thread->is_restored = 1;
}

/* A thread is about to execute a file. */
static void at_execution(Thread *thread, const Call *call)
{
    char path[PATH_MAX], seen[SEEN_BYTES], words[PATH_MAX];
    size_t used = 0;
    thread->pending = 0;
    thread->stranger = 0;
    if (!call->interface->is_followed) {
        note(home, "trouble", "process %d has 32 bits, and what it executes is not followed\n", thread->pid);
        return;
    }
    if (!path_of(thread, call, path, seen)) {
        thread->unread = "which lets nobody read its memory";
        return;
    }
    int kind = kind_of(thread->tid, seen, words, &used, 0);
    if (kind == UNREADABLE)
        thread->unread = "a file that you may execute and not read";
    if (kind > 0) {
        thread->stranger = kind;
        free(thread->path);
        thread->path = strdup(path);
    }
    if (kind != OF_TARGET)
        return;
    const char *why = hindrance(thread->tid, path, seen);
    if (why)
        note(home, "trouble", "%s, %s\n", path, why);
    else
        begin_guest(thread, call, path, words, used);
}

/* A thread is about to make a child, which is not traced if CLONE_UNTRACED is set. Clear it. In memory it stays clear:
 * the thread's next child must be traced, too. */
static void at_clone(Thread *thread, const struct __ptrace_syscall_info *info, const Interface *interface)
{
    struct user_regs_struct now;
    uint64_t flags = info->seccomp.args[0], address = flags;
    int is_clear, is_in_memory = info->seccomp.nr == interface->clone3;
    if (is_in_memory) {
        /* The first field of struct clone_args. If it cannot be read, the kernel refuses the call as well. */
        if (!move_memory(thread->tid, address, &flags, sizeof flags, 0) || !(flags & CLONE_UNTRACED))
            return;
        flags &= ~(uint64_t)CLONE_UNTRACED;
        is_clear = move_memory(thread->tid, address, &flags, sizeof flags, 1);
    } else {
        if (!read_registers(thread->tid, &now))
            return; /* it was killed meanwhile */
        thread->before = now;
        set_first_argument(&now, interface, flags & ~(uint64_t)CLONE_UNTRACED);
        is_clear = thread->is_restored = write_registers(thread->tid, &now);
    }
    if (!is_clear)
        note(home, "trouble", "a child of process %d, which has it not traced (CLONE_UNTRACED)\n", thread->pid);
}

/* ---- What programs write and read ---- */

static Output *output_of(long guest)
{
    Output *one = outputs;
    while (one && one->guest != guest)
        one = one->next;
    if (!one) {
        if (!(one = calloc(1, sizeof *one)))
            fail("no memory for", "output");
        one->guest = guest;
        one->next = outputs;
        outputs = one;
    }
    return one;
}

/* Copy memory of the thread. Returns how much of it could be read. */
static size_t copy_memory(pid_t tid, uint64_t address, void *bytes, size_t length)
{
    struct iovec here = {bytes, length}, there = {(void *)(uintptr_t)address, length};
    ssize_t some = process_vm_readv(tid, &here, 1, &there, 1, 0);
    return some > 0 ? (size_t)some : 0;
}

static void keep_output(const Thread *thread, uint64_t address, uint64_t length)
{
    char bytes[LAST_BYTES];
    size_t skipped = length > LAST_BYTES ? (size_t)length - LAST_BYTES : 0;
    size_t some = copy_memory(thread->tid, address + skipped, bytes, (size_t)length - skipped);
    Output *output = output_of(thread->guest);
    output->length += skipped;
    for (size_t i = 0; i < some; i++)
        output->last[output->length++ % LAST_BYTES] = bytes[i];
}

/* A program is about to write. It may write less, or the same again after a signal. */
static void at_write(const Thread *thread, const struct __ptrace_syscall_info *info)
{
    struct iovec parts[IOV_MAX];
    if (info->seccomp.nr == SYS_write) {
        keep_output(thread, info->seccomp.args[1], info->seccomp.args[2]);
        return;
    }
    size_t count = info->seccomp.args[2] < IOV_MAX ? (size_t)info->seccomp.args[2] : IOV_MAX;
    count = copy_memory(thread->tid, info->seccomp.args[1], parts, count * sizeof *parts) / sizeof *parts;
    for (size_t i = 0; i < count; i++)
        keep_output(thread, (uint64_t)(uintptr_t)parts[i].iov_base, parts[i].iov_len);
}

/* Write what a guest said to a file, if one of its processes failed, and forget it with the last of them. */
static void end_output(long guest, int has_failed)
{
    char path[PATH_MAX];
    Output **link = &outputs;
    size_t processes = 0;
    while (*link && (*link)->guest != guest)
        link = &(*link)->next;
    Output *one = *link;
    if (!one)
        return;
    if (has_failed) {
        size_t begin = one->length > LAST_BYTES ? one->length % LAST_BYTES : 0;
        size_t kept = one->length > LAST_BYTES ? LAST_BYTES : one->length;
        snprintf(path, sizeof path, "%s/guest-%ld/log", home, guest);
        FILE *file = fopen(path, "we");
        /* The command may have removed the folder, which is then reported. */
        if (file) {
            fwrite(one->last + begin, 1, kept - begin, file);
            fwrite(one->last, 1, begin, file);
            fclose(file);
        }
    }
    for (size_t i = 0; i < thread_count; i++)
        processes += threads[i].guest == guest && threads[i].tid == threads[i].pid;
    if (processes > 1)
        return;
    *link = one->next;
    free(one);
}

/* Note that the standard input of a guest is not known. */
static void lose_input(long guest, const char *path)
{
    char lost[PATH_MAX];
    unlink(path);
    snprintf(lost, sizeof lost, "%s/guest-%ld/input-lost", home, guest);
    int file = open(lost, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0)
        close(file);
}

/* A program has read its standard input. */
static void keep_read(const Thread *thread, size_t length)
{
    char link[64], path[PATH_MAX];
    struct stat status;
    static char bytes[MOST_INPUT];
    snprintf(link, sizeof link, "/proc/%d/fd/0", thread->tid);
    /* The program may have opened a file as its standard input. */
    if (stat(link, &status) < 0 || S_ISREG(status.st_mode))
        return;
    snprintf(path, sizeof path, "%s/guest-%ld/input", home, thread->guest);
    /* It was too long before. */
    if (stat(path, &status) < 0)
        return;
    if ((size_t)status.st_size + length > MOST_INPUT) {
        lose_input(thread->guest, path);
        return;
    }
    size_t some = copy_memory(thread->tid, thread->reads_into, bytes, length);
    FILE *file = fopen(path, "ae");
    if (some != length || !file || fwrite(bytes, 1, length, file) != length || fclose(file) != 0)
        lose_input(thread->guest, path);
}

/* The filter has stopped a call. Returns whether the thread must stop again at its end. */
static int at_call(Thread *thread)
{
    struct __ptrace_syscall_info info;
    thread->unread = NULL;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->tid, sizeof info, &info) <= 0)
        return 0; /* it was killed meanwhile */
    if (info.arch == interfaces[0].arch && thread->guest) {
        if (info.seccomp.nr == SYS_write || info.seccomp.nr == SYS_writev)
            at_write(thread, &info);
        thread->reads_into = info.seccomp.nr == SYS_read ? info.seccomp.args[1] : 0;
        if (thread->reads_into)
            return 1;
    }
    const Interface *interface = interface_of(&info);
    if (!interface)
        return 0; /* a filter of the command stopped it */
    if (info.seccomp.nr == interface->clone || info.seccomp.nr == interface->clone3)
        at_clone(thread, &info, interface);
    else if (info.seccomp.nr == interface->seccomp)
        note(home, "trouble", "what process %d executes: it lets another one decide on system calls (seccomp(2))\n",
             thread->pid);
    else {
        Call call = call_of(&info, interface);
        at_execution(thread, &call);
    }
    return thread->is_restored || thread->unread || thread->stranger;
}

/* Whether the kernel makes a call again after a signal, which an internal error shows (include/linux/errno.h). */
static int is_repeated(int error)
{
    return error >= 512 && error <= 516;
}

/* The execution that replaces a program has failed. */
static void give_up(Thread *thread, int error)
{
    if (!thread->pending)
        return;
    note_of_guest(thread->pending, "refused", "%d\n", error);
    /* Errors about the arguments and the host's memory would have stopped the program as well. */
    if (error != E2BIG && error != ENOMEM && error != EAGAIN && !is_repeated(error))
        note(home, "trouble", "%s: the kernel refused its emulator: %s\n", thread->path, strerror(error));
    thread->pending = 0;
}

/* A stopped call has ended. */
static void at_call_end(Thread *thread)
{
    struct user_regs_struct now;
    if (!read_registers(thread->tid, &now))
        return; /* it was killed meanwhile */
    int64_t returned = returned_by(&now);
    int error = returned < 0 ? (int)-returned : 0;
    if (thread->reads_into && returned > 0)
        keep_read(thread, (size_t)returned);
    thread->reads_into = 0;
    if (thread->is_restored)
        put_back(thread->tid, &now, &thread->before, is_repeated(error));
    if (error)
        give_up(thread, error);
    if (thread->stranger && error == ENOEXEC)
        note(home, "refused", "%d %s\n", thread->stranger, thread->path);
    thread->stranger = 0;
    /* It may be a program of another machine, or no program at all. */
    if (thread->unread && error == ENOEXEC)
        note(home, "trouble", "what process %d executed, %s\n", thread->pid, thread->unread);
    thread->is_restored = 0;
    thread->unread = NULL;
}

typedef struct {
    char *known[MOST_NATIVES];
    size_t count;
} Natives;

/* Note a line in a file, once. */
static void note_once(Natives *noted, const char *file, const char *line)
{
    for (size_t i = 0; i < noted->count; i++)
        if (!strcmp(noted->known[i], line))
            return;
    if (noted->count == MOST_NATIVES || !(noted->known[noted->count] = strdup(line)))
        return;
    noted->count++;
    note(home, file, "%s\n", line);
}

/* Note a program of this machine. */
static void note_native(const char *path)
{
    static Natives all, here;
    size_t length = strlen(folder);
    note_once(&all, "natives", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    /* Every program is below the root folder. */
    if (length > 1 && !strncmp(path, folder, length) && path[length] == '/')
        note_once(&here, "natives-here", path);
}

/* ---- Libraries of the target that programs of this machine would preload ---- */

#define MOST_VARIABLES (1 << 21)
#define ENTRIES_BEFORE_ENVIRONMENT 47 /* of /proc/PID/stat, after the state (proc(5)) */
#define PRELOAD "LD_PRELOAD="

/* Read a file of a thread in /proc. Returns how much was read. */
static size_t entry_of(pid_t tid, const char *name, char *content, size_t room)
{
    char path[64];
    size_t length = 0;
    ssize_t some;
    snprintf(path, sizeof path, "/proc/%d/%s", tid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0 && length < room && (some = read(file, content + length, room - length)) > 0)
        length += (size_t)some;
    if (file >= 0)
        close(file);
    return length;
}

/* Whether a list of libraries names some of the target, and no others. */
static int is_of_target(pid_t tid, char *libraries)
{
    char seen[SEEN_BYTES], *rest = NULL;
    unsigned char start[20];
    Header header;
    int found = 0;
    for (char *one = strtok_r(libraries, ": ", &rest); one; one = strtok_r(NULL, ": ", &rest)) {
        seen_from_here(tid, one, seen);
        int file = strlen(one) < PATH_MAX && strchr(one, '/') ? open(seen, O_RDONLY | O_CLOEXEC) : -1;
        ssize_t length = file < 0 ? 0 : read(file, start, sizeof start);
        if (file >= 0)
            close(file);
        if (!header_in(start, length, &header) || !is_wanted(&header))
            return 0;
        found = 1;
    }
    return found;
}

/* Where the variable LD_PRELOAD is in a thread's memory, if it names only libraries of the target; else 0. */
static uint64_t preload_of(pid_t tid)
{
    static char variables[MOST_VARIABLES + 1];
    char fields[4096];
    size_t length = entry_of(tid, "environ", variables, MOST_VARIABLES);
    variables[length] = 0;
    for (char *one = variables; one < variables + length; one += strlen(one) + 1) {
        if (strncmp(one, PRELOAD, strlen(PRELOAD)) != 0)
            continue;
        size_t offset = (size_t)(one - variables);
        if (!is_of_target(tid, one + strlen(PRELOAD)))
            return 0;
        fields[entry_of(tid, "stat", fields, sizeof fields - 1)] = 0;
        char *number = strrchr(fields, ')');
        number = number ? number + 2 : fields;
        for (int i = 0; i < ENTRIES_BEFORE_ENVIRONMENT && *number; i++)
            number += strcspn(number, " ") + 1;
        uint64_t start = strtoull(number, NULL, 10);
        return start ? start + offset : 0;
    }
    return 0;
}

/* Where the program of a thread begins, after its loader; 0 if that is unknown. */
static uint64_t entry_point(pid_t tid)
{
    struct {
        uint64_t type, value;
    } values[64];
    size_t count = entry_of(tid, "auxv", (char *)values, sizeof values) / sizeof *values;
    for (size_t i = 0; i < count; i++)
        if (values[i].type == AT_ENTRY)
            return values[i].value;
    return 0;
}

/* Hide a preloaded library of the target from the loader of a program of this machine, until the program begins. */
static void hide_preload(Thread *thread)
{
    unsigned char start[20];
    Header header;
    char hidden = PRELOAD[0] ^ ' ';
    if (!header_in(start, (ssize_t)entry_of(thread->tid, "exe", (char *)start, sizeof start), &header) ||
        header.class != own.class)
        return;
    uint64_t variable = preload_of(thread->tid), entry = variable ? entry_point(thread->tid) : 0;
    if (!entry || !move_memory(thread->tid, entry, thread->under, sizeof breakpoint, 0))
        return;
    /* Without the breakpoint nothing would restore the variable. */
    if (move_memory(thread->tid, entry, (void *)breakpoint, sizeof breakpoint, 1)) {
        move_memory(thread->tid, variable, &hidden, 1, 1);
        thread->entry = entry;
        thread->hidden = variable;
    }
}

/* Whether a thread has stopped because its program begins. It then has its variable again. */
static int begins(Thread *thread)
{
    struct user_regs_struct now;
    char first = PRELOAD[0];
    if (!thread->entry || !read_registers(thread->tid, &now) || !leave_breakpoint(&now, thread->entry))
        return 0;
    move_memory(thread->tid, thread->hidden, &first, 1, 1);
    move_memory(thread->tid, thread->entry, thread->under, sizeof breakpoint, 1);
    write_registers(thread->tid, &now);
    thread->entry = 0;
    return 1;
}

/* A process may have become another emulator of the target, by itself or through the kernel's binfmt_misc. */
static void look_for_emulator(const Thread *thread)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/%d/exe", thread->tid);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    note_native(path);
    if (is_emulator(path))
        note(home, "trouble", "%s, which the command runs programs under by itself\n", path);
}

/* A process has executed a file. */
static void at_executed(Thread *thread)
{
    unsigned long former = 0;
    ptrace(PTRACE_GETEVENTMSG, thread->tid, 0, &former);
    Thread *caller = (pid_t)former != thread->tid ? thread_of((pid_t)former) : NULL;
    if (caller) {
        /* A thread other than the first executed it, and now has the number of the process. */
        pid_t tid = thread->tid;
        thread->pending = caller->pending;
        thread->stranger = caller->stranger;
        if (thread->stranger) {
            free(thread->path);
            thread->path = caller->path ? strdup(caller->path) : NULL;
        }
        forget(caller);
        thread = thread_of(tid);
    }
    thread->is_restored = 0;
    thread->unread = NULL;
    thread->entry = 0;
    if (thread->stranger)
        note(home, "strangers", "%d %s\n", thread->stranger, thread->path);
    thread->stranger = 0;
    if (thread->is_starting && !thread->pending) {
        thread->is_starting = 0;
        return;
    }
    if (!thread->pending) {
        look_for_emulator(thread);
        hide_preload(thread);
    }
    if (thread->guest)
        note_of_guest(thread->guest, "ends", "%d replaced\n", thread->pid);
    thread->guest = thread->pending;
    thread->is_starting = thread->pending != 0;
    thread->pending = 0;
}

/* ---- How programs and what ran them ended ---- */

static const char *how_of(int status)
{
    return WIFEXITED(status) ? "exited" : "killed";
}

static int number_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
}

static void note_caller_end(const Process *process)
{
    note(home, "caller-ends", "%ld %s %d %lld %ld %d\n", process->number, how_of(process->status),
         number_of(process->status), process->ended_ms, process->last,
         WIFEXITED(process->last_status) ? WEXITSTATUS(process->last_status) : 128 + WTERMSIG(process->last_status));
}

static void note_caller(const Process *process)
{
    char path[PATH_MAX], link[64], now_in[PATH_MAX], words[MOST_CALLER_WORDS + 1];
    size_t count = 0, length = process->has_ended ? 0 : entry_of(process->pid, "cmdline", words, MOST_CALLER_WORDS);
    if (length && words[length - 1])
        words[length++] = 0;
    for (size_t i = 0; i < length; i++)
        count += !words[i];
    snprintf(link, sizeof link, "/proc/%d/cwd", process->pid);
    ssize_t some = process->has_ended ? 0 : readlink(link, now_in, sizeof now_in - 1);
    now_in[some > 0 ? some : 0] = 0;
    snprintf(path, sizeof path, "%s/callers", home);
    FILE *file = fopen(path, "ae");
    if (!file || fprintf(file, "%ld%c%ld%c%s%c%zu%c", process->number, 0, process->caller ? process->caller->number : 0, 0,
                         now_in, 0, count, 0) < 0 ||
        fwrite(words, 1, length, file) != length || fclose(file) != 0)
        fail("cannot write", path);
    if (process->has_ended)
        note_caller_end(process);
}

static void at_end(Thread *thread, int status)
{
    /* It was killed during the execution. */
    give_up(thread, EAGAIN);
    Process *process = thread->process;
    if (thread->tid == thread->pid) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        process->has_ended = 1;
        process->status = status;
        process->ended_ms = now.tv_sec * 1000LL + now.tv_nsec / 1000000;
        if (process->caller) {
            process->caller->last = process->number;
            process->caller->last_status = status;
        }
        if (process->is_noted)
            note_caller_end(process);
    }
    if (thread->guest && thread->tid == thread->pid) {
        note_of_guest(thread->guest, "ends", "%d %s %d %ld %lld %ld %ld\n", thread->pid, how_of(status), number_of(status),
                      ++last_end, process->ended_ms, process->number, process->caller ? process->caller->number : 0);
        end_output(thread->guest, status != 0);
        for (Process *one = status ? process->caller : NULL; one && !one->is_noted; one = one->caller) {
            one->is_noted = 1;
            note_caller(one);
        }
    }
    forget(thread);
}

/* ---- The command ---- */

#define OF_CALL(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_EQUAL(number, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, yes, no)
#define IF_BIT(bit, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bit, yes, no)
#define RULES 13

/* The calls of one interface that stop. The filter tests only the lower word of flags, which comes first on these
 * little-endian machines. */
static void add_rules(struct sock_filter *filter, const Interface *one)
{
    const struct sock_filter rules[RULES] = {
        OF_CALL(arch),
        IF_EQUAL(one->arch, 0, 11), /* otherwise to the next interface */
        OF_CALL(nr),
        IF_EQUAL(one->execve, 8, 0),
        IF_EQUAL(one->execveat, 7, 0),
        IF_EQUAL(one->clone3, 6, 0), /* its flags are in memory */
        IF_EQUAL(one->clone, 1, 0),
        IF_EQUAL(one->seccomp, 2, 5),
        OF_CALL(args[0]),
        IF_BIT(CLONE_UNTRACED, 2, 3),
        OF_CALL(args[1]),
        IF_BIT(SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
    };
    memcpy(filter, rules, sizeof rules);
}

static void install_filter(void)
{
    struct sock_filter filter[RULES * INTERFACES + 1];
    for (size_t i = 0; i < INTERFACES; i++)
        add_rules(filter + RULES * i, &interfaces[i]);
    filter[RULES * INTERFACES] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        fail("cannot filter the system calls of", "the command");
}

static pid_t start(const char *file, char **command)
{
    int gate[2];
    char go = 0;
    if (pipe2(gate, O_CLOEXEC) < 0)
        fail("cannot start", command[0]);
    pid_t child = fork();
    if (child < 0)
        fail("cannot start", command[0]);
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        /* Otherwise the emulator would leave a core file beside the sources. */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, RLIM_INFINITY});
        /* Without its tracer it could not execute anything. */
        if (read(gate[0], &go, 1) != 1)
            _exit(OWN_FAILURE);
        install_filter();
        execvp(file, command);
        fail("cannot run", file);
    }
    const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                         PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, child, 0, options) < 0) {
        int why = errno;
        kill(child, SIGKILL);
        errno = why;
        fail("this host does not allow a process to be traced:", command[0]);
    }
    add_thread(child);
    if (write(gate[1], &go, 1) != 1)
        fail("cannot start", command[0]);
    close(gate[0]);
    close(gate[1]);
    return child;
}

/* Continue a stopped thread. */
static void go_on(pid_t tid, int status)
{
    int event = status >> 16, sent = WSTOPSIG(status);
    unsigned long number = 0;
    Thread *thread = add_thread(tid);
    switch (event) {
    case PTRACE_EVENT_SECCOMP: {
        int is_watched = at_call(thread);
        ptrace(is_watched ? PTRACE_SYSCALL : PTRACE_CONT, tid, 0, 0);
        return;
    }
    case PTRACE_EVENT_EXEC:
        at_executed(thread);
        break;
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        /* The parent cannot become another guest before this point. The new thread may have ended before it: if it were
         * added then, nothing would remove it. */
        if (ptrace(PTRACE_GETEVENTMSG, tid, 0, &number) == 0 && is_traced((pid_t)number))
            add_thread((pid_t)number);
        /* The table may have moved. */
        thread = thread_of(tid);
        ptrace(thread->is_restored ? PTRACE_SYSCALL : PTRACE_CONT, tid, 0, 0);
        return;
    case PTRACE_EVENT_STOP:
        /* A new thread, or a stopped group of threads, which stays stopped until it is continued. */
        if (sent == SIGSTOP || sent == SIGTSTP || sent == SIGTTIN || sent == SIGTTOU) {
            ptrace(PTRACE_LISTEN, tid, 0, 0);
            return;
        }
        break;
    default:
        if (sent == (SIGTRAP | 0x80)) {
            at_call_end(thread);
            break;
        }
        ptrace(PTRACE_CONT, tid, 0, sent == SIGTRAP && begins(thread) ? 0 : sent);
        return;
    }
    ptrace(PTRACE_CONT, tid, 0, 0);
}

static void count_alarm(int number)
{
    (void)number;
    alarms++;
}

/* Ask the processes that the command left running to end. */
static void end_the_rest(void)
{
    size_t left = 0;
    for (size_t i = 0; i < thread_count; i++)
        if (threads[i].tid == threads[i].pid && kill(threads[i].pid, SIGTERM) == 0) {
            left++;
            if (threads[i].guest)
                note_of_guest(threads[i].guest, "left", "%d\n", threads[i].pid);
        }
    for (size_t i = 0; i < thread_count; i++)
        kill(threads[i].pid, SIGCONT);
    if (left)
        note(home, "left", "%zu\n", left);
}

static void kill_the_rest(void)
{
    for (size_t i = 0; i < thread_count; i++)
        kill(threads[i].pid, SIGKILL);
}

static void follow(pid_t command)
{
    int status, of_command = -1, is_asked = 0;
    while (thread_count) {
        /* The first alarm ends the wait for processes in the background, the second the patience with them. */
        if (alarms && !is_asked) {
            is_asked = 1;
            end_the_rest();
            alarm(GRACE_SECONDS);
        }
        if (alarms > 1)
            kill_the_rest();
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0) {
            if (errno == EINTR)
                continue;
            if (errno == ECHILD)
                break;
            fail("cannot wait for", "the command");
        }
        if (WIFSTOPPED(status)) {
            go_on(tid, status);
            continue;
        }
        Thread *thread = thread_of(tid);
        if (thread)
            at_end(thread, status);
        if (tid == command) {
            of_command = status;
            /* A command that a signal ended, such as that of Ctrl-C, takes its processes along at once. */
            if (WIFEXITED(status))
                alarm(LINGER_SECONDS);
            else
                alarms = 1;
        }
    }
    if (WIFEXITED(of_command))
        note(place, "status", "exited %d %ld\n", WEXITSTATUS(of_command), last_number);
    else
        note(place, "status", "killed %d %ld\n", WTERMSIG(of_command), last_number);
}

static void read_headers(char *text)
{
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    unsigned char start[20];
    if (file < 0 || !header_in(start, read(file, start, sizeof start), &own))
        fail("cannot read", "/proc/self/exe");
    close(file);
    for (char *word = strtok(text, " "); word && wanted_count < MOST_HEADERS; word = strtok(NULL, " ")) {
        Header *one = &wanted[wanted_count++];
        if (sscanf(word, "%u,%u,%u", &one->class, &one->order, &one->machine) != 3)
            fail("no header of a program:", word);
    }
}

static void write_environment(void)
{
    extern char **environ;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/environment", place);
    FILE *file = fopen(path, "wxe");
    for (char **one = environ; file && *one; one++)
        fprintf(file, "%s%c", *one, 0);
    if (!file || fclose(file) != 0)
        fail("cannot write", path);
}

int main(int argc, char **argv)
{
    if (argc < 8 || strlen(argv[1]) + 24 > SCRATCH_BYTES) {
        fprintf(stderr, "usage: tracer PLACE HOME STARTER EMULATOR HEADERS FILE PROGRAM [ARGUMENT ...]; PLACE is short\n");
        return OWN_FAILURE;
    }
    place = argv[1];
    home = argv[2];
    starter = argv[3];
    emulator = argv[4];
    if (!getcwd(folder, sizeof folder))
        folder[0] = 0;
    read_headers(argv[5]);
    write_environment();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* The terminal's signals are for the command. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = count_alarm}, NULL);
    follow(start(argv[6], argv + 7));
    return 0;
}
