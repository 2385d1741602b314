/*
 * Two bits of one word, one of which this program changes: in a machine's guest, or on the host in the file that is the
 * guest's memory. An update by the other side must not disappear. Devices and kernels share words in this way.
 *
 * shared_word guest SECONDS       changes its bit for so long
 * shared_word host FILE SECONDS   changes its own, and prints how often it did and how often that was undone
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { PAGE = 4096, MARK_BYTES = 16 };
/* In the word, both are in the same place on either byte order. */
#define GUESTS_BIT ((uint64_t)0x01 << 24 | (uint64_t)0x01 << 32)
#define HOSTS_BIT ((uint64_t)0x80 << 24 | (uint64_t)0x80 << 32)

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The mark is put together here, so that the program's own text is not found in its place. */
static void make_mark(unsigned char *mark)
{
    for (int i = 0; i < MARK_BYTES; i++) {
        mark[i] = (unsigned char)(0xa5 ^ i * 29);
    }
}

static int in_guest(double seconds)
{
    static _Alignas(PAGE) unsigned char page[PAGE];
    volatile uint64_t *word = (volatile uint64_t *)(void *)(page + MARK_BYTES);
    double end = now() + seconds;

    make_mark(page);
    while (now() < end) {
        for (int i = 0; i < 10000; i++) {
            uint64_t old = *word;
            __atomic_compare_exchange_n(word, &old, old ^ GUESTS_BIT, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        }
    }
    return 0;
}

static volatile uint64_t *word_in(unsigned char *memory, size_t bytes)
{
    unsigned char mark[MARK_BYTES];

    make_mark(mark);
    for (size_t at = 0; at < bytes; at += PAGE) {
        if (memcmp(memory + at, mark, sizeof mark) == 0) {
            return (volatile uint64_t *)(void *)(memory + at + MARK_BYTES);
        }
    }
    return NULL;
}

static int on_host(const char *path, double seconds)
{
    struct stat status;
    volatile uint64_t *word = NULL;
    double end = now() + seconds;
    uint64_t mine = 0;
    long changes = 0, undone = 0;
    int file = open(path, O_RDWR);

    if (file < 0 || fstat(file, &status) != 0) {
        return 2;
    }
    unsigned char *memory = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    while (!word && memory != MAP_FAILED && now() < end) {
        word = word_in(memory, (size_t)status.st_size);
    }
    if (!word) {
        return 3;
    }
    while (now() < end) {
        for (int i = 0; i < 1000; i++) {
            uint64_t seen = __atomic_xor_fetch(word, HOSTS_BIT, __ATOMIC_SEQ_CST) & HOSTS_BIT;

            mine ^= HOSTS_BIT;
            undone += seen != mine;
            mine = seen;
            changes++;
        }
    }
    printf("%ld %ld\n", changes, undone);
    return 0;
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "guest") == 0) {
        return in_guest(atof(words[2]));
    }
    if (count == 4 && strcmp(words[1], "host") == 0) {
        return on_host(words[2], atof(words[3]));
    }
    return 1;
}
