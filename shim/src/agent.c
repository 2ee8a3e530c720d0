#include "agent.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "futex.h"
#include "say.h"
#include "session.h"

#define FIRST_PAUSE WEFT_MS
#define LAST_PAUSE WEFT_S
#define ANSWER (500 * WEFT_MS) /* to HELLO; an agent that has 300 starts to serve takes a few ms for each */

static struct {
    pthread_mutex_t lock; /* sending, and all below but what is atomic */
    _Atomic uint32_t state;
    struct weft_wire wire;
    uint64_t session;    /* that the agent knows the process by; 0 at first */
    uint32_t connection; /* times that the state became UP */
    uint32_t said_gpus;
    uint64_t said_epoch;
    int64_t next;  /* ASKED: until when to wait; DOWN: when to try again */
    int64_t pause; /* before the try after that */
    int64_t tried; /* when the last try began */
    _Atomic int64_t lost; /* since when it is not UP; 0 while it is, or never was */
    bool refused, absent;
} agent = {.lock = PTHREAD_MUTEX_INITIALIZER, .wire.fd = -1, .pause = FIRST_PAUSE};

struct weft_counters weft_counts;

static uint32_t state(void) { return atomic_load_explicit(&agent.state, memory_order_acquire); }

static bool put(enum weft_type type, void *message, uint32_t size) {
    bool sent = weft_wire_send(&agent.wire, type, message, size);
    if (sent)
        atomic_fetch_add_explicit(&weft_counts.sent, 1, memory_order_relaxed);
    return sent;
}

uint32_t weft_send(enum weft_type type, void *message, uint32_t size) {
    int saved = errno;
    pthread_mutex_lock(&agent.lock);
    bool sent = state() == WEFT_AGENT_UP && put(type, message, size);
    uint32_t connection = sent ? agent.connection : 0;
    pthread_mutex_unlock(&agent.lock);
    errno = saved;
    return connection;
}

uint32_t weft_agent_connection(void) {
    pthread_mutex_lock(&agent.lock);
    uint32_t connection = state() == WEFT_AGENT_UP ? agent.connection : 0;
    pthread_mutex_unlock(&agent.lock);
    return connection;
}

int64_t weft_agent_gone_at(void) {
    int64_t lost = atomic_load(&agent.lost);
    return lost ? lost + WEFT_PATIENCE : WEFT_NEVER;
}

bool weft_agent_gone(int64_t now) { return now >= weft_agent_gone_at(); }

bool weft_agent_hopes(void) { return !agent.refused && !agent.absent; }
int weft_agent_fd(void) { return agent.wire.fd; }
int64_t weft_agent_next(void) { return state() == WEFT_AGENT_UP ? WEFT_NEVER : agent.next; }
uint64_t weft_agent_said_epoch(void) { return agent.said_epoch; }
uint32_t weft_agent_said_gpus(void) { return agent.said_gpus; }

static void say_reconnecting(void) { weft_say("agent at %s does not answer: reconnecting", weft_wire_path()); }

/* Closes what there is and plans the next try. */
static void down(int64_t now, int64_t pause) {
    pthread_mutex_lock(&agent.lock);
    weft_wire_close(&agent.wire);
    atomic_store_explicit(&agent.state, WEFT_AGENT_DOWN, memory_order_release);
    agent.next = now + pause;
    pthread_mutex_unlock(&agent.lock);
}

static void down_again(int64_t now) {
    down(now, agent.pause);
    agent.pause = agent.pause * 2 < LAST_PAUSE ? agent.pause * 2 : LAST_PAUSE;
}

static void ask(int64_t now) {
    struct weft_hello hello = {.session = agent.session};
    hello.epoch = agent.said_epoch = weft_token_epoch();
    hello.gpus = agent.said_gpus = weft_session_gpus();
    pthread_mutex_lock(&agent.lock);
    atomic_store_explicit(&agent.state, WEFT_AGENT_ASKED, memory_order_release);
    agent.next = now + ANSWER;
    put(WEFT_HELLO, &hello, sizeof hello); /* where it fails, the poll that follows says so */
    pthread_mutex_unlock(&agent.lock);
}

static void try(int64_t now) {
    const char *path = weft_wire_path();
    struct weft_wire wire;
    agent.tried = weft_now();
    int error = weft_wire_connect(&wire, path);
    if (!error) {
        pthread_mutex_lock(&agent.lock);
        agent.wire = wire;
        pthread_mutex_unlock(&agent.lock);
        ask(now);
        return;
    }
    bool stale = error == ECONNREFUSED || error == EAGAIN;
    agent.absent = !stale && !agent.session;
    if (agent.absent && error == ENOENT)
        weft_say("no agent at %s: " WEFT_UNSHARED, path);
    else if (agent.absent)
        weft_say("no agent at %s (%s): " WEFT_UNSHARED, path, strerror(error));
    else if (error != EAGAIN)
        say_reconnecting();
    down_again(now);
}

void weft_agent_step(int64_t now) {
    if (state() == WEFT_AGENT_UP || now < agent.next)
        return;
    if (state() == WEFT_AGENT_ASKED) {
        say_reconnecting();
        down_again(now);
    } else {
        try(now);
    }
}

enum weft_got weft_agent_receive(union weft_message *message) {
    if (agent.wire.fd < 0)
        return WEFT_GOT_NOTHING;
    enum weft_got got = weft_wire_receive(&agent.wire, message);
    if (got == WEFT_GOT_MESSAGE)
        atomic_fetch_add_explicit(&weft_counts.received, 1, memory_order_relaxed);
    if (got == WEFT_GOT_FAULT)
        atomic_fetch_add_explicit(&weft_counts.faults, 1, memory_order_relaxed);
    return got;
}

void weft_agent_lost(int64_t now) {
    if (state() == WEFT_AGENT_DOWN)
        return;
    weft_trace("connection lost");
    if (state() == WEFT_AGENT_UP) {
        atomic_store(&agent.lost, now);
        agent.pause = FIRST_PAUSE;
        say_reconnecting();
    }
    down_again(now);
}

bool weft_agent_welcomed(const struct weft_welcome *welcome) {
    if (state() != WEFT_AGENT_ASKED)
        return false;
    pthread_mutex_lock(&agent.lock);
    agent.session = welcome->session;
    agent.connection++;
    agent.pause = FIRST_PAUSE;
    atomic_store(&weft_counts.registered, (uint64_t)(weft_now() - agent.tried));
    atomic_store(&agent.lost, 0);
    atomic_store_explicit(&agent.state, WEFT_AGENT_UP, memory_order_release);
    pthread_mutex_unlock(&agent.lock);
    weft_trace("connected to %s as session %llu", weft_wire_path(), (unsigned long long)welcome->session);
    return true;
}

/* Reasons that last: the process tries again once a second, in case the agent changes. */
void weft_agent_refused(const struct weft_refused *refused, int64_t now) {
    const char *path = weft_wire_path();
    switch (refused->reason) {
    case WEFT_REFUSED_VERSION:
        weft_say("agent at %s speaks protocol %u, this libweft.so %u: runs unshared; restart the job with the agent's libweft.so",
                 path, refused->version, WEFT_WIRE_VERSION);
        break;
    case WEFT_REFUSED_USER: weft_say("agent at %s serves another user: " WEFT_UNSHARED, path); break;
    case WEFT_REFUSED_CLOSED: weft_say("the allocation of %s has ended: " WEFT_UNSHARED, path); break;
    case WEFT_REFUSED_FULL: weft_say("the allocation of %s has too many processes: runs unshared; end some of them", path); break;
    default: weft_agent_lost(now); return;
    }
    weft_agent_lost(now);
    agent.refused = true;
    down(now, LAST_PAUSE);
}

void weft_agent_reset(void) {
    down(0, 0);
    agent.pause = FIRST_PAUSE;
    agent.refused = agent.absent = false;
    atomic_store(&agent.lost, 0);
}

/* The parent goes on with the connection: the child only lets go of its own descriptor of it. */
void weft_agent_forked(void) {
    agent.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    agent.session = 0;
    agent.connection = 0;
    weft_agent_reset();
    memset(&weft_counts, 0, sizeof weft_counts);
}
