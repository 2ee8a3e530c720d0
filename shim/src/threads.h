/* Functions of glibc that moved from libpthread into libc with version 2.34. A reference to them would bind the library to
 * the newer name, so they are looked up when first needed. */
#ifndef WEFT_THREADS_H
#define WEFT_THREADS_H

#include <pthread.h>

struct weft_threads {
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int (*attr_init)(pthread_attr_t *);
    int (*attr_setstacksize)(pthread_attr_t *, size_t);
    int (*key_create)(pthread_key_t *, void (*)(void *));
    int (*setspecific)(pthread_key_t, const void *);
};

/* The functions; a member is NULL in a process that has no libpthread. */
struct weft_threads weft_threads(void);

#endif
