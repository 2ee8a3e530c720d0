// Memory of every family: what is charged, what frees it, what its contents are.
#include "test.h"

static void exact_limit(void)
{
    CUdeviceptr p, q;
    size_t free = test_free();
    EXPECT(free % (2 * MIB), 0);
    EXPECT(cuMemAlloc_v2(&p, free + 1), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&p, free));
    EXPECT(test_free(), 0);
    EXPECT(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAllocAsync(&q, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(p));
    EXPECT(test_free(), free);
    EXPECT(cuMemAlloc_v2(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(test_free(), free);
}

static void freeing(void)
{
    CUdeviceptr p, base;
    size_t size, free = test_free();
    EXPECT(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
    EXPECT(cuMemFree_v2(0x1234), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAlloc_v2(&p, 4 * MIB));
    EXPECT(cuMemFree_v2(p + 512), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetAddressRange_v2(&base, &size, p + MIB));
    HOLDS(base == p && size == 4 * MIB);
    OK(cuMemFree_v2(p));
    EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemGetAddressRange_v2(&base, &size, p), CUDA_ERROR_NOT_FOUND);
    OK(cuMemAlloc_v2(&p, 4 * MIB)); // across families
    OK(cuMemFreeAsync(p, NULL));
    OK(cuMemAllocAsync(&p, 4 * MIB, NULL));
    OK(cuMemFree_v2(p));
    EXPECT(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSynchronize());
    EXPECT(test_free(), free);
}

static void rounding(void)
{
    CUdeviceptr p[3];
    size_t free = test_free(), pitch;
    OK(cuMemAlloc_v2(&p[0], 1));
    EXPECT(free - test_free(), 512);
    OK(cuMemAlloc_v2(&p[1], 3 * MIB));
    EXPECT(free - test_free(), 512 + 4 * MIB);
    OK(cuMemAllocPitch_v2(&p[2], &pitch, 1000, 8192, 4));
    EXPECT(pitch, 1024);
    EXPECT(free - test_free(), 512 + 12 * MIB);
    EXPECT(cuMemAllocPitch_v2(&p[2], &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 3; i++)
        OK(cuMemFree_v2(p[i]));
}

static void contents(void)
{
    CUdeviceptr p, q;
    unsigned char in[1000], out[1000];
    unsigned words[16];
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuMemAlloc_v2(&q, 4096));
    for (int i = 0; i < 1000; i++)
        in[i] = (unsigned char)(i * 7);
    OK(cuMemcpyHtoD_v2(p + 8, in, 1000));
    OK(cuMemcpyDtoD_v2(q, p + 8, 1000));
    OK(cuMemcpyDtoH_v2(out, q, 1000));
    EXPECT(memcmp(in, out, 1000), 0);
    OK(cuMemsetD32_v2(q, 0xdeadbeef, 8));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)words, q, 64)); // the host side is found by its address
    HOLDS(words[0] == 0xdeadbeef && words[7] == 0xdeadbeef && words[8] != 0xdeadbeef);
    OK(cuMemsetD2D8_v2(q, 64, 5, 8, 4));
    OK(cuMemcpyDtoH_v2(out, q, 256));
    HOLDS(out[0] == 5 && out[7] == 5 && out[8] != 5 && out[64] == 5 && out[199] == 5 && out[200] != 5);
    CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = q, .srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = out, .dstPitch = 8, .WidthInBytes = 8, .Height = 4};
    memset(out, 0, sizeof out);
    OK(cuMemcpy2D_v2(&box));
    HOLDS(out[0] == 5 && out[31] == 5 && out[32] == 0);
    EXPECT(cuMemcpyHtoD_v2(p + 4000, in, 1000), CUDA_ERROR_INVALID_VALUE); // past the end
    EXPECT(cuMemcpyHtoD_v2(0x5000, in, 10), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD8_v2(p, 0, 5000), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyHtoD_v2(p, in, 0));
    OK(cuMemFree_v2(p));
    OK(cuMemFree_v2(q));
    EXPECT(cuMemcpyDtoH_v2(out, q, 10), CUDA_ERROR_INVALID_VALUE);
}

// A memset of many GiB takes the device's time, not the host's memory.
static void large_memset(void)
{
    CUdeviceptr p;
    CUevent e[2];
    float ms;
    OK(cuMemAlloc_v2(&p, 4096 * MIB));
    for (int i = 0; i < 2; i++)
        OK(cuEventCreate(&e[i], 0));
    OK(cuEventRecord(e[0], NULL));
    OK(cuMemsetD8_v2(p, 1, 4096 * MIB));
    OK(cuEventRecord(e[1], NULL));
    OK(cuEventSynchronize(e[1]));
    OK(cuEventElapsedTime(&ms, e[0], e[1]));
    HOLDS(ms > 0.5 && ms < 50);
    OK(cuMemFree_v2(p));
}

static void managed_and_host(void)
{
    CUdeviceptr p;
    void *h;
    char buffer[8192];
    unsigned type, managed;
    size_t free = test_free();
    OK(cuMemAllocManaged(&p, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT(free - test_free(), 8 * MIB);
    memset((void *)(uintptr_t)p, 3, 4096);
    OK(cuMemcpyDtoH_v2(buffer, p, 4096));
    EXPECT(buffer[4095], 3);
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 5));
    EXPECT(managed, 1);
    OK(cuMemFree_v2(p));
    OK(cuMemHostAlloc(&h, MIB, 0));
    memset(h, 1, MIB);
    EXPECT(test_free(), free);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)h));
    EXPECT(type, CU_MEMORYTYPE_HOST);
    EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)buffer), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree_v2((CUdeviceptr)(uintptr_t)h), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeHost(h));
    EXPECT(cuMemFreeHost(h), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostRegister_v2(buffer, sizeof buffer, 0));
    EXPECT(cuMemHostRegister_v2(buffer + 10, 20, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostUnregister(buffer));
    EXPECT(cuMemHostUnregister(buffer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void pools(void)
{
    CUmemoryPool own, p;
    CUdeviceptr a, b;
    CUstream s;
    uint64_t reserved, used, keep = 1ull << 40;
    size_t free = test_free();
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&own, 0));
    OK(cuMemAllocAsync(&a, 3 * MIB, s));
    OK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    EXPECT(reserved, 32 * MIB); // the reserve counts, not the request
    EXPECT(free - test_free(), 32 * MIB);
    OK(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    EXPECT(used, 4 * MIB);
    OK(cuMemFreeAsync(a, s));
    EXPECT(free - test_free(), 32 * MIB);
    OK(cuStreamSynchronize(s)); // finds the reserve above its threshold
    EXPECT(test_free(), free);
    OK(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&a, 40 * MIB, s));
    OK(cuMemFreeAsync(a, s));
    OK(cuStreamSynchronize(s));
    EXPECT(free - test_free(), 64 * MIB);
    OK(cuMemPoolTrimTo(own, 10 * MIB));
    EXPECT(free - test_free(), 10 * MIB);
    OK(cuMemPoolTrimTo(own, 0));
    EXPECT(test_free(), free);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .maxSize = 8 * MIB};
    OK(cuMemPoolCreate(&p, &props));
    OK(cuMemAllocFromPoolAsync(&a, 6 * MIB, p, s));
    EXPECT(cuMemAllocFromPoolAsync(&b, 6 * MIB, p, s), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(a, s));
    OK(cuMemPoolDestroy(p));
    EXPECT(cuMemAllocFromPoolAsync(&a, 1, p, s), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemPoolDestroy(own), CUDA_ERROR_INVALID_VALUE);
    EXPECT(test_free(), free);
    OK(cuMemPoolCreate(&p, &props)); // destroyed while in use
    OK(cuMemAllocFromPoolAsync(&a, MIB, p, s));
    OK(cuMemPoolDestroy(p));
    OK(cuMemFreeAsync(a, s));
    OK(cuStreamSynchronize(s));
    EXPECT(test_free(), free);
    OK(cuStreamDestroy_v2(s));
}

static void arrays(void)
{
    CUarray a, level;
    CUmipmappedArray m;
    char in[64] = "an array's row", out[64] = "";
    size_t free = test_free();
    CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_FLOAT, 4};
    OK(cuArrayCreate_v2(&a, &flat));
    EXPECT(free - test_free(), 16 * MIB);
    OK(cuMemcpyHtoA_v2(a, 32, in, sizeof in));
    OK(cuMemcpyAtoH_v2(out, a, 32, sizeof out));
    EXPECT(memcmp(in, out, sizeof in), 0);
    EXPECT(cuMemcpyHtoA_v2(a, 16 * MIB, in, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(a));
    EXPECT(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE);
    flat.NumChannels = 3;
    EXPECT(cuArrayCreate_v2(&a, &flat), CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY3D_DESCRIPTOR box = {.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    OK(cuMipmappedArrayCreate(&m, &box, 11));
    EXPECT(free - test_free(), 6 * MIB);
    OK(cuMipmappedArrayGetLevel(&level, m, 10));
    EXPECT(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuMipmappedArrayGetLevel(&level, m, 11), CUDA_ERROR_INVALID_VALUE);
    OK(cuMipmappedArrayDestroy(m));
    EXPECT(test_free(), free);
}

static void old_interface(void)
{
    CUdeviceptr_v1 p;
    size_t free = test_free();
    OK(cuMemAlloc(&p, 2 * MIB));
    EXPECT(free - test_free(), 2 * MIB);
    OK(cuMemsetD8_v2(p, 1, 2 * MIB)); // an address like any other, which fits into 32 bits
    OK(cuMemFree(p));
    EXPECT(test_free(), free);
}

int main(void)
{
    test_context();
    exact_limit();
    freeing();
    rounding();
    contents();
    large_memset();
    managed_and_host();
    pools();
    arrays();
    old_interface();
    test_done("memory");
}
