/* The token: when the gate is open, and what the agent is told about it.
 *
 *              first context             GRANT                 YIELD and quiet, DROP, deadline
 *    UNSHARED --------------> CLOSED ------------> OPEN ------------------------> DRAINING
 *    (gate open)                ^                                                    |
 *                               +---------- nothing outstanding: RELEASED -----------+
 *
 * Without an agent for WEFT_PATIENCE, guaranteed and burstable processes go on with the gate open, besteffort ones for a
 * part of the time. When an agent is back and does not know the token, the gate closes, drains and asks anew.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "drain.h"
#include "futex.h"
#include "gate.h"
#include "say.h"
#include "session.h"
#include "window.h"

#define ALONE UINT64_MAX           /* epoch of a gate that is open without an agent */
#define SLICE (10 * WEFT_MS)       /* alone, besteffort: of this ... */
#define SHARE (2 * WEFT_MS)        /* ... the gate is open for so long */
#define ASK_AGAIN (100 * WEFT_MS)  /* while a drain hangs: the agent may have taken the token from us already */
#define LONGEST (3600 * WEFT_S)    /* of durations that the agent may name */
#define SLOWEST 16                 /* graces between two looks whether a busy process has become idle */
#define LEAST_GRACE 50             /* us */
#define MOST_GRACE 1000000         /* us */
#define SPIN (30 * WEFT_US)        /* that a synchronisation waits for events which have all but come */
#define LAST_WAIT (5 * WEFT_MS)    /* that an exit waits for them */

enum state { UNSHARED, CLOSED, OPEN, DRAINING };

static struct {
    pthread_mutex_t lock;
    enum state state;
    uint64_t epoch;    /* OPEN, DRAINING */
    uint64_t newest;   /* epoch granted on this connection */
    int64_t granted;   /* when */
    int64_t deadline;  /* 0: none */
    int64_t window;    /* ns; 0: no bound */
    bool unbounded;    /* there was a time without a window under this epoch */
    bool ahead;        /* granted before anybody asked, and nobody launched since */
    int64_t rested;    /* granted ahead: until the first launch, ns */
    int64_t back;      /* when it was asked back, or its deadline */
    int64_t closed;    /* when draining began */
    uint64_t launches; /* of the process when it was granted */
    int64_t spent;     /* GPU time of its windows when it was granted, ns */

    atomic_bool yield; /* others wait */
    int64_t spare;     /* gaps until they have lasted so long, ns */
    bool idle;         /* said so */
    bool requested;    /* on this connection, since the gate closed */
    int64_t asked;     /* when last */

    uint64_t seen;    /* launches at the last look */
    int64_t quiet;    /* since when there were no more */
    int64_t look;     /* when to look again */
    int64_t interval; /* between looks */

    int64_t slice;               /* alone, besteffort: when the next share begins */
    struct weft_released owed;   /* to an agent that was away, if it knows the epoch; epoch 0: nothing */
    _Atomic uint32_t drained;    /* changes with the end of each drain */
} token = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { pthread_mutex_lock(&token.lock); }
static void unlock(void) { pthread_mutex_unlock(&token.lock); }

static int64_t grace(void) {
    int64_t us = weft_session_terms()->grace_us;
    return (us < LEAST_GRACE ? LEAST_GRACE : us > MOST_GRACE ? MOST_GRACE : us) * WEFT_US;
}
static bool besteffort(void) { return weft_session_terms()->class == WEFT_BESTEFFORT; }

static void count(_Atomic uint64_t *counter) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

/* ---- The gate */

static void set_gate(bool open) {
    weft_gate_set(&weft_gate.word, open ? weft_gate_word(token.epoch, token.window > 0, token.ahead) : 0);
    if (open && atomic_load(&weft_gate.waiting))
        weft_futex_wake(&weft_gate.word);
}

static void look_from(int64_t now) {
    token.seen = weft_slots_launches();
    token.quiet = now;
    token.interval = grace();
    token.look = now + token.interval;
}

/* A drain is over, or another grant makes an end of it. */
static void end_drain(enum state state) {
    token.state = state;
    atomic_fetch_add(&token.drained, 1);
    weft_futex_wake(&token.drained);
}

static void open_gate(uint64_t epoch, int64_t now, int64_t lasts, int64_t window, bool ahead) {
    end_drain(OPEN);
    token.ahead = ahead;
    token.rested = 0;
    token.epoch = epoch;
    token.granted = now;
    token.deadline = lasts ? now + lasts : 0;
    token.back = 0;
    token.window = window;
    token.unbounded = !window;
    token.launches = weft_slots_launches();
    token.spent = weft_window_spent();
    token.yield = token.idle = false;
    token.spare = 0;
    look_from(now);
    weft_window_set(window);
    set_gate(true);
}

static void close_gate(int64_t back, int64_t now) {
    set_gate(false);
    token.state = DRAINING;
    token.back = back;
    token.closed = now;
}

/* ---- What the agent is told */

static void request(int64_t now) {
    struct weft_plain m;
    token.requested = weft_send(WEFT_REQUEST, &m, sizeof m);
    token.asked = now;
    if (token.requested)
        count(&weft_counts.requests);
}

/* GPU time under the epoch, at most the time that the token was held. With a window all the time: the sum of what its
 * launches cost, as measured or estimated; otherwise all of it but an end in which nothing ran, as the launch path reads no
 * clock: an upper bound. */
static int64_t used(int64_t now) {
    int64_t held = now - token.granted - token.rested;
    int64_t spent = weft_window_spent() - token.spent;
    if (!token.unbounded)
        return spent < held ? spent : held;
    if (token.launches == weft_slots_launches())
        return 0;
    bool rested = token.idle && token.seen == weft_slots_launches();
    return rested && token.quiet > token.granted ? token.quiet - token.granted : held;
}

static struct weft_released account(int64_t now) {
    int64_t late = token.back ? now - token.back - token.window : 0;
    return (struct weft_released){
        .epoch = token.epoch,
        .used_ns = (uint64_t)used(now),
        .overrun_ns = late > 0 ? (uint64_t)late : 0,
        .launches = weft_slots_launches() - token.launches,
        .rested_ns = (uint64_t)token.rested,
    };
}

/* The gate is closed and nothing is outstanding. */
static void release(int64_t now) {
    weft_window_drained();
    if (token.epoch && token.epoch != ALONE) {
        struct weft_released m = account(now);
        if (weft_send(WEFT_RELEASED, &m, sizeof m))
            count(&weft_counts.releases);
        else
            token.owed = m;
    }
    token.epoch = 0;
    token.yield = token.requested = false;
    end_drain(CLOSED);
    if (atomic_load(&weft_gate.waiting))
        request(now);
}

/* ---- Giving back */

static bool nothing_outstanding(void) { return weft_slots_idle() && weft_streams_settled(); }

/* Closes the gate to look; opens it again where work is outstanding after at most spin ns. */
static bool release_if_quiet(int64_t now, int64_t spin) {
    set_gate(false);
    int64_t until = now + spin;
    while (!nothing_outstanding()) {
        if (now >= until) {
            set_gate(true);
            return false;
        }
        now = weft_now();
    }
    release(now);
    return true;
}

static void drain(int64_t now) {
    if (nothing_outstanding())
        release(weft_now());
    else if (now - token.asked >= ASK_AGAIN && now - token.closed >= ASK_AGAIN && atomic_load(&weft_gate.waiting))
        request(now);
}

/* Whether threads that waited for this grant have yet to make use of it. */
static bool starting(void) { return atomic_load(&weft_gate.waiting) > 0; }

/* Whether the program is between a synchronisation and its next launch; under a grant that it asked for, after the first. */
static bool in_gap(uint64_t launches) {
    return (token.ahead || launches != token.launches) && weft_slots_idle() && weft_slots_synced();
}

/* For how long a gap is not to be used. One before a first launch is the one that was asked for. */
static int64_t spared(void) { return token.ahead ? 0 : token.spare; }

/* Looks whether the process has paused: in a gap after a synchronisation at once, else after the grace. */
static void look(int64_t now) {
    uint64_t launches = weft_slots_launches();
    if (launches != token.seen || !weft_slots_idle() || starting() || (token.yield && spared() && !nothing_outstanding())) {
        token.seen = launches;
        token.quiet = now;
    }
    int64_t enough = token.yield && spared() > grace() ? spared() : grace();
    bool paused = now - token.quiet >= enough;
    if (token.yield) {
        token.interval = grace() / 2;
        if ((paused || (!starting() && !spared() && in_gap(launches))) && release_if_quiet(now, 0))
            return;
    } else if (paused && nothing_outstanding() && launches == weft_slots_launches()) {
        struct weft_epoch m = {.epoch = token.epoch};
        token.idle = weft_send(WEFT_IDLE, &m, sizeof m);
    } else if (token.interval < SLOWEST * grace()) {
        token.interval *= 2;
    }
    token.look = now + token.interval;
}

/* ---- Without an agent */

static void go_alone(int64_t now) {
    if (!besteffort()) {
        if (token.state == CLOSED)
            open_gate(ALONE, now, 0, 0, false);
    } else if (token.state == OPEN && token.epoch != ALONE) {
        close_gate(now, now);
    } else if (token.state == CLOSED && now >= token.slice) {
        token.slice = now + SLICE;
        open_gate(ALONE, now, SHARE, 0, false);
    }
}

static int64_t next_alone(void) {
    if (token.state == CLOSED)
        return besteffort() ? token.slice : 0;
    return token.state == OPEN && besteffort() && token.epoch != ALONE ? 0 : WEFT_NEVER;
}

/* ---- Steps of the session's thread */

void weft_token_step(int64_t now) {
    lock();
    if (token.state == OPEN && token.deadline && now >= token.deadline)
        close_gate(token.deadline, now);
    if (token.state == DRAINING)
        drain(now);
    else if (token.state == OPEN && token.epoch != ALONE && now >= token.look && (token.yield || !token.idle))
        look(now);
    if (token.state != UNSHARED && weft_agent_gone(now))
        go_alone(now);
    unlock();
}

/* How long until a drain is looked at again: finely while it is short. */
static int64_t drain_pause(int64_t now) {
    int64_t lasted = now - token.closed;
    return lasted < 2 * WEFT_MS ? 10 * WEFT_US : lasted < 100 * WEFT_MS ? 100 * WEFT_US : WEFT_MS;
}

static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t weft_token_next(int64_t now) {
    int64_t next = WEFT_NEVER;
    lock();
    if (token.state == DRAINING)
        next = now + drain_pause(now);
    if (token.state == OPEN && token.deadline)
        next = token.deadline;
    if (token.state == OPEN && token.epoch != ALONE && (token.yield || !token.idle))
        next = sooner(next, token.look);
    if (token.state != UNSHARED)
        next = sooner(next, weft_agent_gone(now) ? next_alone() : weft_agent_gone_at());
    unlock();
    return next;
}

/* ---- Messages of the agent */

static int64_t duration(uint64_t ns) { return ns < (uint64_t)LONGEST ? (int64_t)ns : LONGEST; }

bool weft_token_granted(const struct weft_grant *grant, int64_t now) {
    lock();
    bool sound = grant->epoch > token.newest && grant->epoch < ALONE;
    if (sound && token.state != UNSHARED) {
        token.newest = grant->epoch;
        bool ahead = grant->ahead && !token.requested;
        token.requested = false;
        count(&weft_counts.grants);
        open_gate(grant->epoch, now, duration(grant->lasts_ns), duration(grant->window_ns), ahead);
    }
    unlock();
    return sound;
}

static bool holds(uint64_t epoch) { return token.state == OPEN && token.epoch == epoch && epoch; }

void weft_token_narrowed(const struct weft_grant *narrow) {
    lock();
    if (holds(narrow->epoch)) {
        token.window = duration(narrow->window_ns);
        token.unbounded |= !token.window;
        weft_window_set(token.window);
        set_gate(true);
    }
    unlock();
}

void weft_token_asked_back(uint64_t epoch, uint64_t spare_ns, int64_t now) {
    lock();
    if (holds(epoch)) {
        int64_t spare = duration(spare_ns);
        token.spare = token.yield && token.spare < spare ? token.spare : spare;
        token.yield = true;
        look(now);
    }
    unlock();
}

void weft_token_dropped(uint64_t epoch, int64_t now) {
    lock();
    if (holds(epoch))
        close_gate(now, now);
    unlock();
}

uint64_t weft_token_epoch(void) {
    lock();
    bool held = (token.state == OPEN || token.state == DRAINING) && token.epoch != ALONE;
    uint64_t epoch = held ? token.epoch : 0;
    token.owed.epoch = 0; /* an epoch that HELLO does not name cannot be released later */
    unlock();
    return epoch;
}

void weft_token_welcomed(bool held, int64_t now) {
    lock();
    held = held && weft_agent_said_epoch();
    token.newest = held ? weft_agent_said_epoch() : 0;
    if (held && token.owed.epoch == token.newest && weft_send(WEFT_RELEASED, &token.owed, sizeof token.owed))
        count(&weft_counts.releases);
    token.owed.epoch = 0;
    if (!held && token.state == OPEN)
        close_gate(0, now);
    if (!held)
        token.epoch = 0;
    token.requested = false;
    if (token.state == CLOSED && atomic_load(&weft_gate.waiting))
        request(now);
    unlock();
}

/* ---- Threads of the application */

void weft_token_close_first(void) {
    lock();
    if (token.state == UNSHARED) {
        token.state = CLOSED;
        set_gate(false);
    }
    unlock();
}

/* Waits until the gate was opened, or at least changed. */
static void wait_for_gate(void) {
    lock();
    uint32_t word = atomic_load(&weft_gate.word);
    if (!(word & WEFT_GATE_OPEN)) {
        atomic_fetch_add(&weft_gate.waiting, 1);
        if (token.state == CLOSED && !token.requested)
            request(weft_now());
        unlock();
        weft_futex_wait(&weft_gate.word, word, WEFT_NEVER);
        atomic_fetch_sub(&weft_gate.waiting, 1);
        return;
    }
    unlock();
}

/* The first launch under a grant ahead: the gap is over. */
static void come_back(void) {
    lock();
    if (token.state == OPEN && token.ahead) {
        token.ahead = false;
        token.rested = weft_now() - token.granted;
        set_gate(true);
    }
    unlock();
}

static __attribute__((noinline)) void begin_slowly(CUstream stream, enum weft_work kind, const void *key) {
    int saved = errno;
    struct weft_slot *slot = weft_slot_get();
    for (;;) {
        if (weft_gate_enter(&weft_gate.word, &slot->busy, WEFT_GATE_OPEN, WEFT_GATE_WINDOWED | WEFT_GATE_AHEAD))
            break;
        uint32_t word = atomic_load(&weft_gate.word);
        if (!(word & WEFT_GATE_OPEN)) {
            wait_for_gate();
            continue;
        }
        if (word & WEFT_GATE_AHEAD) {
            come_back();
            continue;
        }
        weft_window_admit(slot, stream, kind, key);
        if (weft_gate_enter(&weft_gate.word, &slot->busy, WEFT_GATE_OPEN, WEFT_GATE_AHEAD))
            break;
        weft_window_cancel(slot);
    }
    errno = saved;
}

void weft_launch_begin(CUstream stream, enum weft_work kind, const void *key) {
    struct weft_slot *slot = weft_own_slot;
    if (__builtin_expect(!slot || !weft_gate_enter(&weft_gate.word, &slot->busy, WEFT_GATE_OPEN, WEFT_GATE_WINDOWED | WEFT_GATE_AHEAD), 0))
        begin_slowly(stream, kind, key);
}

static __attribute__((noinline)) void end_slowly(struct weft_slot *slot, CUstream stream, enum weft_work kind,
                                                 const void *key, bool launched) {
    int saved = errno;
    bool outermost = atomic_load_explicit(&slot->busy, memory_order_relaxed) == 1;
    if (slot->window && outermost && launched)
        weft_window_launched(slot, stream, kind, key);
    else if (slot->window && outermost)
        weft_window_cancel(slot);
    if (launched && atomic_load_explicit(&weft_gate.word, memory_order_relaxed) != WEFT_GATE_OPEN)
        weft_stream_touch(slot, stream);
    errno = saved;
}

void weft_launch_end(CUstream stream, enum weft_work kind, const void *key, bool launched) {
    struct weft_slot *slot = weft_own_slot;
    uint64_t launches = atomic_load_explicit(&slot->launches, memory_order_relaxed);
    if (__builtin_expect(!launched || slot->window || weft_stream_implicit(stream) || !weft_stream_touch_again(slot, stream), 0))
        end_slowly(slot, stream, kind, key, launched);
    atomic_store_explicit(&slot->launches, launches + launched, memory_order_relaxed);
    weft_gate_leave(&slot->busy);
}

static __attribute__((noinline)) void synced_slowly(CUstream stream, bool all) {
    int saved = errno;
    if (weft_own_slot)
        weft_streams_synced(weft_own_slot, stream, all);
    lock();
    if (token.state == OPEN && token.yield && !spared() && !starting())
        release_if_quiet(weft_now(), SPIN);
    unlock();
    errno = saved;
}

static void synced(CUstream stream, bool all) {
    struct weft_slot *slot = weft_own_slot;
    if (slot)
        atomic_store_explicit(&slot->synced, slot->launches, memory_order_relaxed);
    if (__builtin_expect(atomic_load_explicit(&token.yield, memory_order_relaxed), 0))
        synced_slowly(stream, all);
}

void weft_synced(CUstream stream) { synced(stream, false); }
void weft_synced_all(void) { synced(NULL, true); }

bool weft_token_wanted(void) { return atomic_load_explicit(&token.yield, memory_order_relaxed); }

void weft_token_leave(void) {
    lock();
    if (token.state == OPEN)
        close_gate(0, weft_now());
    unlock();
    weft_session_kick();
}

bool weft_token_give(void) {
    if (!weft_token_wanted())
        return false;
    lock();
    bool gives = token.state == OPEN && token.yield;
    uint32_t drained = atomic_load(&token.drained);
    if (gives)
        close_gate(0, weft_now());
    unlock();
    weft_session_kick();
    while (gives && atomic_load(&token.drained) == drained)
        weft_futex_wait(&token.drained, drained, WEFT_NEVER);
    return gives;
}

/* A process that ends with the token gives it back itself, where the work is done or all but done. */
void weft_token_exit(void) {
    lock();
    int64_t now = weft_now(), until = now + LAST_WAIT;
    if (token.state == OPEN && token.epoch != ALONE)
        release_if_quiet(now, LAST_WAIT);
    while (token.state == DRAINING && now < until) { /* its last context is gone already */
        drain(now);
        now = weft_now();
    }
    unlock();
}

void weft_token_forked(void) {
    token.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    token.state = UNSHARED;
    token.epoch = token.newest = token.owed.epoch = 0;
    token.slice = token.deadline = token.window = token.spare = 0;
    token.yield = token.idle = token.requested = false;
}
