/* Copies within GPUs and memsets are work of the GPU and wait for the gate. Copies from and to the host run on copy engines
 * beside the kernels of others and do not wait, so that loaders can prefetch; a blocking one to the host tells that its
 * stream is done. Where a call does not say which it is, it waits. */
#include "gated.h"

#define BYTES (uintptr_t)bytes

/* The blocking form, on the legacy stream, and on the thread's own. */
#define BLOCKING(name, own, parameters, arguments)                                                                     \
    GATED(name, parameters, NULL, WEFT_WORK_COPY, BYTES, arguments)                                                    \
    GATED(own, parameters, CU_STREAM_PER_THREAD, WEFT_WORK_COPY, BYTES, arguments)

#define ASYNC(name, parameters, arguments) GATED_BOTH(name, parameters, stream, WEFT_WORK_COPY, BYTES, arguments)
#define OLD(name, parameters, arguments) GATED(name, parameters, NULL, WEFT_WORK_COPY, BYTES, arguments)

BLOCKING(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))

BLOCKING(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))
ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
      (to, from, bytes, stream))
OLD(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes), (to, from, bytes))
GATED(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream), stream,
      WEFT_WORK_COPY, BYTES, (to, from, bytes, stream))

BLOCKING(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
         (to, offset, from, bytes))
OLD(cuMemcpyDtoA, (CUarray to, unsigned offset, CUdeviceptr_v1 from, unsigned bytes), (to, offset, from, bytes))
BLOCKING(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
         (to, from, offset, bytes))
OLD(cuMemcpyAtoD, (CUdeviceptr_v1 to, CUarray from, unsigned offset, unsigned bytes), (to, from, offset, bytes))
BLOCKING(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds, (CUarray to, size_t there, CUarray from, size_t here, size_t bytes),
         (to, there, from, here, bytes))
OLD(cuMemcpyAtoA, (CUarray to, unsigned there, CUarray from, unsigned here, unsigned bytes),
    (to, there, from, here, bytes))

BLOCKING(cuMemcpyPeer, cuMemcpyPeer_ptds,
         (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes),
         (to, there, from, here, bytes))
ASYNC(cuMemcpyPeerAsync,
      (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream),
      (to, there, from, here, bytes, stream))

/* Copies described by a structure. */

static bool flat_on_host(const CUDA_MEMCPY2D *copy) {
    return copy && (copy->srcMemoryType == CU_MEMORYTYPE_HOST || copy->dstMemoryType == CU_MEMORYTYPE_HOST);
}

static uintptr_t flat_bytes(const CUDA_MEMCPY2D *copy) {
    return copy ? copy->WidthInBytes * copy->Height : 0;
}

static bool deep_on_host(const CUDA_MEMCPY3D *copy) {
    return copy && (copy->srcMemoryType == CU_MEMORYTYPE_HOST || copy->dstMemoryType == CU_MEMORYTYPE_HOST);
}

static uintptr_t deep_bytes(const CUDA_MEMCPY3D *copy) {
    return copy ? copy->WidthInBytes * copy->Height * copy->Depth : 0;
}

#define DESCRIBED(name, type, parameters, kind, given, arguments)                                                      \
    HOOK(name, const type *copy WEFT_OPEN parameters) {                                                                \
        const void *key = (const void *)kind##_bytes(copy);                                                            \
        if (kind##_on_host(copy) || weft_capturing(given))                                                             \
            return REAL(name) arguments;                                                                               \
        weft_launch_begin(given, WEFT_WORK_COPY, key);                                                                 \
        CUresult result = REAL(name) arguments;                                                                        \
        weft_launch_end(given, WEFT_WORK_COPY, key, result == CUDA_SUCCESS);                                           \
        return result;                                                                                                 \
    }

#define DESCRIBED_BLOCKING(name, type, kind)                                                                           \
    DESCRIBED(name, type, (), kind, NULL, (copy))                                                                      \
    DESCRIBED(name##_ptds, type, (), kind, CU_STREAM_PER_THREAD, (copy))
#define DESCRIBED_ASYNC(name, type, kind)                                                                              \
    DESCRIBED(name, type, (, CUstream stream), kind, stream, (copy, stream))                                           \
    DESCRIBED(name##_ptsz, type, (, CUstream stream), kind, weft_own(stream), (copy, stream))

DESCRIBED_BLOCKING(cuMemcpy2D_v2, CUDA_MEMCPY2D, flat)
DESCRIBED_BLOCKING(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, flat)
DESCRIBED_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, flat)
DESCRIBED_BLOCKING(cuMemcpy3D_v2, CUDA_MEMCPY3D, deep)
DESCRIBED_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, deep)
DESCRIBED_BLOCKING(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, deep)
DESCRIBED_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, deep)

/* Structures of other layouts, several copies a call, and those of 32-bit addresses. */
#define OPAQUE(name, parameters, given, arguments) GATED(name, parameters, given, WEFT_WORK_COPY, NULL, arguments)
#define OPAQUE_BOTH(name, parameters, arguments) GATED_BOTH(name, parameters, stream, WEFT_WORK_COPY, NULL, arguments)

OPAQUE(cuMemcpy2D, (const void *copy), NULL, (copy))
OPAQUE(cuMemcpy2DUnaligned, (const void *copy), NULL, (copy))
OPAQUE(cuMemcpy3D, (const void *copy), NULL, (copy))
OPAQUE(cuMemcpy2DAsync, (const void *copy, CUstream stream), stream, (copy, stream))
OPAQUE(cuMemcpy3DAsync, (const void *copy, CUstream stream), stream, (copy, stream))

OPAQUE_BOTH(cuMemcpyBatchAsync,
            (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices,
             size_t attribute_count, size_t *failed, CUstream stream),
            (to, from, sizes, count, attributes, indices, attribute_count, failed, stream))
OPAQUE_BOTH(cuMemcpyBatchAsync_v2,
            (CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes, size_t *indices,
             size_t attribute_count, CUstream stream),
            (to, from, sizes, count, attributes, indices, attribute_count, stream))
OPAQUE_BOTH(cuMemcpy3DBatchAsync,
            (size_t count, void *copies, size_t *failed, unsigned long long flags, CUstream stream),
            (count, copies, failed, flags, stream))
OPAQUE_BOTH(cuMemcpy3DBatchAsync_v2, (size_t count, void *copies, unsigned long long flags, CUstream stream),
            (count, copies, flags, stream))
OPAQUE_BOTH(cuMemcpyWithAttributesAsync,
            (CUdeviceptr to, CUdeviceptr from, size_t bytes, void *attributes, CUstream stream),
            (to, from, bytes, attributes, stream))
OPAQUE_BOTH(cuMemcpy3DWithAttributesAsync, (void *copy, unsigned long long flags, CUstream stream),
            (copy, flags, stream))

/* Blocking copies to the host: what was launched before on the stream is done. */
#define TO_HOST(name, given, parameters, arguments)                                                                    \
    HOOK(name, WEFT_OPEN parameters) {                                                                                 \
        CUresult result = REAL(name) arguments;                                                                        \
        if (result == CUDA_SUCCESS)                                                                                    \
            weft_synced(given);                                                                                        \
        return result;                                                                                                 \
    }

TO_HOST(cuMemcpyDtoH_v2, NULL, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
TO_HOST(cuMemcpyDtoH_v2_ptds, CU_STREAM_PER_THREAD, (void *to, CUdeviceptr from, size_t bytes), (to, from, bytes))
TO_HOST(cuMemcpyDtoH, NULL, (void *to, CUdeviceptr_v1 from, unsigned bytes), (to, from, bytes))
TO_HOST(cuMemcpyAtoH_v2, NULL, (void *to, CUarray from, size_t offset, size_t bytes), (to, from, offset, bytes))
TO_HOST(cuMemcpyAtoH_v2_ptds, CU_STREAM_PER_THREAD, (void *to, CUarray from, size_t offset, size_t bytes),
        (to, from, offset, bytes))
TO_HOST(cuMemcpyAtoH, NULL, (void *to, CUarray from, unsigned offset, unsigned bytes), (to, from, offset, bytes))
