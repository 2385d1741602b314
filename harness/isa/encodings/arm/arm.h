/* What harness/run/sweep/sweep.c has to know of the machine. */
enum { REGISTER_BYTES = 64 + 32 * 8 };
typedef uint32_t register_word;

/* Let the thread that a signal interrupted go on behind a slot, in the state that it was in. */
static void sweep_resume(void *context, uintptr_t behind)
{
    ((ucontext_t *)context)->uc_mcontext.arm_pc = behind;
}

/* A signal keeps all of the register file. */
static void sweep_forget(unsigned char *registers)
{
    (void)registers;
}
