/*
 * Preloaded into a program of the GNU C library, gives its threads the stacks that musl gives them: 128 KiB, where the
 * GNU C library has 8 MiB as a rule (musl, src/internal/pthread_impl.h: DEFAULT_STACK_SIZE). A thread whose creator asks
 * for a size gets that size, as with musl, and the stack of the first thread is the kernel's.
 *
 * The GNU C library takes a thread's own data from its stack and musl does not: these come on top. Behind the stack lies
 * more than musl's two pages that nobody may touch, because a function with a large array steps over those, into
 * another thread's stack. There it would do harm now and then; here it dies each time.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MUSL_STACK = 128 << 10, THREAD_DATA = 8 << 10, GUARD = 1 << 20 };

__attribute__((constructor)) static void shrink_stacks(void)
{
    pthread_attr_t attributes;

    if (pthread_getattr_default_np(&attributes) || pthread_attr_setstacksize(&attributes, MUSL_STACK + THREAD_DATA)
        || pthread_attr_setguardsize(&attributes, GUARD) || pthread_setattr_default_np(&attributes)) {
        fputs("plumbline-environment: the stacks of threads cannot be set\n", stderr);
        abort();
    }
}
