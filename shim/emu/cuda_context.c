// Contexts: the stack of each thread, primary contexts, their properties.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_state.h"

static struct shelf shelf = SHELF(struct CUctx_st, CONTEXT);

// ---- The current context

CUresult context_check(CUcontext context)
{
    if (__builtin_expect(!object_is(context, CONTEXT), 0))
        return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (CUresult)atomic_load_explicit(&context->shared->error, memory_order_acquire);
}

CUresult context_current(CUcontext *context)
{
    struct thread *t;
    TRY(driver_enter(&t));
    *context = t->depth > 0 ? t->stack[t->depth - 1] : NULL;
    return context_check(*context);
}

void thread_forget(struct thread *thread, CUcontext context)
{
    if (thread->depth > 0 && thread->stack[thread->depth - 1] == context)
        thread->depth--;
}

CUresult context_wait(CUcontext context)
{
    uint32_t rings[EMU_STREAMS];
    uint64_t heads[EMU_STREAMS];
    int n = 0;
    driver_lock();
    for (uint32_t i = 0; i < EMU_STREAMS; i++) {
        if (context->streams[i] == NULL)
            continue;
        rings[n] = i;
        heads[n++] = atomic_load_explicit(&context->shared->rings[i].head, memory_order_acquire);
    }
    driver_unlock();
    for (int i = 0; i < n; i++)
        TRY(stream_wait(context, rings[i], heads[i]));
    return context_check(context);
}

// ---- Making and destroying

// context_open gives a context object its part of the broker: its memory and ring 0.
static CUresult context_open(CUcontext c, struct device *device, unsigned flags, unsigned api)
{
    struct emu_request request = {.op = EMU_CONTEXT_CREATE, .gpu = device->gpu};
    struct emu_reply reply;
    int fd;
    TRY(driver_call(&request, &reply, &fd));
    if (c->shared != NULL)
        munmap(c->shared, sizeof *c->shared);
    c->shared = fd < 0 ? NULL : emu_map(fd, sizeof *c->shared, true);
    if (c->shared == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(c->seen, 0, sizeof c->seen);
    c->events_count = c->events_used = 0;
    c->device = device;
    c->flags = flags;
    c->api = api;
    c->limits[CU_LIMIT_STACK_SIZE] = 1024;
    c->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = MIB;
    c->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB;
    c->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    c->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    c->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128;
    driver_lock();
    c->id = ++driver.last_id;
    CUstream null = object_new(&stream_shelf);
    if (null != NULL)
        stream_bind(null, c, 0);
    driver_unlock();
    return null != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void context_retire_objects(CUcontext c)
{
    for (int i = 0; i < (int)EMU_STREAMS; i++)
        if (c->streams[i] != NULL)
            stream_retire(c->streams[i]);
    block_drop_context(c);
}

// context_close ends a context: its work is waited for, unless it is broken. Its memory stays mapped until the object is used anew,
// for a thread may still wait in it; the broker wakes such threads with an error.
static CUresult context_close(CUcontext c)
{
    context_wait(c);
    struct emu_request request = {.op = EMU_CONTEXT_DESTROY, .context = c->shared->id};
    struct emu_reply reply;
    CUresult result = driver_call(&request, &reply, NULL);
    driver_lock();
    context_retire_objects(c);
    driver_unlock();
    return result;
}

static CUresult context_create(CUcontext *out, unsigned flags, CUdevice dev, unsigned api)
{
    struct device *device;
    struct thread *t;
    NEED(out != NULL && (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    TRY(driver_device(dev, &device));
    TRY(driver_enter(&t));
    if (t->depth == CONTEXT_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver_lock();
    CUcontext c = object_new(&shelf);
    driver_unlock();
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->users = 1;
    CUresult result = context_open(c, device, flags, api);
    if (result != CUDA_SUCCESS) {
        driver_lock();
        object_retire(&shelf, c);
        driver_unlock();
        return result;
    }
    t->stack[t->depth++] = *out = c;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    return context_create(context, flags, device, 3010);
}

EMU_API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return context_create(context, flags, device, 3020);
}

EMU_API CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice device)
{
    if (count != 0 || affinity != NULL)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return context_create(context, flags, device, 3020);
}

EMU_API CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
    if (params != NULL && (params->numExecAffinityParams != 0 || params->cigParams != NULL))
        return CUDA_ERROR_NOT_SUPPORTED;
    return context_create(context, flags, device, 3020);
}

EMU_API CUresult cuCtxDestroy_v2(CUcontext context)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(context != NULL);
    if (!object_is(context, CONTEXT))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = context_close(context);
    thread_forget(t, context);
    driver_lock();
    object_retire(&shelf, context);
    driver_unlock();
    return result;
}

EMU_API CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

EMU_API CUresult cuCtxAttach(CUcontext *out, unsigned flags)
{
    CUcontext c;
    NEED(out != NULL && flags == 0);
    TRY(context_current(&c));
    driver_lock();
    c->users++;
    driver_unlock();
    *out = c;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxDetach(CUcontext context)
{
    TRY(context_check(context));
    driver_lock();
    bool last = --context->users == 0;
    driver_unlock();
    return last ? cuCtxDestroy_v2(context) : CUDA_SUCCESS;
}

// ---- Primary contexts

EMU_API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; // two threads, one context
    struct device *d;
    NEED(out != NULL);
    TRY(driver_device(dev, &d));
    pthread_mutex_lock(&opening);
    CUcontext c = d->primary;
    CUresult result = CUDA_SUCCESS;
    if (c == NULL && (c = calloc(1, sizeof *c)) == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!object_is(c, CONTEXT))
        result = context_open(c, d, d->primary_flags, EMU_PRIMARY_API);
    if (result == CUDA_SUCCESS) {
        c->primary = true;
        driver_lock();
        c->users++;
        driver_unlock();
        atomic_store_explicit(&c->object.magic, CONTEXT, memory_order_release);
        *out = d->primary = c;
    } else if (c != d->primary) {
        free(c);
    }
    pthread_mutex_unlock(&opening);
    return result;
}

static CUresult primary_close(struct device *d)
{
    CUcontext c = d->primary;
    CUresult result = context_close(c);
    driver_lock();
    pool_reset(d);
    c->users = 0;
    atomic_store_explicit(&c->object.magic, DEAD, memory_order_release);
    driver_unlock();
    return result;
}

EMU_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    struct device *d;
    TRY(driver_device(dev, &d));
    driver_lock();
    bool held = object_is(d->primary, CONTEXT) && d->primary->users > 0;
    bool last = held && --d->primary->users == 0;
    driver_unlock();
    if (!held)
        return CUDA_ERROR_INVALID_CONTEXT;
    return last ? primary_close(d) : CUDA_SUCCESS;
}

EMU_API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

EMU_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    struct device *d;
    TRY(driver_device(dev, &d));
    return object_is(d->primary, CONTEXT) ? primary_close(d) : CUDA_SUCCESS;
}

EMU_API CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

EMU_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags)
{
    struct device *d;
    NEED((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    TRY(driver_device(dev, &d));
    d->primary_flags = flags;
    if (object_is(d->primary, CONTEXT))
        d->primary->flags = flags;
    return CUDA_SUCCESS;
}

// The form of CUDA 7 refuses to change the flags of a context in use.
EMU_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags)
{
    struct device *d;
    TRY(driver_device(dev, &d));
    if (object_is(d->primary, CONTEXT))
        return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

EMU_API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    struct device *d;
    NEED(flags != NULL && active != NULL);
    TRY(driver_device(dev, &d));
    *flags = d->primary_flags;
    *active = object_is(d->primary, CONTEXT);
    return CUDA_SUCCESS;
}

// ---- The stack

EMU_API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(context != NULL);
    if (!object_is(context, CONTEXT))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (t->depth == CONTEXT_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    t->stack[t->depth++] = context;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

EMU_API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (t->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext c = t->stack[--t->depth];
    if (out != NULL)
        *out = c;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxPopCurrent(CUcontext *out)
{
    return cuCtxPopCurrent_v2(out);
}

EMU_API CUresult cuCtxSetCurrent(CUcontext context)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (context != NULL && !object_is(context, CONTEXT))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (t->depth > 0)
        t->depth--;
    if (context != NULL)
        t->stack[t->depth++] = context;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetCurrent(CUcontext *out)
{
    struct thread *t;
    NEED(out != NULL);
    TRY(driver_enter(&t));
    *out = t->depth > 0 ? t->stack[t->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSynchronize_v2(CUcontext context)
{
    CUcontext c = context;
    if (c == NULL)
        TRY(context_current(&c));
    else
        TRY(context_check(c));
    TRY(capture_unsafe());
    TRY(context_wait(c));
    driver_lock();
    pool_trim_all(c->device);
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}
