/* What harness/run/sweep/sweep.c has to know of the machine. */
#ifdef __powerpc64__
typedef uint64_t register_word;
#else
typedef uint32_t register_word;
#endif
/* Integer registers, CR0 and three holes; 32 registers of floating point, 32 vectors. */
enum { REGISTER_BYTES = 36 * sizeof(register_word) + 32 * 8 + 32 * 16 };

/* Let the thread that a signal interrupted go on behind a slot. */
static void sweep_resume(void *context, uintptr_t behind)
{
#ifdef __powerpc64__
    ((ucontext_t *)context)->uc_mcontext.gp_regs[32] = behind;
#else
    ((ucontext_t *)context)->uc_mcontext.uc_regs->gregs[32] = behind;
#endif
}

/* A signal keeps all of the register file. */
static void sweep_forget(unsigned char *registers)
{
    (void)registers;
}
