#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) static char over(char *p, int n) { return p[n]; }
__attribute__((noinline)) static void wr(char *p, int n) { p[n] = 3; }
__attribute__((noinline)) static void cp(char *p, char *q, int n) { memcpy(p, q, n); }
__attribute__((noinline)) static int un(int *p) { return *p ? 5 : 6; }
static int g[4]; 
__attribute__((noinline)) static int gl(int n) { return g[n]; }
__attribute__((noinline)) static int stk(int n) { volatile int s[4]={0}; return s[n]; }
int main(int c, char **v) {
  char *b = malloc(16); int *u = malloc(16); (void)v;
  printf("%d\n", over(b,15+c)); wr(b,15+c); char q[64]={0}; cp(b,q,20*c); printf("%d\n", un(u)); write(1,u,4);
  printf("%d\n", gl(c+3)); printf("%d\n", stk(c+3));
  free(b); printf("%d\n", over(b,c)); fflush(stdout); free(b); 
  if (c>1) return over((char*)8,c); return 0; }
