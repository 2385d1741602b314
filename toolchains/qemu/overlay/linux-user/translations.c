/*
 * Plumbline's change to user-mode QEMU that keeps translated code in a file, from process to process.
 *
 * Most of the processor time of a server's start goes to the translation of code that the last start also translated.
 * With `-translations FILE`, a process that ends by itself adds its new translated code to FILE, and a process that
 * starts maps FILE to the place where that code was. It uses a block only if translation would give the same host code.
 * The file's header describes everything that the translation depends on: the emulator, its options, the program and
 * this machine. The block's entry contains the state of the CPU. The guest's instructions are compared with those that
 * were translated, byte by byte. Blocks that reach into a second page are left out.
 *
 * A start uses only a part of the code that all programs of many runs left in the file, and never reads the whole file.
 * It finds entries by a table in the file. Each entry has its own digest, which is compared when its block is used.
 *
 * Translated code contains addresses of the emulator's functions and of itself. They stay the same because the emulator
 * runs itself again without address space randomisation, and places translated code at a fixed distance from its own.
 *
 * A published file never changes: a larger one replaces it. A file that cannot be read, mapped or written only costs
 * time. Forked children use their parent's code, and write nothing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include <malloc.h>
#include <sys/file.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include "qemu/cutils.h"
#include "qemu/units.h"
#include "qemu.h"
#include "user-internals.h"
#include "exec/exec-all.h"
#include "exec/page-protection.h"
#include "exec/translation-block.h"
#include "accel/tcg/tb-internal.h"
#include "accel/tcg/internal-common.h"
#include "accel/tcg/internal-target.h"
#include "host/cpuinfo.h"
#include "tcg/tcg.h"
#include "tcg/plumbline.h"
#include "tcg/plumbline_loads.h"
#include "plumbline.h"

#pragma GCC diagnostic error "-Wall"
#pragma GCC diagnostic error "-Wextra"
#pragma GCC diagnostic ignored "-Wsign-compare" /* as in plumbline.c */

enum { WORTH_BYTES = 64 * KiB, MOST_BYTES = 48 * MiB };
/*
 * The beginning of a file's code is read instead of mapped: programs start with the code that the first of them
 * translated, and change most of its pages. Large pages take less time than a page fault for each page.
 */
enum { READ_BYTES = 6 * MiB };

/* Everything that must be unchanged, so that this process can use the code of another one. */
struct circumstances {
    char magic[16];
    uint64_t emulator_bytes, emulator_written; /* size and time of the emulator's file */
    uint64_t anchor, code; /* addresses of a function, and of the first translated code */
    uint64_t guest_base, program_start, program_end;
    uint64_t host, page; /* the features of the host's CPU, and the size of a guest's page */
    uint64_t options, prologue; /* digests of the options that change the code, and of the code's beginning */
};

struct header {
    struct circumstances circumstances;
    uint64_t code_bytes, entries, instruction_bytes;
    /* The first page ends here. Code follows, then the entries, the buckets and the instructions. */
};

struct entry {
    uint64_t pc, cs_base;
    uint32_t flags, cflags;
    uint32_t block, block_bytes; /* the TranslationBlock and its code: distance from the first translated code, length */
    uint32_t instructions; /* distance of its instructions from those of the first entry */
    uint32_t next; /* number of the next entry of its bucket, less than its own; 0: none */
    uint64_t digest; /* of the block, and of the fields above except `next` */
};

static char *path;
static pid_t keeper; /* the process that writes the file when it ends */
static void *code; /* where kept code begins; NULL if none is kept */
static struct circumstances here;

/* The content of the file. Numbers of entries begin at 1, and `buckets` has the last of each bucket. */
static struct {
    size_t code_bytes, entries, instruction_bytes;
    const struct entry *entry;
    const uint8_t *instructions;
    const uint32_t *buckets;
    bool *taken; /* by a block of this process */
} kept;

/*
 * A thread's first allocation maps an arena of 64 MiB at any free address. QEMU starts its RCU thread in a constructor
 * without priority. If the arena was mapped before the program was loaded, the program was at another address, and no
 * kept code fitted. From here on, all threads share one arena.
 */
static void __attribute__((constructor(101))) plumbline_one_arena(void)
{
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
#endif
}

void plumbline_set_translations(const char *file)
{
    g_autofree char *folder = g_get_current_dir();

    g_free(path);
    path = g_canonicalize_filename(file, folder);
}

void plumbline_hold_addresses(char **argv, bool is_plain)
{
    int now = personality(0xffffffff);
    char emulator[PATH_MAX];

    if (path && (now < 0 || !is_plain || plumbline_has_coverage())) {
        g_clear_pointer(&path, g_free);
    }
    if (!path) {
        return;
    }
    if (now & ADDR_NO_RANDOMIZE) {
        /* It applies to this program only, and not to those that it starts. */
        personality(now & ~ADDR_NO_RANDOMIZE);
        return;
    }
    if (realpath("/proc/self/exe", emulator) && personality(now | ADDR_NO_RANDOMIZE) >= 0) {
        execv(emulator, argv);
        personality(now);
    }
    g_clear_pointer(&path, g_free);
}

static uint64_t digest(const void *bytes, size_t count)
{
    const uint64_t *words = bytes;
    uint64_t lanes[4] = { 1, 2, 3, 4 };
    size_t whole = count / sizeof(lanes);

    for (size_t i = 0; i < whole; i++, words += 4) {
        for (int lane = 0; lane < 4; lane++) {
            lanes[lane] = (rol64(lanes[lane], 29) ^ words[lane]) * 0x9e3779b97f4a7c15u;
        }
    }
    for (const uint8_t *left = (const uint8_t *)words; left < (const uint8_t *)bytes + count; left++) {
        lanes[0] = (rol64(lanes[0], 29) ^ *left) * 0x9e3779b97f4a7c15u;
    }
    return lanes[0] ^ rol64(lanes[1], 16) ^ rol64(lanes[2], 32) ^ rol64(lanes[3], 48) ^ count;
}

static bool describe_circumstances(const struct image_info *program, const char *cpu)
{
    g_autofree char *options = g_strdup_printf("%s %u %s%s%s", cpu, (unsigned)TARGET_PAGE_SIZE, plumbline_alignment(),
                                               plumbline_reorders ? " reordering" : "",
                                               plumbline_loads_early ? " early loads" : "");
    struct stat emulator;
    const uint8_t *buffer = tcg_ctx->code_gen_ptr, *beginning = (const uint8_t *)tcg_qemu_tb_exec;

    if (stat("/proc/self/exe", &emulator) < 0) {
        return false;
    }
    here = (struct circumstances) {
        .magic = "translations 2\n",
        .emulator_bytes = emulator.st_size,
        .emulator_written = emulator.st_mtim.tv_sec * 1000000000ull + emulator.st_mtim.tv_nsec,
        .anchor = (uintptr_t)&plumbline_set_translations,
        .code = (uintptr_t)code,
        .guest_base = guest_base,
        .program_start = program->start_code,
        .program_end = program->end_code,
        .host = cpuinfo,
        .page = TARGET_PAGE_SIZE,
        .options = digest(options, strlen(options)),
        .prologue = digest(beginning, buffer - beginning),
    };
    return true;
}

/* The digest of an entry whose block is at `block`. */
static uint64_t entry_digest(const struct entry *entry, const void *block)
{
    struct entry plain = *entry;

    plain.next = 0;
    plain.digest = 0;
    return digest(&plain, sizeof(plain)) ^ rol64(digest(block, entry->block_bytes), 8);
}

/* The number of buckets for so many entries: a power of two. */
static size_t bucket_count(size_t entries)
{
    return pow2ceil(entries + 1);
}

static uint32_t bucket_of(const struct entry *entry, size_t buckets)
{
    uint64_t mixed = (entry->pc ^ rol64(entry->cs_base, 24) ^ (uint64_t)entry->flags << 32) * 0x9e3779b97f4a7c15u;

    return mixed >> 32 & (buckets - 1);
}

/*
 * Maps a file or zeros after the memory for code. At any other place, the size of this memory could change the guest's
 * own mappings, and translated code fits only the addresses at which it was translated.
 */
static void *map_beside(size_t bytes, int protection, int file, off_t offset)
{
    static uintptr_t place;

    if (!place) {
        place = ROUND_UP((uintptr_t)tcg_ctx->code_gen_buffer + tcg_ctx->code_gen_buffer_size, 2 * MiB) + 2 * MiB;
    }
    void *mapped = mmap((void *)place, bytes, protection, MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0), file, offset);
    place += ROUND_UP(bytes, 2 * MiB);
    return mapped;
}

/* Loads the file's code to its former place. */
static bool place_code(int file, size_t bytes)
{
    size_t page = qemu_real_host_page_size(), read_bytes = MIN(bytes, READ_BYTES);
    void *left = code + read_bytes;

    return pread(file, code, read_bytes, page) == read_bytes &&
           (bytes == read_bytes || mmap(left, bytes - read_bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                                        MAP_PRIVATE | MAP_FIXED, file, page + read_bytes) == left);
}

/* Loads a file. Returns false, and uses nothing of it, if the file is not of this emulator. */
static bool map_file(int file)
{
    struct stat status;
    struct header header;
    size_t page = qemu_real_host_page_size();

    if (fstat(file, &status) < 0 || read(file, &header, sizeof(header)) != sizeof(header) ||
        memcmp(&header.circumstances, &here, sizeof(here)) ||
        !QEMU_IS_ALIGNED(header.code_bytes, page) || header.code_bytes > MOST_BYTES || !header.entries ||
        header.entries > header.code_bytes / sizeof(TranslationBlock) || header.instruction_bytes > MOST_BYTES) {
        return false;
    }
    size_t entry_bytes = header.entries * sizeof(struct entry);
    size_t bucket_bytes = bucket_count(header.entries) * sizeof(uint32_t);
    size_t table_bytes = entry_bytes + bucket_bytes + header.instruction_bytes;
    if (status.st_size != page + header.code_bytes + table_bytes) {
        return false;
    }
    uint8_t *table = map_beside(table_bytes, PROT_READ, file, page + header.code_bytes);
    bool *taken = map_beside(header.entries * sizeof(bool), PROT_READ | PROT_WRITE, -1, 0);
    if (table == MAP_FAILED || taken == MAP_FAILED || !place_code(file, header.code_bytes)) {
        return false;
    }
    kept.taken = taken;
    kept.code_bytes = header.code_bytes;
    kept.instruction_bytes = header.instruction_bytes;
    kept.entry = (const struct entry *)table;
    kept.buckets = (const uint32_t *)(table + entry_bytes);
    kept.instructions = table + entry_bytes + bucket_bytes;
    kept.entries = header.entries;
    return true;
}

void plumbline_load_translations(const struct image_info *program, const char *cpu)
{
    size_t page = qemu_real_host_page_size();

    if (!path) {
        return;
    }
    g_autofree char *folder = g_path_get_dirname(path);
    keeper = getpid();
    code = (void *)ROUND_UP((uintptr_t)tcg_ctx->code_gen_ptr, page);
    if (!describe_circumstances(program, cpu)) {
        code = NULL;
        return;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (map_file(file)) {
            /* The cache removes the least recently used folders first, by their time. */
            utimensat(AT_FDCWD, folder, NULL, 0);
        }
        close(file);
    }
    qatomic_set(&tcg_ctx->code_gen_ptr, code + kept.code_bytes);
}

/* Registers a block as tb_gen_code() registers one that it has made. */
static TranslationBlock *begin(TranslationBlock *tb, vaddr pc)
{
    tb_lock_page0(pc);
    tb_set_page_addr0(tb, pc);
    tb_set_page_addr1(tb, -1);
    qemu_spin_init(&tb->jmp_lock);
    tb->jmp_list_head = 0;
    for (int jump = 0; jump < 2; jump++) {
        tb->jmp_list_next[jump] = 0;
        tb->jmp_dest[jump] = 0;
        if (tb->jmp_reset_offset[jump] != TB_JMP_OFFSET_INVALID) {
            tb_reset_jump(tb, jump);
        }
    }
    tcg_tb_insert(tb);
    TranslationBlock *present = tb_link_page(tb);
    if (present != tb) {
        tcg_tb_remove(tb);
    }
    return present;
}

/* Whether a block that this process has not used yet is as it was written, and its entry is valid. */
static bool is_intact(const struct entry *entry)
{
    const TranslationBlock *tb = code + entry->block;

    return entry->block <= kept.code_bytes && entry->block_bytes <= kept.code_bytes - entry->block &&
           entry->block_bytes >= sizeof(*tb) && entry_digest(entry, tb) == entry->digest &&
           tb->cflags == entry->cflags && entry->instructions <= kept.instruction_bytes &&
           tb->size <= kept.instruction_bytes - entry->instructions;
}

TranslationBlock *plumbline_kept(vaddr pc, uint64_t cs_base, uint32_t flags, uint32_t cflags, const void *instructions)
{
    const struct entry wanted = { .pc = pc, .cs_base = cs_base, .flags = flags };
    uint32_t number, limit = kept.entries + 1;

    if (!kept.entries) {
        return NULL;
    }
    number = kept.buckets[bucket_of(&wanted, bucket_count(kept.entries))];
    /* Each number must be smaller than the one before, so that a damaged file causes no endless loop. */
    for (; number && number < limit; limit = number, number = kept.entry[number - 1].next) {
        const struct entry *entry = &kept.entry[number - 1];
        TranslationBlock *tb = code + entry->block;

        if (entry->pc == pc && entry->cs_base == cs_base && entry->flags == flags && entry->cflags == cflags &&
            !kept.taken[number - 1] && is_intact(entry) &&
            !memcmp(kept.instructions + entry->instructions, instructions, tb->size)) {
            kept.taken[number - 1] = true;
            return begin(tb, pc);
        }
    }
    return NULL;
}

void plumbline_forget_translations(void)
{
    kept.entries = 0;
    code = NULL;
}

struct collection {
    GArray *entries;
    GByteArray *instructions;
    struct entry *open; /* the last entry, whose block ends where the next one begins; NULL if its length is known */
};

/* The next block is at this distance from the first translated code. */
static void close_block(struct collection *into, uint32_t end)
{
    if (into->open) {
        into->open->block_bytes = end - into->open->block;
        into->open = NULL;
    }
}

static void collect(struct collection *into, const struct entry *like, const void *instructions, size_t size)
{
    struct entry entry = *like;

    entry.instructions = into->instructions->len;
    g_byte_array_append(into->instructions, instructions, size);
    g_array_append_val(into->entries, entry);
}

static gboolean collect_block(gpointer key, gpointer value, gpointer data)
{
    const TranslationBlock *tb = value;
    struct collection *into = data;
    vaddr pc = tb->itree.start, last = pc + tb->size - 1;
    struct entry entry = {
        .pc = pc, .cs_base = tb->cs_base, .flags = tb->flags, .cflags = tb->cflags, .block = (void *)tb - code,
    };

    (void)key;
    /* Blocks arrive in the order of their addresses. Those of the file are collected separately. */
    if ((void *)tb < code + kept.code_bytes) {
        return false;
    }
    close_block(into, entry.block);
    if (!(tb->cflags & CF_INVALID) && pc != -1 && (pc & TARGET_PAGE_MASK) == (last & TARGET_PAGE_MASK) &&
        page_check_range(pc, tb->size, PAGE_READ | PAGE_EXEC)) {
        collect(into, &entry, g2h_untagged(pc), tb->size);
        into->open = &g_array_index(into->entries, struct entry, into->entries->len - 1);
    }
    return false;
}

/* The blocks of the file that may be used again. */
static void collect_kept(struct collection *into)
{
    for (size_t i = 0; i < kept.entries; i++) {
        const struct entry *entry = &kept.entry[i];
        const TranslationBlock *tb = code + entry->block;

        if (kept.taken[i] ? !(tb->cflags & CF_INVALID) : is_intact(entry)) {
            collect(into, entry, kept.instructions + entry->instructions, tb->size);
        }
    }
}

static bool write_all(int file, const void *bytes, size_t count)
{
    return qemu_write_full(file, bytes, count) == count;
}

/* Opens FILE.new and locks it. Only the holder of the lock may rename the file. */
static int locked_new_file(const char *name)
{
    struct stat mine, named;
    int file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

    if (file < 0) {
        return -1;
    }
    if (flock(file, LOCK_EX | LOCK_NB) < 0 || fstat(file, &mine) < 0 || stat(name, &named) < 0 ||
        mine.st_ino != named.st_ino || ftruncate(file, 0) < 0) {
        close(file);
        return -1;
    }
    return file;
}

/* Completes the entries of code that starts at `copy`. Returns the table that finds them. */
static GArray *index_entries(const struct collection *all, const uint8_t *copy)
{
    size_t count = bucket_count(all->entries->len);
    GArray *buckets = g_array_sized_new(false, true, sizeof(uint32_t), count);

    g_array_set_size(buckets, count);
    for (size_t i = 0; i < all->entries->len; i++) {
        struct entry *entry = &g_array_index(all->entries, struct entry, i);
        uint32_t *bucket = &g_array_index(buckets, uint32_t, bucket_of(entry, count));

        entry->next = *bucket;
        entry->digest = entry_digest(entry, copy + entry->block);
        *bucket = i + 1;
    }
    return buckets;
}

/* Publishes code with its entries. The digests are those of a copy, because other threads still change jumps. */
static void publish(const struct collection *all, size_t code_bytes)
{
    g_autofree char *name = g_strconcat(path, ".new", NULL), *folder = g_path_get_dirname(path);
    g_autoptr(GByteArray) content = g_byte_array_sized_new(code_bytes + 2 * all->instructions->len);
    size_t page = qemu_real_host_page_size();
    g_autofree uint8_t *first_page = g_malloc0(page);

    g_byte_array_append(content, code, code_bytes);
    g_autoptr(GArray) buckets = index_entries(all, content->data);
    g_byte_array_append(content, (void *)all->entries->data, all->entries->len * sizeof(struct entry));
    g_byte_array_append(content, (void *)buckets->data, buckets->len * sizeof(uint32_t));
    g_byte_array_append(content, all->instructions->data, all->instructions->len);
    *(struct header *)first_page = (struct header) {
        .circumstances = here, .code_bytes = code_bytes, .entries = all->entries->len,
        .instruction_bytes = all->instructions->len,
    };
    g_mkdir_with_parents(folder, 0777);
    int file = locked_new_file(name);
    if (file < 0) {
        return;
    }
    if (!write_all(file, first_page, page) || !write_all(file, content->data, content->len) || rename(name, path) < 0) {
        unlink(name);
    }
    close(file);
}

/* Whether code of this size is worth a new file, and the process may write such a file. */
static bool is_worth_keeping(size_t code_bytes)
{
    struct rlimit limit;

    return code_bytes > kept.code_bytes + kept.code_bytes / 16 + WORTH_BYTES && code_bytes <= MOST_BYTES &&
           getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur > 2 * code_bytes;
}

void plumbline_keep_translations(void)
{
    if (!code || getpid() != keeper) {
        return;
    }
    mmap_lock();
    size_t code_bytes = ROUND_UP(tcg_ctx->code_gen_ptr - code, qemu_real_host_page_size());

    if (is_worth_keeping(code_bytes)) {
        struct collection all = { g_array_new(false, false, sizeof(struct entry)), g_byte_array_new(), NULL };

        collect_kept(&all);
        tcg_tb_foreach(collect_block, &all);
        close_block(&all, code_bytes);
        publish(&all, code_bytes);
        g_array_free(all.entries, true);
        g_byte_array_free(all.instructions, true);
    }
    mmap_unlock();
}
