/* A program under test: its launches, its descriptors and threads, and what it says on stderr. */
#ifndef WEFT_TEST_PROGRAM_H
#define WEFT_TEST_PROGRAM_H

#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "agent.h"
#include "check.h"
#include "futex.h"
#include "gpu.h"
#include "script.h"

static struct script agent;

static char said_text[4096];

static inline void catch_stderr(void) {
    char path[] = "/tmp/weft-test-err.XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

static inline const char *stderr_text(void) {
    ssize_t n = pread(STDERR_FILENO, said_text, sizeof said_text - 1, 0);
    said_text[n > 0 ? n : 0] = 0;
    return said_text;
}

#define SAID(text)                                                                                                     \
    do {                                                                                                               \
        if (!strstr(stderr_text(), text)) {                                                                            \
            printf("%s:%d: expected \"%s\", got \"%s\"\n", __FILE__, __LINE__, text, said_text);                         \
            fflush(stdout);                                                                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static inline void start(enum weft_class class) {
    gpu_start();
    gpu_use(gpu_context(0));
    script_begin(&agent, class);
}

static inline void *launch(void *count) {
    gpu_use(gpu_context(0));
    for (uintptr_t i = 0; i < (uintptr_t)count; i++)
        gpu_launch(NULL, WEFT_US, NULL);
    return NULL;
}

static inline pthread_t launching(uintptr_t count) {
    pthread_t thread;
    pthread_create(&thread, NULL, launch, (void *)count);
    return thread;
}

static inline void launched(pthread_t thread) { pthread_join(thread, NULL); }

static inline void granted_once(uint64_t epoch) {
    pthread_t thread = launching(1);
    script_find(&agent, WEFT_REQUEST, NULL);
    script_grant(&agent, epoch, 0, 0);
    launched(thread);
}

static inline int entries(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
/* Threads of the shim; sanitisers have some of their own. */
static inline int threads(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[300], name[16] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        n += f && fgets(name, sizeof name, f) && !strcmp(name, "weft\n");
        if (f)
            fclose(f);
    }
    closedir(d);
    return n;
}
static inline int descriptors(void) { return entries("/proc/self/fd") - 3; }

/* An agent that was lost is back before the process goes on alone. */
static inline void back_since(int64_t lost) { IN_TIME(weft_now() - lost < WEFT_PATIENCE, "the process went on alone"); }

/* The agent goes, and another one comes. */
static inline void restart(enum weft_class class, uint32_t held, union said *hello) {
    int64_t lost = weft_now();
    script_hang_up(&agent);
    script_accept(&agent, hello);
    script_welcome(&agent, class, held);
    back_since(lost);
}

#endif
