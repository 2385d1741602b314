#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct pair { int a; long b; };
static inline uint32_t rd(const void *p) { return *(const uint32_t *)p; }
__attribute__((noinline)) static uint32_t outer(char *p) { return rd(p) + 1; }
__attribute__((noinline,no_sanitize("alignment"))) static uint64_t hidden(char *p) { return *(uint64_t *)p; }
__attribute__((noinline)) static void st(char *p, int n) { *(uint16_t *)p = (uint16_t)n; }
__attribute__((noinline)) static long mem(struct pair *p) { return p->b; }
__attribute__((noinline)) static int sh(int n) { return 1 << n; }
__attribute__((noinline)) static int ov(int n) { return n + 2147483647; }
__attribute__((noinline)) static int idx(int n) { int a[4]={1,2,3,4}; return a[n&7]; }
__attribute__((noinline)) static unsigned f2u(double n) { return (unsigned char)n; }
__attribute__((noinline)) static int bl(unsigned char *n) { return *(_Bool *)n; }
__attribute__((noinline)) static void *nul(char *p,char*q,int n) { memcpy(p,q,n); return p; }
__attribute__((noinline)) static char *add(char *p,unsigned long n) { return p+n; }
int main(int c, char **v) {
  char *b = calloc(64,1); b[0]=7;
  printf("%u\n", outer(b+c)); printf("%lu\n", (unsigned long)hidden(b+c)); st(b+c,c); printf("%ld\n", mem((struct pair*)(b+4*c)));
  printf("%d\n", sh(31+c)); printf("%d\n", ov(c)); printf("%d\n", idx(c+4)); printf("%u\n", f2u(1000.0*c)); printf("%d\n", bl((unsigned char*)b));
  nul(c>1?b:NULL,b,0); printf("%d\n", add((char*)16,-64UL*c)==b);
  (void)v; printf("%ld\n", mem(c>5?(struct pair*)b:NULL)); return 0; }
