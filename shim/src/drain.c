#include "drain.h"

#include <pthread.h>
#include <stdlib.h>

#include "window.h"

#define NO_TIMING 2u /* CU_EVENT_DISABLE_TIMING */

static struct {
    pthread_mutex_t lock; /* the list, events, and the order of recording and quitting */
    struct weft_stream *first;
} streams = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool weft_scope_enter(struct weft_scope *scope, CUcontext context) {
    CUcontext current = NULL;
    *scope = (struct weft_scope){.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    if (weft_driver.capture_mode)
        scope->relaxed = weft_driver.capture_mode(&scope->mode) == CUDA_SUCCESS;
    if (weft_driver.context_get(&current) == CUDA_SUCCESS && current == context)
        return true;
    scope->pushed = weft_driver.context_push(context) == CUDA_SUCCESS;
    if (!scope->pushed)
        weft_scope_leave(scope);
    return scope->pushed;
}

void weft_scope_leave(struct weft_scope *scope) {
    CUcontext popped;
    if (scope->pushed)
        weft_driver.context_pop(&popped);
    if (scope->relaxed)
        weft_driver.capture_mode(&scope->mode);
    scope->pushed = scope->relaxed = false;
}

CUcontext weft_stream_context(CUstream stream) {
    CUcontext context = NULL;
    if (!weft_stream_implicit(stream) && weft_driver.stream_context &&
        weft_driver.stream_context(stream, &context) == CUDA_SUCCESS && context)
        return context;
    if (!weft_driver.context_get || weft_driver.context_get(&context) != CUDA_SUCCESS)
        return NULL;
    return context;
}

static struct weft_stream *find(CUcontext context, CUstream handle) {
    struct weft_stream *s = streams.first;
    while (s && (atomic_load_explicit(&s->handle, memory_order_relaxed) != handle ||
                 atomic_load_explicit(&s->context, memory_order_relaxed) != context))
        s = s->next;
    return s;
}

/* An entry for a stream met for the first time: a forgotten and clean one whose event can serve, or a new one. */
static struct weft_stream *add(struct weft_slot *slot, CUcontext context, CUstream handle) {
    struct weft_stream *s = streams.first;
    while (s && !(s->handle == WEFT_NO_STREAM && s->state == WEFT_STREAM_CLEAN && (s->context == context || !s->event)))
        s = s->next;
    if (!s && (s = calloc(1, sizeof *s))) {
        s->next = streams.first;
        streams.first = s;
    }
    if (s) {
        atomic_store_explicit(&s->context, context, memory_order_relaxed);
        atomic_store_explicit(&s->owner, slot, memory_order_relaxed);
        atomic_store_explicit(&s->handle, handle, memory_order_relaxed);
    }
    return s;
}

/* Among the streams that the thread launched into before. */
static bool touch_recent(struct weft_slot *slot, CUcontext context, CUstream stream) {
    for (unsigned i = 0; i < WEFT_RECENT; i++) {
        struct weft_stream *s = slot->recent[i];
        if (s && atomic_load_explicit(&s->context, memory_order_relaxed) == context &&
            atomic_load_explicit(&s->handle, memory_order_relaxed) == stream) {
            weft_slot_remember(slot, s, i);
            return weft_stream_touch_again(slot, stream);
        }
    }
    return false;
}

void weft_stream_touch(struct weft_slot *slot, CUstream stream) {
    CUcontext context = weft_stream_context(stream);
    if (weft_stream_implicit(stream))
        stream = NULL;
    if (touch_recent(slot, context, stream))
        return;
    pthread_mutex_lock(&streams.lock);
    struct weft_stream *s = find(context, stream);
    if (!s)
        s = add(slot, context, stream);
    if (s) {
        if (atomic_load_explicit(&s->owner, memory_order_relaxed) != slot)
            atomic_store_explicit(&s->owner, NULL, memory_order_relaxed);
        atomic_store_explicit(&s->state, WEFT_STREAM_TOUCHED, memory_order_relaxed);
        weft_slot_remember(slot, s, WEFT_RECENT - 1);
    }
    pthread_mutex_unlock(&streams.lock);
}

static bool captures(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!weft_driver.stream_is_capturing)
        return false;
    CUresult r = weft_driver.stream_is_capturing(stream, &status);
    return r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Puts the event behind all launches so far. The state changes first, by an instruction that no later call overtakes: a
 * launch that is not before the event sets it back. */
static void record(struct weft_stream *s) {
    CUstream handle = atomic_load_explicit(&s->handle, memory_order_relaxed);
    uint32_t touched = WEFT_STREAM_TOUCHED;
    if (handle == WEFT_NO_STREAM || captures(handle) ||
        !atomic_compare_exchange_strong(&s->state, &touched, WEFT_STREAM_RECORDED))
        return;
    if ((s->event || weft_driver.event_create(&s->event, NO_TIMING) == CUDA_SUCCESS) &&
        weft_driver.event_record(s->event, handle) == CUDA_SUCCESS)
        return;
    atomic_store(&s->state, WEFT_STREAM_CLEAN);
}

/* Whether a stream has work outstanding, as far as it may be asked. */
static bool outstanding(struct weft_stream *s) {
    uint32_t state = atomic_load(&s->state);
    if (state == WEFT_STREAM_CLEAN)
        return false;
    struct weft_scope scope;
    if (!weft_scope_enter(&scope, atomic_load_explicit(&s->context, memory_order_relaxed))) {
        atomic_store(&s->state, WEFT_STREAM_CLEAN);
        return false;
    }
    if (state == WEFT_STREAM_TOUCHED)
        record(s);
    bool waits = false;
    uint32_t recorded = WEFT_STREAM_RECORDED;
    if (atomic_load(&s->state) == WEFT_STREAM_RECORDED) {
        waits = weft_driver.event_query(s->event) == CUDA_ERROR_NOT_READY;
        if (!waits)
            atomic_compare_exchange_strong(&s->state, &recorded, WEFT_STREAM_CLEAN);
    }
    weft_scope_leave(&scope);
    return waits;
}

bool weft_streams_settled(void) {
    bool settled = true;
    pthread_mutex_lock(&streams.lock);
    for (struct weft_stream *s = streams.first; s; s = s->next)
        settled &= !outstanding(s); /* all of them: events are recorded as early as may be */
    pthread_mutex_unlock(&streams.lock);
    return settled;
}

void weft_streams_synced(struct weft_slot *slot, CUstream stream, bool all) {
    CUcontext context = weft_stream_context(stream);
    if (stream == CU_STREAM_PER_THREAD && !all)
        return; /* the entry stands for the legacy stream too */
    if (weft_stream_implicit(stream))
        stream = NULL;
    pthread_mutex_lock(&streams.lock);
    for (struct weft_stream *s = streams.first; s; s = s->next)
        if (s->owner == slot && s->context == context && (all || s->handle == stream))
            atomic_store(&s->state, WEFT_STREAM_CLEAN);
    pthread_mutex_unlock(&streams.lock);
}

void weft_stream_quit(CUstream stream) {
    if (weft_stream_implicit(stream) || !weft_driver.context_get)
        return;
    CUcontext context = weft_stream_context(stream);
    struct weft_scope scope;
    pthread_mutex_lock(&streams.lock);
    struct weft_stream *own = find(context, stream), *legacy = find(context, NULL);
    if ((own || legacy) && weft_scope_enter(&scope, context)) {
        if (own)
            record(own);
        if (legacy) /* during a capture nothing may be recorded there either */
            record(legacy);
        weft_scope_leave(&scope);
    }
    if (own) {
        atomic_store_explicit(&own->handle, WEFT_NO_STREAM, memory_order_relaxed);
        if (atomic_load(&own->state) == WEFT_STREAM_TOUCHED)
            atomic_store(&own->state, WEFT_STREAM_CLEAN);
    }
    pthread_mutex_unlock(&streams.lock);
}

void weft_context_quit(CUcontext context) {
    struct weft_scope scope;
    if (!weft_driver.context_get)
        return;
    weft_window_quit(context);
    pthread_mutex_lock(&streams.lock);
    bool entered = false;
    for (struct weft_stream *s = streams.first; s; s = s->next) {
        if (s->context != context)
            continue;
        if (s->event && (entered || (entered = weft_scope_enter(&scope, context))))
            weft_driver.event_destroy(s->event);
        s->event = NULL;
        atomic_store(&s->handle, WEFT_NO_STREAM);
        atomic_store(&s->context, NULL);
        atomic_store(&s->state, WEFT_STREAM_CLEAN);
    }
    if (entered)
        weft_scope_leave(&scope);
    pthread_mutex_unlock(&streams.lock);
}

/* The events belong to a driver that the child cannot use. */
void weft_streams_forked(void) {
    streams.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    streams.first = NULL;
}
