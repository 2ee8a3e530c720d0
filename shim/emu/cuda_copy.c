// Copies and memsets, in all their forms. Those without a stream use stream 0, and return when a side on the host is done with.
#include "cuda_state.h"

static CUresult run_now(struct operation *op, CUstream handle)
{
    CUstream s;
    struct capture *capture;
    TRY(stream_enter(handle, &s));
    TRY(capture_of(s, &capture));
    TRY(capture_unsafe());
    if (capture != NULL)
        return capture_refuse(s);
    TRY(operation_submit(s, op));
    return op->kind == EMU_DEVICE ? CUDA_SUCCESS : stream_drain(s);
}

static CUresult run_later(struct operation *op, CUstream handle)
{
    CUstream s;
    TRY(stream_enter(handle, &s));
    return operation_run(s, op);
}

// SYNC defines a form without stream and its _ptds, ASYNC one with a stream and its _ptsz. build fills an operation op.
#define SYNC(name, build, ...)                                                                                \
    EMU_API CUresult name(__VA_ARGS__)                                                                        \
    {                                                                                                         \
        CUcontext current;                                                                                    \
        struct operation op;                                                                                  \
        TRY(context_current(&current));                                                                       \
        TRY(build);                                                                                           \
        return run_now(&op, CU_STREAM_LEGACY);                                                                \
    }                                                                                                         \
    EMU_API CUresult name##_ptds(__VA_ARGS__)                                                                 \
    {                                                                                                         \
        CUcontext current;                                                                                    \
        struct operation op;                                                                                  \
        TRY(context_current(&current));                                                                       \
        TRY(build);                                                                                           \
        return run_now(&op, CU_STREAM_PER_THREAD);                                                            \
    }
#define ASYNC(name, build, ...)                                                                               \
    EMU_API CUresult name(__VA_ARGS__, CUstream stream)                                                       \
    {                                                                                                         \
        CUcontext current;                                                                                    \
        struct operation op;                                                                                  \
        TRY(context_current(&current));                                                                       \
        TRY(build);                                                                                           \
        return run_later(&op, stream);                                                                        \
    }                                                                                                         \
    EMU_API CUresult name##_ptsz(__VA_ARGS__, CUstream stream)                                                \
    {                                                                                                         \
        CUcontext current;                                                                                    \
        struct operation op;                                                                                  \
        TRY(context_current(&current));                                                                       \
        TRY(build);                                                                                           \
        return run_later(&op, OWN(stream));                                                                   \
    }

// ---- Copies of a row

static struct span device_span(CUdeviceptr address)
{
    return (struct span){.type = CU_MEMORYTYPE_DEVICE, .address = address};
}

static struct span host_span(const void *address)
{
    return (struct span){.type = CU_MEMORYTYPE_HOST, .address = (CUdeviceptr)(uintptr_t)address};
}

static struct span any_span(CUdeviceptr address)
{
    return (struct span){.type = CU_MEMORYTYPE_UNIFIED, .address = address};
}

static struct span array_span(CUarray array, size_t offset)
{
    return (struct span){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

static CUresult line(struct operation *op, struct span to, struct span from, size_t bytes)
{
    *op = (struct operation){.to = to, .from = from, .width = bytes, .height = 1, .depth = 1};
    return copy_check(op);
}

SYNC(cuMemcpy, line(&op, any_span(to), any_span(from), n), CUdeviceptr to, CUdeviceptr from, size_t n)
ASYNC(cuMemcpyAsync, line(&op, any_span(to), any_span(from), n), CUdeviceptr to, CUdeviceptr from, size_t n)
SYNC(cuMemcpyHtoD_v2, line(&op, device_span(to), host_span(from), n), CUdeviceptr to, const void *from, size_t n)
ASYNC(cuMemcpyHtoDAsync_v2, line(&op, device_span(to), host_span(from), n), CUdeviceptr to, const void *from, size_t n)
SYNC(cuMemcpyDtoH_v2, line(&op, host_span(to), device_span(from), n), void *to, CUdeviceptr from, size_t n)
ASYNC(cuMemcpyDtoHAsync_v2, line(&op, host_span(to), device_span(from), n), void *to, CUdeviceptr from, size_t n)
SYNC(cuMemcpyDtoD_v2, line(&op, device_span(to), device_span(from), n), CUdeviceptr to, CUdeviceptr from, size_t n)
ASYNC(cuMemcpyDtoDAsync_v2, line(&op, device_span(to), device_span(from), n), CUdeviceptr to, CUdeviceptr from, size_t n)

SYNC(cuMemcpyDtoA_v2, line(&op, array_span(to, at), device_span(from), n), CUarray to, size_t at, CUdeviceptr from, size_t n)
SYNC(cuMemcpyAtoD_v2, line(&op, device_span(to), array_span(from, at), n), CUdeviceptr to, CUarray from, size_t at, size_t n)
SYNC(cuMemcpyHtoA_v2, line(&op, array_span(to, at), host_span(from), n), CUarray to, size_t at, const void *from, size_t n)
ASYNC(cuMemcpyHtoAAsync_v2, line(&op, array_span(to, at), host_span(from), n), CUarray to, size_t at, const void *from, size_t n)
SYNC(cuMemcpyAtoH_v2, line(&op, host_span(to), array_span(from, at), n), void *to, CUarray from, size_t at, size_t n)
ASYNC(cuMemcpyAtoHAsync_v2, line(&op, host_span(to), array_span(from, at), n), void *to, CUarray from, size_t at, size_t n)
SYNC(cuMemcpyAtoA_v2, line(&op, array_span(to, at), array_span(from, start), n), CUarray to, size_t at, CUarray from, size_t start,
     size_t n)

static CUresult peer(struct operation *op, CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes)
{
    TRY(context_check(there));
    TRY(context_check(here));
    return line(op, device_span(to), device_span(from), bytes);
}

SYNC(cuMemcpyPeer, peer(&op, to, there, from, here, n), CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t n)
ASYNC(cuMemcpyPeerAsync, peer(&op, to, there, from, here, n), CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here,
      size_t n)

// ---- Copies of rectangles and boxes

static CUresult rectangle(struct operation *op, const CUDA_MEMCPY2D *p)
{
    NEED(p != NULL);
    CUDA_MEMCPY3D wide = {
        .srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcMemoryType = p->srcMemoryType, .srcHost = p->srcHost,
        .srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcPitch = p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes,
        .dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstMemoryType = p->dstMemoryType, .dstHost = p->dstHost,
        .dstDevice = p->dstDevice, .dstArray = p->dstArray, .dstPitch = p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes,
        .WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = 1,
    };
    return memcpy_operation(&wide, NULL, op);
}

SYNC(cuMemcpy2D_v2, rectangle(&op, p), const CUDA_MEMCPY2D *p)
SYNC(cuMemcpy2DUnaligned_v2, rectangle(&op, p), const CUDA_MEMCPY2D *p)
ASYNC(cuMemcpy2DAsync_v2, rectangle(&op, p), const CUDA_MEMCPY2D *p)
SYNC(cuMemcpy3D_v2, memcpy_operation(p, NULL, &op), const CUDA_MEMCPY3D *p)
ASYNC(cuMemcpy3DAsync_v2, memcpy_operation(p, NULL, &op), const CUDA_MEMCPY3D *p)
SYNC(cuMemcpy3DPeer, memcpy_operation(p, NULL, &op), const CUDA_MEMCPY3D_PEER *p)
ASYNC(cuMemcpy3DPeerAsync, memcpy_operation(p, NULL, &op), const CUDA_MEMCPY3D_PEER *p)

// ---- Many copies in one call; their attributes are hints

static CUresult batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count, CUstream stream, size_t *failed)
{
    NEED(to != NULL && from != NULL && bytes != NULL && count > 0);
    for (size_t i = 0; i < count; i++) {
        CUresult result = cuMemcpyAsync(to[i], from[i], bytes[i], stream);
        if (result == CUDA_SUCCESS)
            continue;
        if (failed != NULL)
            *failed = i;
        return result;
    }
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes, size_t *indexes,
                                    size_t attributes_count, size_t *failed, CUstream stream)
{
    (void)attributes, (void)indexes, (void)attributes_count;
    return batch(to, from, bytes, count, stream, failed);
}
PTSZ(cuMemcpyBatchAsync,
     (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes, size_t *indexes, size_t attributes_count,
      size_t *failed, CUstream stream),
     (to, from, bytes, count, attributes, indexes, attributes_count, failed, OWN(stream)))

EMU_API CUresult cuMemcpyBatchAsync_v2(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count,
                                       void *attributes, size_t *indexes, size_t attributes_count, CUstream stream)
{
    (void)attributes, (void)indexes, (void)attributes_count;
    return batch(to, from, bytes, count, stream, NULL);
}
PTSZ(cuMemcpyBatchAsync_v2,
     (const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes, size_t count, void *attributes, size_t *indexes,
      size_t attributes_count, CUstream stream),
     (to, from, bytes, count, attributes, indexes, attributes_count, OWN(stream)))

// ---- Memsets

static CUresult set(struct operation *op, CUdeviceptr to, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height)
{
    CUDA_MEMSET_NODE_PARAMS p = {.dst = to, .pitch = pitch, .value = value, .elementSize = element, .width = width, .height = height};
    return memset_operation(&p, NULL, op);
}

SYNC(cuMemsetD8_v2, set(&op, to, 0, v, 1, n, 1), CUdeviceptr to, unsigned char v, size_t n)
SYNC(cuMemsetD16_v2, set(&op, to, 0, v, 2, n, 1), CUdeviceptr to, unsigned short v, size_t n)
SYNC(cuMemsetD32_v2, set(&op, to, 0, v, 4, n, 1), CUdeviceptr to, unsigned v, size_t n)
SYNC(cuMemsetD2D8_v2, set(&op, to, pitch, v, 1, w, h), CUdeviceptr to, size_t pitch, unsigned char v, size_t w, size_t h)
SYNC(cuMemsetD2D16_v2, set(&op, to, pitch, v, 2, w, h), CUdeviceptr to, size_t pitch, unsigned short v, size_t w, size_t h)
SYNC(cuMemsetD2D32_v2, set(&op, to, pitch, v, 4, w, h), CUdeviceptr to, size_t pitch, unsigned v, size_t w, size_t h)
ASYNC(cuMemsetD8Async, set(&op, to, 0, v, 1, n, 1), CUdeviceptr to, unsigned char v, size_t n)
ASYNC(cuMemsetD16Async, set(&op, to, 0, v, 2, n, 1), CUdeviceptr to, unsigned short v, size_t n)
ASYNC(cuMemsetD32Async, set(&op, to, 0, v, 4, n, 1), CUdeviceptr to, unsigned v, size_t n)
ASYNC(cuMemsetD2D8Async, set(&op, to, pitch, v, 1, w, h), CUdeviceptr to, size_t pitch, unsigned char v, size_t w, size_t h)
ASYNC(cuMemsetD2D16Async, set(&op, to, pitch, v, 2, w, h), CUdeviceptr to, size_t pitch, unsigned short v, size_t w, size_t h)
ASYNC(cuMemsetD2D32Async, set(&op, to, pitch, v, 4, w, h), CUdeviceptr to, size_t pitch, unsigned v, size_t w, size_t h)
