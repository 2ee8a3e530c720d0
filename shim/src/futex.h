/* Waiting on a word, and the clock that waits are measured by. Neither changes errno. */
#ifndef WEFT_FUTEX_H
#define WEFT_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WEFT_US 1000ll
#define WEFT_MS 1000000ll
#define WEFT_S 1000000000ll
#define WEFT_NEVER INT64_MAX

/* Nanoseconds of the monotonic clock. */
static inline int64_t weft_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * WEFT_S + t.tv_nsec;
}

static inline struct timespec weft_timespec(int64_t ns) {
    if (ns < 0)
        ns = 0;
    return (struct timespec){.tv_sec = ns / WEFT_S, .tv_nsec = ns % WEFT_S};
}

/* Returns when the word is no longer value, when it was woken, on a signal, or after timeout ns. */
static inline void weft_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout) {
    int saved = errno;
    struct timespec t = weft_timespec(timeout);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout == WEFT_NEVER ? NULL : &t, NULL, 0);
    errno = saved;
}

/* Wakes all that wait. A word that is gone by now is no fault: nobody waits on it. */
static inline void weft_futex_wake(_Atomic uint32_t *word) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    errno = saved;
}

static inline void weft_sleep(int64_t ns) {
    int saved = errno;
    struct timespec t = weft_timespec(ns);
    nanosleep(&t, NULL);
    errno = saved;
}

#endif
