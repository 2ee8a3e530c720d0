/* The calls of the driver that does nothing whose answers matter. One GPU; addresses and handles are never used again. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "weft_cuda.h"

#define API __attribute__((visibility("default")))
#define MIB ((size_t)1 << 20)

API struct fake fake;

static uint64_t next(void) {
    static _Atomic uint64_t last = 0x10000;
    return last += 0x10000;
}

/* Gives something through the first argument. */
#define GIVES(name)                                                                                                    \
    API CUresult name(uint64_t *out) {                                                                                 \
        *out = next();                                                                                                 \
        return CUDA_SUCCESS;                                                                                           \
    }
#define GIVES_32(name)                                                                                                 \
    API CUresult name(uint32_t *out) {                                                                                 \
        *out = (uint32_t)next();                                                                                       \
        return CUDA_SUCCESS;                                                                                           \
    }

GIVES_32(cuMemAlloc)
GIVES(cuMemAlloc_v2)
GIVES(cuMemAllocManaged)
GIVES(cuMemCreate)
GIVES(cuMemImportFromShareableHandle)
GIVES(cuArrayCreate)
GIVES(cuArrayCreate_v2)
GIVES(cuArray3DCreate)
GIVES(cuArray3DCreate_v2)
GIVES(cuMipmappedArrayCreate)
GIVES(cuMemPoolCreate)
GIVES(cuMemPoolImportFromShareableHandle)
GIVES(cuIpcOpenMemHandle)
GIVES(cuIpcOpenMemHandle_v2)
GIVES(cuCtxCreate)
GIVES(cuCtxCreate_v2)
GIVES(cuCtxCreate_v3)
GIVES(cuCtxCreate_v4)
GIVES(cuGreenCtxCreate)
GIVES(cuGraphInstantiate)
GIVES(cuGraphInstantiate_v2)
GIVES(cuGraphInstantiateWithFlags)
GIVES(cuGraphInstantiateWithParams)
GIVES(cuGraphInstantiateWithParams_ptsz)
GIVES(cuEventCreate)

API CUresult cuInit(unsigned flags) {
    const char *devices = getenv("CUDA_VISIBLE_DEVICES");
    (void)flags;
    snprintf(fake.visible, sizeof fake.visible, "%s", devices ? devices : "");
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    (void)device;
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = (char)i;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult primary(CUcontext *context) {
    *context = (CUcontext)&fake;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context) {
    return primary(context);
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
    return primary(context);
}

API CUresult cuCtxAttach(CUcontext *context) {
    return primary(context);
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width) {
    *address = next();
    *pitch = (width + 4095) / 4096 * 4096; /* more than any GPU pads */
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocPitch(CUdeviceptr_v1 *address, unsigned *pitch, unsigned width) {
    *address = (CUdeviceptr_v1)next();
    *pitch = (width + 4095) / 4096 * 4096;
    return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
    if (address == FAKE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* A pool that reserves in steps of 32 MiB, and lets go of everything at a trim or synchronisation after a free. */
static CUresult pool_alloc(CUdeviceptr *address, size_t bytes) {
    *address = next();
    fake.used += bytes;
    while (fake.reserved < fake.used)
        fake.reserved += 32 * MIB;
    return CUDA_SUCCESS;
}

static CUresult pool_trim(void) {
    if (!fake.used)
        fake.reserved = 0;
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes) { return pool_alloc(address, bytes); }
API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes) { return pool_alloc(address, bytes); }
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes) { return pool_alloc(address, bytes); }
API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes) { return pool_alloc(address, bytes); }
API CUresult cuMemFreeAsync(CUdeviceptr address) { return fake.used = 0, (void)address, CUDA_SUCCESS; }
API CUresult cuMemFreeAsync_ptsz(CUdeviceptr address) { return fake.used = 0, (void)address, CUDA_SUCCESS; }
API CUresult cuMemPoolTrimTo(void) { return pool_trim(); }
API CUresult cuMemPoolSetAttribute(void) { return pool_trim(); }
API CUresult cuStreamSynchronize(void) { return pool_trim(); }
API CUresult cuStreamSynchronize_ptsz(void) { return pool_trim(); }
API CUresult cuCtxSynchronize(void) { return pool_trim(); }
API CUresult cuCtxSynchronize_v2(void) { return pool_trim(); }
API CUresult cuDeviceGraphMemTrim(void) { return fake.graphs = 0, CUDA_SUCCESS; }

API CUresult cuDeviceGetMemPool(CUmemoryPool *pool) {
    *pool = (CUmemoryPool)&fake.used;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool) {
    return cuDeviceGetMemPool(pool);
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t *value) {
    (void)pool;
    *value = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? fake.reserved : fake.used;
    return CUDA_SUCCESS;
}

/* Graphs: each has one node, which allocates. */
API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, uint64_t *value) {
    (void)device;
    *value = attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? fake.graphs : 0;
    return CUDA_SUCCESS;
}

API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    (void)graph;
    if (nodes && *count)
        nodes[0] = (CUgraphNode)&fake;
    *count = 1;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    (void)node;
    *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *p) {
    (void)node;
    memset(p, 0, sizeof *p);
    p->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p->bytesize = FAKE_GRAPH_BYTES;
    return CUDA_SUCCESS;
}

static CUresult graph_memory(void) {
    fake.graphs = FAKE_GRAPH_BYTES;
    return CUDA_SUCCESS;
}

API CUresult cuGraphLaunch(void) { return graph_memory(); }
API CUresult cuGraphLaunch_ptsz(void) { return graph_memory(); }
API CUresult cuGraphUpload(void) { return graph_memory(); }
API CUresult cuGraphUpload_ptsz(void) { return graph_memory(); }

/* Capture. */
static CUresult capture(bool on) {
    fake.capturing = on;
    return CUDA_SUCCESS;
}

API CUresult cuStreamBeginCapture(void) { return capture(true); }
API CUresult cuStreamBeginCapture_ptsz(void) { return capture(true); }
API CUresult cuStreamBeginCapture_v2(void) { return capture(true); }
API CUresult cuStreamBeginCapture_v2_ptsz(void) { return capture(true); }
API CUresult cuStreamBeginCaptureToGraph(void) { return capture(true); }
API CUresult cuStreamBeginCaptureToGraph_ptsz(void) { return capture(true); }
API CUresult cuStreamBeginRecaptureToGraph(void) { return capture(true); }
API CUresult cuStreamBeginRecaptureToGraph_ptsz(void) { return capture(true); }
API CUresult cuStreamEndCapture(void) { return capture(false); }
API CUresult cuStreamEndCapture_ptsz(void) { return capture(false); }
API CUresult cuStreamDestroy(void) { return capture(false); }
API CUresult cuStreamDestroy_v2(void) { return capture(false); }

API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    (void)stream;
    fake.asked++;
    *status = fake.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

API CUresult cuEventQuery(void) {
    return fake.done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &address, sizeof address);
    return CUDA_SUCCESS;
}

API CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle) {
    memset(shared, 0, WEFT_KEY);
    memcpy(shared, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle) {
    *handle = fake.retained;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    (void)bytes;
    *base = address & ~(CUdeviceptr)0xffff;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    *available = *total = 80 * 1024 * MIB;
    return CUDA_SUCCESS;
}

/* The driver's own look-up: by plain name, as if version and flags chose the last form that there is. */
API CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags, (void)status;
    *function = !strcmp(name, "cuMemFree")      ? (void *)cuMemFree_v2
                : !strcmp(name, "cuMemAlloc")   ? (void *)cuMemAlloc_v2
                : !strcmp(name, "cuEventQuery") ? (void *)cuEventQuery
                                                : NULL;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

API CUresult cuGetProcAddress_v2_ptsz(const char *name, void **function, int version, uint64_t flags, int *status) {
    return cuGetProcAddress_v2(name, function, version, flags, status);
}

/* NVML: two GPUs, of which the second is nobody's business. */
API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned bytes) {
    snprintf(text, bytes, "GPU-%s", device == (nvmlDevice_t)1 ? "00010203-0405-0607-0809-0a0b0c0d0e0f"
                                                              : "ffffffff-ffff-ffff-ffff-ffffffffffff");
    return NVML_SUCCESS;
}

static nvmlReturn_t two(unsigned *count) {
    *count = 2;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return two(count); }
API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { return two(count); }

static nvmlReturn_t foreign(nvmlDevice_t *device) {
    *device = (nvmlDevice_t)2;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned i, nvmlDevice_t *device) { return (void)i, foreign(device); }
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *device) { return (void)i, foreign(device); }
API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *s, nvmlDevice_t *device) { return (void)s, foreign(device); }
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *s, nvmlDevice_t *device) { return (void)s, foreign(device); }
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *s, nvmlDevice_t *device) { return (void)s, foreign(device); }

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    *device = (nvmlDevice_t)(uintptr_t)(strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f") ? 2 : 1);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    (void)device;
    *index = 7;
    return NVML_SUCCESS;
}

/* A process of a neighbour, in every list. */
static nvmlReturn_t neighbour(unsigned *count) {
    *count = 9;
    return NVML_SUCCESS;
}

#define LIST(name)                                                                                                     \
    API nvmlReturn_t name(nvmlDevice_t device, unsigned *count) { return (void)device, neighbour(count); }
#define LISTS(name) LIST(name) LIST(name##_v2) LIST(name##_v3)
LISTS(nvmlDeviceGetComputeRunningProcesses)
LISTS(nvmlDeviceGetGraphicsRunningProcesses)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses)

API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list) {
    return (void)device, neighbour(&list->numProcArrayEntries);
}
