/* How a hook is written.
 *
 *     HOOK(cuMemFree_v2, CUdeviceptr address) {
 *         return REAL(cuMemFree_v2)(address);
 *     }
 *
 * defines the hook, exports it under the driver's name for callers that are linked to the driver, and gives REAL its type.
 */
#ifndef WEFT_HOOK_H
#define WEFT_HOOK_H

#include "lookup.h"
#include "token.h"
#include "weft_cuda.h"

#define WEFT_EXPORTED(result, name, ...)                                                                               \
    typedef result weft_type_##name(__VA_ARGS__);                                                                      \
    weft_type_##name weft_hook_##name;                                                                                 \
    extern weft_type_##name name __attribute__((alias("weft_hook_" #name), visibility("default")));                    \
    result weft_hook_##name(__VA_ARGS__)

#define HOOK(name, ...) WEFT_EXPORTED(CUresult, name, __VA_ARGS__)
#define HOOK_NVML(name, ...) WEFT_EXPORTED(nvmlReturn_t, name, __VA_ARGS__)
#define WEFT_OPEN(...) __VA_ARGS__ /* a parenthesised list, without its parentheses */
#define REAL(name) ((weft_type_##name *)weft_real(WEFT_SYMBOL_##name))

/* The functions that are called and not hooked. */
typedef CUresult weft_type_cuCtxGetCurrent(CUcontext *);
typedef CUresult weft_type_cuCtxGetDevice(CUdevice *);
typedef CUresult weft_type_cuCtxPushCurrent_v2(CUcontext);
typedef CUresult weft_type_cuCtxPopCurrent_v2(CUcontext *);
typedef CUresult weft_type_cuDeviceGetUuid(CUuuid *, CUdevice);
typedef CUresult weft_type_cuDeviceGetUuid_v2(CUuuid *, CUdevice);
typedef CUresult weft_type_cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active);
typedef CUresult weft_type_cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
typedef CUresult weft_type_cuDeviceGetMemPool(CUmemoryPool *, CUdevice);
typedef CUresult weft_type_cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, void *);
typedef CUresult weft_type_cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void *);
typedef CUresult weft_type_cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
typedef CUresult weft_type_cuGraphNodeGetType(CUgraphNode, CUgraphNodeType *);
typedef CUresult weft_type_cuGraphMemAllocNodeGetParams(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS *);
typedef CUresult weft_type_cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph *);
typedef CUresult weft_type_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr);
typedef CUresult weft_type_cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *);
typedef nvmlReturn_t weft_type_nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned);

/* Captures of the process that were begun and have not ended. */
extern _Atomic unsigned weft_captures;

/* What the driver says of a stream while there are any. */
bool weft_stream_captured(CUstream stream);

/* Whether work given to this stream is recorded into a graph instead of run. */
static inline bool weft_capturing(CUstream stream) {
    return __builtin_expect(atomic_load_explicit(&weft_captures, memory_order_acquire) != 0, 0) &&
           weft_stream_captured(stream);
}

/* The stream that stream 0 means in a form _ptsz. */
static inline CUstream weft_own(CUstream stream) {
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* After a call that waited for work: memory that pools gave back leaves the books. */
void weft_pools_synced(void);

#endif
