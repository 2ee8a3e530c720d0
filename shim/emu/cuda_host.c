// Functions of the host in a stream. The stream stops at such an entry until the function has returned. A stream gets a thread for
// them with its first one; a process that uses none has no thread of the driver's.
#include <stdlib.h>

#include "cuda_state.h"

struct job {
    uint64_t number; // of the entry
    CUhostFn fn;     // or callback
    CUstreamCallback callback;
    void *data;
    struct job *next;
};

struct host_worker {
    CUstream stream;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct job *first, **last;
    bool stop;
};

EMU_API void weftEmuBlock(void);
EMU_API void weftEmuUnblock(void);

static struct job *next_job(struct host_worker *w)
{
    weftEmuBlock(); // the condition is not the broker's: time may pass meanwhile
    pthread_mutex_lock(&w->lock);
    while (w->first == NULL && !w->stop)
        pthread_cond_wait(&w->more, &w->lock);
    struct job *j = w->first;
    if (j != NULL && (w->first = j->next) == NULL)
        w->last = &w->first;
    pthread_mutex_unlock(&w->lock);
    weftEmuUnblock();
    return j;
}

static void run_job(struct host_worker *w, struct thread *t, struct job *j)
{
    CUstream s = w->stream;
    CUresult status = stream_wait(s->context, s->index, j->number - 1);
    t->in_callback = true;
    if (j->callback != NULL)
        j->callback(s, status, j->data);
    else if (status == CUDA_SUCCESS)
        j->fn(j->data);
    t->in_callback = false;
    atomic_store_explicit(&s->ring->host_done, j->number, memory_order_release);
    emu_ring_bell(&driver.client);
}

static void *work(void *argument)
{
    struct host_worker *w = argument;
    struct thread *t;
    if (driver_enter(&t) != CUDA_SUCCESS)
        return NULL;
    for (struct job *j; (j = next_job(w)) != NULL; free(j))
        run_job(w, t, j);
    return NULL;
}

static struct host_worker *worker_new(CUstream stream)
{
    struct host_worker *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->stream = stream;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    if (pthread_create(&w->thread, NULL, work, w) == 0)
        return w;
    free(w);
    return NULL;
}

// worker_of makes the worker of a stream once, whoever asks.
static struct host_worker *worker_of(CUstream stream)
{
    driver_lock();
    if (stream->worker == NULL)
        stream->worker = worker_new(stream);
    driver_unlock();
    return stream->worker;
}

CUresult stream_host(CUstream stream, CUhostFn fn, CUstreamCallback callback, void *data)
{
    struct host_worker *w = worker_of(stream);
    struct job *j = w == NULL ? NULL : malloc(sizeof *j);
    if (j == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *j = (struct job){.fn = fn, .callback = callback, .data = data};
    pthread_mutex_lock(&w->lock); // jobs are queued in the order of their entries
    CUresult result = stream_submit(stream, (struct emu_entry){.kind = EMU_HOST}, &j->number);
    if (result == CUDA_SUCCESS) {
        *w->last = j;
        w->last = &j->next;
        pthread_cond_signal(&w->more);
    } else {
        free(j);
    }
    pthread_mutex_unlock(&w->lock);
    return result;
}

void host_worker_stop(CUstream stream)
{
    struct host_worker *w = stream->worker;
    if (w == NULL)
        return;
    stream->worker = NULL;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
    weftEmuBlock();
    pthread_join(w->thread, NULL);
    weftEmuUnblock();
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->more);
    free(w);
}

EMU_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
    CUstream s;
    NEED(fn != NULL);
    TRY(stream_enter(stream, &s));
    return operation_run(s, &(struct operation){.type = CU_GRAPH_NODE_TYPE_HOST, .host = fn, .data = data});
}
PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *data), (OWN(stream), fn, data))

EMU_API CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags)
{
    CUstream s;
    NEED(callback != NULL && flags == 0);
    TRY(stream_enter(stream, &s));
    if (s->capture != NULL)
        return capture_refuse(s);
    return stream_host(s, NULL, callback, data);
}
PTSZ(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *data, unsigned flags),
     (OWN(stream), callback, data, flags))
