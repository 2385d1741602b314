/*
 * One error of a named kind, or its correct twin: `detector ERROR bad|good`. Exit status 0 after the error, whatever the
 * detector reported on standard error; 4 if this program does not have that error.
 *
 * Each error is in a function of the same name, because its place in the report matters as much as the report. Memory and
 * numbers come from outside the functions, so that no compiler sees the error and removes it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

struct record {
    char tag;
    uint64_t number;
};

static char *memory;
static volatile uint64_t sink;

APART static void misaligned_load(long off) { sink = *(uint32_t *)(memory + off); }

APART static void misaligned_store(long off) { *(uint32_t *)(memory + off) = 1; }

APART static void misaligned_member(long off) { sink = ((struct record *)(memory + off))->number; }

/* Servers exempt their fast paths in this way; the target must check them nevertheless. */
__attribute__((no_sanitize("alignment"))) APART static void misaligned_exempt(long off)
{
    sink = *(uint64_t *)(memory + off);
}

APART static void shift(long off) { sink = (uint64_t)(1 << (30 + 2 * off)); }

/* Errors of a background save come from a child. */
APART static void misaligned_in_child(long off)
{
    pid_t child = fork();

    if (child == 0) {
        sink = *(uint16_t *)(memory + off);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

APART static void overflow_load(long off) { sink = (unsigned char)memory[63 + off]; }

APART static void overflow_store(long off) { memory[63 + off] = 1; }

APART static void overflow_copy(long off)
{
    char from[64];
    size_t length = sizeof from;

    memset(from, 7, sizeof from);
    /* For a known length the compiler would emit plain stores. */
    __asm__ volatile("" : "+r"(length));
    memcpy(memory + off, from, length);
    sink = (unsigned char)memory[1];
}

APART static void use_after_free(long off)
{
    char *again = memory;

    __asm__ volatile("" : "+r"(again));
    if (off) {
        free(memory);
        memory = NULL;
    }
    sink = (unsigned char)again[3];
}

APART static void uninitialised(long off)
{
    char *fresh = malloc(64);

    if (!off) {
        memset(fresh, 0, 64);
    }
    __asm__ volatile("" : "+r"(fresh) : : "memory");
    if (fresh[5]) {
        sink = 1;
    }
    free(fresh);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int turn;
static volatile int flag;

/* The other thread loads, and then says so without ordering anything. */
static void *load_locked(void *off)
{
    if (!off) {
        pthread_mutex_lock(&lock);
    }
    sink = (unsigned char)memory[3];
    if (!off) {
        pthread_mutex_unlock(&lock);
    }
    atomic_store_explicit(&turn, 1, memory_order_relaxed);
    return NULL;
}

APART static void race_store(long off)
{
    pthread_t other;

    pthread_create(&other, NULL, load_locked, (void *)off);
    while (atomic_load_explicit(&turn, memory_order_relaxed) == 0) {
    }
    if (!off) {
        pthread_mutex_lock(&lock);
    }
    memory[3] = 1;
    if (!off) {
        pthread_mutex_unlock(&lock);
    }
    pthread_join(other, NULL);
}

/* Servers order a volatile flag by fences. */
static void *load_fenced(void *off)
{
    sink = (unsigned char)memory[3];
    if (!off) {
        atomic_thread_fence(memory_order_release);
    }
    flag = 1;
    return NULL;
}

APART static void race_fence(long off)
{
    pthread_t other;

    pthread_create(&other, NULL, load_fenced, (void *)off);
    while (flag == 0) {
    }
    if (!off) {
        atomic_thread_fence(memory_order_acquire);
    }
    memory[3] = 1;
    pthread_join(other, NULL);
}

/* They also read flags without order, and order them by one fence. */
static void *load_before_release(void *unused)
{
    sink = (unsigned char)memory[3];
    atomic_store_explicit(&turn, 1, memory_order_release);
    return unused;
}

APART static void race_loaded(long off)
{
    pthread_t other;

    pthread_create(&other, NULL, load_before_release, NULL);
    while (atomic_load_explicit(&turn, memory_order_relaxed) == 0) {
    }
    if (!off) {
        atomic_thread_fence(memory_order_acquire);
    }
    memory[3] = 1;
    pthread_join(other, NULL);
}

static const struct {
    const char *name;
    void (*perform)(long off);
} errors[] = {
    {"misaligned-load", misaligned_load},
    {"misaligned-store", misaligned_store},
    {"misaligned-member", misaligned_member},
    {"misaligned-exempt", misaligned_exempt},
    {"misaligned-in-child", misaligned_in_child},
    {"shift", shift},
    {"overflow-load", overflow_load},
    {"overflow-store", overflow_store},
    {"overflow-copy", overflow_copy},
    {"use-after-free", use_after_free},
    {"uninitialised", uninitialised},
    {"race-store", race_store},
    {"race-fence", race_fence},
    {"race-loaded", race_loaded},
};

int main(int argc, char **argv)
{
    int bad = argc == 3 && strcmp(argv[2], "bad") == 0;

    if (argc != 3 || (!bad && strcmp(argv[2], "good") != 0)) {
        fprintf(stderr, "usage: detector ERROR bad|good\n");
        return 4;
    }
    /* Servers overwrite the environment with their process title: options that exist only there are lost. */
    for (char **one = environ; *one != NULL; one++) {
        memset(*one, 0, strlen(*one));
    }
    memory = malloc(64);
    memset(memory, 5, 64);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (strcmp(errors[i].name, argv[1]) == 0) {
            errors[i].perform(bad);
            free(memory);
            return 0;
        }
    }
    fprintf(stderr, "no error '%s' here\n", argv[1]);
    return 4;
}
