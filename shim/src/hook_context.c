/* Contexts: what each costs its GPU, when a GPU has its first and loses its last, and what goes with one. */
#include <pthread.h>
#include <stdlib.h>

#include "claim.h"
#include "context.h"
#include "hook.h"
#include "pool.h"

/* What a context takes for itself: page tables, code, stacks, buffers of printf and of the device's heap. The driver says
 * it nowhere: the free memory that it reports moves with every process of the GPU. Measured contexts take 250 to 500 MiB on
 * the GPUs of data centres; the agent sees what remains. */
#define CONTEXT_BYTES ((size_t)256 << 20)

struct context {
    const void *handle; /* CUcontext or CUgreenCtx */
    CUdevice device;
    unsigned gpu, retains;
    bool primary;
    uint64_t charge;
    struct context *next;
};

static struct {
    pthread_mutex_t lock;
    struct context *first;
    unsigned live[WEFT_GPUS]; /* contexts by GPU */
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};

void weft_contexts_forked(void) {
    contexts.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* Under the lock: the context of this handle, or the primary one of this device where handle is NULL. */
static struct context *find(const void *handle, CUdevice device) {
    struct context *c = contexts.first;
    while (c && !(handle ? c->handle == handle : c->primary && c->device == device))
        c = c->next;
    return c;
}

static bool primary_known(CUdevice device) {
    pthread_mutex_lock(&contexts.lock);
    bool known = find(NULL, device) != NULL;
    pthread_mutex_unlock(&contexts.lock);
    return known;
}

/* The handle if one more release ends the context, else NULL. */
static CUcontext ends(const void *handle, CUdevice device) {
    pthread_mutex_lock(&contexts.lock);
    struct context *c = find(handle, device);
    CUcontext last = c && c->retains == 1 ? (CUcontext)c->handle : NULL;
    pthread_mutex_unlock(&contexts.lock);
    return last;
}

/* A context was made, or retained once more: then its claim goes back, as it does when host memory is out. */
static void enter(const void *handle, CUdevice device, bool primary, const struct weft_claim *claim) {
    struct context *fresh = malloc(sizeof *fresh);
    pthread_mutex_lock(&contexts.lock);
    struct context *c = find(handle, device);
    bool taken = !c && fresh;
    if (c) {
        c->retains++;
    } else if (fresh) {
        *fresh = (struct context){handle, device, claim->gpu, 1, primary, claim->handle, contexts.first};
        contexts.first = fresh;
        if (contexts.live[claim->gpu]++ == 0)
            weft_context_made(claim->gpu);
    }
    pthread_mutex_unlock(&contexts.lock);
    if (!taken) {
        weft_memory_release(claim->gpu, claim->handle);
        free(fresh);
    }
}

/* A context was released, or destroyed however often it is retained. With it everything of it is gone. */
static void leave(const void *handle, CUdevice device, bool all) {
    struct context *gone = NULL;
    pthread_mutex_lock(&contexts.lock);
    struct context *c = find(handle, device);
    if (c && (all || --c->retains == 0)) {
        struct context **link = &contexts.first;
        while (*link != c)
            link = &(*link)->next;
        *link = c->next;
        gone = c;
        if (--contexts.live[c->gpu] == 0)
            weft_context_gone(c->gpu);
    }
    pthread_mutex_unlock(&contexts.lock);
    if (!gone)
        return;
    weft_books_forget((CUcontext)gone->handle);
    weft_memory_release(gone->gpu, gone->charge);
    weft_pools_touched();
    weft_pools_synced();
    free(gone);
}

/* Follows the driver's call that was to make a context. */
static CUresult made(CUresult result, const struct weft_claim *claim, const void *handle, CUdevice device, bool primary) {
    if (result != CUDA_SUCCESS)
        weft_memory_release(claim->gpu, claim->handle);
    else if (claim->gpu != WEFT_NO_GPU)
        enter(handle, device, primary, claim);
    return result;
}

HOOK(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device) {
    struct weft_claim claim;
    CUresult result = weft_claim_on(&claim, weft_device_gpu(device), WEFT_FAMILY_CONTEXT,
                                    primary_known(device) ? 0 : CONTEXT_BYTES);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    return made(result, &claim, result ? NULL : *context, device, true);
}

#define CREATE(name, parameters, arguments)                                                                            \
    HOOK(name, WEFT_OPEN parameters) {                                                                                 \
        struct weft_claim claim;                                                                                       \
        CUresult result = weft_claim_on(&claim, weft_device_gpu(device), WEFT_FAMILY_CONTEXT, CONTEXT_BYTES);          \
        if (result != CUDA_SUCCESS)                                                                                    \
            return result;                                                                                             \
        result = REAL(name) arguments;                                                                                 \
        return made(result, &claim, result ? NULL : *context, device, false);                                          \
    }

CREATE(cuCtxCreate, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device))
CREATE(cuCtxCreate_v3,
       (CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice device),
       (context, affinity, count, flags, device))
CREATE(cuCtxCreate_v4, (CUcontext *context, CUctxCreateParams *parameters, unsigned flags, CUdevice device),
       (context, parameters, flags, device))

/* A part of a device, which keeps the device's primary context. */
HOOK(cuGreenCtxCreate, CUgreenCtx *context, CUdevResourceDesc resource, CUdevice device, unsigned flags) {
    struct weft_claim claim;
    CUresult result = weft_claim_on(&claim, weft_device_gpu(device), WEFT_FAMILY_CONTEXT,
                                    primary_known(device) ? 0 : CONTEXT_BYTES);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuGreenCtxCreate)(context, resource, device, flags);
    return made(result, &claim, result ? NULL : *context, device, false);
}

HOOK(cuCtxAttach, CUcontext *context, unsigned flags) {
    CUresult result = REAL(cuCtxAttach)(context, flags);
    CUcontext current = NULL;
    if (result == CUDA_SUCCESS && weft_current_gpu(&current) != WEFT_NO_GPU) {
        struct weft_claim none = {.gpu = weft_current_gpu(NULL)};
        enter(current, CU_DEVICE_INVALID, false, &none);
    }
    return result;
}

#define RELEASE(name, parameter, handle, device, argument)                                                             \
    HOOK(name, parameter) {                                                                                            \
        CUcontext last = ends(handle, device);                                                                         \
        if (last)                                                                                                      \
            weft_context_quit(last);                                                                                   \
        CUresult result = REAL(name)(argument);                                                                        \
        if (result == CUDA_SUCCESS)                                                                                    \
            leave(handle, device, false);                                                                                  \
        return result;                                                                                                 \
    }

RELEASE(cuDevicePrimaryCtxRelease, CUdevice number, NULL, number, number)
RELEASE(cuDevicePrimaryCtxRelease_v2, CUdevice number, NULL, number, number)
RELEASE(cuCtxDetach, CUcontext context, context, CU_DEVICE_INVALID, context)
RELEASE(cuGreenCtxDestroy, CUgreenCtx context, context, CU_DEVICE_INVALID, context)

static CUresult destroyed(CUresult result, CUcontext context) {
    if (result == CUDA_SUCCESS && context)
        leave(context, CU_DEVICE_INVALID, true);
    return result;
}

HOOK(cuCtxDestroy, CUcontext context) {
    weft_context_quit(context);
    return destroyed(REAL(cuCtxDestroy)(context), context);
}

HOOK(cuCtxDestroy_v2, CUcontext context) {
    weft_context_quit(context);
    return destroyed(REAL(cuCtxDestroy_v2)(context), context);
}

/* The context is emptied; who retains it still does, and it is made again at its next use. */
static CUresult reset(weft_type_cuDevicePrimaryCtxRelease *call, CUdevice device) {
    pthread_mutex_lock(&contexts.lock);
    struct context *c = find(NULL, device);
    CUcontext context = c ? (CUcontext)c->handle : NULL;
    pthread_mutex_unlock(&contexts.lock);
    if (context)
        weft_context_quit(context);
    CUresult result = call(device);
    if (result == CUDA_SUCCESS && context) {
        weft_books_forget(context);
        weft_pools_touched();
        weft_pools_synced();
    }
    return result;
}

HOOK(cuDevicePrimaryCtxReset, CUdevice device) {
    return reset(REAL(cuDevicePrimaryCtxReset), device);
}

HOOK(cuDevicePrimaryCtxReset_v2, CUdevice device) {
    return reset(REAL(cuDevicePrimaryCtxReset_v2), device);
}
