#include "threads.h"

#include <string.h>

#include "elf.h"

/* The names as they were before they moved, whichever library has them, or a tool that takes their place. NULL in a process
 * whose libpthread came with a library that was loaded later. */
#if defined(__x86_64__)
#define OLD "GLIBC_2.2.5"
#else
#define OLD "GLIBC_2.17"
#endif
#define WEAKLY(name)                                                                                                   \
    extern __typeof__(name) name __attribute__((weak));                                                                \
    __asm__(".symver " #name ", " #name "@" OLD)
WEAKLY(pthread_create);
WEAKLY(pthread_attr_init);
WEAKLY(pthread_attr_setstacksize);
WEAKLY(pthread_key_create);
WEAKLY(pthread_setspecific);

static void look(void *function, const char *name) {
    void *found;
    memcpy(&found, function, sizeof found);
    if (!found && (found = weft_elf_find("libpthread.so.0", name)))
        memcpy(function, &found, sizeof found);
}

struct weft_threads weft_threads(void) {
    struct weft_threads t = {
        .create = pthread_create,
        .attr_init = pthread_attr_init,
        .attr_setstacksize = pthread_attr_setstacksize,
        .key_create = pthread_key_create,
        .setspecific = pthread_setspecific,
    };
    look(&t.create, "pthread_create");
    look(&t.attr_init, "pthread_attr_init");
    look(&t.attr_setstacksize, "pthread_attr_setstacksize");
    look(&t.key_create, "pthread_key_create");
    look(&t.setspecific, "pthread_setspecific");
    return t;
}
