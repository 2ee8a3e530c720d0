// Virtual memory: addresses, physical memory and mappings apart. Physical memory lives while a handle or a mapping refers to it.
#include <stdlib.h>

#include "cuda_state.h"

#define GRAIN (2 * MIB)

struct physical {
    struct object object;
    struct device *device; // NULL: on the host, charged to nobody
    uint64_t allocation;
    size_t size;
    CUmemAllocationProp prop;
    unsigned handles, mappings;
};
enum { PHYSICAL = 0x70687973 };

struct range { // reserved addresses
    CUdeviceptr base;
    size_t size;
    struct range *next;
};

static struct shelf shelf = SHELF(struct physical, (enum magic)PHYSICAL);
static struct range *ranges;

static CUresult physical_of(CUmemGenericAllocationHandle handle, struct physical **out)
{
    struct thread *t;
    struct physical *p = (struct physical *)(uintptr_t)handle;
    TRY(driver_enter(&t));
    NEED(p != NULL && (uintptr_t)p % sizeof(void *) == 0 && object_is(p, (enum magic)PHYSICAL) && p->handles > 0);
    *out = p;
    return CUDA_SUCCESS;
}

static CUresult physical_unref(struct physical *p)
{
    if (p->handles > 0 || p->mappings > 0)
        return CUDA_SUCCESS;
    CUresult result = memory_release(p->allocation);
    object_retire(&shelf, p);
    return result;
}

static CUresult physical_new(struct device *device, uint64_t allocation, size_t size, const CUmemAllocationProp *prop,
                             CUmemGenericAllocationHandle *out)
{
    driver_lock();
    struct physical *p = object_new(&shelf);
    if (p != NULL) {
        p->device = device;
        p->allocation = allocation;
        p->size = size;
        p->prop = *prop;
        p->handles = 1;
        *out = (CUmemGenericAllocationHandle)(uintptr_t)p;
    }
    driver_unlock();
    return p != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// ---- Addresses

EMU_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    struct thread *t;
    NEED(out != NULL && size > 0 && size % GRAIN == 0 && (alignment & (alignment - 1)) == 0 && flags == 0);
    TRY(driver_enter(&t));
    struct range *r = malloc(sizeof *r);
    if (r == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver_lock();
    CUresult result = address_reserve(size, alignment > GRAIN ? alignment : GRAIN, hint, false, &r->base);
    if (result == CUDA_SUCCESS) {
        r->size = size;
        r->next = ranges;
        ranges = r;
        *out = r->base;
    } else {
        free(r);
    }
    driver_unlock();
    return result;
}

static bool any_mapping(CUdeviceptr base, size_t size)
{
    for (size_t at = 0; at < size; at += GRAIN)
        if (block_find(base + at) != NULL)
            return true;
    return false;
}

EMU_API CUresult cuMemAddressFree(CUdeviceptr base, size_t size)
{
    struct thread *t;
    TRY(driver_enter(&t));
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    for (struct range **at = &ranges; *at != NULL; at = &(*at)->next) {
        struct range *r = *at;
        if (r->base != base || r->size != size || any_mapping(base, size))
            continue;
        *at = r->next;
        address_release(base, size);
        free(r);
        result = CUDA_SUCCESS;
        break;
    }
    driver_unlock();
    return result;
}

static bool reserved(CUdeviceptr base, size_t size)
{
    for (struct range *r = ranges; r != NULL; r = r->next)
        if (base >= r->base && base - r->base <= r->size && size <= r->size - (base - r->base))
            return true;
    return false;
}

// ---- Physical memory

static CUresult prop_device(const CUmemAllocationProp *prop, struct device **device)
{
    struct thread *t;
    TRY(driver_enter(&t));
    NEED(prop != NULL && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    NEED((prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0);
    *device = NULL;
    if (prop->location.type >= CU_MEM_LOCATION_TYPE_HOST && prop->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return CUDA_SUCCESS;
    NEED(prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    return driver_device(prop->location.id, device);
}

EMU_API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    struct device *d;
    NEED(out != NULL && option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    TRY(prop_device(prop, &d));
    *out = GRAIN;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct device *d;
    uint64_t id = 0;
    NEED(out != NULL && size > 0 && size % GRAIN == 0 && flags == 0);
    TRY(prop_device(prop, &d));
    TRY(capture_unsafe());
    TRY(memory_charge(NULL, d != NULL ? d->gpu : driver.devices[0].gpu, size, d != NULL ? EMU_MEM_PHYSICAL : EMU_MEM_HOST, &id));
    CUresult result = physical_new(d, id, size, prop, out);
    if (result != CUDA_SUCCESS)
        memory_release(id);
    return result;
}

EMU_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct physical *p;
    TRY(physical_of(handle, &p));
    driver_lock();
    p->handles--;
    CUresult result = physical_unref(p);
    driver_unlock();
    return result;
}

EMU_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    struct thread *t;
    NEED(out != NULL);
    TRY(driver_enter(&t));
    driver_lock();
    struct block *b = block_find((CUdeviceptr)(uintptr_t)address);
    bool mapped = b != NULL && b->kind == BLOCK_MAPPED;
    if (mapped) {
        b->physical->handles++;
        *out = (CUmemGenericAllocationHandle)(uintptr_t)b->physical;
    }
    driver_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
    struct physical *p;
    NEED(out != NULL);
    TRY(physical_of(handle, &p));
    *out = p->prop;
    return CUDA_SUCCESS;
}

// ---- Mappings

EMU_API CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct physical *p;
    struct block *b;
    TRY(physical_of(handle, &p));
    NEED(flags == 0 && offset == 0 && size > 0 && size <= p->size && size % GRAIN == 0 && base % GRAIN == 0);
    driver_lock();
    CUresult result = reserved(base, size) ? block_place(base, size, BLOCK_MAPPED, &b) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        b->physical = p;
        b->device = p->device;
        p->mappings++;
    }
    driver_unlock();
    return result;
}

// each calls a function for every mapping of a range, which has to consist of whole mappings.
static CUresult each(CUdeviceptr base, size_t size, CUresult (*visit)(struct block *, CUmemAccess_flags), CUmemAccess_flags access)
{
    CUdeviceptr at = base;
    while (at < base + size) {
        struct block *b = block_find(at);
        NEED(b != NULL && b->kind == BLOCK_MAPPED && b->base == at && b->size <= base + size - at);
        at += b->size;
    }
    for (at = base; at < base + size;) {
        struct block *b = block_find(at);
        at += b->size;
        TRY(visit(b, access));
    }
    return CUDA_SUCCESS;
}

static CUresult unmap(struct block *b, CUmemAccess_flags access)
{
    (void)access;
    struct physical *p = b->physical;
    block_drop(b);
    p->mappings--;
    return physical_unref(p);
}

static CUresult allow(struct block *b, CUmemAccess_flags access)
{
    b->access = access;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemUnmap(CUdeviceptr base, size_t size)
{
    struct thread *t;
    NEED(size > 0 && base <= UINT64_MAX - size);
    TRY(driver_enter(&t));
    TRY(capture_unsafe());
    driver_lock();
    CUresult result = each(base, size, unmap, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    driver_unlock();
    return result;
}

EMU_API CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *access, size_t count)
{
    struct thread *t;
    NEED(size > 0 && base <= UINT64_MAX - size && access != NULL && count > 0);
    TRY(driver_enter(&t));
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (size_t i = 0; i < count; i++) {
        NEED(access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || (access[i].location.id >= 0 && access[i].location.id < driver.count));
        if (access[i].flags > flags)
            flags = access[i].flags;
    }
    driver_lock();
    CUresult result = each(base, size, allow, flags);
    driver_unlock();
    return result;
}

EMU_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    struct thread *t;
    NEED(flags != NULL && location != NULL);
    TRY(driver_enter(&t));
    driver_lock();
    struct block *b = block_find(address);
    bool mapped = b != NULL && b->kind == BLOCK_MAPPED;
    *flags = mapped ? (unsigned long long)b->access : 0;
    driver_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- Sharing

EMU_API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                              unsigned long long flags)
{
    struct physical *p;
    NEED(out != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && flags == 0);
    TRY(physical_of(handle, &p));
    NEED((p->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0);
    return memory_export(p->allocation, out);
}

EMU_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type)
{
    struct thread *t;
    NEED(out != NULL && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    TRY(driver_enter(&t));
    struct emu_reply reply;
    TRY(memory_import(NULL, (int)(intptr_t)os_handle, &reply));
    struct device *d = driver_gpu(reply.c);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, d != NULL ? (int)(d - driver.devices) : 0};
    CUresult result = d != NULL ? physical_new(d, reply.a, reply.b, &prop, out) : CUDA_ERROR_INVALID_DEVICE;
    if (result != CUDA_SUCCESS)
        memory_release(reply.a);
    return result;
}
