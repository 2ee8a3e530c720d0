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

// ---- Utilisation of processes: one sample for each, from its first sight or the call before to now

#define SEEN 256

struct seen {
    uint32_t pid;
    int gpu;
    uint64_t busy, at; // ns of the compute engine, us of the wall clock
};

static struct {
    pthread_mutex_t lock;
    struct seen all[SEEN]; // by pid and GPU, where there is room
} samples = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t wall_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static struct seen *seen_of(uint32_t pid, int gpu)
{
    struct seen *oldest = &samples.all[0];
    for (struct seen *s = samples.all; s < samples.all + SEEN; s++) {
        if (s->pid == pid && s->gpu == gpu)
            return s;
        if (s->at < oldest->at)
            oldest = s;
    }
    *oldest = (struct seen){.pid = pid, .gpu = gpu};
    return oldest;
}

// sample is the share of the time since the last sample that a process used the compute engine, in percent. The first is 0.
static unsigned sample(const struct emu_usage *u, int gpu, uint64_t now)
{
    struct seen *s = seen_of(u->pid, gpu);
    uint64_t passed = now - s->at, used = (u->busy_ns - s->busy) / 1000;
    unsigned percent = s->at == 0 || passed == 0 ? 0 : used >= passed ? 100 : (unsigned)(100 * used / passed);
    s->busy = u->busy_ns;
    s->at = now;
    return percent;
}

static nvmlReturn_t utilisation(nvmlDevice_t device, unsigned *count, void *out, size_t size,
                                void (*write)(void *at, uint32_t pid, unsigned percent, uint64_t now))
{
    struct list l;
    NVML_NEED(count != NULL);
    nvmlReturn_t result = read_all(device, &l);
    if (result == NVML_SUCCESS && l.count > *count)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    if (result == NVML_SUCCESS && l.count == 0)
        result = NVML_ERROR_NOT_FOUND;
    uint64_t now = wall_us();
    pthread_mutex_lock(&samples.lock);
    for (unsigned i = 0; result == NVML_SUCCESS && i < l.count; i++)
        write((char *)out + i * size, l.all[i].pid, sample(&l.all[i], device->gpu, now), now);
    pthread_mutex_unlock(&samples.lock);
    *count = l.count;
    free(l.all);
    return result;
}

static void write_sample(void *at, uint32_t pid, unsigned percent, uint64_t now)
{
    *(nvmlProcessUtilizationSample_t *)at = (nvmlProcessUtilizationSample_t){.pid = pid, .timeStamp = now, .smUtil = percent};
}

static void write_info(void *at, uint32_t pid, unsigned percent, uint64_t now)
{
    *(nvmlProcessUtilizationInfo_v1_t *)at = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = now, .pid = pid, .smUtil = percent};
}

NVML_API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned *count,
                                                      unsigned long long since)
{
    (void)since; // every sample is of now
    NVML_NEED(count != NULL);
    if (out == NULL)
        *count = 0;
    return utilisation(device, count, out, sizeof *out, write_sample);
}

NVML_API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info)
{
    NVML_NEED(info != NULL);
    if (info->version != WEFT_NVML_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (info->procUtilArray == NULL)
        info->processSamplesCount = 0;
    return utilisation(device, &info->processSamplesCount, info->procUtilArray, sizeof *info->procUtilArray, write_info);
}
