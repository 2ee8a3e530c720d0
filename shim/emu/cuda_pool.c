// Memory pools and stream-ordered allocation. A pool is charged for its reserve, not for what is used of it. Freed memory stays in the
// reserve until a synchronisation finds more of it than the release threshold.
#include <string.h>

#include "cuda_state.h"

#define CHUNK (32 * MIB)
#define GRAIN (2 * MIB)

static struct shelf shelf = SHELF(struct CUmemPoolHandle_st, POOL);
static CUmemoryPool pools;

static uint64_t up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static CUresult resize(CUmemoryPool pool, uint64_t bytes)
{
    struct emu_request request = {.op = EMU_MEM_RESIZE, .a = pool->id, .b = bytes};
    struct emu_reply reply;
    if (pool->id == 0)
        TRY(memory_charge(NULL, pool->device->gpu, bytes, EMU_MEM_POOL, &pool->id));
    else
        TRY(driver_call(&request, &reply, NULL));
    pool->reserved = bytes;
    if (bytes > pool->reserved_high)
        pool->reserved_high = bytes;
    return CUDA_SUCCESS;
}

// take uses some of the reserve, which grows by whole chunks where the GPU has them, or by what is needed.
static CUresult take(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t need = pool->used + bytes;
    if (pool->props.maxSize != 0 && need > pool->props.maxSize)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (need > pool->reserved && (pool->props.maxSize != 0 || resize(pool, up(need, CHUNK)) != CUDA_SUCCESS))
        TRY(resize(pool, up(need, GRAIN)));
    pool->used = need;
    if (need > pool->used_high)
        pool->used_high = need;
    return CUDA_SUCCESS;
}

static void trim(CUmemoryPool pool, uint64_t keep)
{
    if (pool->imported)
        return;
    uint64_t least = up(pool->used, GRAIN);
    if (keep < least)
        keep = least;
    if (pool->reserved > keep)
        resize(pool, keep);
}

void pool_return(CUmemoryPool pool, uint64_t bytes)
{
    pool->used -= bytes;
}

void pool_trim_all(struct device *device)
{
    for (CUmemoryPool p = pools; p != NULL; p = p->next)
        if (p->device == device && p->reserved > p->threshold)
            trim(p, p->threshold);
}

void pool_reset(struct device *device)
{
    for (CUmemoryPool p = pools; p != NULL; p = p->next)
        if (p->device == device)
            trim(p, 0);
}

CUmemoryPool pool_new(struct device *device, const CUmemPoolProps *props)
{
    CUmemoryPool p = object_new(&shelf);
    if (p == NULL)
        return NULL;
    p->device = device;
    p->props = *props;
    for (int i = 0; i < 3; i++)
        p->reuse[i] = 1;
    p->next = pools;
    return pools = p;
}

CUresult pool_default(struct device *device, CUmemoryPool *pool)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)(device - driver.devices)}};
    if (device->own_pool == NULL)
        device->own_pool = pool_new(device, &props);
    if (device->pool == NULL)
        device->pool = device->own_pool;
    *pool = device->own_pool;
    return *pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pool_found(CUmemoryPool pool)
{
    return pool->id != 0 ? CUDA_SUCCESS : (resize(pool, GRAIN) == CUDA_SUCCESS ? resize(pool, 0) : CUDA_ERROR_OUT_OF_MEMORY);
}

// ---- Allocation

static CUresult capture_alloc(CUstream s, struct capture *capture, size_t bytes, CUdeviceptr *out)
{
    struct block *b;
    driver_lock();
    CUresult result = block_new(bytes, 0, BLOCK_GRAPH, &b);
    if (result == CUDA_SUCCESS)
        b->device = s->context->device;
    driver_unlock();
    TRY(result);
    struct operation op = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .pointer = b->base};
    op.alloc.bytesize = bytes;
    op.alloc.dptr = b->base;
    op.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    op.alloc.poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, (int)(b->device - driver.devices)};
    *out = b->base;
    return capture_add(s, capture, &op, NULL);
}

static CUresult alloc(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream s)
{
    struct block *b;
    struct capture *capture;
    TRY(capture_of(s, &capture));
    if (capture != NULL)
        return capture_alloc(s, capture, bytes, out);
    driver_lock();
    CUresult result = pool == NULL ? pool_default(s->context->device, &pool) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && pool == s->context->device->own_pool)
        pool = s->context->device->pool;
    if (result == CUDA_SUCCESS)
        result = take(pool, memory_round(bytes));
    if (result == CUDA_SUCCESS && (result = block_new(bytes, 0, BLOCK_ASYNC, &b)) != CUDA_SUCCESS)
        pool_return(pool, memory_round(bytes));
    if (result == CUDA_SUCCESS) {
        b->pool = pool;
        b->device = pool->device;
        b->context = s->context;
        *out = b->base;
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    CUstream s;
    NEED(out != NULL && bytes > 0);
    TRY(stream_enter(stream, &s));
    return alloc(out, bytes, NULL, s);
}
PTSZ(cuMemAllocAsync, (CUdeviceptr *out, size_t bytes, CUstream stream), (out, bytes, OWN(stream)))

EMU_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUstream s;
    NEED(out != NULL && bytes > 0 && object_is(pool, POOL) && !pool->imported);
    TRY(stream_enter(stream, &s));
    return alloc(out, bytes, pool, s);
}
PTSZ(cuMemAllocFromPoolAsync, (CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream), (out, bytes, pool, OWN(stream)))

EMU_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    CUstream s;
    struct capture *capture;
    TRY(stream_enter(stream, &s));
    TRY(capture_of(s, &capture));
    if (capture == NULL)
        return memory_free(address, s);
    driver_lock();
    struct block *b = block_find(address);
    bool graph = b != NULL && b->kind == BLOCK_GRAPH && b->base == address;
    driver_unlock();
    NEED(graph);
    return capture_add(s, capture, &(struct operation){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .pointer = address}, NULL);
}
PTSZ(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, OWN(stream)))

// ---- Pools

EMU_API CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
    struct device *d;
    NEED(out != NULL && props != NULL && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
    if ((props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    TRY(driver_device(props->location.id, &d));
    driver_lock();
    *out = pool_new(d, props);
    driver_unlock();
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}


EMU_API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(object_is(pool, POOL) && pool != pool->device->own_pool);
    driver_lock();
    bool busy = pool->used > 0; // lives on, unseen, until its last allocation is freed
    if (pool->device->pool == pool)
        pool->device->pool = pool->device->own_pool;
    pool->threshold = 0;
    CUmemoryPool *at = &pools;
    while (*at != NULL && *at != pool)
        at = &(*at)->next;
    if (*at == pool && !busy) {
        *at = pool->next;
        memory_release(pool->id);
        object_retire(&shelf, pool);
    } else {
        atomic_store(&pool->object.magic, DEAD);
    }
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(object_is(pool, POOL));
    driver_lock();
    trim(pool, keep);
    driver_unlock();
    return CUDA_SUCCESS;
}

static uint64_t *figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool->used_high;
    default: return NULL;
    }
}

static bool is_switch(CUmemPool_attribute a)
{
    return a >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES && a <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

EMU_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(object_is(pool, POOL) && value != NULL);
    uint64_t *f = figure(pool, attribute);
    NEED(f != NULL || is_switch(attribute));
    driver_lock();
    if (f != NULL)
        *(uint64_t *)value = *f;
    else
        *(int *)value = pool->reuse[attribute - 1];
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(object_is(pool, POOL) && value != NULL);
    bool high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    NEED(is_switch(attribute) || attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || (high && *(uint64_t *)value == 0));
    driver_lock();
    if (high)
        *figure(pool, attribute) = *figure(pool, (CUmemPool_attribute)(attribute - 1));
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = *(uint64_t *)value;
    else
        pool->reuse[attribute - 1] = *(int *)value;
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    NEED(object_is(pool, POOL) && (count == 0 || access != NULL));
    for (size_t i = 0; i < count; i++)
        NEED(access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && access[i].location.id >= 0 && access[i].location.id < driver.count);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    NEED(flags != NULL && object_is(pool, POOL) && location != NULL && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}
