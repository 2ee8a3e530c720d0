/* Which streams have work outstanding, and whether it is done.
 *
 * A stream is touched by a launch into it. To learn whether that work is done, an event is recorded on the stream and asked
 * for: never by synchronising a context, which is illegal while a stream captures. The legacy stream 0 and the threads' own
 * streams are watched by one event on the context's legacy stream, which follows all of them.
 *
 * No event is recorded on a stream that captures: it would become part of the graph. What was launched into it before is
 * watched from weft_stream_quit on, which comes before the capture begins. A stream that joins a capture by waiting for a
 * captured event does not pass there; what it still ran is not waited for.
 */
#ifndef WEFT_DRAIN_H
#define WEFT_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "gate.h"
#include "token.h"

enum weft_stream_state {
    WEFT_STREAM_CLEAN = 0,
    WEFT_STREAM_TOUCHED = 1,  /* launched into since the event was recorded */
    WEFT_STREAM_RECORDED = 2, /* all launches so far come before the event */
};

/* Entries are never unmapped: a thread keeps a pointer to the one it used last. */
struct weft_stream {
    _Atomic(CUstream) handle; /* WEFT_NO_STREAM: forgotten, only its event counts on */
    _Atomic(CUcontext) context;
    _Atomic uint32_t state;
    _Atomic(struct weft_slot *) owner; /* the only one that launches into it, or NULL where there are several */
    CUevent event;
    struct weft_stream *next;
};

#define WEFT_NO_STREAM ((CUstream)UINTPTR_MAX)

/* Streams whose handle means another stream in each context or thread. */
static inline bool weft_stream_implicit(CUstream stream) { return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD; }

/* A launch into the stream returned; the calling thread is in flight still. Does it without a lock, or says false. */
static inline bool weft_stream_touch_again(struct weft_slot *slot, CUstream stream) {
    struct weft_stream *s = slot->recent[0];
    if (!s || atomic_load_explicit(&s->handle, memory_order_relaxed) != stream)
        return false;
    if (atomic_load_explicit(&s->state, memory_order_relaxed) != WEFT_STREAM_TOUCHED)
        atomic_store_explicit(&s->state, WEFT_STREAM_TOUCHED, memory_order_relaxed);
    return true;
}

/* The same for any stream. */
void weft_stream_touch(struct weft_slot *slot, CUstream stream);

/* The context that a stream belongs to, or the current one. */
CUcontext weft_stream_context(CUstream stream);

/* Whether nothing of the touched streams is outstanding. Records events where some are missing. Errors of the driver count
 * as done: a device that failed runs nothing. With the gate closed and all slots idle the answer stays true. */
bool weft_streams_settled(void);

/* The calling thread has just synchronised the stream, or all of the current context: what only it launches into is clean. */
void weft_streams_synced(struct weft_slot *slot, CUstream stream, bool all);

void weft_streams_forked(void);

/* Calls of the driver on a context, from whatever thread: the context is made current, and a capture that the application
 * runs in the global mode is not disturbed by them. */
struct weft_scope {
    bool pushed, relaxed;
    CUstreamCaptureMode mode;
};
bool weft_scope_enter(struct weft_scope *scope, CUcontext context);
void weft_scope_leave(struct weft_scope *scope);

#endif
