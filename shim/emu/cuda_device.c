// What a program may ask of a device.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cuda_state.h"

EMU_API CUresult cuDeviceGetCount(int *out)
{
    struct thread *t;
    NEED(out != NULL);
    TRY(driver_enter(&t));
    *out = driver.count;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    struct device *d;
    NEED(out != NULL);
    TRY(driver_device(ordinal, &d));
    *out = ordinal;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetName(char *out, int length, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL && length > 0);
    TRY(driver_device(dev, &d));
    snprintf(out, (size_t)length, "%s", d->info.name);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL);
    TRY(driver_device(dev, &d));
    memcpy(out->bytes, d->info.uuid, sizeof out->bytes);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetUuid(CUuuid *out, CUdevice dev)
{
    return cuDeviceGetUuid_v2(out, dev);
}

EMU_API CUresult cuDeviceGetLuid(char *out, unsigned *mask, CUdevice dev)
{
    struct device *d;
    (void)out, (void)mask;
    TRY(driver_device(dev, &d));
    return CUDA_ERROR_NOT_SUPPORTED; // only Windows has them
}

EMU_API CUresult cuDeviceTotalMem_v2(size_t *out, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL);
    TRY(driver_device(dev, &d));
    *out = d->info.usable_bytes;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    struct device *d;
    NEED(major != NULL && minor != NULL);
    TRY(driver_device(dev, &d));
    *major = (int)d->info.major;
    *minor = (int)d->info.minor;
    return CUDA_SUCCESS;
}

// ---- The PCI bus

struct bus {
    unsigned domain, bus, device;
};

static bool bus_parse(const char *text, struct bus *at)
{
    unsigned function = 0;
    at->domain = 0;
    return sscanf(text, "%x:%x:%x.%x", &at->domain, &at->bus, &at->device, &function) >= 3 ||
           (at->domain = 0, sscanf(text, "%x:%x", &at->bus, &at->device) == 2);
}

EMU_API CUresult cuDeviceGetPCIBusId(char *out, int length, CUdevice dev)
{
    struct device *d;
    struct bus at;
    char text[32];
    NEED(out != NULL && length > 0);
    TRY(driver_device(dev, &d));
    NEED(bus_parse(d->info.bus_id, &at));
    int n = snprintf(text, sizeof text, "%04x:%02x:%02x.0", at.domain, at.bus, at.device);
    NEED(n < length);
    strcpy(out, text);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *text)
{
    struct thread *t;
    struct bus wanted, at;
    NEED(out != NULL && text != NULL);
    TRY(driver_enter(&t));
    NEED(bus_parse(text, &wanted));
    for (int i = 0; i < driver.count; i++) {
        if (!bus_parse(driver.devices[i].info.bus_id, &at))
            continue;
        if (at.domain == wanted.domain && at.bus == wanted.bus && at.device == wanted.device) {
            *out = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

// ---- Attributes

#define ATTRIBUTES 160 // more than CUDA 13 has
#define MEMORY_KHZ 1215000

// What is the same for every GPU, and 0 for what is not named: a feature that there is not.
static const int fixed_attributes[ATTRIBUTES] = {
    [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y] = 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z] = 64,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = 0x7fffffff,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = 65535,
    [CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535,
    [CU_DEVICE_ATTRIBUTE_MAX_PITCH] = 0x7fffffff,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = 65536,
    [CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = 65536,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = 48 * 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] = 164 * 1024,
    [CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] = 163 * 1024,
    [CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK] = 1024,
    [CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY] = 64 * 1024,
    [CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT] = 32,
    [CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR] = 32,
    [CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO] = 2,
    [CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT] = 512,
    [CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT] = 512,
    [CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = 2048,
    [CU_DEVICE_ATTRIBUTE_CLOCK_RATE] = 1410000,
    [CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = MEMORY_KHZ,
    [CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] = 40 * 1024 * 1024,
    [CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT] = 2,
    [CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = -1,
    [CU_DEVICE_ATTRIBUTE_GPU_OVERLAP] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = 1,
    [CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS] = 1,
    [CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1,
    [CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = 1,
    [CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = 1,
    [CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = 1,
    [CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH] = 1,
    [CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH] = 1,
    [CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1,
    [CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    [CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS] = 1,
};

static int attribute_of(const struct device *d, CUdevice_attribute attribute)
{
    struct bus at = {0, 0, 0};
    bus_parse(d->info.bus_id, &at);
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return (int)d->info.processors;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return (int)d->info.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return (int)d->info.minor;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: return d->info.major >= 9;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return (int)at.domain;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return (int)at.bus;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return (int)at.device;
    // As many bits as give the device's bandwidth at the clock above, two transfers a cycle.
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return (int)(d->info.memory_bytes_s * 8 / (2 * 1000ull * MEMORY_KHZ));
    default: return fixed_attributes[attribute];
    }
}

EMU_API CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL && (int)attribute > 0 && (int)attribute < ATTRIBUTES);
    TRY(driver_device(dev, &d));
    *out = attribute_of(d, attribute);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetProperties(CUdevprop *out, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL);
    TRY(driver_device(dev, &d));
    *out = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {0x7fffffff, 65535, 65535},
        .sharedMemPerBlock = attribute_of(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        .totalConstantMemory = attribute_of(d, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        .SIMDWidth = 32,
        .memPitch = 0x7fffffff,
        .regsPerBlock = 65536,
        .clockRate = attribute_of(d, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetExecAffinitySupport(int *out, CUexecAffinityType type, CUdevice dev)
{
    struct device *d;
    NEED(out != NULL && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    TRY(driver_device(dev, &d));
    *out = 0;
    return CUDA_SUCCESS;
}
