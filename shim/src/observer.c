/* Questions of a process that has no session: a monitor that only reads NVML, or one that has not called cuInit yet. Each is
 * a connection of its own, which takes no token and leaves nothing behind. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "futex.h"
#include "limit.h"
#include "session.h"

#define PATIENCE (500 * WEFT_MS) /* with the agent, for both answers */

static struct {
    pthread_mutex_t lock;
    atomic_bool known;
    struct weft_welcome terms; /* of the first answer: an allocation's GPUs and limits do not change */
} observer = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool await(struct weft_wire *wire, enum weft_type type, union weft_message *m, int64_t until) {
    for (;;) {
        enum weft_got got = weft_wire_receive(wire, m);
        if (got == WEFT_GOT_MESSAGE && m->header.type == type)
            return true;
        int64_t left = until - weft_now();
        if (got != WEFT_GOT_NOTHING || left <= 0)
            return false;
        struct pollfd p = {.fd = wire->fd, .events = POLLIN};
        if (poll(&p, 1, (int)(left / WEFT_MS) + 1) < 0 && errno != EINTR)
            return false;
    }
}

static void keep(const struct weft_welcome *welcome) {
    pthread_mutex_lock(&observer.lock);
    if (!observer.known) {
        observer.terms = *welcome;
        weft_limit_lower(&observer.terms, getenv("WEFT_MEMORY"));
        observer.known = true;
    }
    pthread_mutex_unlock(&observer.lock);
}

static bool greet(struct weft_wire *wire, union weft_message *m, int64_t until) {
    struct weft_hello hello = {.flags = WEFT_HELLO_OBSERVER};
    bool sound = weft_wire_send(wire, WEFT_HELLO, &hello, sizeof hello) && await(wire, WEFT_WELCOME, m, until) &&
                 m->welcome.count > 0 && m->welcome.count <= WEFT_GPUS;
    if (sound)
        keep(&m->welcome);
    return sound;
}

bool weft_observe(enum weft_type question, unsigned gpu, union weft_message *answer) {
    int64_t until = weft_now() + PATIENCE;
    struct weft_wire wire;
    if (weft_wire_connect(&wire, weft_wire_path()))
        return false;
    bool known = greet(&wire, answer, until) && gpu < answer->welcome.count;
    struct weft_handle m = {.handle = 1, .gpu = gpu};
    if (known)
        known = weft_wire_send(&wire, question, &m, sizeof m) &&
                await(&wire, question == WEFT_VIEW ? WEFT_MEMORY : WEFT_LIST, answer, until) &&
                (question != WEFT_VIEW || answer->memory.outcome == WEFT_OK);
    weft_wire_close(&wire);
    return known;
}

const struct weft_welcome *weft_observer_terms(void) {
    int saved = errno;
    const struct weft_welcome *terms = weft_session_terms();
    struct weft_wire wire;
    union weft_message m;
    if (!terms && !observer.known && !weft_wire_connect(&wire, weft_wire_path())) {
        greet(&wire, &m, weft_now() + PATIENCE);
        weft_wire_close(&wire);
    }
    errno = saved;
    return terms ? terms : observer.known ? &observer.terms : NULL;
}

void weft_observer_forked(void) { observer.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }
