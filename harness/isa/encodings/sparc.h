/* What harness/run/sweep/sweep.c has to know of the machine. */
enum { REGISTER_BYTES = 16 * 8 + 64 * 4 };
typedef uint64_t register_word;

/* Let the thread that a signal interrupted go on behind a slot. */
static void sweep_resume(void *context, uintptr_t behind)
{
#ifdef __arch64__
    struct sigcontext *interrupted = context;

    interrupted->sigc_regs.tpc = behind;
    interrupted->sigc_regs.tnpc = behind + 4;
#else
    struct sigcontext *interrupted = context;

    interrupted->si_regs.pc = behind;
    interrupted->si_regs.npc = behind + 4;
#endif
}

/* Make bytes alike that a signal does not keep: a 32-bit program's frame has the lower halves of registers alone. */
static void sweep_forget(unsigned char *registers)
{
#ifdef __arch64__
    (void)registers;
#else
    for (int i = 0; i < 16; i++) {
        memset(registers + i * 8, 0, 4);
    }
#endif
}
