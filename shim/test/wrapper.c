/* A preloaded library that finds what comes after it by RTLD_NEXT: for that, dlsym must see who called. */
#include <dlfcn.h>
#include <stddef.h>

#define API __attribute__((visibility("default")))

API int (*wrapper_next(const char *name))(void) {
    void *found = dlsym(RTLD_NEXT, name);
    __asm__ volatile("" : "+r"(found)); /* no tail call, by which the caller would be somebody else */
    return (int (*)(void))found;
}

/* Defined in lookups.c, here, and in the C library: which one is next shows whom dlsym took for the caller. */
API int getpagesize(void) {
    return -2;
}
