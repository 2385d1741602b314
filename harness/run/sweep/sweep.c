/*
 * Runs every encoding of a generated table, each a single instruction with its own register file, at each of 64 bytes
 * past a boundary: once inside a page, and once where the page ends after these bytes. One process runs them all.
 *
 *   sweep                a line `NUMBER PLACE OUTCOMES` for each encoding and place, 0 inside a page and 1 at its end
 *   sweep at OFFSET      every encoding once, inside a page: a line `NUMBER OUTCOME` for each
 *   sweep NUMBER OFFSET  only this one, inside a page, without a signal handler
 *
 * OUTCOMES has a letter for each offset:
 *   d  done: registers and memory are exactly those of the table
 *   s  SIGBUS, BUS_ADRALN, at the access's address (or the machine's equivalent: IS_REFUSED), and no register and no byte
 *      has changed
 *   t  as d, but at the address without its low bits
 *   r  as t, and loaded words are rotated
 *   ?  anything else, which a line `? NUMBER PLACE OFFSET WORDS` describes
 */
#ifndef IS_REFUSED
#define IS_REFUSED(number, code, address, accessed, behind) \
    ((void)(behind), (number) == SIGBUS && (code) == BUS_ADRALN && (address) == (accessed))
#endif
#ifndef HANDLER_FLAGS
#define HANDLER_FLAGS 0
#endif
static unsigned char *memory; /* three pages */
static unsigned char *boundary;
/* Aligned, because this program's own accesses are checked as well: what it copies by words is a whole file or window,
   and vectors of 32 bytes are loaded from a file. */
#define ALIGNED __attribute__((aligned(32)))
static unsigned char memory_pattern[256] ALIGNED;
enum { BOUNDARY = 64, OFFSETS = 64, WINDOW = sizeof memory_pattern }; /* a window begins 64 bytes before its boundary */
static unsigned char expected_memory[WINDOW] ALIGNED;
static unsigned char registers_pattern[REGISTER_BYTES] ALIGNED, registers_before[REGISTER_BYTES] ALIGNED;
static unsigned char registers[REGISTER_BYTES] ALIGNED, expected_registers[REGISTER_BYTES] ALIGNED;
static const struct encoding *volatile running;
/* Of the last signal. Fields of their own, because a copy of the whole may use registers that the frame does not keep. */
static volatile int signal_number, signal_code;
static const unsigned char *volatile signal_address;

/*
 * Whole files and windows, by words. A libc's copies of a few hundred bytes by vectors and blocks are what an emulator is
 * slowest at: with them, SPARC takes ten times as long.
 */
static void copy(unsigned char *to, const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
    }
}

static int is_same(const unsigned char *one, const unsigned char *other, size_t bytes)
{
    uint64_t difference = 0;

    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        difference |= ((const uint64_t *)one)[i] ^ ((const uint64_t *)other)[i];
    }
    return difference == 0;
}

static void on_signal(int number, siginfo_t *information, void *context)
{
    signal_number = number;
    signal_code = information->si_code;
    signal_address = information->si_addr;
    sweep_resume(context, sweep_slots[running - encodings].end);
}

static void set_register(unsigned char *file, int number, register_word value)
{
    memcpy(file + number * sizeof value, &value, sizeof value);
}

static register_word register_of(const unsigned char *file, int number)
{
    register_word value;

    memcpy(&value, file + number * sizeof value, sizeof value);
    return value;
}

/* The state before the access, whose address is `offset` past the boundary. */
static void prepare(const struct encoding *one, int offset)
{
    copy(boundary - BOUNDARY, memory_pattern, WINDOW);
    copy(registers_before, registers_pattern, REGISTER_BYTES);
    set_register(registers_before, one->base, (uintptr_t)(boundary + offset) - (uintptr_t)(long)one->displacement);
    if (one->index >= 0) {
        set_register(registers_before, one->index, (register_word)one->index_value);
    }
    copy(registers, registers_before, REGISTER_BYTES);
    signal_number = 0;
}

/* Some bytes as a number, with copies of the sign before it. */
static uint64_t number_of(const unsigned char *bytes, unsigned size, int is_signed)
{
    uint64_t number = 0;

    for (unsigned i = 0; i < size; i++) {
        number = number << 8 | bytes[__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? i : size - 1 - i];
    }
    return is_signed && size < 8 && number >> (8 * size - 1) ? number | UINT64_MAX << 8 * size : number;
}

static void set_number(unsigned char *bytes, unsigned size, uint64_t number)
{
    for (unsigned i = 0; i < size; i++) {
        bytes[__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? size - 1 - i : i] = (unsigned char)(number >> 8 * i);
    }
}

/* The result of the old value, a number of that many bits, and of the moved value. */
static uint64_t changed(int change, uint64_t there, uint64_t moved, unsigned bits)
{
    switch ((enum change)change) {
    case COPY: return moved;
    case ADD: return there + moved;
    case SUB: return there - moved;
    case FROM: return moved - there;
    case AND: return there & moved;
    case OR: return there | moved;
    case XOR: return there ^ moved;
    case SHL: return there << 1;
    case SHR: return there >> 1;
    case SAR: return there >> 1 | (there >> (bits - 1) << (bits - 1));
    case ROL: return there << 1 | there >> (bits - 1);
    case ROR: return there >> 1 | there << (bits - 1);
    case QUIET: return (moved & 0x7fc00000) == 0x7f800000 && moved & 0x3fffff ? moved | 0x400000 : moved;
    }
    return moved;
}

/* A move that changes the old value, or moves a constant. A loaded number is extended before. */
static void make_change(const struct move *move, int offset)
{
    unsigned size = move->size + move->extension;
    const unsigned char *there = memory_pattern + BOUNDARY + offset + move->memory, *reg = registers_before + move->reg;
    uint64_t constant = (uint64_t)(int64_t)move->constant, other;

    if (move->is_store) {
        other = move->is_constant ? constant : number_of(reg, size, 0);
        set_number(expected_memory + BOUNDARY + offset + move->memory, size,
                   changed(move->change, number_of(there, size, 0), other, 8 * size));
        return;
    }
    /* The register begins before its lowest bytes where the highest ones come first. */
    unsigned before = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? move->extension : 0;
    other = move->is_constant ? constant : number_of(reg - before, size, 0);
    set_number(expected_registers + move->reg - before, size,
               changed(move->change, other, number_of(there, move->size, move->is_signed), 8 * size));
}

static void rotate(unsigned char *word, unsigned bits)
{
    uint32_t loaded;

    memcpy(&loaded, word, sizeof loaded);
    if (bits) {
        loaded = loaded >> bits | loaded << (32 - bits);
    }
    memcpy(word, &loaded, sizeof loaded);
}

/* One move, from the state before to the expected one, as an access at `offset` past the boundary makes it. */
static void make(const struct move *move, int offset, unsigned rotation)
{
    const unsigned char *from = memory_pattern + BOUNDARY + offset + move->memory;
    unsigned char *to = expected_registers + move->reg;
    unsigned char fill;

    if (move->change != COPY || move->is_constant) {
        make_change(move, offset);
        return;
    }
    if (move->is_store) {
        memcpy(expected_memory + BOUNDARY + offset + move->memory, registers_before + move->reg, move->size);
        return;
    }
    memcpy(to, from, move->size);
    rotation ? rotate(to, rotation) : (void)0;
    fill = move->is_signed && from[__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 0 : move->size - 1] >> 7 ? 0xff : 0;
    memset(__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? to - move->extension : to + move->size, fill, move->extension);
}

/* Whether everything is as after an access at `offset` past the boundary, whose loaded words are rotated by so many bits. */
static int is_as_after(const struct encoding *one, int offset, unsigned rotation)
{
    copy(expected_memory, memory_pattern, WINDOW);
    copy(expected_registers, registers_before, REGISTER_BYTES);
    if (one->writeback) {
        register_word base = register_of(registers_before, one->base) + (register_word)one->writeback;

        set_register(expected_registers, one->base, base);
    }
    for (int i = 0; i < one->moves; i++) {
        make(&moves[one->first_move + i], offset, rotation);
    }
    for (int i = 0; i < one->results; i++) {
        set_register(expected_registers, results[one->first_result + i].reg, (register_word)results[one->first_result + i].value);
    }
    return is_same(registers, expected_registers, REGISTER_BYTES)
           && is_same(boundary - BOUNDARY, expected_memory, WINDOW);
}

/* After a signal. */
static int is_as_before(void)
{
    copy(expected_registers, registers_before, REGISTER_BYTES);
    sweep_forget(expected_registers);
    sweep_forget(registers);
    return is_same(registers, expected_registers, REGISTER_BYTES)
           && is_same(boundary - BOUNDARY, memory_pattern, WINDOW);
}

static char outcome_of(const struct encoding *one, int offset)
{
    int truncated = offset / one->unit * one->unit;

    if (signal_number) {
        uintptr_t behind = sweep_slots[one - encodings].behind;

        return IS_REFUSED(signal_number, signal_code, signal_address, boundary + offset, behind) && is_as_before() ? 's' : '?';
    }
    if (is_as_after(one, offset, 0)) {
        return 'd';
    }
    if (one->rotates && is_as_after(one, truncated, (unsigned)(offset - truncated) * 8)) {
        return 'r';
    }
    return is_as_after(one, truncated, 0) ? 't' : '?';
}

/* Where the state differs from the state after a completed access. */
static void tell(const struct encoding *one, int place, int offset)
{
    printf("? %d %d %d", (int)(one - encodings), place, offset);
    if (signal_number) {
        printf(" signal %d, code %d, %ld past the boundary%s\n", signal_number, signal_code,
               (long)(signal_address - boundary), is_as_before() ? "" : ", and something changed");
        return;
    }
    is_as_after(one, offset, 0);
    for (int i = 0; i < REGISTER_BYTES; i++) {
        if (registers[i] != expected_registers[i]) {
            printf(" register %d byte %d is %02x, not %02x;", i / (int)sizeof(register_word),
                   i % (int)sizeof(register_word), registers[i],
                   expected_registers[i]);
            break;
        }
    }
    for (int i = 0; i < WINDOW; i++) {
        if (boundary[i - BOUNDARY] != expected_memory[i]) {
            printf(" memory %d past the boundary is %02x, not %02x", i - BOUNDARY, boundary[i - BOUNDARY],
                   expected_memory[i]);
            break;
        }
    }
    putchar('\n');
}

static void run_at(const struct encoding *one, int offset)
{
    prepare(one, offset);
    running = one;
    sweep_run(registers, (const void *)sweep_slots[one - encodings].begin);
}

static void sweep(const struct encoding *one, int place)
{
    char outcomes[OFFSETS + 1] ALIGNED = "";

    for (int offset = 0; offset < OFFSETS; offset++) {
        run_at(one, offset);
        outcomes[offset] = outcome_of(one, offset);
        if (outcomes[offset] == '?') {
            tell(one, place, offset);
        }
    }
    printf("%d %d %s\n", (int)(one - encodings), place, outcomes);
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER | HANDLER_FLAGS};
    long page = sysconf(_SC_PAGESIZE);
    int offset = argc == 3 ? atoi(argv[2]) : 0, is_at = argc == 3 && strcmp(argv[1], "at") == 0;
    int number = argc == 3 && !is_at ? atoi(argv[1]) : 0;

    memory = mmap(NULL, 3 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        return EXIT_FAILURE;
    }
    for (int i = 0; i < WINDOW; i++) {
        memory_pattern[i] = (unsigned char)(i * 37 + 11);
    }
    for (int i = 0; i < REGISTER_BYTES; i++) {
        registers_pattern[i] = (unsigned char)(i * 53 + i / 256 * 29 + 7);
    }
    boundary = memory + page + page / 2;
    if ((argc != 1 && argc != 3) || number < 0 || number >= ENCODINGS || offset < 0 || offset >= OFFSETS) {
        fprintf(stderr, "usage: sweep | sweep at OFFSET | sweep NUMBER OFFSET\n");
        return EXIT_FAILURE;
    }
    if (argc == 3 && !is_at) {
        run_at(&encodings[number], offset);
        printf("%d %c\n", number, outcome_of(&encodings[number], offset));
        return EXIT_SUCCESS;
    }
    if (HANDLER_FLAGS & SA_ONSTACK) {
        static unsigned char stack[65536] ALIGNED;
        stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};

        sigaltstack(&other, NULL);
    }
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    for (int i = 0; is_at && i < ENCODINGS; i++) {
        run_at(&encodings[i], offset);
        printf("%d %c\n", i, outcome_of(&encodings[i], offset));
    }
    for (int place = 0; !is_at && place < 2; place++) {
        boundary = place ? memory + 2 * page - OFFSETS : boundary;
        for (int i = 0; i < ENCODINGS; i++) {
            sweep(&encodings[i], place);
        }
    }
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
