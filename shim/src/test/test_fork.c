/* Forked children, of processes with and without a session. */
#include <signal.h>
#include <sys/socket.h>

#include "program.h"
#include "weft.h"

/* The thread sanitiser dislikes what is tested here: threads in a child of a process with threads, some of them unjoined. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0:report_thread_leaks=0"; }

static int child_of(void (*in_child)(void)) {
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        in_child();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return status;
}

static int descriptors_before;

static void orphan(void) {
    alarm(60);
    CHECK(threads() == 0, "%d threads", threads());
    CHECK(descriptors() == descriptors_before, "%d descriptors, %d before the session", descriptors(), descriptors_before);
    CHECK(!weft_session_begin() && !weft_session_terms(), "a session that cannot be used");
    launch((void *)5); /* fails in the driver, if it were a real one: without a wait */
    uint64_t handle;
    CHECK(weft_memory_charge(0, WEFT_FAMILY_DEVICE, 4096, &handle) == CUDA_SUCCESS && !handle, "charge");
    CHECK(!weft_iteration() && !weft_yield() && !weft_managed() && !weft_waiting(), "weft.h");
    CHECK(weft_counters()->sent == 0, "spoke");
}

/* A child of a process with a context has no part in it; the parent goes on. */
static void fork_after(void) {
    union said said;
    int status;
    script_listen(&agent);
    descriptors_before = descriptors();
    script_stop(&agent);
    start(WEFT_GUARANTEED);
    descriptors_before++; /* the test's end of the connection */
    granted_once(5);
    pthread_t thread = launching(1000);
    CHECK(!(status = child_of(orphan)), "child: status %x", status);
    launched(thread);
    script_tell(&agent, WEFT_DROP, 5);
    script_find(&agent, WEFT_RELEASED, &said);
    thread = launching(1); /* waits at the closed gate while the child is made */
    script_expect(&agent, WEFT_REQUEST, NULL);
    CHECK(!(status = child_of(orphan)), "child: status %x", status);
    script_grant(&agent, 6, 0, 0);
    launched(thread);
}

static void own_session(void) {
    alarm(60);
    close(agent.fd);
    agent = (struct script){0};
    start(WEFT_BURSTABLE);
    granted_once(1);
    script_quiet(&agent, WEFT_ALLOC, 5 * WEFT_MS); /* the memory of its parent */
}

/* A child of a process that did nothing, only connected, or has no context any more, begins by itself. */
static void *connect_only(void *unused) {
    CHECK(weft_session_begin(), "terms");
    return unused;
}

static void fork_lazy(void) {
    pthread_t thread;
    union said said;
    gpu_start();
    CHECK(child_of(own_session) == 0, "of a process that did nothing");
    script_listen(&agent);
    pthread_create(&thread, NULL, connect_only, NULL);
    script_accept(&agent, &said);
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    pthread_join(thread, NULL);
    CHECK(child_of(own_session) == 0, "of a process that only connected");
    weft_context_made(0);
    script_expect(&agent, WEFT_USE, &said);
    restart(WEFT_GUARANTEED, 0, &said); /* a connection whose number the child's has not */
    uint64_t handle;
    weft_memory_charge(0, WEFT_FAMILY_HOST, 4096, &handle);
    weft_context_gone(0);
    CHECK(child_of(own_session) == 0, "of a process whose contexts are gone");
}

/* The agent sees the end of a process although a child of it lives on. */
static void fork_and_die(void) {
    int gate[2];
    union said said;
    CHECK(!pipe(gate), "pipe");
    script_listen(&agent);
    pid_t parent = fork();
    if (!parent) {
        gpu_start();
        CHECK(weft_session_begin(), "terms");
        weft_context_made(0);
        if (!fork()) { /* a worker that stays */
            char byte;
            close(gate[1]);
            ssize_t n = read(gate[0], &byte, 1);
            _exit(n != 0);
        }
        kill(getpid(), SIGKILL);
    }
    script_accept(&agent, &said);
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    script_expect(&agent, WEFT_USE, NULL);
    int64_t before = weft_now();
    CHECK(recv(agent.fd, &said, sizeof said, 0) <= 0, "closed");
    IN_TIME(weft_now() - before < WEFT_S, "the child keeps the connection");
    close(gate[1]);
    waitpid(parent, NULL, 0);
}

int main(void) {
    int bad = RUN(fork_after) + RUN(fork_lazy) + RUN(fork_and_die);
    return bad > 0;
}
