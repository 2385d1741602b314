/*
 * Performs a litmus test: a few accesses of each thread, in many rounds, and counts the rounds with the outcome in question.
 *
 * The generated part above has the macros' barriers, a function for each thread of each shape, and the table `shapes`.
 * Each round has its own places in memory. Before it, the threads wait for one another for a short time, so that most
 * rounds of threads that run at once overlap. Usage: litmus SHAPE ROUNDS WANTED. It ends early when it has seen the outcome
 * WANTED times (0: never), and prints the number of rounds with the outcome and the number of rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile long begun[MOST_THREADS];
static const struct shape *shape;
static pthread_barrier_t together;
static long batches, wanted, seen, done;

static void wait_for_others(int me, long round)
{
    begun[me] = round + 1;
    for (int other = 0; other < shape->threads; other++) {
        for (int turns = 0; turns < PATIENCE && begun[other] <= round; turns++) {
        }
    }
}

static void *take_part(void *which)
{
    int me = (int)(long)which;

    for (long batch = 0; batch < batches; batch++) {
        if (me == 0) {
            memset(rounds, 0, sizeof(rounds));
        }
        pthread_barrier_wait(&together);
        if (wanted && seen >= wanted) {
            break;
        }
        for (int at = 0; at < shape->at_once; at++) {
            wait_for_others(me, batch * shape->at_once + at);
            shape->perform[me](&rounds[at]);
        }
        pthread_barrier_wait(&together);
        if (me == 0) {
            for (int at = 0; at < shape->at_once; at++) {
                seen += shape->has_outcome(&rounds[at]);
            }
            done += shape->at_once;
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST_THREADS];

    for (unsigned i = 0; argc == 4 && i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        shape = strcmp(shapes[i].name, argv[1]) ? shape : &shapes[i];
    }
    if (!shape) {
        fprintf(stderr, "usage: %s SHAPE ROUNDS WANTED\n", argv[0]);
        return 2;
    }
    batches = (atol(argv[2]) + shape->at_once - 1) / shape->at_once;
    wanted = atol(argv[3]);
    pthread_barrier_init(&together, NULL, shape->threads);
    for (long i = 1; i < shape->threads; i++) {
        pthread_create(&threads[i], NULL, take_part, (void *)i);
    }
    take_part((void *)0);
    for (int i = 1; i < shape->threads; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%ld %ld\n", seen, done);
    return 0;
}
