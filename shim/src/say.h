/* Lines on stderr: one per kind of trouble in the life of a process, and traces with WEFT_LOG=debug. */
#ifndef WEFT_SAY_H
#define WEFT_SAY_H

#include <stdatomic.h>
#include <stdbool.h>

/* Writes "weft: ...\n" once for each place in the source that it is called from. */
#define weft_say(...)                                                                                                  \
    do {                                                                                                               \
        static atomic_flag said = ATOMIC_FLAG_INIT;                                                                    \
        if (!atomic_flag_test_and_set_explicit(&said, memory_order_relaxed))                                           \
            weft_write_line(__VA_ARGS__);                                                                              \
    } while (0)

/* Writes every time, with WEFT_LOG=debug only. */
#define weft_trace(...)                                                                                                \
    do {                                                                                                               \
        if (weft_traces())                                                                                             \
            weft_write_line(__VA_ARGS__);                                                                              \
    } while (0)

/* What becomes of a process without an agent, and what to do about it. */
#define WEFT_UNSHARED "runs unshared; weft exec starts it as a job"

bool weft_traces(void);
void weft_write_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
