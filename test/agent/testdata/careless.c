/* Calls every function that gives memory with null arguments and absurd sizes, and frees what is no memory. Prints a line
 * "NAME(ROW) CODE" for each, and "used BYTES" before and after. Exit: 0 the driver answered all, 1 it was not usable. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "weft_cuda.h"

enum { ARGUMENTS = 6 };

typedef CUresult (*any_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

static uint64_t out[64], pitch; /* what calls write to: larger than any of their results */
static CUDA_ARRAY_DESCRIPTOR flat = {UINT64_MAX / 2, UINT64_MAX / 2, CU_AD_FORMAT_FLOAT, 4}, empty;
static CUDA_ARRAY3D_DESCRIPTOR deep = {UINT64_MAX / 2, UINT64_MAX / 2, 7, CU_AD_FORMAT_FLOAT, 4, 0}, hollow;
static CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static CUmemAllocationProp nowhere = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 99}};
static void *library;

static any_function find(const char *name) {
    void *symbol = dlsym(library, name);
    any_function function;
    memcpy(&function, &symbol, sizeof symbol);
    return function;
}

static CUresult call(const char *name, const uint64_t *a) {
    any_function function = find(name);
    return function ? function(a[0], a[1], a[2], a[3], a[4], a[5]) : CUDA_ERROR_NOT_SUPPORTED;
}

#define P(x) ((uint64_t)(uintptr_t)(x))
#define OUT P(out)
#define TOO_MUCH UINT64_MAX
#define MORE (1ull << 63)
#define MUCH (1ull << 50)

static uint64_t used(void) {
    uint64_t free = 0, total = 0;
    call("cuCtxSynchronize", (uint64_t[ARGUMENTS]){0});
    call("cuMemGetInfo_v2", (uint64_t[ARGUMENTS]){P(&free), P(&total)});
    return total - free;
}

static const struct row {
    const char *name;
    uint64_t a[ARGUMENTS];
} rows[] = {
    {"cuMemAlloc_v2", {0, 4096}},
    {"cuMemAlloc_v2", {OUT, 0}},
    {"cuMemAlloc_v2", {OUT, TOO_MUCH}},
    {"cuMemAlloc_v2", {OUT, MORE}},
    {"cuMemAlloc_v2", {OUT, MUCH}},
    {"cuMemAlloc_v2", {0, TOO_MUCH}},
    {"cuMemAllocPitch_v2", {0, P(&pitch), 4096, 16, 4}},
    {"cuMemAllocPitch_v2", {OUT, 0, 4096, 16, 4}},
    {"cuMemAllocPitch_v2", {OUT, P(&pitch), 4096, 16, 3}},
    {"cuMemAllocPitch_v2", {OUT, P(&pitch), 0, 0, 4}},
    {"cuMemAllocPitch_v2", {OUT, P(&pitch), TOO_MUCH, TOO_MUCH, 4}},
    {"cuMemAllocPitch_v2", {OUT, P(&pitch), 1ull << 33, 1ull << 33, 4}},
    {"cuMemAllocManaged", {0, 4096, CU_MEM_ATTACH_GLOBAL}},
    {"cuMemAllocManaged", {OUT, 0, CU_MEM_ATTACH_GLOBAL}},
    {"cuMemAllocManaged", {OUT, 4096, 0}},
    {"cuMemAllocManaged", {OUT, TOO_MUCH, CU_MEM_ATTACH_GLOBAL}},
    {"cuMemAllocAsync", {0, 4096, 0}},
    {"cuMemAllocAsync", {OUT, 0, 0}},
    {"cuMemAllocAsync", {OUT, TOO_MUCH, 0}},
    {"cuMemAllocAsync", {OUT, MUCH, 0}},
    {"cuMemAllocAsync_ptsz", {0, 4096, 0}},
    {"cuMemAllocAsync_ptsz", {OUT, MORE, 0}},
    {"cuMemAllocFromPoolAsync", {OUT, 4096, 0, 0}},
    {"cuMemAllocFromPoolAsync", {0, TOO_MUCH, 0, 0}},
    {"cuMemAllocFromPoolAsync_ptsz", {OUT, 4096, 0, 0}},
    {"cuMemPoolCreate", {0, 0}},
    {"cuMemPoolCreate", {OUT, 0}},
    {"cuMemPoolDestroy", {0}},
    {"cuMemPoolTrimTo", {0, 0}},
    {"cuMemPoolSetAttribute", {0, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0}},
    {"cuMemCreate", {0, 2 << 20, P(&here), 0}},
    {"cuMemCreate", {OUT, 2 << 20, 0, 0}},
    {"cuMemCreate", {OUT, 0, P(&here), 0}},
    {"cuMemCreate", {OUT, 4097, P(&here), 0}},
    {"cuMemCreate", {OUT, 2 << 20, P(&nowhere), 0}},
    {"cuMemCreate", {OUT, TOO_MUCH - ((2 << 20) - 1), P(&here), 0}},
    {"cuMemMap", {0, 0, 0, 0, 0}},
    {"cuMemUnmap", {0, 0}},
    {"cuMemRelease", {0}},
    {"cuMemRelease", {0xdeadbeef}},
    {"cuMemRetainAllocationHandle", {0, 0}},
    {"cuMemExportToShareableHandle", {0, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0}},
    {"cuMemImportFromShareableHandle", {0, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}},
    {"cuMemImportFromShareableHandle", {OUT, 9999, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}},
    {"cuIpcGetMemHandle", {0, 0}},
    {"cuIpcGetMemHandle", {OUT, 0xdeadbeef}},
    {"cuIpcCloseMemHandle", {0}},
    {"cuArrayCreate_v2", {0, P(&empty)}},
    {"cuArrayCreate_v2", {OUT, 0}},
    {"cuArrayCreate_v2", {OUT, P(&empty)}},
    {"cuArrayCreate_v2", {OUT, P(&flat)}},
    {"cuArray3DCreate_v2", {0, 0}},
    {"cuArray3DCreate_v2", {OUT, 0}},
    {"cuArray3DCreate_v2", {OUT, P(&hollow)}},
    {"cuArray3DCreate_v2", {OUT, P(&deep)}},
    {"cuMipmappedArrayCreate", {0, 0, 0}},
    {"cuMipmappedArrayCreate", {OUT, 0, 1}},
    {"cuMipmappedArrayCreate", {OUT, P(&hollow), 1}},
    {"cuMipmappedArrayCreate", {OUT, P(&deep), 1}},
    {"cuArrayDestroy", {0}},
    {"cuMipmappedArrayDestroy", {0}},
    {"cuMemFree_v2", {0}},
    {"cuMemFree_v2", {0xdeadbeef}},
    {"cuMemFree_v2", {TOO_MUCH}},
    {"cuMemFreeAsync", {0, 0}},
    {"cuMemFreeAsync", {0xdeadbeef, 0}},
    {"cuMemGetInfo_v2", {0, 0}},
    {"cuMemGetInfo_v2", {OUT, 0}},
    {"cuMemGetInfo_v2", {0, P(&pitch)}},
    {"cuMemGetInfo", {0, 0}},
    {"cuMemGetInfo", {OUT, 0}},
    {"cuDeviceTotalMem", {0, 0}},
    {"cuDeviceTotalMem_v2", {0, 0}},
    {"cuDeviceTotalMem_v2", {OUT, 99}},
    {"cuCtxCreate_v2", {0, 0, 0}},
    {"cuCtxCreate_v2", {OUT, 0, 99}},
    {"cuCtxDestroy_v2", {0}},
    {"cuDevicePrimaryCtxRetain", {0, 0}},
    {"cuDevicePrimaryCtxRetain", {OUT, 99}},
    {"cuDevicePrimaryCtxRelease_v2", {99}},
    {"cuLaunchKernel", {0, 1, 1, 1, 1, 1}},
    {"cuGraphLaunch", {0, 0}},
    {"cuGraphInstantiateWithFlags", {0, 0, 0}},
    {"cuGraphExecDestroy", {0}},
    {"cuStreamSynchronize", {0}},
    {"cuGetProcAddress", {0, 0, 12000, 0}},
    {"cuGetProcAddress", {P("cuMemAlloc"), 0, 12000, 0}},
    {"cuGetProcAddress", {P("cuMemAlloc"), OUT, UINT32_MAX, 0}},
};

int main(void) {
    CUcontext context;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || call("cuInit", (uint64_t[ARGUMENTS]){0}) || call("cuDevicePrimaryCtxRetain", (uint64_t[ARGUMENTS]){P(&context)}) ||
        call("cuCtxSetCurrent", (uint64_t[ARGUMENTS]){P(context)}))
        return 1;
    uint64_t before = used();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(out, 0, sizeof out);
        printf("%s(%zu) %d\n", rows[i].name, i, (int)call(rows[i].name, rows[i].a));
        fflush(stdout);
    }
    printf("used %llu %llu\n", (unsigned long long)before, (unsigned long long)used());
    uint64_t address = 0;
    CUresult gave = call("cuMemAlloc_v2", (uint64_t[ARGUMENTS]){P(&address), 64 << 20});
    uint64_t with = used();
    CUresult took = call("cuMemFree_v2", (uint64_t[ARGUMENTS]){address});
    printf("then %d %llu %d %llu\n", (int)gave, (unsigned long long)(with - before), (int)took, (unsigned long long)(used() - before));
    return 0;
}
