// Launches. The path of a kernel that is not captured: one entry in the stream's ring, stamped with the audit's epoch.
#include <string.h>

#include "cuda_state.h"

#define MAX_BLOCK 1024u
#define THREADS_PER_PROCESSOR 2048u

// first_parameter reads a kernel's first parameter from what a launch was given.
static bool first_parameter(void **params, void **extra, uint64_t *value)
{
    if (params != NULL && params[0] != NULL) {
        memcpy(value, params[0], sizeof *value);
        return true;
    }
    for (; extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER && extra[1] != NULL) {
            memcpy(value, extra[1], sizeof *value);
            return true;
        }
    return false;
}

static CUresult check(CUfunction f, const CUDA_KERNEL_NODE_PARAMS *p)
{
    if (!object_is(f, FUNCTION))
        return CUDA_ERROR_INVALID_HANDLE;
    NEED(p->gridDimX > 0 && p->gridDimY > 0 && p->gridDimZ > 0 && p->blockDimX > 0 && p->blockDimY > 0 && p->blockDimZ > 0);
    NEED(p->gridDimX <= 0x7fffffffu && p->gridDimY <= 65535 && p->gridDimZ <= 65535);
    NEED(p->blockDimX <= MAX_BLOCK && p->blockDimY <= MAX_BLOCK && p->blockDimZ <= 64);
    NEED((uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ <= MAX_BLOCK);
    NEED(p->sharedMemBytes <= (unsigned)f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES]);
    NEED(p->kernelParams == NULL || p->extra == NULL);
    return CUDA_SUCCESS;
}

// cost_of is what a launch costs on a GPU of so many processors.
static CUresult cost_of(CUfunction f, const CUDA_KERNEL_NODE_PARAMS *p, unsigned processors, uint64_t *ns)
{
    uint64_t blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
    *ns = f->ns;
    if (f->cost == COST_PARAMETER)
        NEED(first_parameter(p->kernelParams, p->extra, ns));
    else if (f->cost == COST_GRID)
        *ns = (blocks * f->ns + processors - 1) / processors;
    return CUDA_SUCCESS;
}

CUresult kernel_operation(CUfunction f, const CUDA_KERNEL_NODE_PARAMS *p, struct operation *op)
{
    struct thread *t;
    TRY(driver_enter(&t));
    TRY(check(f, p));
    CUcontext c = p->ctx != NULL ? p->ctx : t->depth > 0 ? t->stack[t->depth - 1] : NULL;
    unsigned processors = object_is(c, CONTEXT) ? c->device->info.processors : driver.devices[0].info.processors;
    *op = (struct operation){.type = CU_GRAPH_NODE_TYPE_KERNEL, .kind = EMU_KERNEL, .function = f->id, .kernel = f, .launch = *p};
    op->launch.kernelParams = op->launch.extra = NULL;
    op->has_parameter = f->cost == COST_PARAMETER && first_parameter(p->kernelParams, p->extra, &op->parameter);
    return cost_of(f, p, processors, &op->cost);
}

static CUresult launch(CUfunction f, const CUDA_KERNEL_NODE_PARAMS *p, CUstream handle)
{
    CUstream s;
    struct capture *capture;
    struct emu_entry entry = {.kind = EMU_KERNEL};
    TRY(stream_enter(handle, &s));
    TRY(check(f, p));
    TRY(capture_of(s, &capture));
    if (capture != NULL) {
        struct operation op;
        TRY(kernel_operation(f, p, &op));
        return capture_add(s, capture, &op, NULL);
    }
    if (f->context_id != 0 && f->context_id != s->context->id)
        return CUDA_ERROR_INVALID_HANDLE; // of another context
    const struct device *d = s->context->device;
    TRY(cost_of(f, p, d->info.processors, &entry.cost));
    entry.function = f->id;
    entry.epoch = driver_stamp(d);
    return stream_submit(s, entry, NULL);
}

#define DIMENSIONS unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared

EMU_API CUresult cuLaunchKernel(CUfunction f, DIMENSIONS, CUstream stream, void **params, void **extra)
{
    CUDA_KERNEL_NODE_PARAMS p = {f, gx, gy, gz, bx, by, bz, shared, params, extra, NULL, NULL};
    return launch(f, &p, stream);
}
PTSZ(cuLaunchKernel, (CUfunction f, DIMENSIONS, CUstream stream, void **params, void **extra),
     (f, gx, gy, gz, bx, by, bz, shared, OWN(stream), params, extra))

// ---- Cooperative launches need all blocks on the GPU at once

static CUresult launch_cooperative(CUfunction f, const CUDA_KERNEL_NODE_PARAMS *p, CUstream stream)
{
    CUstream s;
    TRY(stream_enter(stream, &s));
    TRY(check(f, p));
    uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
    uint64_t most = THREADS_PER_PROCESSOR / ((threads + 31) / 32 * 32) * s->context->device->info.processors;
    if ((uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ > most)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(f, p, stream);
}

EMU_API CUresult cuLaunchCooperativeKernel(CUfunction f, DIMENSIONS, CUstream stream, void **params)
{
    CUDA_KERNEL_NODE_PARAMS p = {f, gx, gy, gz, bx, by, bz, shared, params, NULL, NULL, NULL};
    return launch_cooperative(f, &p, stream);
}
PTSZ(cuLaunchCooperativeKernel, (CUfunction f, DIMENSIONS, CUstream stream, void **params),
     (f, gx, gy, gz, bx, by, bz, shared, OWN(stream), params))

EMU_API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags)
{
    NEED(list != NULL && count > 0 && flags <= 3);
    for (unsigned i = 0; i < count; i++) {
        CUDA_LAUNCH_PARAMS *l = &list[i];
        NEED(l->hStream > CU_STREAM_PER_THREAD);
        TRY(cuLaunchCooperativeKernel(l->function, l->gridDimX, l->gridDimY, l->gridDimZ, l->blockDimX, l->blockDimY, l->blockDimZ,
                                      l->sharedMemBytes, l->hStream, l->kernelParams));
    }
    return CUDA_SUCCESS;
}

EMU_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    NEED(config != NULL && (config->numAttrs == 0 || config->attrs != NULL));
    CUDA_KERNEL_NODE_PARAMS p = {f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                                 config->blockDimZ, config->sharedMemBytes, params, extra, NULL, NULL};
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config->attrs[i].value.cooperative != 0)
            return launch_cooperative(f, &p, config->hStream);
    return launch(f, &p, config->hStream);
}

EMU_API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    NEED(config != NULL);
    CUlaunchConfig own = *config;
    own.hStream = OWN(config->hStream);
    return cuLaunchKernelEx(&own, f, params, extra);
}

// ---- The launch calls from before CUDA 4: the function holds its block shape and parameters

static CUresult old_enter(CUfunction f)
{
    struct thread *t;
    TRY(driver_enter(&t));
    return object_is(f, FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EMU_API CUresult cuFuncSetBlockShape(CUfunction f, int x, int y, int z)
{
    NEED(x > 0 && y > 0 && z > 0);
    TRY(old_enter(f));
    f->block[0] = x;
    f->block[1] = y;
    f->block[2] = z;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuFuncSetSharedSize(CUfunction f, unsigned bytes)
{
    TRY(old_enter(f));
    f->shared = bytes;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuParamSetSize(CUfunction f, unsigned bytes)
{
    NEED(bytes <= 4096);
    return old_enter(f);
}

// Of the parameters the first bytes are kept, as many as tell what a kernel costs.
EMU_API CUresult cuParamSetv(CUfunction f, int offset, void *value, unsigned bytes)
{
    NEED(offset >= 0 && value != NULL && bytes <= 4096);
    TRY(old_enter(f));
    if ((size_t)offset + bytes <= sizeof f->parameters)
        memcpy(f->parameters + offset, value, bytes);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuParamSeti(CUfunction f, int offset, unsigned value)
{
    return cuParamSetv(f, offset, &value, sizeof value);
}

EMU_API CUresult cuParamSetf(CUfunction f, int offset, float value)
{
    return cuParamSetv(f, offset, &value, sizeof value);
}

EMU_API CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream)
{
    NEED(width > 0 && height > 0);
    TRY(old_enter(f));
    void *params[] = {f->parameters};
    return cuLaunchKernel(f, (unsigned)width, (unsigned)height, 1, (unsigned)f->block[0], (unsigned)f->block[1], (unsigned)f->block[2],
                          f->shared, stream, params, NULL);
}

EMU_API CUresult cuLaunchGrid(CUfunction f, int width, int height)
{
    return cuLaunchGridAsync(f, width, height, NULL);
}

EMU_API CUresult cuLaunch(CUfunction f)
{
    return cuLaunchGridAsync(f, 1, 1, NULL);
}
