/*
 * dlopen(NULL) and dlsym() for a program that contains its C library. musl provides them only to dynamically linked
 * programs, and since 9.1 Valkey uses them to find its own Lua. The symbols are read from the program's own file, which
 * has them unless it is stripped.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A function of musl, for dlerror(). */
void __dl_seterr(const char *format, ...);

/* Its address serves as the handle of the program. */
static const char program;

void *dlopen(const char *file, int mode) {
    (void)mode;
    if (!file) return (void *)&program;
    __dl_seterr("Dynamic loading not supported");
    return NULL;
}

int dlclose(void *handle) {
    if (handle == &program) return 0;
    __dl_seterr("Invalid library handle %p", handle);
    return 1;
}

static int is_visible(const ElfW(Sym) * symbol) {
    int type = symbol->st_info & 0xf, binding = symbol->st_info >> 4;
    return symbol->st_shndx != SHN_UNDEF && (binding == STB_GLOBAL || binding == STB_WEAK) &&
           (type == STT_FUNC || type == STT_OBJECT || type == STT_NOTYPE);
}

/* The value of a visible symbol in the program's file, or 0. */
static uintptr_t value_of(const char *name, const char *image) {
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Shdr) *sections = (const void *)(image + header->e_shoff);
    for (int at = 0; at < header->e_shnum; at++) {
        if (sections[at].sh_type != SHT_SYMTAB) continue;
        const ElfW(Sym) *symbols = (const void *)(image + sections[at].sh_offset);
        const char *names = image + sections[sections[at].sh_link].sh_offset;
        for (size_t one = 0; one < sections[at].sh_size / sizeof *symbols; one++)
            if (is_visible(symbols + one) && !strcmp(names + symbols[one].st_name, name)) return symbols[one].st_value;
    }
    return 0;
}

/* All symbols are as far from their addresses in the file as this function is. */
static void *found(const char *name, const char *image) {
    uintptr_t here = value_of("dlsym", image), there = value_of(name, image);
    return here && there ? (void *)(there + ((uintptr_t)dlsym - here)) : NULL;
}

void *dlsym(void *restrict handle, const char *restrict name) {
    void *symbol = NULL;
    int file = handle == &program ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
    struct stat status;
    if (file >= 0 && !fstat(file, &status)) {
        char *image = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (image != MAP_FAILED) {
            symbol = found(name, image);
            munmap(image, (size_t)status.st_size);
        }
    }
    if (file >= 0) close(file);
    if (!symbol) __dl_seterr("Symbol not found: %s", name);
    return symbol;
}

/*
 * What callers of dlsym() call on machines with 32 bits, where time_t has 64: musl's headers rename it if a header that
 * defines types is included before <dlfcn.h>, which is the first one of this file for that reason.
 */
void *__dlsym_time64(void *restrict handle, const char *restrict name) {
    return dlsym(handle, name);
}
