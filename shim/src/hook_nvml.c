/* NVML as a job sees it: the allocation's GPUs, numbered as CUDA numbers them, with the allocation's memory and processes.
 * Tools ask it in processes that never initialise CUDA, so the terms come by an observer's question there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "devices.h"
#include "hook.h"

/* The UUID in NVML's text: hexadecimal digits in groups, after "GPU-". */
static bool parse_uuid(const char *text, uint8_t uuid[16]) {
    unsigned digits = 0;
    if (strncmp(text, "GPU-", 4))
        return false;
    for (text += 4; *text && digits < 32; text++) {
        if (*text == '-')
            continue;
        const char *hex = "0123456789abcdef0123456789ABCDEF", *at = strchr(hex, *text);
        if (!at)
            return false;
        unsigned value = (unsigned)(at - hex) % 16;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] << 4 | value : value);
        digits++;
    }
    return digits == 32;
}

/* The allocation's GPU behind a handle of NVML, or WEFT_NO_GPU. */
static unsigned gpu_of(nvmlDevice_t device) {
    const struct weft_welcome *terms = weft_observer_terms();
    char text[NVML_DEVICE_UUID_BUFFER_SIZE] = "";
    uint8_t uuid[16];
    if (!terms || REAL(nvmlDeviceGetUUID)(device, text, sizeof text) != NVML_SUCCESS || !parse_uuid(text, uuid))
        return WEFT_NO_GPU;
    return weft_uuid_gpu(terms, uuid);
}

/* Which GPUs there are. */

#define COUNT(name)                                                                                                    \
    HOOK_NVML(name, unsigned *count) {                                                                                 \
        const struct weft_welcome *terms = weft_observer_terms();                                                      \
        nvmlReturn_t result = REAL(name)(count);                                                                       \
        if (result == NVML_SUCCESS && terms)                                                                           \
            *count = terms->count;                                                                                     \
        return result;                                                                                                 \
    }

COUNT(nvmlDeviceGetCount)
COUNT(nvmlDeviceGetCount_v2)

/* A handle that NVML gave, if the device is the allocation's. */
static nvmlReturn_t ours(nvmlReturn_t result, nvmlDevice_t *device) {
    if (result == NVML_SUCCESS && weft_observer_terms() && gpu_of(*device) == WEFT_NO_GPU) {
        *device = NULL;
        return NVML_ERROR_NOT_FOUND;
    }
    return result;
}

HOOK_NVML(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *device) {
    return ours(REAL(nvmlDeviceGetHandleByUUID)(uuid, device), device);
}

HOOK_NVML(nvmlDeviceGetHandleBySerial, const char *serial, nvmlDevice_t *device) {
    return ours(REAL(nvmlDeviceGetHandleBySerial)(serial, device), device);
}

HOOK_NVML(nvmlDeviceGetHandleByPciBusId, const char *bus, nvmlDevice_t *device) {
    return ours(REAL(nvmlDeviceGetHandleByPciBusId)(bus, device), device);
}

HOOK_NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *bus, nvmlDevice_t *device) {
    return ours(REAL(nvmlDeviceGetHandleByPciBusId_v2)(bus, device), device);
}

#define BY_INDEX(name)                                                                                                 \
    HOOK_NVML(name, unsigned index, nvmlDevice_t *device) {                                                            \
        const struct weft_welcome *terms = weft_observer_terms();                                                      \
        char uuid[WEFT_UUID_TEXT];                                                                                     \
        if (!terms)                                                                                                    \
            return REAL(name)(index, device);                                                                          \
        if (index >= terms->count)                                                                                     \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
        weft_uuid_text(terms->gpus[index].uuid, uuid);                                                                 \
        return REAL(nvmlDeviceGetHandleByUUID)(uuid, device);                                                          \
    }

BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)

HOOK_NVML(nvmlDeviceGetIndex, nvmlDevice_t device, unsigned *index) {
    nvmlReturn_t result = REAL(nvmlDeviceGetIndex)(device, index);
    unsigned gpu = result == NVML_SUCCESS ? gpu_of(device) : WEFT_NO_GPU;
    if (gpu != WEFT_NO_GPU)
        *index = gpu;
    return result;
}

/* Memory. What the driver reserves for itself is nobody's, so it is not told. */

HOOK_NVML(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory) {
    uint64_t total, used;
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    unsigned gpu = result == NVML_SUCCESS ? gpu_of(device) : WEFT_NO_GPU;
    if (gpu != WEFT_NO_GPU && weft_memory_view(gpu, &total, &used))
        *memory = (nvmlMemory_t){.total = total, .free = total > used ? total - used : 0, .used = used};
    return result;
}

HOOK_NVML(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    uint64_t total, used;
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    unsigned gpu = result == NVML_SUCCESS ? gpu_of(device) : WEFT_NO_GPU;
    if (gpu != WEFT_NO_GPU && weft_memory_view(gpu, &total, &used))
        *memory = (nvmlMemory_v2_t){
            .version = memory->version, .total = total, .free = total > used ? total - used : 0, .used = used};
    return result;
}

/* Processes: the allocation's own, by the numbers that they have here. All of them compute. */

struct list {
    struct weft_process processes[WEFT_PROCESSES];
    unsigned count;
};

/* False where the process runs unshared or the device is not the allocation's: then NVML's own answer stands. */
static bool list_of(nvmlDevice_t device, struct list *list) {
    unsigned gpu = gpu_of(device);
    int all = gpu == WEFT_NO_GPU ? -1 : weft_processes(gpu, list->processes, WEFT_PROCESSES);
    list->count = all > (int)WEFT_PROCESSES ? WEFT_PROCESSES : (unsigned)(all < 0 ? 0 : all);
    return all >= 0;
}

/* NVML's way of handing out a list: room in *count, the number back; too little room tells the number. */
static nvmlReturn_t room(unsigned *count, unsigned needed) {
    unsigned given = *count;
    *count = needed;
    return given < needed ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlProcessInfo_v1_t old_process(const struct weft_process *p) {
    return (nvmlProcessInfo_v1_t){.pid = (unsigned)p->pid, .usedGpuMemory = p->bytes};
}

static nvmlProcessInfo_v2_t new_process(const struct weft_process *p) {
    return (nvmlProcessInfo_v2_t){(unsigned)p->pid, p->bytes, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
}

#define PROCESSES(name, type, convert)                                                                                 \
    HOOK_NVML(name, nvmlDevice_t device, unsigned *count, type *processes) {                                           \
        struct list list;                                                                                              \
        if (!count || !list_of(device, &list))                                                                         \
            return REAL(name)(device, count, processes);                                                               \
        nvmlReturn_t result = room(count, list.count);                                                                 \
        if (result != NVML_SUCCESS || !list.count)                                                                     \
            return result;                                                                                             \
        if (!processes)                                                                                                \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
        for (unsigned i = 0; i < list.count; i++)                                                                      \
            processes[i] = convert(&list.processes[i]);                                                                \
        return result;                                                                                                 \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, old_process)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, new_process)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, new_process)

#define NO_PROCESSES(name)                                                                                             \
    HOOK_NVML(name, nvmlDevice_t device, unsigned *count, void *processes) {                                           \
        if (!count || gpu_of(device) == WEFT_NO_GPU)                                                                   \
            return REAL(name)(device, count, processes);                                                               \
        *count = 0;                                                                                                    \
        return NVML_SUCCESS;                                                                                           \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

HOOK_NVML(nvmlDeviceGetRunningProcessDetailList, nvmlDevice_t device, nvmlProcessDetailList_v1_t *details) {
    struct list list;
    if (!details || !list_of(device, &list))
        return REAL(nvmlDeviceGetRunningProcessDetailList)(device, details);
    if (details->mode != 0)
        list.count = 0;
    nvmlReturn_t result = room(&details->numProcArrayEntries, list.count);
    if (result != NVML_SUCCESS || !list.count)
        return result;
    if (!details->procArray)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < list.count; i++)
        details->procArray[i] = (nvmlProcessDetail_v1_t){.pid = (unsigned)list.processes[i].pid,
                                                         .usedGpuMemory = list.processes[i].bytes,
                                                         .gpuInstanceId = NVML_NO_INSTANCE,
                                                         .computeInstanceId = NVML_NO_INSTANCE};
    return result;
}

/* Use by process: the driver knows processes by numbers of the machine, neighbours among them. */

HOOK_NVML(nvmlDeviceGetProcessUtilization, nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
          unsigned *count, unsigned long long since) {
    if (gpu_of(device) != WEFT_NO_GPU)
        return NVML_ERROR_NOT_SUPPORTED;
    return REAL(nvmlDeviceGetProcessUtilization)(device, samples, count, since);
}

HOOK_NVML(nvmlDeviceGetProcessesUtilizationInfo, nvmlDevice_t device, void *info) {
    if (gpu_of(device) != WEFT_NO_GPU)
        return NVML_ERROR_NOT_SUPPORTED;
    return REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, info);
}
