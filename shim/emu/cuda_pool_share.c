// The pools of devices, and pools shared between processes.
#include <string.h>

#include "cuda_state.h"

// ---- Pools of devices

EMU_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL);
    TRY(driver_device(dev, &d));
    driver_lock();
    CUresult result = pool_default(d, out);
    driver_unlock();
    return result;
}

EMU_API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL);
    TRY(driver_device(dev, &d));
    driver_lock();
    CUresult result = pool_default(d, out);
    *out = d->pool;
    driver_unlock();
    return result;
}

EMU_API CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    struct device *d;
    TRY(driver_device(dev, &d));
    NEED(object_is(pool, POOL) && pool->device == d);
    driver_lock();
    CUmemoryPool own;
    CUresult result = pool_default(d, &own);
    d->pool = pool;
    driver_unlock();
    return result;
}

static CUresult location_device(const CUmemLocation *location, CUmemAllocationType type, CUdevice *dev)
{
    NEED(location != NULL);
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_NOT_SUPPORTED;
    *dev = location->id;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice dev;
    TRY(location_device(location, type, &dev));
    return cuDeviceGetDefaultMemPool(out, dev);
}

EMU_API CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice dev;
    TRY(location_device(location, type, &dev));
    return cuDeviceGetMemPool(out, dev);
}

EMU_API CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUdevice dev;
    TRY(location_device(location, type, &dev));
    return cuDeviceSetMemPool(dev, pool);
}

// ---- Sharing: the importer sees what the exporter allocated, and allocates nothing itself

struct export_data { // within CUmemPoolPtrExportData
    uint64_t magic, size, pid;
};

EMU_API CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(out != NULL && object_is(pool, POOL) && !pool->imported && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0);
    NEED((pool->props.handleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0);
    driver_lock();
    CUresult result = pool_found(pool);
    driver_unlock();
    TRY(result);
    return memory_export(pool->id, out);
}

EMU_API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, CUmemAllocationHandleType type,
                                                    unsigned long long flags)
{
    struct thread *t;
    struct emu_reply reply;
    NEED(out != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0);
    TRY(driver_enter(&t));
    TRY(memory_import(NULL, (int)(intptr_t)handle, &reply));
    struct device *d = driver_gpu(reply.c);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    driver_lock();
    CUmemoryPool p = d != NULL ? pool_new(d, &props) : NULL;
    if (p != NULL) {
        p->id = reply.a;
        p->imported = true;
        *out = p;
    }
    driver_unlock();
    if (p != NULL)
        return CUDA_SUCCESS;
    memory_release(reply.a);
    return d == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
    struct thread *t;
    NEED(out != NULL);
    TRY(driver_enter(&t));
    struct export_data data = {.magic = POOL, .pid = driver.client.process->pid};
    driver_lock();
    struct block *b = block_find(address);
    bool exportable = b != NULL && b->kind == BLOCK_ASYNC && b->base == address && b->pool->props.handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    if (exportable)
        data.size = b->size;
    driver_unlock();
    NEED(exportable);
    memset(out, 0, sizeof *out);
    memcpy(out, &data, sizeof data);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *exported)
{
    struct thread *t;
    struct block *b;
    struct export_data data;
    NEED(out != NULL && exported != NULL && object_is(pool, POOL) && pool->imported);
    TRY(driver_enter(&t));
    memcpy(&data, exported, sizeof data);
    NEED(data.magic == POOL && data.size > 0 && data.pid != driver.client.process->pid);
    driver_lock();
    CUresult result = block_new(data.size, 0, BLOCK_EXTERNAL, &b);
    if (result == CUDA_SUCCESS) {
        b->device = pool->device;
        b->pool = pool;
        *out = b->base;
    }
    driver_unlock();
    return result;
}
