/*
 * Code for a program that becomes another one, as a list of words says: it reads the list, a file of words that each end
 * with a NUL byte, and gives up on errors. The includer defines PROGRAM, its own name in messages.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The exit status of a shell that finds no program (POSIX, Exit Status for Commands). */
#define NOT_EXECUTED 127

static void fail(const char *what, const char *subject)
{
    fprintf(stderr, "plumbline " PROGRAM ": %s %s: %s\n", what, subject, strerror(errno));
    _exit(NOT_EXECUTED);
}

static void *obtain(void *memory)
{
    if (!memory)
        fail("no memory for", "words");
    return memory;
}

/* The whole file, followed by a NUL byte. */
static char *content_of(const char *path, size_t *length)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) < 0)
        fail("cannot read", path);
    char *content = obtain(calloc(1, (size_t)status.st_size + 1));
    for (*length = 0; *length < (size_t)status.st_size;) {
        ssize_t some = read(file, content + *length, (size_t)status.st_size - *length);
        if (some <= 0)
            fail("cannot read", path);
        *length += (size_t)some;
    }
    close(file);
    return content;
}

/* The words of a file. More words than fit are an error, because a list without its end is another list. */
static size_t words_in(const char *path, char **words, size_t most)
{
    size_t length, count = 0;
    char *content = content_of(path, &length);
    for (char *word = content; word < content + length; word += strlen(word) + 1) {
        errno = E2BIG;
        if (count == most)
            fail("cannot take all words of", path);
        words[count++] = word;
    }
    return count;
}
