/* What the driver tells of memory: the allocation's own limit and use, where it has one. */
#include <limits.h>

#include "devices.h"
#include "hook.h"

/* Replaces the driver's figures of a GPU with the allocation's. Either may be NULL where the driver took that. */
static void limited(unsigned gpu, size_t *available, size_t *total) {
    uint64_t limit, used;
    if (gpu == WEFT_NO_GPU || !weft_memory_view(gpu, &limit, &used))
        return;
    if (total)
        *total = limit;
    if (available)
        *available = limit > used ? limit - used : 0;
}

static unsigned narrow(size_t bytes) {
    return bytes > UINT_MAX ? UINT_MAX : (unsigned)bytes;
}

HOOK(cuMemGetInfo_v2, size_t *available, size_t *total) {
    CUresult result = REAL(cuMemGetInfo_v2)(available, total);
    if (result == CUDA_SUCCESS)
        limited(weft_current_gpu(NULL), available, total);
    return result;
}

HOOK(cuMemGetInfo, unsigned *available, unsigned *total) {
    CUresult result = REAL(cuMemGetInfo)(available, total);
    size_t wide_available, wide_total = 0;
    if (result == CUDA_SUCCESS)
        limited(weft_current_gpu(NULL), &wide_available, &wide_total);
    if (wide_total && available)
        *available = narrow(wide_available);
    if (wide_total && total)
        *total = narrow(wide_total);
    return result;
}

HOOK(cuDeviceTotalMem_v2, size_t *total, CUdevice device) {
    CUresult result = REAL(cuDeviceTotalMem_v2)(total, device);
    if (result == CUDA_SUCCESS)
        limited(weft_device_gpu(device), NULL, total);
    return result;
}

HOOK(cuDeviceTotalMem, unsigned *total, CUdevice device) {
    size_t wide_total = 0;
    CUresult result = REAL(cuDeviceTotalMem)(total, device);
    if (result == CUDA_SUCCESS)
        limited(weft_device_gpu(device), NULL, &wide_total);
    if (wide_total)
        *total = narrow(wide_total);
    return result;
}
