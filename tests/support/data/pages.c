/* Prints the size of a page, and whether memory is mapped by whole ones. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
    long size = sysconf(_SC_PAGESIZE);
    unsigned char *two = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    /* The second one goes as a whole; half of one cannot be named. */
    int whole = munmap(two + size, 1) == 0 && munmap(two + size / 2, 1) != 0;
    printf("%ld %s\n", size, whole ? "whole" : "parts");
    return 0;
}
