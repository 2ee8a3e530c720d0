// What a program may ask of a kernel: attributes, names, occupancy.
#include <string.h>

#include "cuda_state.h"

#define THREADS_PER_PROCESSOR 2048
#define BLOCKS_PER_PROCESSOR 32
#define SHARED_PER_PROCESSOR (164 * 1024)

static CUresult function_enter(CUfunction f)
{
    struct thread *t;
    TRY(driver_enter(&t));
    return object_is(f, FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EMU_API CUresult cuFuncGetAttribute(int *out, CUfunction_attribute attribute, CUfunction f)
{
    NEED(out != NULL && attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX);
    TRY(function_enter(f));
    *out = f->attributes[attribute];
    return CUDA_SUCCESS;
}

EMU_API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value)
{
    NEED(attribute >= CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && attribute < CU_FUNC_ATTRIBUTE_MAX);
    NEED(attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || (value >= 0 && value < SHARED_PER_PROCESSOR));
    TRY(function_enter(f));
    f->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache config)
{
    NEED(config <= CU_FUNC_CACHE_PREFER_EQUAL);
    return function_enter(f);
}

EMU_API CUresult cuFuncSetSharedMemConfig(CUfunction f, CUsharedconfig config)
{
    NEED(config >= 0 && config <= 2);
    return function_enter(f);
}

EMU_API CUresult cuFuncGetModule(CUmodule *out, CUfunction f)
{
    NEED(out != NULL);
    TRY(function_enter(f));
    *out = f->module;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuFuncGetName(const char **out, CUfunction f)
{
    NEED(out != NULL);
    TRY(function_enter(f));
    *out = f->name;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuFuncIsLoaded(int *out, CUfunction f)
{
    NEED(out != NULL);
    TRY(function_enter(f));
    *out = 1;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuFuncLoad(CUfunction f)
{
    return function_enter(f);
}

EMU_API CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size)
{
    NEED(offset != NULL);
    TRY(function_enter(f));
    NEED(index == 0 && f->cost == COST_PARAMETER); // the only parameter that a text tells of
    *offset = 0;
    if (size != NULL)
        *size = sizeof(uint64_t);
    return CUDA_SUCCESS;
}

// ---- Kernels of libraries

EMU_API CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel)
{
    CUcontext c;
    NEED(out != NULL);
    TRY(context_current(&c));
    TRY(function_enter((CUfunction)kernel));
    *out = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel kernel)
{
    return cuFuncGetModule((CUmodule *)out, (CUfunction)kernel);
}

EMU_API CUresult cuKernelGetName(const char **out, CUkernel kernel)
{
    return cuFuncGetName(out, (CUfunction)kernel);
}

EMU_API CUresult cuKernelGetAttribute(int *out, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    struct device *d;
    TRY(driver_device(device, &d));
    return cuFuncGetAttribute(out, attribute, (CUfunction)kernel);
}

EMU_API CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    struct device *d;
    TRY(driver_device(device, &d));
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

EMU_API CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    struct device *d;
    TRY(driver_device(device, &d));
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

EMU_API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size)
{
    return cuFuncGetParamInfo((CUfunction)kernel, index, offset, size);
}

// ---- Occupancy

static int blocks_per_processor(int threads, size_t shared)
{
    int by_threads = THREADS_PER_PROCESSOR / ((threads + 31) / 32 * 32);
    int by_shared = shared == 0 ? BLOCKS_PER_PROCESSOR : (int)(SHARED_PER_PROCESSOR / (shared + 1024));
    int n = by_threads < by_shared ? by_threads : by_shared;
    return n < BLOCKS_PER_PROCESSOR ? n : BLOCKS_PER_PROCESSOR;
}

EMU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, CUfunction f, int threads, size_t shared, unsigned flags)
{
    NEED(out != NULL && threads > 0 && flags <= 1);
    TRY(function_enter(f));
    *out = threads > f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] ? 0 : blocks_per_processor(threads, shared);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction f, int threads, size_t shared)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, f, threads, shared, 0);
}

EMU_API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction f, CUoccupancyB2DSize shared_of,
                                                           size_t shared, int limit, unsigned flags)
{
    CUcontext c;
    NEED(grid != NULL && block != NULL && flags <= 1);
    TRY(context_current(&c));
    TRY(function_enter(f));
    int most = f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], best = 0;
    most = limit > 0 && limit < most ? limit : most;
    for (int threads = most; threads > 0; threads -= 32) {
        int active = threads * blocks_per_processor(threads, shared_of != NULL ? shared_of(threads) : shared);
        if (active <= best)
            continue;
        best = active;
        *block = threads;
        *grid = active / threads * (int)c->device->info.processors;
    }
    return best > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, CUoccupancyB2DSize shared_of, size_t shared,
                                                  int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, shared_of, shared, limit, 0);
}

EMU_API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *out, CUfunction f, int blocks, int threads)
{
    NEED(out != NULL && blocks > 0 && threads > 0);
    TRY(function_enter(f));
    size_t each = SHARED_PER_PROCESSOR / (size_t)blocks, most = (size_t)f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    *out = each < most ? each : most;
    return CUDA_SUCCESS;
}
