// Memory: allocating, freeing, asking. What is charged is rounded as the driver's pages would have it.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_state.h"

#define PITCH 512u

uint64_t memory_round(uint64_t bytes)
{
    uint64_t unit = bytes < MIB ? 512 : 2 * MIB;
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

CUresult memory_charge(CUcontext context, int gpu, uint64_t bytes, enum emu_memory kind, uint64_t *id)
{
    struct emu_request request = {.op = EMU_MEM_ALLOC, .gpu = gpu, .context = context != NULL ? context->shared->id : 0, .a = bytes, .b = kind};
    struct emu_reply reply;
    TRY(driver_call(&request, &reply, NULL));
    *id = reply.a;
    return CUDA_SUCCESS;
}

CUresult memory_release(uint64_t id)
{
    struct emu_request request = {.op = EMU_MEM_FREE, .a = id};
    struct emu_reply reply;
    return id == 0 ? CUDA_SUCCESS : driver_call(&request, &reply, NULL);
}

// ---- Device memory

CUresult memory_alloc(size_t bytes, enum emu_memory kind, bool low, struct block **out)
{
    CUcontext c;
    uint64_t id;
    CUdeviceptr base;
    TRY(context_current(&c));
    TRY(capture_unsafe());
    TRY(memory_charge(c, c->device->gpu, memory_round(bytes), kind, &id));
    driver_lock();
    CUresult result = address_reserve(bytes, bytes < MIB ? 0 : 2 * MIB, 0, low, &base);
    if (result == CUDA_SUCCESS && (result = block_place(base, bytes, BLOCK_DEVICE, out)) != CUDA_SUCCESS)
        address_release(base, bytes);
    if (result == CUDA_SUCCESS) {
        (*out)->allocation = id;
        (*out)->context = c;
        (*out)->device = c->device;
    }
    driver_unlock();
    if (result != CUDA_SUCCESS)
        memory_release(id);
    return result;
}

EMU_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    struct block *b;
    NEED(out != NULL && bytes > 0);
    TRY(memory_alloc(bytes, EMU_MEM_DEVICE, false, &b));
    *out = b->base;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element)
{
    struct block *b;
    NEED(out != NULL && pitch != NULL && width > 0 && height > 0 && (element == 4 || element == 8 || element == 16));
    NEED(width < SIZE_MAX / 2);
    size_t row = (width + PITCH - 1) / PITCH * PITCH, bytes;
    if (__builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(memory_alloc(bytes, EMU_MEM_PITCHED, false, &b));
    *out = b->base;
    *pitch = row;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags)
{
    struct block *b;
    NEED(out != NULL && bytes > 0 && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST));
    TRY(memory_alloc(bytes, EMU_MEM_MANAGED, false, &b));
    b->kind = BLOCK_MANAGED;
    b->host_visible = true;
    mprotect((void *)(uintptr_t)b->base, bytes, PROT_READ | PROT_WRITE);
    *out = b->base;
    return CUDA_SUCCESS;
}

static bool freeable(const struct block *b, CUdeviceptr address)
{
    if (b == NULL || b->base != address)
        return false;
    return b->kind == BLOCK_DEVICE || b->kind == BLOCK_ASYNC || b->kind == BLOCK_MANAGED || b->kind == BLOCK_EXTERNAL ||
           (b->kind == BLOCK_GRAPH && b->live);
}

static CUresult free_locked(CUdeviceptr address)
{
    struct block *b = block_find(address);
    if (!freeable(b, address))
        return CUDA_ERROR_INVALID_VALUE;
    if (b->kind == BLOCK_GRAPH) {
        graph_block_free(b);
        return CUDA_SUCCESS;
    }
    if (b->kind == BLOCK_ASYNC)
        pool_return(b->pool, memory_round(b->size));
    CUresult result = memory_release(b->allocation);
    block_drop(b);
    return result;
}

// memory_free frees memory of any family. stream NULL: as cuMemFree, which waits for the work of the memory's context.
CUresult memory_free(CUdeviceptr address, CUstream stream)
{
    CUcontext current;
    if (address == 0)
        return CUDA_SUCCESS;
    driver_lock();
    struct block *b = block_find(address);
    bool known = freeable(b, address);
    CUcontext owner = known ? b->context : NULL;
    driver_unlock();
    NEED(known);
    if (stream == NULL) {
        TRY(context_current(&current));
        TRY(context_wait(owner != NULL ? owner : current));
    }
    driver_lock();
    CUresult result = free_locked(address);
    driver_unlock();
    return result;
}

EMU_API CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUcontext c;
    TRY(context_current(&c));
    TRY(capture_unsafe());
    return memory_free(address, NULL);
}

EMU_API CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    CUcontext c;
    TRY(context_current(&c));
    struct emu_request request = {.op = EMU_MEM_INFO, .gpu = c->device->gpu};
    struct emu_reply reply;
    TRY(driver_call(&request, &reply, NULL));
    if (free != NULL)
        *free = reply.a;
    if (total != NULL)
        *total = reply.b;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    CUcontext c;
    TRY(context_current(&c));
    driver_lock();
    struct block *b = block_find(address);
    bool known = b != NULL && (b->kind != BLOCK_GRAPH || b->live);
    if (known && base != NULL)
        *base = b->base;
    if (known && size != NULL)
        *size = b->size;
    driver_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// ---- Host memory

EMU_API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    CUcontext c;
    struct block *b;
    NEED(out != NULL && bytes > 0 && flags <= (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED));
    TRY(context_current(&c));
    TRY(capture_unsafe());
    driver_lock();
    CUresult result = block_new(bytes, 0, BLOCK_HOST, &b);
    if (result == CUDA_SUCCESS) {
        mprotect((void *)(uintptr_t)b->base, bytes, PROT_READ | PROT_WRITE);
        b->host_visible = true;
        b->context = c;
        b->flags = flags;
        *out = (void *)(uintptr_t)b->base;
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    return cuMemHostAlloc(out, bytes, 0);
}

static CUresult host_drop(void *address, enum block_kind kind, CUresult otherwise)
{
    CUcontext c;
    TRY(context_current(&c));
    TRY(capture_unsafe());
    TRY(context_wait(c));
    driver_lock();
    struct block *b = block_find((CUdeviceptr)(uintptr_t)address);
    bool known = b != NULL && b->kind == kind && b->base == (CUdeviceptr)(uintptr_t)address;
    if (known)
        block_drop(b);
    driver_unlock();
    return known ? CUDA_SUCCESS : otherwise;
}

EMU_API CUresult cuMemFreeHost(void *address)
{
    return address == NULL ? CUDA_SUCCESS : host_drop(address, BLOCK_HOST, CUDA_ERROR_INVALID_VALUE);
}

EMU_API CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    CUcontext c;
    struct block *b;
    NEED(address != NULL && bytes > 0 && flags <= 15);
    TRY(context_current(&c));
    TRY(capture_unsafe());
    driver_lock();
    CUresult result = block_place((CUdeviceptr)(uintptr_t)address, bytes, BLOCK_REGISTERED, &b);
    if (result == CUDA_SUCCESS) {
        b->host_visible = true;
        b->context = c;
        b->flags = flags;
    } else if (result == CUDA_ERROR_INVALID_VALUE) {
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuMemHostRegister(void *address, size_t bytes, unsigned flags)
{
    return cuMemHostRegister_v2(address, bytes, flags);
}

EMU_API CUresult cuMemHostUnregister(void *address)
{
    NEED(address != NULL);
    return host_drop(address, BLOCK_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static CUresult host_block(void *address, struct block *copy)
{
    CUcontext c;
    TRY(context_current(&c));
    driver_lock();
    struct block *b = block_find((CUdeviceptr)(uintptr_t)address);
    bool known = b != NULL && (b->kind == BLOCK_HOST || b->kind == BLOCK_REGISTERED);
    if (known)
        *copy = *b;
    driver_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address, unsigned flags)
{
    struct block b;
    NEED(out != NULL && flags == 0);
    TRY(host_block(address, &b));
    *out = (CUdeviceptr)(uintptr_t)address;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemHostGetFlags(unsigned *out, void *address)
{
    struct block b;
    NEED(out != NULL);
    TRY(host_block(address, &b));
    *out = b.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
