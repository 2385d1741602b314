#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
static char *block;
static atomic_int turn;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER, two = PTHREAD_MUTEX_INITIALIZER;
static volatile char sink;
__attribute__((noinline)) static void rd(int n) { sink = block[n]; }
__attribute__((noinline)) static void wr(int n) { block[n] = 3; }
__attribute__((noinline)) static void cp(int n) { char from[16] = {0}; memcpy(block, from, n); }
__attribute__((noinline)) static void both(pthread_mutex_t *a, pthread_mutex_t *b) { pthread_mutex_lock(a); pthread_mutex_lock(b); pthread_mutex_unlock(b); pthread_mutex_unlock(a); }
static void *other(void *number) {
  rd(0); rd(13);
  atomic_store_explicit(&turn, 1, memory_order_relaxed);
  while (atomic_load_explicit(&turn, memory_order_relaxed) != 2) ;
  wr(40);
  atomic_store_explicit(&turn, 3, memory_order_relaxed);
  while (atomic_load_explicit(&turn, memory_order_relaxed) != 4) ;
  rd(50);
  return number; }
int main(int c, char **v) {
  pthread_t thread; (void)v;
  block = malloc(64 * c);
  pthread_create(&thread, NULL, other, NULL);
  while (atomic_load_explicit(&turn, memory_order_relaxed) != 1) ;
  wr(0); cp(16);
  atomic_store_explicit(&turn, 2, memory_order_relaxed);
  while (atomic_load_explicit(&turn, memory_order_relaxed) != 3) ;
  rd(40);
  both(&one, &two); both(&two, &one);
  free(block); atomic_store_explicit(&turn, 4, memory_order_relaxed);
  pthread_join(thread, NULL);
  return 0; }
