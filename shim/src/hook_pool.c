/* Stream-ordered allocation. What is allocated while a stream is captured becomes a node of the graph, and is charged when
 * the graph is launched. */
#include "books.h"
#include "devices.h"
#include "hook.h"
#include "pool.h"

#define FREE(name, given)                                                                                              \
    HOOK(name, CUdeviceptr address, CUstream stream) {                                                                 \
        if (weft_capturing(given))                                                                                     \
            return REAL(name)(address, stream);                                                                        \
        struct weft_piece *piece = weft_books_take(WEFT_SPACE_ADDRESS, address);                                       \
        CUresult result = REAL(name)(address, stream);                                                                 \
        if (result == CUDA_SUCCESS) {                                                                                  \
            weft_piece_drop(piece);                                                                                    \
            weft_pools_touched();                                                                                      \
        } else if (piece) {                                                                                            \
            weft_books_put(WEFT_SPACE_ADDRESS, address, piece);                                                        \
        }                                                                                                              \
        return result;                                                                                                 \
    }

FREE(cuMemFreeAsync, stream)
FREE(cuMemFreeAsync_ptsz, weft_own(stream))

/* The reserve grew beyond the limit by more than was asked for: gives the allocation back. */
static CUresult refuse(CUdeviceptr *address, CUstream stream) {
    REAL(cuMemFreeAsync)(*address, stream);
    *address = 0;
    weft_pools_touched();
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define ALLOC(name, parameters, pool, given, arguments)                                                                \
    HOOK(name, CUdeviceptr *address, size_t bytes, WEFT_OPEN parameters) {                                             \
        struct weft_growth growth;                                                                                     \
        if (weft_capturing(given))                                                                                     \
            return REAL(name) arguments;                                                                               \
        CUresult result = weft_pool_begin(&growth, pool, address ? bytes : 0);                                         \
        if (result != CUDA_SUCCESS)                                                                                    \
            return result;                                                                                             \
        result = REAL(name) arguments;                                                                                 \
        CUresult settled = weft_pool_end(&growth);                                                                     \
        return result == CUDA_SUCCESS && settled != CUDA_SUCCESS ? refuse(address, given) : result;                    \
    }

ALLOC(cuMemAllocAsync, (CUstream stream), NULL, stream, (address, bytes, stream))
ALLOC(cuMemAllocAsync_ptsz, (CUstream stream), NULL, weft_own(stream), (address, bytes, stream))
ALLOC(cuMemAllocFromPoolAsync, (CUmemoryPool pool, CUstream stream), pool, stream, (address, bytes, pool, stream))
ALLOC(cuMemAllocFromPoolAsync_ptsz, (CUmemoryPool pool, CUstream stream), pool, weft_own(stream),
      (address, bytes, pool, stream))

HOOK(cuMemPoolCreate, CUmemoryPool *pool, const CUmemPoolProps *properties) {
    CUresult result = REAL(cuMemPoolCreate)(pool, properties);
    if (result == CUDA_SUCCESS)
        weft_pool_known(*pool, properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id
                                                                                       : CU_DEVICE_INVALID);
    return result;
}

/* Its memory is its exporter's. */
HOOK(cuMemPoolImportFromShareableHandle, CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type,
     unsigned long long flags) {
    CUresult result = REAL(cuMemPoolImportFromShareableHandle)(pool, handle, type, flags);
    if (result == CUDA_SUCCESS)
        weft_pool_known(*pool, CU_DEVICE_INVALID);
    return result;
}

/* Entered as gone before the driver may give the handle to another thread. What was allocated from it and is not freed yet
 * lives on, uncharged: no question about the pool is answered any more. */
HOOK(cuMemPoolDestroy, CUmemoryPool pool) {
    weft_pool_gone(pool);
    return REAL(cuMemPoolDestroy)(pool);
}

/* Follows a call that may have shrunk a reserve. */
static CUresult shrunk(CUresult result) {
    if (result == CUDA_SUCCESS) {
        weft_pools_touched();
        weft_pools_synced();
    }
    return result;
}

HOOK(cuMemPoolTrimTo, CUmemoryPool pool, size_t keep) {
    return shrunk(REAL(cuMemPoolTrimTo)(pool, keep));
}

HOOK(cuMemPoolSetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    return shrunk(REAL(cuMemPoolSetAttribute)(pool, attribute, value));
}

HOOK(cuDeviceGraphMemTrim, CUdevice device) {
    return shrunk(REAL(cuDeviceGraphMemTrim)(device));
}
