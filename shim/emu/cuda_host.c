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

struct host_worker { // outlives its stream while jobs are queued
    CUstream stream;
    CUcontext context;
    struct emu_ring *ring;
    uint32_t index;
    pthread_mutex_t submit; // held from an entry's submission until its job is queued: jobs are in the order of entries
    pthread_mutex_t lock;   // of what follows; never held while waiting for model time
    pthread_cond_t more;
    struct job *first, **last;
    bool stop;
};

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
    CUresult status = stream_wait(w->context, w->index, j->number - 1);
    t->in_callback = true;
    if (j->callback != NULL)
        j->callback(w->stream, status, j->data);
    else if (status == CUDA_SUCCESS)
        j->fn(j->data);
    t->in_callback = false;
    atomic_store_explicit(&w->ring->host_done, j->number, memory_order_release);
    emu_ring_bell(&driver.client);
}

static void worker_free(struct host_worker *w)
{
    pthread_mutex_destroy(&w->submit);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->more);
    free(w);
}

static void *work(void *argument)
{
    struct host_worker *w = argument;
    struct thread *t;
    if (driver_enter(&t) == CUDA_SUCCESS)
        for (struct job *j; (j = next_job(w)) != NULL; free(j))
            run_job(w, t, j);
    worker_free(w);
    return NULL;
}

static struct host_worker *worker_new(CUstream stream)
{
    pthread_t thread;
    struct host_worker *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->stream = stream;
    w->context = stream->context;
    w->ring = stream->ring;
    w->index = stream->index;
    w->last = &w->first;
    pthread_mutex_init(&w->submit, NULL);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    if (pthread_create(&thread, NULL, work, w) != 0) {
        worker_free(w);
        return NULL;
    }
    pthread_detach(thread);
    return w;
}

// worker_of makes the worker of a stream once, whoever asks.
static struct host_worker *worker_of(CUstream stream)
{
    driver_lock();
    if (stream->worker == NULL)
        stream->worker = worker_new(stream);
    struct host_worker *w = stream->worker;
    driver_unlock();
    return w;
}

// submit_lock waits as the broker cannot see, when it has to.
static void submit_lock(struct host_worker *w)
{
    if (pthread_mutex_trylock(&w->submit) == 0)
        return;
    weftEmuBlock();
    pthread_mutex_lock(&w->submit);
    weftEmuUnblock();
}

CUresult stream_host(CUstream stream, CUhostFn fn, CUstreamCallback callback, void *data)
{
    struct host_worker *w = worker_of(stream);
    struct job *j = w == NULL ? NULL : malloc(sizeof *j);
    if (j == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *j = (struct job){.fn = fn, .callback = callback, .data = data};
    submit_lock(w);
    CUresult result = stream_submit(stream, (struct emu_entry){.kind = EMU_HOST}, &j->number);
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&w->lock);
        *w->last = j;
        w->last = &j->next;
        pthread_cond_signal(&w->more);
        pthread_mutex_unlock(&w->lock);
    } else {
        free(j);
    }
    pthread_mutex_unlock(&w->submit);
    return result;
}

void host_worker_leave(CUstream stream)
{
    struct host_worker *w = stream->worker;
    if (w == NULL)
        return;
    stream->worker = NULL;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
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
