/*
 * Replaces the programs that upstream's own tests start: src/redis-server and its siblings.
 *
 * It makes a numbered folder for the process, records which program was started there and how, and becomes the emulator (or
 * the native program) by execv. The process number therefore remains the one that the tests know. It must be an ELF program:
 * some tests run ldd on it.
 *
 * What the program writes to a standard error without a name, which the test alone reads, is also kept as `errors` in the
 * numbered folder: a detector or the emulator may report there.
 *
 * The file ../plumbline/launches beside it lists the programs to become. It is a list of words, each ended by a NUL byte:
 *
 *   number of server variants; then for every variant, and finally for clients: the folder for the numbered
 *   folders, the program, the number of its arguments (argv[0] included), the arguments, the number of options that a
 *   server needs to start there, the options, the number of environment variables, and the variables as NAME=VALUE,
 *   which count whatever the test has set
 *
 * In the words {folder} stands for the numbered folder, {self} for the name under which it was called, {name} for the last
 * part of that name. Servers alternate between the variants. ../plumbline/number holds the last number in use.
 */
#define _GNU_SOURCE
#define PROGRAM "launcher"
#include "word_list.h"
#include <limits.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define MOST_WORDS 4096
#define LEDGER_BYTES 16

static const char *self, *name;
static char folder[PATH_MAX];

/* The next number, counted across all processes that use the same file. */
static long next_number(const char *path)
{
    char text[32] = "";
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || flock(file, LOCK_EX) < 0 || pread(file, text, sizeof text - 1, 0) < 0)
        fail("cannot count in", path);
    long number = strtol(text, NULL, 10) + 1;
    int length = snprintf(text, sizeof text, "%ld\n", number);
    if (pwrite(file, text, (size_t)length, 0) != length)
        fail("cannot count in", path);
    close(file);
    return number;
}

/* A word of the list with its placeholders replaced. */
static char *filled(const char *word)
{
    static const struct { const char *place; const char **value; } places[] = {
        {"{self}", &self}, {"{name}", &name},
    };
    const char *found, *value = NULL;
    size_t skipped = 0;
    if ((found = strstr(word, "{folder}"))) {
        value = folder;
        skipped = strlen("{folder}");
    }
    for (size_t i = 0; !found && i < sizeof places / sizeof *places; i++)
        if ((found = strstr(word, places[i].place))) {
            value = *places[i].value;
            skipped = strlen(places[i].place);
        }
    if (!found)
        return obtain(strdup(word));
    char *text = NULL;
    if (asprintf(&text, "%.*s%s%s", (int)(found - word), word, value, found + skipped) < 0)
        fail("no memory for", word);
    return text;
}

/* The file of a descriptor, its present length, and what identifies it when it is renamed. */
static void describe(FILE *note, int descriptor)
{
    char link[64], path[PATH_MAX] = "";
    struct stat status = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (readlink(link, path, sizeof path - 1) < 0 || fstat(descriptor, &status) < 0 || !S_ISREG(status.st_mode))
        path[0] = 0;
    fprintf(note, "%s%c%lld%c%llu:%llu%c", path, 0, (long long)status.st_size, 0, (unsigned long long)status.st_dev,
            (unsigned long long)status.st_ino, 0);
}

/* Waits until the program has ended, and copies what it wrote to a file without a name. Until then the test waits for the
 * end of the standard output, which the copier holds open. */
static void copy_errors(int program)
{
    char path[PATH_MAX + 32], whole[PATH_MAX + 32], bytes[1 << 16];
    struct pollfd end = {.fd = program, .events = POLLIN};
    ssize_t some;
    off_t at = 0;
    while (poll(&end, 1, -1) != 1)
        continue;
    snprintf(path, sizeof path, "%s/errors.part", folder);
    snprintf(whole, sizeof whole, "%s/errors", folder);
    int from = open("/proc/self/fd/2", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    while ((some = pread(from, bytes, sizeof bytes, at)) > 0)
        if (write(to, bytes, (size_t)some) == some)
            at += some;
        else
            _exit(1);
    _exit(some < 0 || to < 0 || rename(path, whole) < 0);
}

/* Has a process that is no child of the program keep its standard error, if that is a file without a name: Tcl gives one
 * to the programs that a test waits for, and removes it. Returns whether it does. */
static int keeps_errors(void)
{
    struct stat status;
    int program, how = 0;
    if (fstat(STDERR_FILENO, &status) < 0 || !S_ISREG(status.st_mode) || status.st_nlink)
        return 0;
    if ((program = (int)syscall(SYS_pidfd_open, getpid(), 0)) < 0)
        return 0;
    pid_t child = fork();
    if (!child) {
        pid_t copier = fork();
        if (!copier)
            copy_errors(program);
        _exit(copier < 0);
    }
    close(program);
    return child > 0 && waitpid(child, &how, 0) == child && !how;
}

/* Makes the numbered folder: a ledger for the emulator's fault log, and a record of the launch. */
static void record(const char *home, long number, int argc, char **argv)
{
    char path[PATH_MAX + 32], here[PATH_MAX] = "";
    struct timespec now;
    int kept;
    if (snprintf(folder, sizeof folder, "%s/guest-%ld", home, number) >= (int)sizeof folder || mkdir(folder, 0700) < 0)
        fail("cannot make", folder);
    snprintf(path, sizeof path, "%s/faults.jsonl.counts", folder);
    int ledger = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    char zeros[LEDGER_BYTES] = {0};
    if (ledger < 0 || write(ledger, zeros, sizeof zeros) != sizeof zeros)
        fail("cannot write", path);
    close(ledger);
    kept = keeps_errors();
    snprintf(path, sizeof path, "%s/launch", folder);
    FILE *note = fopen(path, "wxe");
    if (!note || !getcwd(here, sizeof here))
        fail("cannot write", path);
    clock_gettime(CLOCK_REALTIME, &now);
    fprintf(note, "%ld%c%lld%c%s%c", (long)getpid(), 0, now.tv_sec * 1000LL + now.tv_nsec / 1000000, 0, here, 0);
    describe(note, STDOUT_FILENO);
    if (kept)
        fprintf(note, "%s/errors%c0%c%c", folder, 0, 0, 0);
    else
        describe(note, STDERR_FILENO);
    for (int i = 0; i < argc; i++)
        fprintf(note, "%s%c", argv[i], 0);
    if (fclose(note) != 0)
        fail("cannot write", path);
}

/* Whether the name under which it was called ends with this text. */
static int is_called(const char *ending)
{
    const char *kind = strrchr(name, '-');
    return kind && !strcmp(kind, ending);
}

static int is_client(void)
{
    return is_called("-cli") || is_called("-benchmark");
}

static int is_server(void)
{
    return is_called("-server") || is_called("-sentinel");
}

/* The position of a server's additional options among its words; 0 if it starts no server. Words may begin with a
 * configuration file, or with - for the standard input; words without -- after it would become values of our options.
 * Since Redis 7.2 a sentinel also makes self tests. Earlier sentinels accept the options and ignore them. */
static int place_of_options(int argc, char **argv)
{
    if (!is_server())
        return 0;
    if (argc == 1)
        return 1;
    if (argv[1][0] != '-' || !argv[1][1])
        return argc > 2 && strncmp(argv[2], "--", 2) ? argc : 2;
    const char *others[] = {"-v", "--version", "-h", "--help", "--test-memory", "--check-system"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(argv[1], others[i]))
            return 0;
    return 1;
}

/* The number of words of a list, which precedes the list; ends the program if the list is cut short. */
static size_t number_of(char **words, size_t at, size_t count)
{
    size_t number = at < count ? (size_t)strtol(words[at], NULL, 10) : 0;
    if (at >= count || number >= count - at)
        fail("the list of launches is cut short, so that nothing can become of", self);
    return number;
}

int main(int argc, char **argv)
{
    char own[PATH_MAX] = "", path[PATH_MAX + 64], *words[MOST_WORDS];
    self = argv[0];
    name = strrchr(self, '/') ? strrchr(self, '/') + 1 : self;
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0 || !strrchr(own, '/'))
        fail("cannot find", "/proc/self/exe");
    *strrchr(own, '/') = 0;
    snprintf(path, sizeof path, "%s/../plumbline/launches", own);
    size_t count = words_in(path, words, MOST_WORDS);
    snprintf(path, sizeof path, "%s/../plumbline/number", own);
    long number = next_number(path);
    long variants = count ? strtol(words[0], NULL, 10) : 0;
    long chosen = is_client() ? variants : is_server() && variants ? (number - 1) % variants : 0;
    if (variants < 1)
        fail("the list of launches is cut short, so that nothing can become of", self);
    size_t at = 1;
    for (long skipped = 0; skipped < chosen; skipped++) {
        at += 3 + number_of(words, at + 2, count);
        at += 1 + number_of(words, at, count);
        at += 1 + number_of(words, at, count);
    }
    size_t given = number_of(words, at + 2, count);
    char **options = words + at + 4 + given;
    size_t added = number_of(words, at + 3 + given, count);
    char **variables = options + added + 1;
    size_t set = number_of(words, at + 4 + given + added, count);
    record(words[at], number, argc, argv);
    char *program = filled(words[at + 1]);
    char **arguments = obtain(calloc(given + (size_t)argc + added, sizeof *arguments)), **next = arguments;
    for (size_t i = 0; i < given; i++)
        *next++ = filled(words[at + 3 + i]);
    int place = place_of_options(argc, argv);
    for (int i = 1; i <= argc; i++) {
        for (size_t j = 0; i == place && j < added; j++)
            *next++ = options[j];
        if (i < argc)
            *next++ = argv[i];
    }
    for (size_t i = 0; i < set; i++)
        if (putenv(variables[i]) != 0)
            fail("no memory for", variables[i]);
    execv(program, arguments);
    fail("cannot become", program);
}
