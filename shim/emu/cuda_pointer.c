// What a program may ask of an address, and the hints for managed memory.
#include <string.h>

#include "cuda_state.h"

static bool on_host(const struct block *b)
{
    return b->kind == BLOCK_HOST || b->kind == BLOCK_REGISTERED || (b->kind == BLOCK_MAPPED && b->device == NULL);
}

static CUresult attribute_of(const struct block *b, CUpointer_attribute attribute, CUdeviceptr address, void *data)
{
    bool device = !on_host(b);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = b->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ? address : b->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = b->host_visible ? (void *)(uintptr_t)address : NULL;
        return b->host_visible ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)data = b->buffer;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = b->kind == BLOCK_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = b->device != NULL ? (int)(b->device - driver.devices) : b->context != NULL ? (int)(b->context->device - driver.devices) : -1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = b->kind == BLOCK_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = b->size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = b->kind != BLOCK_GRAPH || b->live;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = b->kind == BLOCK_MAPPED ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(CUmemAccess_flags *)data = b->kind == BLOCK_MAPPED ? b->access : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = b->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

EMU_API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct thread *t;
    NEED(data != NULL);
    TRY(driver_enter(&t));
    driver_lock();
    struct block *b = block_find(address);
    CUresult result = b == NULL ? CUDA_ERROR_INVALID_VALUE : attribute_of(b, attribute, address, data);
    driver_unlock();
    return result;
}

// Of an address that the driver does not know, this form says so by zeroes and no error.
EMU_API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
    struct thread *t;
    NEED(attributes != NULL && data != NULL);
    TRY(driver_enter(&t));
    for (unsigned i = 0; i < count; i++) {
        CUresult result = cuPointerGetAttribute(data[i], attributes[i], address);
        if (result == CUDA_ERROR_NOT_SUPPORTED)
            return result;
        if (result == CUDA_SUCCESS)
            continue;
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = -2;
        else
            memset(data[i], 0, attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ? 4 : 8);
    }
    return CUDA_SUCCESS;
}

EMU_API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct thread *t;
    NEED(value != NULL && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    TRY(driver_enter(&t));
    driver_lock();
    bool known = block_find(address) != NULL;
    driver_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- Managed memory

static CUresult managed_range(CUdeviceptr address, size_t bytes)
{
    struct thread *t;
    TRY(driver_enter(&t));
    driver_lock();
    struct block *b = block_find(address);
    bool within = b != NULL && b->kind == BLOCK_MANAGED && bytes > 0 && bytes <= b->base + b->size - address;
    driver_unlock();
    return within ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_API CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
    (void)location;
    NEED(advice >= 1 && advice <= 6);
    return managed_range(address, bytes);
}

EMU_API CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(address, bytes, advice, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device});
}

EMU_API CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream)
{
    CUstream s;
    struct capture *capture;
    NEED(flags == 0);
    TRY(managed_range(address, bytes));
    TRY(stream_enter(stream, &s));
    TRY(capture_of(s, &capture));
    if (capture != NULL)
        return capture_refuse(s);
    struct emu_entry entry = {.kind = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? EMU_H2D : EMU_D2H,
                              .cost = memory_time(s->context->device, bytes, true)};
    return stream_submit(s, entry, NULL);
}
PTSZ(cuMemPrefetchAsync_v2, (CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
     (address, bytes, location, flags, OWN(stream)))

EMU_API CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    CUmemLocationType type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    return cuMemPrefetchAsync_v2(address, bytes, (CUmemLocation){type, device}, 0, stream);
}
PTSZ(cuMemPrefetchAsync, (CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream), (address, bytes, device, OWN(stream)))
