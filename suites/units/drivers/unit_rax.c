/* Radix trees: streams' and the cluster's index. Values are pointers that a node of any length must still align. */
#include "unit.h"

#include "rax.h"

#define KEYS 160
#define LONGEST 48

/* What the keys lead to: pointers into this. */
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

/* In newer releases raxFind() gives the value through a pointer. */
#define FIND(tree, key, length) \
    _Generic(&raxFind, find_value: find_1, default: find_2)((void (*)(void))raxFind, tree, key, length)

/* Keys of many lengths that share beginnings: those of a length that leaves the same rest by 4 do. */
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
    raxFree(tree);
}
