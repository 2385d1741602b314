/*
 * The canary of environments: uses a given amount of stack in a thread, or makes a system call. Exit status 0 if it
 * survived, 2 if it could not try.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIVED = 0, UNTRIED = 2, FRAME_KIBIBYTES = 4 };

static volatile unsigned char sum;

/* Uses the stack in pieces, as calls do, and reads it again so that no compiler removes the accesses. */
static __attribute__((noinline)) void use_stack(long kibibytes)
{
    volatile unsigned char frame[FRAME_KIBIBYTES << 10];

    memset((void *)frame, (int)kibibytes, sizeof(frame));
    if (kibibytes > FRAME_KIBIBYTES) {
        use_stack(kibibytes - FRAME_KIBIBYTES);
    }
    sum += frame[kibibytes];
}

static void *use_stack_in_thread(void *kibibytes)
{
    use_stack((long)kibibytes);
    return NULL;
}

static void *make_allowed_call(void *unused)
{
    syscall(SYS_getppid);
    return unused;
}

/* Requests the processors of a process that does not exist: an allowed call has no effect. */
static void *make_forbidden_call(void *unused)
{
    syscall(SYS_sched_setaffinity, -1, 0, NULL);
    return unused;
}

static void survive(int number)
{
    (void)number;
    _exit(LIVED);
}

static int in_thread(void *(*work)(void *), void *given)
{
    pthread_t thread;

    return pthread_create(&thread, NULL, work, given) || pthread_join(thread, NULL) ? UNTRIED : LIVED;
}

/* If a child dies of a signal, the parent ends with the same signal, so that the child's end becomes the program's. */
static int in_child(void *(*work)(void *))
{
    int status;
    pid_t child = fork();

    if (child < 0) {
        return UNTRIED;
    }
    if (child == 0) {
        work(NULL);
        _exit(LIVED);
    }
    if (waitpid(child, &status, 0) != child) {
        return UNTRIED;
    }
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";

    if (!strcmp(what, "stack") && count == 3) {
        return in_thread(use_stack_in_thread, (void *)atol(words[2]));
    }
    if (!strcmp(what, "allowed")) {
        make_allowed_call(NULL);
        return LIVED;
    }
    if (!strcmp(what, "forbidden")) {
        make_forbidden_call(NULL);
        return LIVED;
    }
    if (!strcmp(what, "handled")) {
        signal(SIGSYS, survive);
        make_forbidden_call(NULL);
        return LIVED;
    }
    if (!strcmp(what, "thread")) {
        return in_thread(make_forbidden_call, NULL);
    }
    if (!strcmp(what, "child")) {
        return in_child(make_forbidden_call);
    }
    return UNTRIED;
}
