/* A second preloaded library, as profilers and allocators are: it hooks dlsym, dlopen and an allocation of the driver, and
 * reaches what comes next in the ways that such libraries use. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))

API unsigned neighbour_calls; /* of its cuMemAlloc_v2 */
API unsigned neighbour_looks; /* of its dlsym */

typedef void *look(void *, const char *);

static void *next_of(const char *name) {
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.34");
    return found ? found : dlvsym(RTLD_NEXT, name, "GLIBC_2.2.5");
}

API void *dlsym(void *handle, const char *name) {
    static look *next;
    if (!next)
        next = (look *)next_of("dlsym");
    void *found = next(handle, name);
    neighbour_looks++; /* and no tail call: what is next is what comes after this library */
    return found;
}

API void *dlopen(const char *file, int mode) {
    static void *(*next)(const char *, int);
    if (!next)
        next = (void *(*)(const char *, int))next_of("dlopen");
    return next(file, mode);
}

API int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    static int (*next)(unsigned long long *, size_t);
    if (!next)
        next = (int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    neighbour_calls++;
    return next ? next(address, bytes) : 999;
}
