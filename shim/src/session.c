#include "session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "drain.h"
#include "futex.h"
#include "gate.h"
#include "limit.h"
#include "say.h"
#include "threads.h"

#define HOPE (2 * WEFT_S)    /* that an agent which is being restarted answers the first HELLO */
#define AGAIN (50 * WEFT_MS) /* the same, where that hope was in vain: a program may call cuInit often */
#define STACK (256 * 1024)   /* bytes, of the thread */
#define ROUND 64             /* messages handled before deadlines are looked at again */

static struct {
    pthread_mutex_t beginning; /* one thread at a time begins, and makes contexts */
    _Atomic uint32_t serving;  /* 1: somebody serves the socket; the thread for ever, once there is one */
    atomic_bool known;         /* terms are valid, and never change again */
    atomic_bool threaded;
    struct weft_welcome terms;
    uint64_t lowered;
    _Atomic uint32_t gpus;
    _Atomic int kick; /* an eventfd; 0 before there is a thread */
    bool hoped;       /* for HOPE, in vain */
    bool orphan;      /* forked by a process that had a context: the driver will refuse this one */
} session = {.beginning = PTHREAD_MUTEX_INITIALIZER};

const struct weft_welcome *weft_session_terms(void) {
    return atomic_load_explicit(&session.known, memory_order_acquire) ? &session.terms : NULL;
}

uint32_t weft_session_gpus(void) { return atomic_load(&session.gpus); }
uint64_t weft_session_lowered(void) { return session.lowered; }

/* Whether an agent that came back serves the same GPUs: all that the application knows of them stays as it is. */
static bool same_gpus(const struct weft_welcome *w) {
    bool same = w->count == session.terms.count;
    for (uint32_t i = 0; same && i < w->count; i++)
        same = !memcmp(w->gpus[i].uuid, session.terms.gpus[i].uuid, sizeof w->gpus[i].uuid);
    return same;
}

static void take_terms(const struct weft_welcome *w) {
    session.terms = *w;
    session.lowered = weft_limit_lower(&session.terms, getenv("WEFT_MEMORY"));
    atomic_store_explicit(&session.known, true, memory_order_release);
}

static bool welcomed(const struct weft_welcome *w, int64_t now) {
    if (w->count == 0 || w->count > WEFT_GPUS || w->class > WEFT_BESTEFFORT || w->session == 0)
        return false;
    if (!session.known)
        take_terms(w);
    else if (!same_gpus(w)) {
        weft_say("agent at %s has other GPUs for this job now: restart it", weft_wire_path());
        return false;
    }
    if (!weft_agent_welcomed(w))
        return false;
    weft_token_welcomed(w->held == 1, now);
    weft_memory_welcomed();
    if (weft_agent_said_gpus() != weft_session_gpus()) {
        struct weft_use use = {.gpus = weft_session_gpus()};
        weft_send(WEFT_USE, &use, sizeof use);
    }
    return true;
}

/* False: the message is a fault. */
static bool handle(union weft_message *m, int64_t now) {
    if ((m->header.type == WEFT_WELCOME) != (weft_agent_connection() == 0) && m->header.type != WEFT_REFUSED)
        return false;
    switch (m->header.type) {
    case WEFT_WELCOME: return welcomed(&m->welcome, now);
    case WEFT_REFUSED: weft_agent_refused(&m->refused, now); return true;
    case WEFT_GRANT: return weft_token_granted(&m->grant, now);
    case WEFT_NARROW: weft_token_narrowed(&m->grant); return true;
    case WEFT_YIELD: weft_token_asked_back(m->yield.epoch, m->yield.spare_ns, now); return true;
    case WEFT_DROP: weft_token_dropped(m->drop.epoch, now); return true;
    case WEFT_MEMORY: weft_memory_answered(&m->memory); return true;
    case WEFT_LIST: weft_memory_listed(&m->list); return true;
    case WEFT_WANTED: weft_memory_wanted(&m->wanted); return true;
    default: return weft_send(WEFT_PONG, m, sizeof(struct weft_plain)); /* PING */
    }
}

static void receive(int64_t now) {
    union weft_message m;
    for (int i = 0; i < ROUND; i++) {
        enum weft_got got = weft_agent_receive(&m);
        if (got == WEFT_GOT_NOTHING)
            return;
        if (got != WEFT_GOT_MESSAGE || !handle(&m, now)) {
            weft_agent_lost(now);
            return;
        }
    }
}

static int64_t earliest(int64_t a, int64_t b) { return a < b ? a : b; }

/* Waits for a message, a kick or a deadline, and does what is due. */
static void serve(int64_t until) {
    int64_t now = weft_now();
    until = earliest(earliest(until, weft_agent_next()), earliest(weft_token_next(now), weft_memory_next()));
    struct timespec timeout = weft_timespec(until - now);
    struct pollfd fds[] = {{.fd = weft_agent_fd(), .events = POLLIN}, {.fd = session.kick ? session.kick : -1, .events = POLLIN}};
    int ready = ppoll(fds, 2, until == WEFT_NEVER ? NULL : &timeout, NULL);
    now = weft_now();
    if (ready > 0 && fds[1].revents) {
        uint64_t kicks;
        ssize_t n = read(session.kick, &kicks, sizeof kicks);
        (void)n;
    }
    if (ready > 0 && fds[0].revents)
        receive(now);
    weft_agent_step(now);
    weft_token_step(now);
    weft_memory_step(now);
}

void weft_session_kick(void) {
    int saved = errno, fd = session.kick;
    uint64_t one = 1;
    if (fd > 0) {
        ssize_t n = write(fd, &one, sizeof one);
        (void)n;
    }
    errno = saved;
}

/* Not a mutex: to try one is a function that moved between libraries (threads.h). */
static bool try_to_serve(void) {
    uint32_t nobody = 0;
    return atomic_compare_exchange_strong(&session.serving, &nobody, 1);
}

static void start_to_serve(void) {
    while (!try_to_serve())
        weft_futex_wait(&session.serving, 1, WEFT_NEVER);
}

static void stop_to_serve(void) {
    atomic_store(&session.serving, 0);
    weft_futex_wake(&session.serving);
}

void weft_session_wait(_Atomic uint32_t *done) {
    while (!atomic_load(done)) {
        if (session.threaded)
            weft_futex_wait(done, 0, WEFT_NEVER);
        else if (!try_to_serve())
            weft_futex_wait(done, 0, WEFT_MS);
        else {
            if (!atomic_load(done))
                serve(weft_now() + 10 * WEFT_MS);
            stop_to_serve();
        }
    }
}

static void begin(void) {
    weft_fork_watch();
    start_to_serve();
    int64_t until = weft_now() + (session.hoped ? AGAIN : HOPE);
    weft_agent_reset();
    while (!session.known && weft_agent_hopes() && weft_now() < until)
        serve(until);
    if (!session.known) {
        session.hoped = weft_agent_hopes();
        if (session.hoped)
            weft_say("no agent at %s: " WEFT_UNSHARED, weft_wire_path());
        weft_agent_reset();
    }
    stop_to_serve();
}

const struct weft_welcome *weft_session_begin(void) {
    int saved = errno;
    pthread_mutex_lock(&session.beginning);
    if (!session.known && !session.orphan)
        begin();
    pthread_mutex_unlock(&session.beginning);
    errno = saved;
    return weft_session_terms();
}

static void *run(void *unused) {
    (void)unused;
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    prctl(PR_SET_NAME, "weft", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* ns: deadlines here are shorter than the usual 50 us */
    if (weft_driver.capture_mode)
        weft_driver.capture_mode(&relaxed);
    start_to_serve();
    for (;;)
        serve(WEFT_NEVER);
    return NULL;
}

/* The thread starts with all signals blocked: the application's handlers run in its own threads. */
static bool start_thread(void) {
    struct weft_threads threads = weft_threads();
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (!threads.create)
        return false;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    bool small = threads.attr_init && !threads.attr_init(&attributes) && threads.attr_setstacksize &&
                 !threads.attr_setstacksize(&attributes, STACK);
    int error = threads.create(&thread, small ? &attributes : NULL, run, NULL);
    if (error && small) /* the thread-local storage of all libraries may be larger than that */
        error = threads.create(&thread, NULL, run, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !error;
}

static void start(void) {
    session.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session.kick < 0)
        session.kick = 0;
    session.threaded = start_thread();
    if (session.threaded) {
        weft_token_close_first();
        atexit(weft_token_exit);
    } else {
        weft_say("cannot start a thread: runs unshared");
    }
}

static void use(uint32_t set, uint32_t clear) {
    int saved = errno;
    pthread_mutex_lock(&session.beginning);
    if (session.known) {
        struct weft_use use = {.gpus = (session.gpus | set) & ~clear};
        atomic_store(&session.gpus, use.gpus);
        if (!session.threaded)
            start();
        if (!use.gpus)
            weft_token_leave();
        weft_send(WEFT_USE, &use, sizeof use);
    }
    pthread_mutex_unlock(&session.beginning);
    errno = saved;
}

void weft_context_made(unsigned gpu) {
    if (gpu < WEFT_GPUS)
        use(1u << gpu, 0);
}

void weft_context_gone(unsigned gpu) {
    if (gpu < WEFT_GPUS)
        use(0, 1u << gpu);
}

void weft_session_forked(void) {
    session.orphan = session.orphan || session.gpus != 0;
    if (session.kick > 0)
        close(session.kick);
    session.kick = 0;
    session.gpus = 0;
    session.known = session.threaded = false;
    session.beginning = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&session.serving, 0);
}
