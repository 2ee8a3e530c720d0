// Operations of a stream: put there, or into what it captures; and what copies and memsets do to the contents of memory, at once.
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"

uint64_t memory_time(const struct device *device, uint64_t bytes, bool copy_engine)
{
    uint64_t rate = copy_engine ? device->info.copy_bytes_s : device->info.memory_bytes_s;
    uint64_t ns = (uint64_t)((unsigned __int128)bytes * 1000000000u / (rate > 0 ? rate : 1));
    return ns > 0 ? ns : 1;
}

CUresult operation_submit(CUstream s, const struct operation *op)
{
    switch (op->type) {
    case CU_GRAPH_NODE_TYPE_HOST:
        return stream_host(s, op->host, op->callback, op->data);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_record(op->event, s);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return event_wait(s, op->event);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        TRY(operation_contents(op));
        return stream_submit(s, (struct emu_entry){.kind = op->kind, .cost = op->cost}, NULL);
    default:
        return CUDA_SUCCESS;
    }
}

CUresult operation_run(CUstream s, struct operation *op)
{
    struct capture *capture;
    TRY(capture_of(s, &capture));
    return capture != NULL ? capture_add(s, capture, op, NULL) : operation_submit(s, op);
}

// ---- Sides of a copy

static bool span_host(const struct span *s)
{
    return s->type == CU_MEMORYTYPE_HOST;
}

static bool in_device(const struct block *b)
{
    return b->kind != BLOCK_HOST && b->kind != BLOCK_REGISTERED && (b->kind != BLOCK_GRAPH || b->owners > 0 || b->live) &&
           (b->kind != BLOCK_MAPPED || b->access != CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

static size_t span_offset(const struct span *s, size_t z, size_t y)
{
    return (s->z + z) * s->slice + (s->y + y) * s->pitch + s->x;
}

// block_run is how many bytes from an address on have memory behind them, over neighbouring mappings.
static bool block_run(CUdeviceptr address, size_t bytes)
{
    CUdeviceptr end = address + bytes;
    while (address < end) {
        struct block *b = block_find(address);
        if (b == NULL || !in_device(b))
            return false;
        address = b->base + b->size;
    }
    return true;
}

static CUresult span_check(struct span *s, const struct operation *op)
{
    size_t extent = span_offset(s, op->depth - 1, op->height - 1) + op->width;
    if (s->type == CU_MEMORYTYPE_ARRAY) {
        if (!object_is(s->array, ARRAY))
            return CUDA_ERROR_INVALID_HANDLE;
        s->pitch = s->array->row;
        s->slice = s->array->row * s->array->rows;
        return span_offset(s, op->depth - 1, op->height - 1) + op->width <= s->array->bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (s->type == CU_MEMORYTYPE_UNIFIED) {
        struct block *b = block_find(s->address);
        s->type = b == NULL || !in_device(b) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    }
    if (s->type == CU_MEMORYTYPE_HOST)
        return s->address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    struct block *b = block_find(s->address);
    if (b != NULL && (b->kind == BLOCK_HOST || b->kind == BLOCK_REGISTERED))
        return CUDA_SUCCESS;
    return s->type == CU_MEMORYTYPE_DEVICE && block_run(s->address, extent) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct device *span_device(const struct span *s)
{
    if (s->type == CU_MEMORYTYPE_ARRAY)
        return s->array->context->device;
    struct block *b = block_find(s->address);
    return b == NULL ? NULL : b->device;
}

static CUresult copy_check_locked(struct operation *op)
{
    TRY(span_check(&op->to, op));
    TRY(span_check(&op->from, op));
    struct device *to = span_host(&op->to) ? NULL : span_device(&op->to), *from = span_host(&op->from) ? NULL : span_device(&op->from);
    struct device *device = to != NULL ? to : from != NULL ? from : &driver.devices[0];
    uint64_t bytes = (uint64_t)op->width * op->height * op->depth;
    bool within = to == from && to != NULL;
    op->kind = within ? EMU_DEVICE : from == NULL ? EMU_H2D : to == NULL ? EMU_D2H : EMU_DEVICE;
    op->cost = memory_time(device, within ? 2 * bytes : bytes, !within);
    return CUDA_SUCCESS;
}

CUresult copy_check(struct operation *op)
{
    op->type = CU_GRAPH_NODE_TYPE_MEMCPY;
    if (op->width == 0 || op->height == 0 || op->depth == 0) {
        op->kind = EMU_DEVICE;
        op->cost = 0;
        return CUDA_SUCCESS;
    }
    driver_lock();
    CUresult result = copy_check_locked(op);
    driver_unlock();
    return result;
}

// ---- Contents

static unsigned char *span_contents(const struct span *s, size_t z, size_t y, size_t bytes, size_t *kept)
{
    size_t offset = span_offset(s, z, y);
    if (s->type == CU_MEMORYTYPE_ARRAY) {
        CUarray a = s->array;
        size_t limit = a->bytes < BLOCK_HEAD ? a->bytes : BLOCK_HEAD;
        if (a->head == NULL)
            a->head = calloc(1, limit);
        *kept = a->head == NULL || offset >= limit ? 0 : limit - offset < bytes ? limit - offset : bytes;
        return *kept > 0 ? a->head + offset : NULL;
    }
    CUdeviceptr address = s->address + offset;
    struct block *b = s->type == CU_MEMORYTYPE_HOST ? NULL : block_find(address);
    if (b == NULL) {
        *kept = s->type == CU_MEMORYTYPE_HOST ? bytes : 0;
        return (unsigned char *)(uintptr_t)address;
    }
    return block_contents(b, address, bytes, kept);
}

static void fill(unsigned char *at, size_t bytes, uint32_t value, uint32_t element)
{
    if (element == 1) {
        memset(at, (int)value, bytes);
        return;
    }
    for (size_t i = 0; i + element <= bytes; i += element)
        memcpy(at + i, &value, element);
}

// row does one row, and says whether any of it was kept.
static bool row(const struct operation *op, size_t z, size_t y)
{
    size_t to_kept, from_kept;
    unsigned char *to = span_contents(&op->to, z, y, op->width, &to_kept);
    if (to_kept == 0)
        return false;
    if (op->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        fill(to, to_kept, op->value, op->element);
        return true;
    }
    const unsigned char *from = span_contents(&op->from, z, y, op->width, &from_kept);
    if (from_kept > 0)
        memmove(to, from, to_kept < from_kept ? to_kept : from_kept);
    return from_kept > 0;
}

CUresult operation_contents(const struct operation *op)
{
    bool kept = op->width > 0;
    driver_lock();
    for (size_t z = 0; z < op->depth && kept; z++)
        for (size_t y = 0; y < op->height && kept; y++)
            kept = row(op, z, y);
    driver_unlock();
    return CUDA_SUCCESS;
}

// ---- From the parameters of nodes

CUresult memset_operation(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context, struct operation *op)
{
    NEED(p != NULL && (p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4) && p->height > 0);
    NEED(p->width < SIZE_MAX / 8 && (p->height == 1 || p->pitch >= p->width * p->elementSize));
    NEED(p->dst % p->elementSize == 0);
    *op = (struct operation){.type = CU_GRAPH_NODE_TYPE_MEMSET, .kind = EMU_DEVICE, .context = context, .value = p->value,
                             .element = p->elementSize, .width = p->width * p->elementSize, .height = p->height, .depth = 1,
                             .to = {.type = CU_MEMORYTYPE_DEVICE, .address = p->dst, .pitch = p->pitch}};
    if (op->width == 0)
        return CUDA_SUCCESS;
    driver_lock();
    CUresult result = span_check(&op->to, op);
    struct device *d = result == CUDA_SUCCESS ? span_device(&op->to) : NULL;
    driver_unlock();
    op->cost = memory_time(d != NULL ? d : &driver.devices[0], (uint64_t)op->width * op->height, false);
    return result;
}

static struct span span_3d(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t pitch, size_t rows)
{
    CUdeviceptr address = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : device;
    return (struct span){.type = type, .address = address, .array = array, .pitch = pitch, .slice = pitch * rows};
}

CUresult memcpy_operation(const CUDA_MEMCPY3D *p, CUcontext context, struct operation *op)
{
    NEED(p != NULL);
    *op = (struct operation){.context = context, .width = p->WidthInBytes, .height = p->Height, .depth = p->Depth};
    op->to = span_3d(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstPitch, p->dstHeight);
    op->from = span_3d(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcPitch, p->srcHeight);
    op->to.x = p->dstXInBytes;
    op->to.y = p->dstY;
    op->to.z = p->dstZ;
    op->from.x = p->srcXInBytes;
    op->from.y = p->srcY;
    op->from.z = p->srcZ;
    return copy_check(op);
}
