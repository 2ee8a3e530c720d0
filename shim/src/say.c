#include "say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool weft_traces(void) {
    static _Atomic int known; /* 0: not looked yet, 1: no, 2: yes */
    int now = atomic_load_explicit(&known, memory_order_relaxed);
    if (!now) {
        const char *log = getenv("WEFT_LOG");
        now = log && !strcmp(log, "debug") ? 2 : 1;
        atomic_store_explicit(&known, now, memory_order_relaxed);
    }
    return now == 2;
}

/* One write, so that lines of several processes do not mix; no stream of stdio, whose lock a forked child may find taken. */
void weft_write_line(const char *format, ...) {
    char line[512] = "weft: ";
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line + 6, sizeof line - 7, format, arguments);
    va_end(arguments);
    if (n >= 0) {
        size_t length = 6 + ((size_t)n < sizeof line - 8 ? (size_t)n : sizeof line - 8);
        line[length++] = '\n';
        ssize_t written = write(STDERR_FILENO, line, length);
        (void)written;
    }
    errno = saved;
}
