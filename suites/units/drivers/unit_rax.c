/* Radix trees, the index of streams and of the cluster. A node of any length must align the pointers to its values. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "rax.h"

#define KEYS 160
#define LONGEST 48
#define DEPTH 150

/* The keys' values are pointers into this array. */
static char tokens[KEYS];

typedef void *(*find_value)(rax *, unsigned char *, size_t);
typedef int (*find_and_store)(rax *, unsigned char *, size_t, void **);

static void *find_1(void (*function)(void), rax *tree, unsigned char *key, size_t length)
{
    return ((find_value)function)(tree, key, length);
}

static void *find_2(void (*function)(void), rax *tree, unsigned char *key, size_t length)
{
    void *value = NULL;

    return ((find_and_store)function)(tree, key, length, &value) ? value : NULL;
}

/* In newer releases, raxFind() stores the value through a pointer. */
#define FIND(tree, key, length) \
    _Generic(&raxFind, find_value: find_1, default: find_2)((void (*)(void))raxFind, tree, key, length)

/* Keys of many lengths, in groups that share a prefix. */
static size_t key_length(size_t i) { return i * 7 % LONGEST; }

static unsigned char *place_key(size_t i) { return place_pattern(i % OFFSETS, key_length(i), (unsigned)i / 8 % 4); }

static void show_token(const void *value)
{
    uintptr_t distance = (uintptr_t)value - (uintptr_t)tokens;

    number(distance < KEYS ? (long long)distance : -1);
}

static void each_key(rax *tree, const char *what, size_t step, void (*perform)(rax *, unsigned char *, size_t, size_t))
{
    for (size_t i = 0; i < KEYS; i += step) {
        unsigned char *key = place_key(i);

        line("%s %zu", what, i);
        perform(tree, key, key_length(i), i);
        end();
        release(key);
    }
}

static void insert(rax *tree, unsigned char *key, size_t length, size_t i)
{
    void *before = NULL;

    number(raxInsert(tree, key, length, tokens + i, &before));
    show_token(before);
}

static void find(rax *tree, unsigned char *key, size_t length, size_t i)
{
    (void)i;
    show_token(FIND(tree, key, length));
}

static void drop(rax *tree, unsigned char *key, size_t length, size_t i)
{
    void *before = NULL;

    (void)i;
    number(raxRemove(tree, key, length, &before));
    show_token(before);
}

static void walk(rax *tree)
{
    raxIterator iterator;

    raxStart(&iterator, tree);
    raxSeek(&iterator, "^", NULL, 0);
    line("walk %llu", (unsigned long long)raxSize(tree));
    while (raxNext(&iterator)) {
        bytes(iterator.key, iterator.key_len);
        show_token(iterator.data);
    }
    end();
    raxSeek(&iterator, "$", NULL, 0);
    line("back %llu", (unsigned long long)raxSize(tree));
    while (raxPrev(&iterator)) {
        show_token(iterator.data);
    }
    end();
    raxStop(&iterator);
}

/* Seek from each key, half of it and one byte more, also with another last byte; show where the iterator arrives. */
static void seek(rax *tree, const char *operation, const unsigned char *from, size_t length, size_t offset)
{
    static const char *const comparisons[] = {"==", "<", "<=", ">", ">=", "="};
    unsigned char *key = place_copy(offset, from, length);
    raxIterator iterator;

    line("seek %s %s", operation, length ? "x" : "none");
    if (length) {
        for (size_t i = 0; i < length; i++) {
            char digits[4];

            snprintf(digits, sizeof digits, "%02x", key[i]);
            more(digits);
        }
    }
    raxStart(&iterator, tree);
    number(raxSeek(&iterator, operation, key, length));
    if (!raxEOF(&iterator) && raxNext(&iterator)) {
        bytes(iterator.key, iterator.key_len);
        show_token(iterator.data);
        for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
            number(raxCompare(&iterator, comparisons[i], key, length));
        }
    }
    end();
    raxStop(&iterator);
    release(key);
}

static void seek_all(rax *tree)
{
    static const char *const operations[] = {"=", "<", "<=", ">", ">="};
    unsigned char key[LONGEST + 1];

    for (size_t i = 0; i < KEYS; i += 3) {
        const size_t length = key_length(i);
        const size_t sizes[] = {length / 2, length, length + 1};

        for (size_t j = 0; j < sizeof operations / sizeof *operations; j++) {
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                fill(key, sizes[k], (unsigned)i / 8 % 4);
                seek(tree, operations[j], key, sizes[k], i % OFFSETS);
                if (sizes[k]) {
                    key[sizes[k] - 1] ^= 0x11;
                    seek(tree, operations[j], key, sizes[k], i % OFFSETS);
                }
            }
        }
    }
}

/* Show the sum of all keys' values and of the bytes that lead to the branches. */
static void touch(rax *tree)
{
    line("touch %llu", (unsigned long long)raxSize(tree));
    unsigned_number(raxTouch(tree->head));
    end();
}

/* Walk at random: any key may be the last. */
static void stroll(rax *tree)
{
    raxIterator iterator;

    for (size_t steps = 0; steps < 40; steps++) {
        raxStart(&iterator, tree);
        raxSeek(&iterator, "^", NULL, 0);
        line("stroll %zu", steps);
        number(raxRandomWalk(&iterator, steps));
        bytes(iterator.key, iterator.key_len);
        number((long long)(uintptr_t)iterator.data);
        end();
        raxStop(&iterator);
    }
}

/* Each prefix of a long key is a key: the path to the last does not fit on an iterator's own stack. */
static void deep(void)
{
    rax *tree = raxNew();
    unsigned char key[DEPTH];
    raxIterator iterator;

    line("empty");
    number(raxSize(tree) == 0);
    raxStart(&iterator, tree);
    number(raxSeek(&iterator, "^", NULL, 0));
    number(raxEOF(&iterator) != 0);
    number(raxNext(&iterator));
    number(raxRandomWalk(&iterator, 3));
    number(raxSeek(&iterator, "?", NULL, 0));
    raxStop(&iterator);
    end();
    fill(key, sizeof key, 0);
    line("begin deep");
    end();
    for (size_t length = 1; length <= sizeof key; length++) {
        line("deep %zu", length);
        number(raxInsert(tree, key, length, (void *)(uintptr_t)length, NULL));
        end();
    }
    touch(tree);
    stroll(tree);
    raxStart(&iterator, tree);
    raxSeek(&iterator, "$", NULL, 0);
    line("last");
    while (raxPrev(&iterator)) {
        number((long long)(uintptr_t)iterator.data);
    }
    end();
    raxStop(&iterator);
    raxFree(tree);
}

/* Words that share prefixes, which a drawing shows as chains and branches. */
static const char *const words[] = {"o", "gr", "grape", "grapefruit", "graph", "green", "orange", "organ", "grapes", "z"};
#define WORDS (sizeof words / sizeof *words)
/* Less than the capacity of a pipe. */
#define LARGEST_DRAWING 8192

/* Draw the tree, which contains the first `count` words with their numbers. raxShow() writes to standard output only. */
static void draw(rax *tree, size_t count)
{
    static unsigned char drawing[LARGEST_DRAWING];
    int ends[2];
    ssize_t length = -1;

    line("draw %zu", count);
    fflush(stdout);
    const int output = dup(STDOUT_FILENO);
    if (output >= 0 && pipe(ends) == 0) {
        dup2(ends[1], STDOUT_FILENO);
        raxShow(tree);
        fflush(stdout);
        dup2(output, STDOUT_FILENO);
        length = read(ends[0], drawing, sizeof drawing);
        close(ends[0]);
        close(ends[1]);
        close(output);
    }
    if (length > 0) {
        bytes(drawing, (size_t)length);
    }
    end();
}

static void draw_all(void)
{
    rax *tree = raxNew();

    draw(tree, 0);
    for (size_t i = 0; i < WORDS; i++) {
        raxInsert(tree, (unsigned char *)words[i], strlen(words[i]), (void *)(uintptr_t)(i + 1), NULL);
        draw(tree, i + 1);
    }
    raxFree(tree);
}

void unit_rax(void)
{
    rax *tree = raxNew();

    each_key(tree, "insert", 1, insert);
    each_key(tree, "find", 1, find);
    walk(tree);
    each_key(tree, "remove", 3, drop);
    each_key(tree, "find", 1, find);
    walk(tree);
    each_key(tree, "insert", 5, insert);
    walk(tree);
    seek_all(tree);
    raxFree(tree);
    deep();
    draw_all();
}
