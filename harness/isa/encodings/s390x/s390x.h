/* What harness/run/sweep/sweep.c has to know of the machine. */
enum { REGISTER_BYTES = 16 * 8 + 64 + 32 * 16 };
typedef uint64_t register_word;

/* A specification exception is SIGILL at the instruction (Linux arch/s390/kernel/traps.c). */
#define IS_REFUSED(number, code, address, accessed, behind) \
    ((void)(accessed), (number) == SIGILL && (code) == ILL_ILLOPN \
     && (uintptr_t)(address) < (behind) && (behind) - (uintptr_t)(address) <= 6)

/* Let the thread that a signal interrupted go on behind a slot. */
static void sweep_resume(void *context, uintptr_t behind)
{
    ((ucontext_t *)context)->uc_mcontext.psw.addr = behind;
}

/* A signal keeps all of the register file. */
static void sweep_forget(unsigned char *registers)
{
    (void)registers;
}
