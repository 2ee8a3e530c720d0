// Virtual memory: addresses, physical memory and mappings apart, and who keeps what alive.
#include "test.h"

#define GRAIN (2 * MIB)

static CUmemAllocationProp on(CUmemLocationType type, int id)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {type, id},
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
}

static CUmemAccessDesc readwrite = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void mapping(void)
{
    CUdeviceptr base;
    CUmemGenericAllocationHandle a, b;
    CUmemAllocationProp prop = on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    char in[16] = "across the seam", out[16];
    size_t free = test_free();
    EXPECT(cuMemAddressReserve(&base, GRAIN + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressReserve(&base, 4 * GRAIN, 0, 0, 0));
    EXPECT(base % GRAIN, 0);
    EXPECT(test_free(), free); // addresses cost nothing
    EXPECT(cuMemCreate(&a, 1000, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&a, GRAIN, &prop, 0));
    OK(cuMemCreate(&b, GRAIN, &prop, 0));
    EXPECT(free - test_free(), 2 * GRAIN);
    EXPECT(cuMemMap(0x10000000, GRAIN, 0, a, 0), CUDA_ERROR_INVALID_VALUE); // not reserved
    EXPECT(cuMemMap(base + 4 * GRAIN, GRAIN, 0, a, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(base, GRAIN, 0, a, 0));
    EXPECT(cuMemMap(base, GRAIN, 0, b, 0), CUDA_ERROR_INVALID_VALUE); // taken
    OK(cuMemMap(base + GRAIN, GRAIN, 0, b, 0));
    EXPECT(cuMemsetD8_v2(base, 1, GRAIN), CUDA_ERROR_INVALID_VALUE); // no access yet
    EXPECT(cuMemSetAccess(base, 3 * GRAIN, &readwrite, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(base, 2 * GRAIN, &readwrite, 1));
    OK(cuMemsetD8_v2(base, 1, 2 * GRAIN)); // over two mappings
    OK(cuMemcpyHtoD_v2(base + GRAIN, in, sizeof in));
    OK(cuMemcpyDtoH_v2(out, base + GRAIN, sizeof out));
    EXPECT(memcmp(in, out, sizeof in), 0);
    EXPECT(cuMemFree_v2(base), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAddressFree(base, 4 * GRAIN), CUDA_ERROR_INVALID_VALUE); // still mapped
    EXPECT(cuMemUnmap(base, GRAIN / 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemUnmap(base, 3 * GRAIN), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRelease(a));
    EXPECT(cuMemRelease(a), CUDA_ERROR_INVALID_VALUE);
    EXPECT(free - test_free(), 2 * GRAIN); // the mapping keeps it
    OK(cuMemUnmap(base, 2 * GRAIN));
    EXPECT(free - test_free(), GRAIN); // the handle of b keeps it
    OK(cuMemRelease(b));
    EXPECT(test_free(), free);
    EXPECT(cuMemAddressFree(base, GRAIN), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(base, 4 * GRAIN));
}

static void retained(void)
{
    CUdeviceptr base;
    CUmemGenericAllocationHandle a, again;
    CUmemAllocationProp prop = on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    size_t free = test_free();
    OK(cuMemAddressReserve(&base, GRAIN, 0, 0, 0));
    OK(cuMemCreate(&a, GRAIN, &prop, 0));
    OK(cuMemMap(base, GRAIN, 0, a, 0));
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(base + 100)));
    HOLDS(again == a);
    OK(cuMemRelease(a));
    OK(cuMemUnmap(base, GRAIN));
    EXPECT(free - test_free(), GRAIN);
    OK(cuMemRelease(again));
    EXPECT(test_free(), free);
    OK(cuMemAddressFree(base, GRAIN));
}

static void on_the_host(void)
{
    CUmemGenericAllocationHandle a;
    CUmemAllocationProp prop = on(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    size_t free = test_free();
    OK(cuMemCreate(&a, 64 * MIB, &prop, 0));
    EXPECT(test_free(), free);
    OK(cuMemRelease(a));
    prop = on(CU_MEM_LOCATION_TYPE_DEVICE, 9);
    EXPECT(cuMemCreate(&a, GRAIN, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    prop = on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    EXPECT(cuMemCreate(&a, (test_free() / GRAIN + 1) * GRAIN, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(test_free(), free);
}

// Physical memory belongs to the process: the end of a context does not free it.
static void outlives_context(void)
{
    CUcontext c;
    CUmemGenericAllocationHandle a;
    CUmemAllocationProp prop = on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
    size_t free = test_free();
    OK(cuCtxCreate_v2(&c, 0, 0));
    OK(cuMemCreate(&a, GRAIN, &prop, 0));
    OK(cuCtxDestroy_v2(c));
    EXPECT(free - test_free(), GRAIN);
    OK(cuMemRelease(a));
    EXPECT(test_free(), free);
}

int main(void)
{
    test_context();
    mapping();
    retained();
    on_the_host();
    outlives_context();
    test_done("vmm");
}
