/* What harness/run/sweep/sweep.c has to know of the machine. */
enum { REGISTER_BYTES = 16 * 4 + 16 + 8 * 12 };
typedef uint32_t register_word;

/* A slot may move the stack into the memory that is looked at. */
#define HANDLER_FLAGS SA_ONSTACK
/* What makes several accesses is refused at one of them. */
#define IS_REFUSED(number, code, address, accessed, behind) \
    ((void)(behind), (number) == SIGBUS && (code) == BUS_ADRALN && (address) >= (accessed) && (address) < (accessed) + 12)

/* Let the thread that a signal interrupted go on behind a slot. */
static void sweep_resume(void *context, uintptr_t behind)
{
    ((ucontext_t *)context)->uc_mcontext.gregs[R_PC] = (int)behind;
}

/* A signal keeps all of the register file. */
static void sweep_forget(unsigned char *registers)
{
    (void)registers;
}
