/*
 * Asks an allocator what it promises: `blocks QUESTION` exits 0 for yes, 1 for no, or dies of what it is told to try.
 */
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 40000, THREADS = 4, ROUNDS = 2000 };

/* The compiler knows malloc, and would leave out what is not used. */
static void *launder(void *block)
{
    __asm__ volatile("" : "+r"(block)::"memory");
    return block;
}

static void *get(size_t size) { return launder(malloc(size)); }

static unsigned char touch(const void *address) { return *(const volatile unsigned char *)address; }

static size_t alignment_of(const void *block)
{
    uintptr_t address = (uintptr_t)block;

    return address & -address;
}

/* The least alignment of some blocks of a size. */
static size_t least(size_t size)
{
    size_t found = (size_t)1 << 20;

    for (int number = 0; number < 8; number++) {
        size_t here = alignment_of(get(size));
        found = here < found ? here : found;
    }
    return found;
}

/* Every byte of a block of any size is there, and of two blocks one has the next byte on a guard page. */
static int inside(void)
{
    for (size_t size = 0; size < 20000; size += size < 300 ? 1 : 777) {
        unsigned char *block = get(size);

        for (size_t at = 0; at < size; at++) {
            block[at] = (unsigned char)at;
        }
        if (malloc_usable_size(block) != size || (size && (block[0] != 0 || block[size - 1] != (unsigned char)(size - 1)))) {
            return 1;
        }
        free(block);
    }
    return 0;
}

static int beyond(size_t size)
{
    unsigned sum = 0;

    for (int number = 0; number < 2; number++) {
        sum += touch((unsigned char *)get(size) + size);
    }
    return sum == 1234567;
}

static int contents(void)
{
    unsigned char *fresh = get(100), *zeros = launder(calloc(10, 10)), *large = launder(calloc(1000, 1000));
    unsigned char *moved;

    if (touch(fresh) == 0 || touch(fresh + 99) == 0) {
        return 1;
    }
    for (int at = 0; at < 100; at++) {
        if (zeros[at]) {
            return 1;
        }
    }
    if (touch(large) || touch(large + 999999)) {
        return 1;
    }
    memset(zeros, 7, 100);
    moved = launder(realloc(zeros, 90));
    return moved == zeros || moved[0] != 7 || moved[89] != 7 || realloc(moved, 0) != NULL;
}

static int aligned(void)
{
    for (size_t alignment = 8; alignment <= 65536; alignment *= 2) {
        void *block = NULL;

        if (posix_memalign(&block, alignment, 100) || (uintptr_t)block % alignment) {
            return 1;
        }
        memset(block, 1, 100);
        free(block);
    }
    return 0;
}

static void *churn(void *seed)
{
    unsigned char *kept[16] = {0};
    unsigned random = (unsigned)(uintptr_t)seed;

    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1103515245u + 12345u;
        unsigned at = random >> 16 & 15, size = (random >> 8 & 0xfff) + 1;

        if (kept[at] && kept[at][0] != (unsigned char)at) {
            return "a block has lost its content";
        }
        free(kept[at]);
        kept[at] = get(size);
        memset(kept[at], (int)at, size);
    }
    return NULL;
}

/* Blocks of several threads, and of a child that is forked meanwhile. */
static int together(void)
{
    pthread_t threads[THREADS];
    void *complaint = NULL;
    int status = 0;

    for (uintptr_t number = 0; number < THREADS; number++) {
        pthread_create(&threads[number], NULL, churn, (void *)(number + 1));
    }
    for (int number = 0; number < 5; number++) {
        pid_t child = fork();

        if (child == 0) {
            _exit(churn((void *)99) != NULL);
        }
        waitpid(child, &status, 0);
        if (status) {
            return 1;
        }
    }
    for (int number = 0; number < THREADS; number++) {
        pthread_join(threads[number], &complaint);
        if (complaint) {
            puts(complaint);
            return 1;
        }
    }
    return 0;
}

/* More than there are guard pages for; all of them keep what is in them. */
static int many(void)
{
    static unsigned *blocks[MANY];

    for (unsigned number = 0; number < MANY; number++) {
        blocks[number] = get(sizeof(unsigned) * (1 + number % 9) + (number % 1000 ? 0 : 9000));
        *blocks[number] = number;
    }
    if (beyond(64)) {
        return 1;
    }
    for (unsigned number = 0; number < MANY; number++) {
        if (*blocks[number] != number) {
            return 1;
        }
        free(blocks[number]);
    }
    return 0;
}

int main(int count, char **words)
{
    const char *question = count > 1 ? words[1] : "";
    size_t size = count > 2 ? strtoul(words[2], NULL, 10) : 0;
    void *block;

    if (!strcmp(question, "promised")) {
        printf("%zu", _Alignof(max_align_t));
        return 0;
    } else if (!strcmp(question, "least")) {
        printf("%zu", least(size));
        return 0;
    } else if (!strcmp(question, "inside")) {
        return inside();
    } else if (!strcmp(question, "contents")) {
        return contents();
    } else if (!strcmp(question, "aligned")) {
        return aligned();
    } else if (!strcmp(question, "together")) {
        return together();
    } else if (!strcmp(question, "many")) {
        return many();
    } else if (!strcmp(question, "beyond")) {
        return beyond(size);
    } else if (!strcmp(question, "freed")) {
        block = get(size);
        free(block);
        return touch(launder(block)) == 99;
    } else if (!strcmp(question, "twice")) {
        block = get(size);
        free(block);
        free(launder(block));
        return 0;
    }
    fprintf(stderr, "blocks: no such question\n");
    return 2;
}
