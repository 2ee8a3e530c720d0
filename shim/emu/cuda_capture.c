// Stream capture: which calls it forbids, which streams it takes in, what spoils it.
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"

static struct capture *captures; // under way; under driver.lock
static _Atomic int captures_count;

// ---- Rules

static bool forbids(const struct capture *c, CUstreamCaptureMode mode)
{
    bool own = pthread_equal(c->owner, pthread_self());
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED || c->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return own || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult capture_unsafe(void)
{
    struct thread *t;
    CUresult result = CUDA_SUCCESS;
    if (atomic_load_explicit(&captures_count, memory_order_acquire) == 0)
        return CUDA_SUCCESS;
    TRY(driver_enter(&t));
    driver_lock();
    for (struct capture *c = captures; c != NULL; c = c->next) {
        if (!forbids(c, t->mode))
            continue;
        c->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    driver_unlock();
    return result;
}

static CUresult spoil(struct capture *c, CUresult result)
{
    if (c->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    c->invalid = true;
    return result;
}

CUresult capture_refuse(CUstream stream)
{
    driver_lock();
    struct capture *c = stream->capture;
    CUresult result = c == NULL ? CUDA_SUCCESS : spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    driver_unlock();
    return result;
}

// implicit finds a capture that a NULL stream would depend on: one with a blocking stream of its context.
static struct capture *implicit(CUcontext context)
{
    for (struct capture *c = captures; c != NULL; c = c->next)
        for (int i = 0; i < c->streams_count; i++)
            if (c->streams[i]->context == context && (c->streams[i]->flags & CU_STREAM_NON_BLOCKING) == 0)
                return c;
    return NULL;
}

CUresult capture_of(CUstream stream, struct capture **capture)
{
    *capture = NULL;
    if (stream->capture == NULL && (stream->index != 0 || atomic_load_explicit(&captures_count, memory_order_acquire) == 0))
        return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    driver_lock();
    struct capture *c = stream->capture;
    if (c != NULL && c->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (c == NULL && stream->index == 0 && (c = implicit(stream->context)) != NULL)
        result = spoil(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    else
        *capture = c;
    driver_unlock();
    return result;
}

// ---- What the next node of a stream depends on

static CUresult ends_set(CUgraphNode **ends, size_t *count, const CUgraphNode *nodes, size_t n)
{
    CUgraphNode *copy = malloc((n + 1) * sizeof *copy);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (n > 0)
        memcpy(copy, nodes, n * sizeof *copy);
    free(*ends);
    *ends = copy;
    *count = n;
    return CUDA_SUCCESS;
}

static CUresult ends_join(CUstream s, const CUgraphNode *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < s->ends_count && s->ends[k] != nodes[i])
            k++;
        if (k < s->ends_count)
            continue;
        CUgraphNode *more = realloc(s->ends, (s->ends_count + 1) * sizeof *more);
        if (more == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        s->ends = more;
        s->ends[s->ends_count++] = nodes[i];
    }
    return CUDA_SUCCESS;
}

// ---- Streams coming in and going out

static CUresult take_in(struct capture *c, CUstream stream)
{
    if (c->streams_count == CAPTURE_STREAMS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->streams[c->streams_count++] = stream;
    stream->capture = c;
    stream->ends_count = 0;
    return CUDA_SUCCESS;
}

static void let_go(CUstream stream)
{
    stream->capture = NULL;
    free(stream->ends);
    stream->ends = NULL;
    stream->ends_count = 0;
}

static void capture_end(struct capture *c)
{
    for (int i = 0; i < c->streams_count; i++)
        let_go(c->streams[i]);
    struct capture **at = &captures;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    atomic_fetch_sub(&captures_count, 1);
    free(c);
}

void capture_drop_stream(CUstream stream)
{
    struct capture *c = stream->capture;
    if (c == NULL)
        return;
    c->invalid = true;
    if (c->streams[0] == stream) {
        if (!c->into)
            graph_retire(c->graph);
        capture_end(c);
        return;
    }
    for (int i = 1; i < c->streams_count; i++)
        if (c->streams[i] == stream)
            c->streams[i--] = c->streams[--c->streams_count];
    let_go(stream);
}

// ---- Operations

CUresult capture_add(CUstream stream, struct capture *capture, const struct operation *operation, CUgraphNode *node)
{
    CUgraphNode n = NULL;
    driver_lock();
    CUresult result = stream->capture == capture ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (result == CUDA_SUCCESS)
        result = graph_add(capture->graph, stream->ends, stream->ends_count, operation, &n);
    if (result == CUDA_SUCCESS)
        result = ends_set(&stream->ends, &stream->ends_count, &n, 1);
    driver_unlock();
    if (node != NULL)
        *node = n;
    return result;
}

CUresult capture_record(CUevent event, CUstream stream, struct capture *capture)
{
    driver_lock();
    CUresult result = ends_set(&event->ends, &event->ends_count, stream->ends, stream->ends_count);
    if (result == CUDA_SUCCESS) {
        event->capture = capture->id;
        event->recorded = true;
    }
    driver_unlock();
    return result;
}

static struct capture *by_id(uint64_t id)
{
    struct capture *c = captures;
    while (c != NULL && c->id != id)
        c = c->next;
    return c;
}

bool capture_event(CUevent event)
{
    return event->capture != 0;
}

static CUresult wait_locked(CUstream stream, CUevent event)
{
    struct capture *mine = stream->capture, *its = event->capture != 0 ? by_id(event->capture) : NULL;
    if (event->capture != 0 && its == NULL)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (mine != NULL && mine->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (its == NULL)
        return event->recorded ? spoil(mine, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
    if (its->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (mine != NULL && mine != its) {
        mine->invalid = true;
        return spoil(its, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (mine == NULL && stream->index == 0)
        return spoil(its, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (mine == NULL)
        TRY(take_in(its, stream));
    return ends_join(stream, event->ends, event->ends_count);
}

CUresult capture_wait(CUstream stream, CUevent event)
{
    driver_lock();
    CUresult result = wait_locked(stream, event);
    driver_unlock();
    return result;
}

// ---- Begin and end

static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *needs, size_t count, CUstreamCaptureMode mode)
{
    CUstream s;
    NEED(mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    TRY(stream_enter(handle, &s));
    if (s->index == 0)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct capture *c = calloc(1, sizeof *c);
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver_lock();
    CUresult result = s->capture != NULL ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
    c->mode = mode;
    c->owner = pthread_self();
    c->into = graph != NULL;
    c->graph = graph;
    if (result == CUDA_SUCCESS && graph == NULL)
        result = graph_new(&c->graph);
    if (result == CUDA_SUCCESS) {
        c->id = ++driver.last_id;
        c->next = captures;
        captures = c;
        atomic_fetch_add(&captures_count, 1);
        take_in(c, s);
        result = ends_set(&s->ends, &s->ends_count, needs, count);
    } else {
        free(c);
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, NULL, NULL, 0, mode);
}
PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (OWN(stream), mode))

EMU_API CUresult cuStreamBeginCapture(CUstream stream)
{
    return begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
PTSZ(cuStreamBeginCapture, (CUstream stream), (OWN(stream)))

EMU_API CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges,
                                             size_t count, CUstreamCaptureMode mode)
{
    (void)edges;
    TRY(graph_enter(graph));
    NEED(count == 0 || needs != NULL);
    return begin(stream, graph, needs, count, mode);
}
PTSZ(cuStreamBeginCaptureToGraph,
     (CUstream stream, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
     (OWN(stream), graph, needs, edges, count, mode))

// joined says whether all that the capture's other streams did leads back to its origin: every node that none depends on is one that
// the origin's next would depend on.
static bool joined(const struct capture *c)
{
    CUgraph g = c->graph;
    for (size_t i = 0; i < g->count; i++)
        g->nodes[i]->mark = 0;
    for (size_t i = 0; i < g->count; i++)
        for (size_t k = 0; k < g->nodes[i]->needs_count; k++)
            g->nodes[i]->needs[k]->mark = 1;
    for (size_t i = 0; i < c->streams[0]->ends_count; i++)
        c->streams[0]->ends[i]->mark = 1;
    for (size_t i = 0; i < g->count && !c->into; i++)
        if (g->nodes[i]->mark == 0)
            return false;
    return true;
}

static CUresult end_locked(CUstream s, CUgraph *graph)
{
    struct capture *c = s->capture;
    if (c == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (c->streams[0] != s)
        return spoil(c, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->owner, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : joined(c) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS)
        *graph = c->graph;
    else if (!c->into)
        graph_retire(c->graph);
    capture_end(c);
    return result;
}

EMU_API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUstream s;
    NEED(graph != NULL);
    TRY(stream_enter(stream, &s));
    *graph = NULL;
    driver_lock();
    CUresult result = end_locked(s, graph);
    driver_unlock();
    return result;
}
PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (OWN(stream), graph))

// ---- Asking

EMU_API CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
                                           const CUgraphNode **needs, const CUgraphEdgeData **edges, size_t *count)
{
    CUstream s;
    NEED(status != NULL);
    TRY(stream_enter(stream, &s));
    driver_lock();
    struct capture *c = s->capture;
    bool hidden = c == NULL && s->index == 0 && implicit(s->context) != NULL;
    *status = c == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
                        : c->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id != NULL)
            *id = c->id;
        if (graph != NULL)
            *graph = c->graph;
        if (needs != NULL)
            *needs = s->ends;
        if (edges != NULL)
            *edges = NULL;
        if (count != NULL)
            *count = s->ends_count;
    }
    driver_unlock();
    return hidden ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}
PTSZ(cuStreamGetCaptureInfo_v3,
     (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **needs,
      const CUgraphEdgeData **edges, size_t *count),
     (OWN(stream), status, id, graph, needs, edges, count))

EMU_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
                                           const CUgraphNode **needs, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, needs, NULL, count);
}
PTSZ(cuStreamGetCaptureInfo_v2,
     (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **needs, size_t *count),
     (OWN(stream), status, id, graph, needs, count))

EMU_API CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}
PTSZ(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id), (OWN(stream), status, id))

EMU_API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamGetCaptureInfo_v3(stream, status, NULL, NULL, NULL, NULL, NULL);
}
PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), (OWN(stream), status))

EMU_API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *needs, const CUgraphEdgeData *edges, size_t count,
                                                      unsigned flags)
{
    CUstream s;
    (void)edges;
    NEED(flags <= 1 && (count == 0 || needs != NULL));
    TRY(stream_enter(stream, &s));
    CUresult result = CUDA_ERROR_ILLEGAL_STATE;
    driver_lock();
    if (s->capture != NULL)
        result = flags == 1 ? ends_set(&s->ends, &s->ends_count, needs, count) : ends_join(s, needs, count);
    driver_unlock();
    return result;
}
PTSZ(cuStreamUpdateCaptureDependencies_v2,
     (CUstream stream, CUgraphNode *needs, const CUgraphEdgeData *edges, size_t count, unsigned flags),
     (OWN(stream), needs, edges, count, flags))

EMU_API CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *needs, size_t count, unsigned flags)
{
    return cuStreamUpdateCaptureDependencies_v2(stream, needs, NULL, count, flags);
}
PTSZ(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *needs, size_t count, unsigned flags),
     (OWN(stream), needs, count, flags))

EMU_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    struct thread *t;
    NEED(mode != NULL && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    TRY(driver_enter(&t));
    CUstreamCaptureMode old = t->mode;
    t->mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
