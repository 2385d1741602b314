/* Four levels down to a misaligned load, the two innermost inlined; place.c includes it once for every WHERE. */
#define PASTED(prefix, where) prefix##_##where
#define NAMED(prefix, where) PASTED(prefix, where)
#define TEXT_OF(where) #where
#define TEXT(where) TEXT_OF(where)

static inline __attribute__((always_inline)) void NAMED(load, WHERE)(const char *address)
{
    __asm__ volatile(".globl site_" TEXT(WHERE) "\nsite_" TEXT(WHERE) ":\n\t" ACCESS : : ADDRESS_REGISTER(address) : CLOBBERED);
}

static inline __attribute__((always_inline)) void NAMED(between, WHERE)(const char *address)
{
    NAMED(load, WHERE)(address + 1);
}

static __attribute__((noinline)) void NAMED(leaf, WHERE)(const char *address)
{
    NAMED(between, WHERE)(address);
}

static __attribute__((noinline)) void NAMED(caller, WHERE)(const char *address)
{
    NAMED(leaf, WHERE)(address);
    RETURN_HERE;
}

#undef WHERE
