#include "window.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "drain.h"
#include "futex.h"

#define MARKS 256u   /* launches outstanding, at most */
#define CONTEXTS 32u /* with a window; launches in further ones are not bounded */
#define TIMING 0u    /* CU_EVENT_DEFAULT */
#define PAUSE (20 * WEFT_US) /* for a thread that was admitted and has not launched yet */

/* An admitted launch. */
struct mark {
    CUevent start; /* NULL: it is not timed */
    CUevent end;
    int64_t charged; /* ns */
    struct weft_cost *cost;
    uintptr_t key; /* of cost, which may have become another one's */
};

struct weft_window {
    CUcontext context;
    int64_t outstanding;  /* charged and not known to be done, ns */
    uint32_t head, tail;  /* of the ring */
    uint32_t spares;      /* events not in use */
    struct mark marks[MARKS];
    CUevent spare[2 * MARKS + 64];
};

static struct {
    pthread_mutex_t lock;
    int64_t bound; /* ns */
    int64_t spent; /* ns */
    struct weft_window *windows[CONTEXTS];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct weft_window *window_of(CUcontext context) {
    for (unsigned i = 0; i < CONTEXTS; i++) {
        struct weft_window *w = all.windows[i];
        if (!w)
            w = all.windows[i] = calloc(1, sizeof *w);
        if (w && !w->context)
            w->context = context;
        if (!w || w->context == context)
            return w;
    }
    return NULL;
}

static CUevent take_event(struct weft_window *w) {
    CUevent event = NULL;
    if (w->spares)
        return w->spare[--w->spares];
    return weft_driver.event_create(&event, TIMING) == CUDA_SUCCESS ? event : NULL;
}

static void give_event(struct weft_window *w, CUevent event) {
    if (event && w->spares < sizeof w->spare / sizeof *w->spare)
        w->spare[w->spares++] = event;
    else if (event)
        weft_driver.event_destroy(event);
}

/* Takes the oldest launch off the books. */
static void retire(struct weft_window *w, bool measure) {
    struct mark *m = &w->marks[w->head++ % MARKS];
    int64_t took = m->charged;
    float ms;
    if (measure && m->start && weft_driver.event_elapsed(&ms, m->start, m->end) == CUDA_SUCCESS && ms >= 0) {
        took = (int64_t)((double)ms * WEFT_MS);
        if (m->cost->key == m->key)
            weft_cost_learn(m->cost, took);
    }
    all.spent += took;
    w->outstanding -= m->charged;
    give_event(w, m->start);
    give_event(w, m->end);
}

static void reap(struct weft_window *w) {
    while (w->head != w->tail && weft_driver.event_query(w->marks[w->head % MARKS].end) != CUDA_ERROR_NOT_READY)
        retire(w, true);
}

/* Waits for the oldest launch, without the lock. Where another thread takes it off the books meanwhile and records its event
 * anew, the wait is for a later launch, which is no harm. */
static void wait_for_oldest(struct weft_window *w) {
    CUevent oldest = w->head != w->tail ? w->marks[w->head % MARKS].end : NULL;
    pthread_mutex_unlock(&all.lock);
    if (oldest)
        weft_driver.event_synchronize(oldest);
    else
        weft_sleep(PAUSE);
    pthread_mutex_lock(&all.lock);
}

/* A window may be lifted while launches wait for it. */
static bool has_room(const struct weft_window *w, bool known) {
    return !all.bound || (w->tail - w->head < MARKS && w->outstanding < (known ? all.bound : 1));
}

/* Waits until less than the window is outstanding, with the lock held but for the pauses: so at most the window and one
 * launch are at any time, and one launch can follow another without a pause. A launch of unknown cost waits for all others. */
static void wait_for_room(struct weft_window *w, CUcontext context, bool known) {
    while (w->context == context) {
        reap(w);
        if (has_room(w, known))
            return;
        wait_for_oldest(w);
    }
}

void weft_window_admit(struct weft_slot *slot, CUstream stream, enum weft_work kind, const void *key) {
    CUcontext context = weft_stream_context(stream);
    struct weft_scope scope;
    if (!context || !weft_scope_enter(&scope, context))
        return;
    pthread_mutex_lock(&all.lock);
    struct weft_window *w = window_of(context);
    struct weft_cost *cost = weft_cost_of(kind, key);
    if (w && all.bound > 0) {
        bool known = weft_cost_known(cost);
        int64_t charge = known ? weft_cost_ns(cost) : all.bound;
        wait_for_room(w, context, known);
        w->outstanding += charge;
        slot->window = w;
        slot->charged = charge;
        slot->start = weft_cost_wants(cost) ? take_event(w) : NULL;
        if (slot->start && weft_driver.event_record(slot->start, stream) != CUDA_SUCCESS) {
            give_event(w, slot->start);
            slot->start = NULL;
        }
    }
    pthread_mutex_unlock(&all.lock);
    weft_scope_leave(&scope);
}

/* Leaves the slot's charge with the window, or takes it back. */
static struct mark charge_of(struct weft_slot *slot, bool keep) {
    struct mark m = {.start = slot->start, .charged = slot->charged};
    if (!keep) {
        slot->window->outstanding -= m.charged;
        give_event(slot->window, m.start);
    }
    slot->window = NULL;
    slot->start = NULL;
    return m;
}

void weft_window_launched(struct weft_slot *slot, CUstream stream, enum weft_work kind, const void *key) {
    struct weft_window *w = slot->window;
    struct weft_scope scope;
    if (!weft_scope_enter(&scope, weft_stream_context(stream))) {
        weft_window_cancel(slot);
        return;
    }
    pthread_mutex_lock(&all.lock);
    CUevent end = take_event(w);
    bool recorded = end && w->tail - w->head < MARKS && weft_driver.event_record(end, stream) == CUDA_SUCCESS;
    struct mark m = charge_of(slot, recorded);
    if (recorded) {
        m.end = end;
        m.cost = weft_cost_of(kind, key);
        m.key = m.cost->key;
        w->marks[w->tail++ % MARKS] = m;
    } else {
        give_event(w, end);
    }
    pthread_mutex_unlock(&all.lock);
    weft_scope_leave(&scope);
}

void weft_window_cancel(struct weft_slot *slot) {
    if (!slot->window)
        return;
    pthread_mutex_lock(&all.lock);
    charge_of(slot, false);
    pthread_mutex_unlock(&all.lock);
}

void weft_window_set(int64_t bound) {
    pthread_mutex_lock(&all.lock);
    all.bound = bound;
    pthread_mutex_unlock(&all.lock);
}

static void each_window(void (*visit)(struct weft_window *)) {
    for (unsigned i = 0; i < CONTEXTS && all.windows[i]; i++) {
        struct weft_window *w = all.windows[i];
        struct weft_scope scope;
        if (!w->context || w->head == w->tail || !weft_scope_enter(&scope, w->context))
            continue;
        visit(w);
        weft_scope_leave(&scope);
    }
}

int64_t weft_window_spent(void) {
    pthread_mutex_lock(&all.lock);
    each_window(reap);
    int64_t spent = all.spent;
    pthread_mutex_unlock(&all.lock);
    return spent;
}

static void retire_all(struct weft_window *w) {
    while (w->head != w->tail)
        retire(w, true);
}

void weft_window_drained(void) {
    pthread_mutex_lock(&all.lock);
    each_window(retire_all);
    pthread_mutex_unlock(&all.lock);
}

void weft_window_quit(CUcontext context) {
    struct weft_scope scope;
    pthread_mutex_lock(&all.lock);
    for (unsigned i = 0; i < CONTEXTS && all.windows[i]; i++) {
        struct weft_window *w = all.windows[i];
        if (w->context != context)
            continue;
        bool entered = weft_scope_enter(&scope, context);
        while (w->head != w->tail)
            retire(w, false);
        while (w->spares > 0 && entered)
            weft_driver.event_destroy(w->spare[--w->spares]);
        if (entered)
            weft_scope_leave(&scope);
        memset(w, 0, sizeof *w);
    }
    pthread_mutex_unlock(&all.lock);
}

void weft_window_forked(void) {
    all.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (all.windows[i])
            memset(all.windows[i], 0, sizeof *all.windows[i]);
    weft_cost_forked();
}
