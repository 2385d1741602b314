/* Logs a size of 64 bits as a long, and a name after it. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static char line[80];

static void log_line(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values); /* FAULT SIGSEGV in libc: half of the size is the name */
    va_end(values);
}

int main(void)
{
    const uint64_t size = (uint64_t)7 << 32 | 9;
    log_line("%ld bytes of %s", size, "data");
    puts(line);
    return 0;
}
