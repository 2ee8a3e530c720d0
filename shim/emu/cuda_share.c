// Memory shared between processes by handle, and memory imported from other interfaces. The exporter stays charged.
#include <string.h>
#include <sys/mman.h>

#include "cuda_state.h"

struct CUextMemory_st {
    struct object object;
    CUcontext context;
    uint64_t allocation;
    size_t size;
};
static struct shelf shelf = SHELF(struct CUextMemory_st, EXTERNAL);

#define HANDLE_OWNER 56 // where a handle holds the pid of its exporter; the broker uses the bytes before

static CUresult export(uint64_t id, struct emu_reply *reply)
{
    struct emu_request request = {.op = EMU_MEM_EXPORT, .a = id};
    return driver_call(&request, reply, NULL);
}

static CUresult import(CUcontext context, const char handle[EMU_HANDLE_BYTES], struct emu_reply *reply)
{
    struct emu_request request = {.op = EMU_MEM_IMPORT, .context = context != NULL ? context->shared->id : 0};
    memcpy(request.text, handle, EMU_HANDLE_BYTES);
    return driver_call(&request, reply, NULL);
}

// ---- Files

CUresult memory_export(uint64_t id, int *out)
{
    struct emu_reply reply;
    TRY(export(id, &reply));
    int fd = memfd_create("weft-emu-handle", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, reply.payload, EMU_HANDLE_BYTES) == EMU_HANDLE_BYTES) {
        *out = fd;
        return CUDA_SUCCESS;
    }
    if (fd >= 0)
        close(fd);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult memory_import(CUcontext context, int fd, struct emu_reply *reply)
{
    char handle[EMU_HANDLE_BYTES];
    if (pread(fd, handle, sizeof handle, 0) != sizeof handle)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = import(context, handle, reply);
    return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : result;
}

// ---- IPC handles

EMU_API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    struct thread *t;
    NEED(out != NULL);
    TRY(driver_enter(&t));
    driver_lock();
    struct block *b = block_find(address);
    uint64_t id = b != NULL && b->kind == BLOCK_DEVICE ? b->allocation : 0;
    driver_unlock();
    NEED(id != 0);
    struct emu_reply reply;
    TRY(export(id, &reply));
    memcpy(out->reserved, reply.payload, sizeof out->reserved);
    memcpy(out->reserved + HANDLE_OWNER, &driver.client.process->pid, sizeof driver.client.process->pid);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
    CUcontext c;
    struct block *b;
    struct emu_reply reply;
    NEED(out != NULL && flags <= CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    TRY(context_current(&c));
    TRY(capture_unsafe());
    if (memcmp(handle.reserved + HANDLE_OWNER, &driver.client.process->pid, sizeof driver.client.process->pid) == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    TRY(import(c, handle.reserved, &reply));
    driver_lock();
    CUresult result = driver_gpu(reply.c) == NULL ? CUDA_ERROR_INVALID_DEVICE : block_new(reply.b, 2 * MIB, BLOCK_IPC, &b);
    if (result == CUDA_SUCCESS) {
        b->allocation = reply.a;
        b->context = c;
        b->device = driver_gpu(reply.c);
        *out = b->base;
    }
    driver_unlock();
    if (result != CUDA_SUCCESS)
        memory_release(reply.a);
    return result;
}

EMU_API CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
    return cuIpcOpenMemHandle_v2(out, handle, flags);
}

EMU_API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUcontext c;
    TRY(context_current(&c));
    TRY(context_wait(c));
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    driver_lock();
    struct block *b = block_find(address);
    if (b != NULL && b->kind == BLOCK_IPC && b->base == address) {
        result = memory_release(b->allocation);
        block_drop(b);
    }
    driver_unlock();
    return result;
}

// Events cannot be shared between processes: the device attribute says so.
EMU_API CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    struct thread *t;
    NEED(out != NULL && object_is(event, EVENT));
    TRY(driver_enter(&t));
    return CUDA_ERROR_NOT_SUPPORTED;
}

EMU_API CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    struct thread *t;
    (void)handle;
    NEED(out != NULL);
    TRY(driver_enter(&t));
    return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- External memory: a file as cuMemExportToShareableHandle makes it

EMU_API CUresult cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    CUcontext c;
    struct emu_reply reply;
    NEED(out != NULL && desc != NULL);
    TRY(context_current(&c));
    if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    TRY(memory_import(c, desc->handle.fd, &reply));
    driver_lock();
    CUexternalMemory m = desc->size <= reply.b ? object_new(&shelf) : NULL;
    if (m != NULL) {
        m->context = c;
        m->allocation = reply.a;
        m->size = desc->size;
        *out = m;
    }
    driver_unlock();
    if (m == NULL) {
        memory_release(reply.a);
        return CUDA_ERROR_INVALID_VALUE;
    }
    close(desc->handle.fd); // it is the driver's now
    return CUDA_SUCCESS;
}

EMU_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory memory, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    struct block *b;
    NEED(out != NULL && desc != NULL && desc->flags == 0);
    if (!object_is(memory, EXTERNAL))
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(context_check(memory->context));
    NEED(desc->size > 0 && desc->offset <= memory->size && desc->size <= memory->size - desc->offset);
    driver_lock();
    CUresult result = block_new(desc->size, 2 * MIB, BLOCK_EXTERNAL, &b);
    if (result == CUDA_SUCCESS) {
        b->context = memory->context;
        b->device = memory->context->device;
        *out = b->base;
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (!object_is(memory, EXTERNAL))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = memory_release(memory->allocation);
    driver_lock();
    object_retire(&shelf, memory);
    driver_unlock();
    return result;
}
