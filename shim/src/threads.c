#include "threads.h"

#include <string.h>

#include "elf.h"

static void look(void *function, const char *name) {
    void *found = weft_elf_find("libpthread.so.0", name);
    if (!found)
        found = weft_elf_find("libc.so.6", name);
    memcpy(function, &found, sizeof found);
}

struct weft_threads weft_threads(void) {
    struct weft_threads t;
    look(&t.create, "pthread_create");
    look(&t.attr_init, "pthread_attr_init");
    look(&t.attr_setstacksize, "pthread_attr_setstacksize");
    look(&t.key_create, "pthread_key_create");
    look(&t.setspecific, "pthread_setspecific");
    return t;
}
