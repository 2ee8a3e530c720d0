// Events. Their times are the broker's: computed, not measured.
#include <stdlib.h>

#include "cuda_state.h"

struct shelf event_shelf = SHELF(struct CUevent_st, EVENT);

static CUresult event_enter(CUevent event)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (!object_is(event, EVENT) || !object_is(event->context, CONTEXT) || event->context->id != event->context_id)
        return CUDA_ERROR_INVALID_HANDLE;
    return context_check(event->context);
}

// Where an event was recorded.
struct place {
    uint32_t ring;
    uint64_t number;
};

static struct place place_of(CUevent event)
{
    uint64_t place = event->place;
    return (struct place){.ring = place & 0xffff, .number = place >> 16};
}

static CUresult place_wait(CUevent event)
{
    struct place at = place_of(event);
    return stream_wait(event->context, at.ring, at.number);
}

EMU_API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    CUcontext c;
    NEED(out != NULL && flags <= (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    NEED((flags & CU_EVENT_INTERPROCESS) == 0 || (flags & CU_EVENT_DISABLE_TIMING) != 0);
    TRY(context_current(&c));
    driver_lock();
    bool room = c->events_count > 0 || c->events_used < EMU_EVENTS;
    CUevent e = room ? object_new(&event_shelf) : NULL;
    if (e != NULL) {
        e->context = c;
        e->context_id = c->id;
        e->flags = flags;
        e->index = c->events_count > 0 ? c->events_free[--c->events_count] : c->events_used++;
        e->generation = atomic_load_explicit(&c->shared->events[e->index].generation, memory_order_acquire);
    }
    driver_unlock();
    *out = e;
    return e != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_API CUresult cuEventDestroy_v2(CUevent event)
{
    TRY(event_enter(event));
    // A record under way writes into the slot: it is handed out again after that.
    if (event->recorded && event->capture == 0)
        place_wait(event);
    driver_lock();
    CUcontext c = event->context;
    if (c->events_count < EMU_EVENTS)
        c->events_free[c->events_count++] = event->index;
    free(event->ends);
    object_retire(&event_shelf, event);
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

// ---- Recording and waiting

CUresult event_record(CUevent event, CUstream stream)
{
    uint64_t generation = ++event->generation, number;
    struct emu_entry entry = {.kind = EMU_RECORD, .function = event->index, .cost = generation};
    TRY(stream_submit(stream, entry, &number));
    event->place = number << 16 | stream->index;
    event->capture = 0;
    event->recorded = true;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    CUstream s;
    struct capture *capture;
    NEED(flags <= CU_EVENT_RECORD_EXTERNAL);
    TRY(event_enter(event));
    TRY(stream_enter(stream, &s));
    if (s->context != event->context)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(capture_of(s, &capture));
    if (capture == NULL) {
        NEED(flags == 0);
        return event_record(event, s);
    }
    if (flags == CU_EVENT_RECORD_EXTERNAL)
        return operation_run(s, &(struct operation){.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event});
    return capture_record(event, s, capture);
}
PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), (event, OWN(stream), flags))

EMU_API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, 0);
}
PTSZ(cuEventRecord, (CUevent event, CUstream stream), (event, OWN(stream)))

CUresult event_wait(CUstream stream, CUevent event)
{
    if (!event->recorded)
        return CUDA_SUCCESS;
    struct place at = place_of(event);
    struct emu_ring *r = &event->context->shared->rings[at.ring];
    if (atomic_load_explicit(&r->done, memory_order_acquire) >= at.number)
        return CUDA_SUCCESS;
    struct emu_entry wait = {.kind = EMU_WAIT, .epoch = event->context->shared->id, .function = at.ring, .cost = at.number};
    return stream_submit(stream, wait, NULL);
}

EMU_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUstream s;
    struct capture *capture;
    NEED(flags <= CU_EVENT_WAIT_EXTERNAL);
    TRY(event_enter(event));
    TRY(stream_enter(stream, &s));
    if (capture_event(event))
        return capture_wait(s, event);
    TRY(capture_of(s, &capture));
    if (capture == NULL)
        return event_wait(s, event);
    if (flags == CU_EVENT_WAIT_EXTERNAL)
        return operation_run(s, &(struct operation){.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event});
    return capture_wait(s, event);
}
PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (OWN(stream), event, flags))

// ---- Asking

static CUresult event_ready(CUevent event)
{
    TRY(event_enter(event));
    if (event->capture != 0)
        return CUDA_ERROR_CAPTURED_EVENT;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuEventSynchronize(CUevent event)
{
    TRY(event_ready(event));
    TRY(capture_unsafe());
    if (event->recorded)
        TRY(place_wait(event));
    driver_lock();
    pool_trim_all(event->context->device);
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuEventQuery(CUevent event)
{
    struct thread *t;
    TRY(event_ready(event));
    TRY(capture_unsafe());
    TRY(driver_enter(&t));
    if (!event->recorded)
        return CUDA_SUCCESS;
    struct place at = place_of(event);
    struct emu_ring *r = &event->context->shared->rings[at.ring];
    bool done = t->slot != NULL ? emu_poll(&driver.client, t->slot, r, at.number)
                                : atomic_load_explicit(&r->done, memory_order_acquire) >= at.number;
    TRY(context_check(event->context));
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_time(CUevent event, uint64_t *time)
{
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0 || !event->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    struct emu_event *slot = &event->context->shared->events[event->index];
    if (atomic_load_explicit(&slot->generation, memory_order_acquire) < event->generation)
        return CUDA_ERROR_NOT_READY;
    *time = atomic_load_explicit(&slot->time, memory_order_relaxed);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    uint64_t from, to;
    NEED(ms != NULL);
    TRY(event_ready(start));
    TRY(event_ready(end));
    TRY(event_time(start, &from));
    TRY(event_time(end, &to));
    *ms = (float)(((double)to - (double)from) / 1e6);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime(ms, start, end);
}
