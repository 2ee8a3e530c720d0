#include "gpu.h"

#include <pthread.h>
#include <stdlib.h>

#include "futex.h"

struct CUctx_st {
    atomic_bool destroyed;
};
struct CUstream_st {
    CUcontext context;
    int64_t end; /* when its work is done */
    bool capturing, destroyed;
    struct CUstream_st *next;
};
struct CUevent_st {
    CUcontext context;
    int64_t at;
};

struct weft_driver weft_driver;
struct gpu_counts gpu_counts;

static struct {
    pthread_mutex_t lock;
    struct CUctx_st contexts[8];
    struct CUstream_st legacy[8];
    struct CUstream_st *streams;
    _Atomic int broken; /* CUresult */
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread CUcontext current[16];
static __thread int depth;
static __thread bool own_stream; /* this thread launched into CU_STREAM_PER_THREAD */
static __thread CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static int index_of(CUcontext context) { return (int)(context - gpu.contexts); }

static CUstream resolve(CUstream stream) {
    return (uintptr_t)stream > 2 ? stream : &gpu.legacy[current[depth] ? index_of(current[depth]) : 0];
}

static bool legacy(CUstream stream) { return (uintptr_t)stream <= 2; }

static int64_t end_of(CUstream stream, CUcontext context) {
    int64_t end = resolve(stream)->end;
    for (CUstream s = gpu.streams; legacy(stream) && s; s = s->next)
        if (s->context == context && s->end > end)
            end = s->end;
    return end;
}

static CUresult event_create(CUevent *event, unsigned flags) {
    (void)flags;
    if (gpu.broken)
        return (CUresult)gpu.broken;
    gpu_counts.creates++;
    gpu_counts.events++;
    *event = calloc(1, sizeof **event);
    (*event)->context = current[depth];
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event) {
    gpu_counts.events--;
    free(event);
    return CUDA_SUCCESS;
}

static bool any_capture(CUcontext context) {
    bool any = false;
    for (CUstream s = gpu.streams; s; s = s->next)
        any |= s->capturing && (!context || s->context == context);
    return any;
}

/* Calls that would break a capture which runs in the global mode. */
static void unsafe(void) {
    if (any_capture(NULL) && mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        gpu_counts.faults++;
}

static CUresult event_record(CUevent event, CUstream stream) {
    if (gpu.broken)
        return (CUresult)gpu.broken;
    pthread_mutex_lock(&gpu.lock);
    CUstream s = resolve(stream);
    gpu_counts.records++;
    if (s->capturing || s->destroyed || (!legacy(stream) && s->context != event->context) ||
        (stream == CU_STREAM_PER_THREAD && !own_stream) || event->context != current[depth] || current[depth]->destroyed || (legacy(stream) && any_capture(current[depth])))
        gpu_counts.faults++;
    int64_t now = weft_now(), end = end_of(stream, event->context);
    event->at = end > now ? end : now;
    pthread_mutex_unlock(&gpu.lock);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event) {
    gpu_counts.queries++;
    if (gpu.broken)
        return (CUresult)gpu.broken;
    pthread_mutex_lock(&gpu.lock);
    unsafe();
    int64_t at = event->at;
    pthread_mutex_unlock(&gpu.lock);
    return weft_now() >= at ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_synchronize(CUevent event) {
    pthread_mutex_lock(&gpu.lock);
    int64_t at = event->at;
    pthread_mutex_unlock(&gpu.lock);
    if (gpu.broken)
        return (CUresult)gpu.broken;
    for (int64_t now; (now = weft_now()) < at;)
        weft_sleep(at - now);
    return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to) {
    if (gpu.broken)
        return (CUresult)gpu.broken;
    pthread_mutex_lock(&gpu.lock);
    *ms = (float)((double)(to->at - from->at) / WEFT_MS);
    pthread_mutex_unlock(&gpu.lock);
    return CUDA_SUCCESS;
}

static CUresult context_get(CUcontext *context) {
    *context = current[depth];
    return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext context) {
    if (gpu.broken)
        return (CUresult)gpu.broken;
    if (context->destroyed)
        gpu_counts.faults++;
    gpu_counts.pushes++;
    current[++depth] = context;
    return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *context) {
    *context = current[depth--];
    return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *context) {
    *context = resolve(stream)->context;
    return CUDA_SUCCESS;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
    pthread_mutex_lock(&gpu.lock);
    bool implicit = legacy(stream) && any_capture(current[depth]);
    *status = resolve(stream)->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    pthread_mutex_unlock(&gpu.lock);
    return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

static CUresult capture_mode(CUstreamCaptureMode *new) {
    CUstreamCaptureMode old = mode;
    mode = *new;
    *new = old;
    return CUDA_SUCCESS;
}

static void in_child(void) { gpu.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

void gpu_start(void) {
    pthread_atfork(NULL, NULL, in_child);
    for (int i = 0; i < 8; i++)
        gpu.legacy[i].context = &gpu.contexts[i];
    weft_driver = (struct weft_driver){
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_query = event_query,
        .event_synchronize = event_synchronize,
        .event_elapsed = event_elapsed,
        .context_get = context_get,
        .context_push = context_push,
        .context_pop = context_pop,
        .stream_context = stream_context,
        .stream_is_capturing = stream_is_capturing,
        .capture_mode = capture_mode,
    };
}

CUcontext gpu_context(int number) {
    return &gpu.contexts[number];
}

void gpu_use(CUcontext context) { current[depth] = context; }

CUstream gpu_stream(CUcontext context) {
    CUstream s = calloc(1, sizeof *s);
    pthread_mutex_lock(&gpu.lock);
    s->context = context;
    s->next = gpu.streams;
    gpu.streams = s;
    pthread_mutex_unlock(&gpu.lock);
    return s;
}

void gpu_destroy_stream(CUstream stream) {
    weft_stream_quit(stream);
    pthread_mutex_lock(&gpu.lock);
    stream->destroyed = true;
    pthread_mutex_unlock(&gpu.lock);
}

void gpu_destroy_context(CUcontext context) {
    weft_context_quit(context);
    context->destroyed = true;
}

void gpu_work(CUstream stream, int64_t ns) {
    pthread_mutex_lock(&gpu.lock);
    CUstream s = resolve(stream);
    int64_t now = weft_now();
    own_stream |= stream == CU_STREAM_PER_THREAD;
    s->end = (s->end > now ? s->end : now) + ns;
    gpu_counts.launches++;
    pthread_mutex_unlock(&gpu.lock);
}

void gpu_launch(CUstream stream, int64_t ns, const void *key) {
    weft_launch_begin(stream, WEFT_WORK_KERNEL, key);
    gpu_work(stream, ns);
    weft_launch_end(stream, WEFT_WORK_KERNEL, key, true);
}

void gpu_sync(CUstream stream) {
    pthread_mutex_lock(&gpu.lock);
    int64_t end = end_of(stream, current[depth]);
    pthread_mutex_unlock(&gpu.lock);
    for (int64_t now; (now = weft_now()) < end;)
        weft_sleep(end - now);
    weft_synced(stream);
}

int64_t gpu_busy_until(void) {
    int64_t end = 0;
    pthread_mutex_lock(&gpu.lock);
    for (int i = 0; i < 8; i++)
        end = gpu.legacy[i].end > end ? gpu.legacy[i].end : end;
    for (CUstream s = gpu.streams; s; s = s->next)
        end = s->end > end ? s->end : end;
    pthread_mutex_unlock(&gpu.lock);
    return end;
}

void gpu_capture(CUstream stream, bool on) {
    if (on)
        weft_stream_quit(stream);
    gpu_join_capture(stream, on);
}

void gpu_join_capture(CUstream stream, bool on) {
    pthread_mutex_lock(&gpu.lock);
    stream->capturing = on;
    pthread_mutex_unlock(&gpu.lock);
}

void gpu_break(CUresult error) { gpu.broken = error; }
