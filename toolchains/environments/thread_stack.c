/*
 * Preloaded into a program of the GNU C library, gives its threads stacks of musl's size: 128 KiB instead of the usual
 * 8 MiB of the GNU C library (musl, src/internal/pthread_impl.h: DEFAULT_STACK_SIZE). A thread whose creator requests
 * a size gets that size, as with musl, and the stack of the first thread is the kernel's.
 *
 * The GNU C library puts a thread's own data on its stack, unlike musl: their size is added. After the stack there are
 * more inaccessible pages than musl's two, because a function with a large array steps over two pages, into another
 * thread's stack. There it would only sometimes do harm; here it dies each time.
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
