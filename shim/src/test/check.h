/* Assertions and scenarios. The session's state is one per process, so each scenario runs in a process of its own. */
#ifndef WEFT_TEST_CHECK_H
#define WEFT_TEST_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_OR(code, condition, ...)                                                                                 \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            _exit(code);                                                                                               \
        }                                                                                                              \
    } while (0)
#define CHECK(condition, ...) CHECK_OR(1, condition, __VA_ARGS__)

/* Something that takes no longer than it should: a bound that is held, or what a scenario supposes. The machine may do other
 * things meanwhile, so a scenario that is late is tried again, up to CHECK_TRIES times. */
#define IN_TIME(condition, ...) CHECK_OR(CHECK_LATE, condition, __VA_ARGS__)
enum { CHECK_LATE = 75, CHECK_TRIES = 8 };

#ifndef CHECK_SECONDS
#define CHECK_SECONDS 120
#endif

/* Runs a scenario, which returns when it went well, for CHECK_SECONDS at the most each time. Returns 1 where it failed. */
static inline int check_run(const char *name, void (*scenario)(void)) {
    int status = 0, tries = 0;
    do {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(CHECK_SECONDS);
            scenario();
            fflush(NULL);
            exit(0);
        }
        waitpid(pid, &status, 0);
    } while (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_LATE && ++tries < CHECK_TRIES);
    if (status)
        fprintf(stderr, "FAILED %s (%s %d)\n", name, WIFSIGNALED(status) ? "signal" : "exit",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    else
        printf("ok %s\n", name);
    return status != 0;
}
#define RUN(scenario) check_run(#scenario, scenario)

#endif
