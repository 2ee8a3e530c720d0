/* Assertions and scenarios. The session's state is one per process, so each scenario runs in a process of its own. */
#ifndef WEFT_TEST_CHECK_H
#define WEFT_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

#ifndef CHECK_SECONDS
#define CHECK_SECONDS 120
#endif

/* Runs a scenario, which returns when it went well, for CHECK_SECONDS at the most. Returns 1 where it failed. */
static inline int check_run(const char *name, void (*scenario)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CHECK_SECONDS);
        scenario();
        fflush(NULL);
        exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (status)
        fprintf(stderr, "FAILED %s (%s %d)\n", name, WIFSIGNALED(status) ? "signal" : "exit",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    else
        printf("ok %s\n", name);
    return status != 0;
}
#define RUN(scenario) check_run(#scenario, scenario)

#endif
