#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
static uint32_t f(char*p){ uint32_t*q=(uint32_t*)p; __asm__("":"+r"(q)); return *q; }
int main(int c,char**v){ char*b=malloc(64); b+=atoi(v[1]); printf("%x\n", f(b)); return 0;}
