// The symbols of the interface with 32-bit addresses and sizes, which the library still exports beside their successors (cuMemAlloc
// beside cuMemAlloc_v2). Memory that they hand out lies at addresses that fit.
#include "cuda_state.h"

typedef struct CUDA_MEMCPY2D_v1 {
    unsigned srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    unsigned srcPitch;
    unsigned dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    unsigned dstPitch;
    unsigned WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;

typedef struct CUDA_MEMCPY3D_v1 {
    unsigned srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr_v1 srcDevice;
    CUarray srcArray;
    void *reserved0;
    unsigned srcPitch, srcHeight;
    unsigned dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr_v1 dstDevice;
    CUarray dstArray;
    void *reserved1;
    unsigned dstPitch, dstHeight;
    unsigned WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_v1;

// ---- Memory

static unsigned narrow(size_t bytes)
{
    return bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
}

CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuMemAllocHost_v2(void **, size_t);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned);
CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);

EMU_API CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned bytes)
{
    struct block *b;
    NEED(out != NULL && bytes > 0);
    TRY(memory_alloc(bytes, EMU_MEM_DEVICE, true, &b));
    *out = (CUdeviceptr_v1)b->base;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
    struct block *b;
    NEED(out != NULL && pitch != NULL && width > 0 && height > 0 && (element == 4 || element == 8 || element == 16));
    uint64_t row = ((uint64_t)width + 511) / 512 * 512;
    TRY(memory_alloc(row * height, EMU_MEM_PITCHED, true, &b));
    *out = (CUdeviceptr_v1)b->base;
    *pitch = (unsigned)row;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemFree(CUdeviceptr_v1 address)
{
    return cuMemFree_v2(address);
}

EMU_API CUresult cuMemGetInfo(unsigned *free, unsigned *total)
{
    size_t f, t;
    TRY(cuMemGetInfo_v2(&f, &t));
    if (free != NULL)
        *free = narrow(f);
    if (total != NULL)
        *total = narrow(t);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceTotalMem(unsigned *out, CUdevice device)
{
    size_t bytes;
    NEED(out != NULL);
    TRY(cuDeviceTotalMem_v2(&bytes, device));
    *out = narrow(bytes);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned *size, CUdeviceptr_v1 address)
{
    CUdeviceptr b;
    size_t s;
    TRY(cuMemGetAddressRange_v2(&b, &s, address));
    if (base != NULL)
        *base = (CUdeviceptr_v1)b;
    if (size != NULL)
        *size = narrow(s);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMemAllocHost(void **out, unsigned bytes)
{
    return cuMemAllocHost_v2(out, bytes);
}

EMU_API CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *out, void *address, unsigned flags)
{
    CUdeviceptr a;
    NEED(out != NULL);
    TRY(cuMemHostGetDevicePointer_v2(&a, address, flags));
    NEED(a <= UINT32_MAX);
    *out = (CUdeviceptr_v1)a;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, CUmodule, const char *);
EMU_API CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned *bytes, CUmodule module, const char *name)
{
    CUdeviceptr a = 0;
    size_t n = 0;
    TRY(cuModuleGetGlobal_v2(&a, &n, module, name));
    if (address != NULL)
        *address = (CUdeviceptr_v1)a;
    if (bytes != NULL)
        *bytes = narrow(n);
    return CUDA_SUCCESS;
}

// ---- Arrays

CUresult cuArrayCreate_v2(CUarray *, const CUDA_ARRAY_DESCRIPTOR *);
CUresult cuArray3DCreate_v2(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *, CUarray);

EMU_API CUresult cuArrayCreate(CUarray *out, const CUDA_ARRAY_DESCRIPTOR_v1 *shape)
{
    NEED(shape != NULL);
    CUDA_ARRAY_DESCRIPTOR wide = {shape->Width, shape->Height, shape->Format, shape->NumChannels};
    return cuArrayCreate_v2(out, &wide);
}

EMU_API CUresult cuArray3DCreate(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape)
{
    NEED(shape != NULL);
    CUDA_ARRAY3D_DESCRIPTOR wide = {shape->Width, shape->Height, shape->Depth, shape->Format, shape->NumChannels, shape->Flags};
    return cuArray3DCreate_v2(out, &wide);
}

EMU_API CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *out, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR w;
    NEED(out != NULL);
    TRY(cuArray3DGetDescriptor_v2(&w, array));
    *out = (CUDA_ARRAY3D_DESCRIPTOR_v1){narrow(w.Width), narrow(w.Height), narrow(w.Depth), w.Format, w.NumChannels, w.Flags};
    return CUDA_SUCCESS;
}

EMU_API CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *out, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR w;
    NEED(out != NULL);
    TRY(cuArray3DGetDescriptor_v2(&w, array));
    *out = (CUDA_ARRAY_DESCRIPTOR_v1){narrow(w.Width), narrow(w.Height), w.Format, w.NumChannels};
    return CUDA_SUCCESS;
}

// ---- Copies and memsets: the same, with narrower numbers

#define OLD(name, types, params, args)   \
    CUresult name##_v2 types;            \
    EMU_API CUresult name params         \
    {                                    \
        return name##_v2 args;           \
    }

OLD(cuMemcpyHtoD, (CUdeviceptr, const void *, size_t), (CUdeviceptr_v1 to, const void *from, unsigned n), (to, from, n))
OLD(cuMemcpyDtoH, (void *, CUdeviceptr, size_t), (void *to, CUdeviceptr_v1 from, unsigned n), (to, from, n))
OLD(cuMemcpyDtoD, (CUdeviceptr, CUdeviceptr, size_t), (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned n), (to, from, n))
OLD(cuMemcpyDtoA, (CUarray, size_t, CUdeviceptr, size_t), (CUarray to, unsigned at, CUdeviceptr_v1 from, unsigned n), (to, at, from, n))
OLD(cuMemcpyAtoD, (CUdeviceptr, CUarray, size_t, size_t), (CUdeviceptr_v1 to, CUarray from, unsigned at, unsigned n), (to, from, at, n))
OLD(cuMemcpyHtoA, (CUarray, size_t, const void *, size_t), (CUarray to, unsigned at, const void *from, unsigned n), (to, at, from, n))
OLD(cuMemcpyAtoH, (void *, CUarray, size_t, size_t), (void *to, CUarray from, unsigned at, unsigned n), (to, from, at, n))
OLD(cuMemcpyAtoA, (CUarray, size_t, CUarray, size_t, size_t), (CUarray to, unsigned at, CUarray from, unsigned start, unsigned n),
    (to, at, from, start, n))
OLD(cuMemcpyHtoDAsync, (CUdeviceptr, const void *, size_t, CUstream),
    (CUdeviceptr_v1 to, const void *from, unsigned n, CUstream stream), (to, from, n, stream))
OLD(cuMemcpyDtoHAsync, (void *, CUdeviceptr, size_t, CUstream), (void *to, CUdeviceptr_v1 from, unsigned n, CUstream stream),
    (to, from, n, stream))
OLD(cuMemcpyDtoDAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream),
    (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned n, CUstream stream), (to, from, n, stream))
OLD(cuMemcpyHtoAAsync, (CUarray, size_t, const void *, size_t, CUstream),
    (CUarray to, unsigned at, const void *from, unsigned n, CUstream stream), (to, at, from, n, stream))
OLD(cuMemcpyAtoHAsync, (void *, CUarray, size_t, size_t, CUstream),
    (void *to, CUarray from, unsigned at, unsigned n, CUstream stream), (to, from, at, n, stream))
OLD(cuMemsetD8, (CUdeviceptr, unsigned char, size_t), (CUdeviceptr_v1 to, unsigned char v, unsigned n), (to, v, n))
OLD(cuMemsetD16, (CUdeviceptr, unsigned short, size_t), (CUdeviceptr_v1 to, unsigned short v, unsigned n), (to, v, n))
OLD(cuMemsetD32, (CUdeviceptr, unsigned, size_t), (CUdeviceptr_v1 to, unsigned v, unsigned n), (to, v, n))
OLD(cuMemsetD2D8, (CUdeviceptr, size_t, unsigned char, size_t, size_t),
    (CUdeviceptr_v1 to, unsigned pitch, unsigned char v, unsigned w, unsigned h), (to, pitch, v, w, h))
OLD(cuMemsetD2D16, (CUdeviceptr, size_t, unsigned short, size_t, size_t),
    (CUdeviceptr_v1 to, unsigned pitch, unsigned short v, unsigned w, unsigned h), (to, pitch, v, w, h))
OLD(cuMemsetD2D32, (CUdeviceptr, size_t, unsigned, size_t, size_t),
    (CUdeviceptr_v1 to, unsigned pitch, unsigned v, unsigned w, unsigned h), (to, pitch, v, w, h))

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *);
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *, CUstream);
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *);
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *, CUstream);

static CUDA_MEMCPY2D wide_2d(const CUDA_MEMCPY2D_v1 *p)
{
    return (CUDA_MEMCPY2D){p->srcXInBytes, p->srcY, p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcPitch,
                           p->dstXInBytes, p->dstY, p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstPitch,
                           p->WidthInBytes, p->Height};
}

static CUDA_MEMCPY3D wide_3d(const CUDA_MEMCPY3D_v1 *p)
{
    return (CUDA_MEMCPY3D){p->srcXInBytes, p->srcY, p->srcZ, p->srcLOD, p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, NULL,
                           p->srcPitch, p->srcHeight, p->dstXInBytes, p->dstY, p->dstZ, p->dstLOD, p->dstMemoryType, p->dstHost,
                           p->dstDevice, p->dstArray, NULL, p->dstPitch, p->dstHeight, p->WidthInBytes, p->Height, p->Depth};
}

EMU_API CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *p)
{
    NEED(p != NULL);
    CUDA_MEMCPY2D wide = wide_2d(p);
    return cuMemcpy2D_v2(&wide);
}

EMU_API CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *p)
{
    NEED(p != NULL);
    CUDA_MEMCPY2D wide = wide_2d(p);
    return cuMemcpy2DUnaligned_v2(&wide);
}

EMU_API CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *p, CUstream stream)
{
    NEED(p != NULL);
    CUDA_MEMCPY2D wide = wide_2d(p);
    return cuMemcpy2DAsync_v2(&wide, stream);
}

EMU_API CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *p)
{
    NEED(p != NULL);
    CUDA_MEMCPY3D wide = wide_3d(p);
    return cuMemcpy3D_v2(&wide);
}

EMU_API CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *p, CUstream stream)
{
    NEED(p != NULL);
    CUDA_MEMCPY3D wide = wide_3d(p);
    return cuMemcpy3DAsync_v2(&wide, stream);
}
