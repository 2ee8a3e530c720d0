// The processes of a device. Each form of the call has a structure of its own size; where there is too little room, all forms say how
// many there are.
#include <stdlib.h>
#include <string.h>

#include "nvml_state.h"

struct list {
    struct emu_usage *all;
    unsigned count;
};

static nvmlReturn_t append(struct list *l, const struct emu_reply *r)
{
    struct emu_usage *more = realloc(l->all, (l->count + r->count) * sizeof *more);
    if (more == NULL)
        return NVML_ERROR_MEMORY;
    l->all = more;
    for (uint32_t i = 0; i < r->count; i++) {
        struct emu_usage u;
        memcpy(&u, r->payload + i * sizeof u, sizeof u);
        if (u.contexts > 0 || u.bytes > 0)
            l->all[l->count++] = u;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t read_all(nvmlDevice_t device, struct list *l)
{
    struct emu_reply r;
    uint64_t seen = 0;
    *l = (struct list){NULL, 0};
    NVML_TRY(nvml_device(device));
    do {
        struct emu_request request = {.op = EMU_PROCESSES, .gpu = device->gpu, .a = seen};
        NVML_TRY(nvml_call(&request, &r));
        if (r.count > 0)
            NVML_TRY(append(l, &r));
        seen += r.count;
    } while (r.count > 0 && seen < r.c);
    return NVML_SUCCESS;
}

static void put(void *at, size_t size, const struct emu_usage *u)
{
    nvmlProcessDetail_v1_t p = {.pid = u->pid, .usedGpuMemory = u->bytes, .gpuInstanceId = NVML_NO_INSTANCE,
                                .computeInstanceId = NVML_NO_INSTANCE};
    memcpy(at, &p, size); // each structure is the beginning of the next
}

static nvmlReturn_t give(nvmlDevice_t device, unsigned *count, void *out, size_t size)
{
    struct list l;
    NVML_NEED(count != NULL && (*count == 0 || out != NULL));
    nvmlReturn_t result = read_all(device, &l);
    if (result == NVML_SUCCESS && l.count > *count)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; result == NVML_SUCCESS && i < l.count; i++)
        put((char *)out + i * size, size, &l.all[i]);
    if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE)
        *count = l.count;
    free(l.all);
    return result;
}

static nvmlReturn_t none(nvmlDevice_t device, unsigned *count)
{
    NVML_NEED(count != NULL);
    NVML_TRY(nvml_device(device));
    *count = 0;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *out)
{
    return give(device, count, out, sizeof *out);
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *out)
{
    return give(device, count, out, sizeof *out);
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v3_t *out)
{
    return give(device, count, out, sizeof *out);
}

// Nothing draws on an emulated GPU, and no MPS server shares it.
#define NO_PROCESSES(name)                                                                  \
    NVML_API nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *out)             \
    {                                                                                       \
        (void)out;                                                                          \
        return none(device, count);                                                         \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

NVML_API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list)
{
    NVML_NEED(list != NULL);
    if (list->version != WEFT_NVML_VERSION(nvmlProcessDetailList_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    NVML_NEED(list->mode <= 3);
    if (list->mode == 1 || list->mode == 2)
        return none(device, &list->numProcArrayEntries);
    return give(device, &list->numProcArrayEntries, list->procArray, sizeof *list->procArray);
}
