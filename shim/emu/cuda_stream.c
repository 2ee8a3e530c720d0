// Streams: handles, submission, order against the NULL stream, synchronisation.
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"

struct shelf stream_shelf = SHELF(struct CUstream_st, STREAM);

// ---- Waiting

// poll waits for an entry without a slot.
static CUresult poll(CUcontext context, uint32_t ring, uint64_t number)
{
    const struct timespec pause = {0, 50000};
    while (atomic_load_explicit(&context->shared->rings[ring].done, memory_order_acquire) < number) {
        TRY(context_check(context));
        emu_ring_bell(&driver.client);
        nanosleep(&pause, NULL);
    }
    return CUDA_SUCCESS;
}

CUresult stream_wait(CUcontext context, uint32_t ring, uint64_t number)
{
    struct thread *t;
    TRY(driver_enter(&t));
    CUresult result = t->slot != NULL ? (CUresult)emu_wait(&driver.client, t->slot, context->shared, ring, number)
                                      : poll(context, ring, number);
    // What a host function before the entry wrote is seen after the wait: its worker stored this last.
    atomic_load_explicit(&context->shared->rings[ring].host_done, memory_order_acquire);
    return result;
}

CUresult stream_drain(CUstream stream)
{
    return stream_wait(stream->context, stream->index, atomic_load_explicit(&stream->ring->head, memory_order_acquire));
}

// ---- Submission

// push appends to a stream whose lock is held; while the ring is full the lock is given up for a quarter of it.
static CUresult push(CUstream s, struct emu_entry *entry, uint64_t *number)
{
    while (__builtin_expect(emu_room(s->ring) == 0, 0)) {
        uint64_t head = atomic_load_explicit(&s->ring->head, memory_order_relaxed);
        pthread_mutex_unlock(&s->lock);
        CUresult result = stream_wait(s->context, s->index, head - EMU_RING_ENTRIES * 3 / 4);
        pthread_mutex_lock(&s->lock);
        TRY(result);
    }
    entry->submit = emu_now(driver.client.clock);
    uint64_t n = emu_push(&driver.client, s->ring, entry);
    if (number != NULL)
        *number = n;
    return CUDA_SUCCESS;
}

static struct emu_entry wait_for(CUcontext context, uint32_t ring, uint64_t number)
{
    return (struct emu_entry){.kind = EMU_WAIT, .epoch = context->shared->id, .function = ring, .cost = number};
}

// push_after_null makes a blocking stream wait for what the NULL stream has been given.
static CUresult push_after_null(CUstream s)
{
    struct emu_ring *null = &s->context->shared->rings[0];
    uint64_t head = atomic_load_explicit(&null->head, memory_order_acquire);
    if (head == s->legacy_seen || atomic_load_explicit(&null->done, memory_order_acquire) >= head)
        return CUDA_SUCCESS;
    s->legacy_seen = head;
    struct emu_entry wait = wait_for(s->context, 0, head);
    return push(s, &wait, NULL);
}

// push_after_all makes the NULL stream wait for what the blocking streams of its context have been given. The lock is held.
static CUresult push_after_all(CUstream s)
{
    CUcontext c = s->context;
    uint32_t rings = atomic_load_explicit(&c->rings, memory_order_acquire);
    for (uint32_t i = 1; i < rings; i++) {
        CUstream other = __atomic_load_n(&c->streams[i], __ATOMIC_ACQUIRE);
        if (other == NULL || (other->flags & CU_STREAM_NON_BLOCKING) != 0)
            continue;
        struct emu_ring *r = &c->shared->rings[i];
        uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);
        if (head == c->seen[i] || atomic_load_explicit(&r->done, memory_order_acquire) >= head)
            continue;
        c->seen[i] = head;
        struct emu_entry wait = wait_for(c, i, head);
        TRY(push(s, &wait, NULL));
    }
    return CUDA_SUCCESS;
}

static inline CUresult push_in_order(CUstream s, struct emu_entry *entry, uint64_t *number)
{
    if (s->index == 0)
        TRY(push_after_all(s));
    else if ((s->flags & CU_STREAM_NON_BLOCKING) == 0)
        TRY(push_after_null(s));
    return push(s, entry, number);
}

CUresult stream_submit(CUstream stream, struct emu_entry entry, uint64_t *number)
{
    pthread_mutex_lock(&stream->lock);
    CUresult result = push_in_order(stream, &entry, number);
    pthread_mutex_unlock(&stream->lock);
    return result;
}

// ---- Handles

void stream_bind(CUstream s, CUcontext context, uint32_t ring)
{
    s->context = context;
    s->index = ring;
    s->ring = &context->shared->rings[ring];
    s->id = ++driver.last_id;
    pthread_mutex_init(&s->lock, NULL);
    __atomic_store_n(&context->streams[ring], s, __ATOMIC_RELEASE);
    if (ring >= atomic_load(&context->rings))
        atomic_store(&context->rings, ring + 1);
}

static bool own_alive(const struct thread *t, int i)
{
    return object_is(t->own[i].stream, STREAM) && t->own[i].stream->id == t->own[i].id;
}

// thread_stream is the calling thread's own stream in a context, made at the first use.
static CUresult thread_stream(struct thread *t, CUcontext context, CUstream *stream)
{
    int place = 0;
    for (int i = 0; i < (int)(sizeof t->own / sizeof t->own[0]); i++) {
        if (!own_alive(t, i))
            place = i;
        else if (t->own[i].stream->context == context) {
            *stream = t->own[i].stream;
            return CUDA_SUCCESS;
        }
    }
    TRY(stream_new(context, CU_STREAM_DEFAULT, 0, stream));
    t->own[place].stream = *stream;
    t->own[place].id = (*stream)->id;
    return CUDA_SUCCESS;
}

CUresult stream_enter(CUstream handle, CUstream *stream)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (handle > CU_STREAM_PER_THREAD) {
        if (!object_is(handle, STREAM))
            return CUDA_ERROR_INVALID_HANDLE;
        *stream = handle;
        return context_check(handle->context);
    }
    CUcontext c = t->depth > 0 ? t->stack[t->depth - 1] : NULL;
    TRY(context_check(c));
    if (handle == CU_STREAM_PER_THREAD)
        return thread_stream(t, c, stream);
    *stream = c->streams[0];
    return CUDA_SUCCESS;
}

CUresult stream_new(CUcontext context, unsigned flags, int priority, CUstream *stream)
{
    struct emu_request request = {.op = EMU_STREAM_CREATE, .context = context->shared->id};
    struct emu_reply reply;
    TRY(driver_call(&request, &reply, NULL));
    driver_lock();
    CUstream s = object_new(&stream_shelf);
    if (s != NULL) {
        s->flags = flags;
        s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
        stream_bind(s, context, (uint32_t)reply.a);
    }
    driver_unlock();
    *stream = s;
    return s != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void stream_retire(CUstream s)
{
    capture_drop_stream(s);
    host_worker_leave(s);
    if (s->context->streams[s->index] == s)
        __atomic_store_n(&s->context->streams[s->index], NULL, __ATOMIC_RELEASE);
    pthread_mutex_destroy(&s->lock);
    object_retire(&stream_shelf, s);
}

static CUresult stream_close(CUstream s)
{
    struct emu_request request = {.op = EMU_STREAM_DESTROY, .context = s->context->shared->id, .a = s->index};
    struct emu_reply reply;
    driver_lock();
    stream_retire(s);
    driver_unlock();
    return driver_call(&request, &reply, NULL);
}

void thread_release_streams(struct thread *t)
{
    for (int i = 0; i < (int)(sizeof t->own / sizeof t->own[0]); i++)
        if (own_alive(t, i) && context_check(t->own[i].stream->context) == CUDA_SUCCESS)
            stream_close(t->own[i].stream);
}

EMU_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    CUcontext c;
    NEED(out != NULL && (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) == 0);
    TRY(context_current(&c));
    return stream_new(c, flags, priority, out);
}

EMU_API CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

EMU_API CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUstream s;
    if (stream <= CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_enter(stream, &s));
    return stream_close(s);
}

EMU_API CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

// ---- Synchronisation

EMU_API CUresult cuStreamSynchronize(CUstream stream)
{
    CUstream s;
    struct capture *capture;
    TRY(stream_enter(stream, &s));
    if (s->capture != NULL)
        return capture_refuse(s);
    TRY(capture_of(s, &capture));
    if (s->index == 0) {
        pthread_mutex_lock(&s->lock);
        CUresult result = push_after_all(s);
        pthread_mutex_unlock(&s->lock);
        TRY(result);
    }
    TRY(stream_drain(s));
    driver_lock();
    pool_trim_all(s->context->device);
    driver_unlock();
    return CUDA_SUCCESS;
}
PTSZ(cuStreamSynchronize, (CUstream stream), (OWN(stream)))

EMU_API CUresult cuStreamQuery(CUstream stream)
{
    CUstream s;
    struct capture *capture;
    struct thread *t;
    TRY(stream_enter(stream, &s));
    if (s->capture != NULL)
        return capture_refuse(s);
    TRY(capture_of(s, &capture));
    TRY(driver_enter(&t));
    uint64_t head = atomic_load_explicit(&s->ring->head, memory_order_acquire);
    bool done = t->slot != NULL ? emu_poll(&driver.client, t->slot, s->ring, head)
                                : atomic_load_explicit(&s->ring->done, memory_order_acquire) >= head;
    TRY(context_check(s->context));
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
PTSZ(cuStreamQuery, (CUstream stream), (OWN(stream)))

// ---- Properties

EMU_API CUresult cuStreamGetPriority(CUstream stream, int *out)
{
    CUstream s;
    NEED(out != NULL);
    TRY(stream_enter(stream, &s));
    *out = s->priority;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetPriority, (CUstream stream, int *out), (OWN(stream), out))

EMU_API CUresult cuStreamGetFlags(CUstream stream, unsigned *out)
{
    CUstream s;
    NEED(out != NULL);
    TRY(stream_enter(stream, &s));
    *out = s->flags;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetFlags, (CUstream stream, unsigned *out), (OWN(stream), out))

EMU_API CUresult cuStreamGetId(CUstream stream, unsigned long long *out)
{
    CUstream s;
    NEED(out != NULL);
    TRY(stream_enter(stream, &s));
    *out = s->id;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetId, (CUstream stream, unsigned long long *out), (OWN(stream), out))

EMU_API CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
    CUstream s;
    NEED(out != NULL);
    TRY(stream_enter(stream, &s));
    *out = s->context;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetCtx, (CUstream stream, CUcontext *out), (OWN(stream), out))

EMU_API CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *out, CUgreenCtx *green)
{
    if (green != NULL)
        *green = NULL;
    return cuStreamGetCtx(stream, out);
}
PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext *out, CUgreenCtx *green), (OWN(stream), out, green))

EMU_API CUresult cuStreamGetDevice(CUstream stream, CUdevice *out)
{
    CUstream s;
    NEED(out != NULL);
    TRY(stream_enter(stream, &s));
    *out = (CUdevice)(s->context->device - driver.devices);
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetDevice, (CUstream stream, CUdevice *out), (OWN(stream), out))

EMU_API CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned flags)
{
    CUstream s;
    (void)length;
    NEED(address != 0 && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE));
    TRY(stream_enter(stream, &s));
    driver_lock();
    struct block *b = block_find(address);
    bool managed = b != NULL && b->kind == BLOCK_MANAGED;
    driver_unlock();
    return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PTSZ(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t length, unsigned flags),
     (OWN(stream), address, length, flags))
