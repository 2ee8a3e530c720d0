// Events: the XIDs that the broker reports. A set sees what happens after a device was registered with it.
#include <stdlib.h>

#include "nvml_state.h"

#define POLL_NS 100000000ll // between looks at the broker while waiting

struct nvmlEventSet_st {
    pthread_mutex_t lock;
    uint64_t cursor;
    bool open, registered[EMU_MAX_GPUS]; // by the broker's index
};

static nvmlReturn_t next_event(uint64_t cursor, struct emu_reply *reply)
{
    struct emu_request request = {.op = EMU_EVENT_NEXT, .a = cursor};
    return nvml_call(&request, reply);
}

NVML_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_enter());
    struct nvmlEventSet_st *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NVML_ERROR_MEMORY;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    NVML_NEED(set != NULL);
    NVML_TRY(nvml_enter());
    pthread_mutex_destroy(&set->lock);
    free(set);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_device(device));
    *out = nvmlEventTypeXidCriticalError;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    struct emu_reply end;
    NVML_NEED(set != NULL);
    NVML_TRY(nvml_device(device));
    if ((types & ~(unsigned long long)nvmlEventTypeXidCriticalError) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    NVML_TRY(next_event(EMU_NEVER, &end));
    pthread_mutex_lock(&set->lock);
    if (!set->open)
        set->cursor = end.a;
    set->open = true;
    set->registered[device->gpu] = types != 0;
    pthread_mutex_unlock(&set->lock);
    return NVML_SUCCESS;
}

// take looks for the next event of a registered device: NVML_ERROR_TIMEOUT where there is none now.
static nvmlReturn_t take(nvmlEventSet_t set, nvmlEventData_t *out)
{
    struct emu_reply r;
    nvmlReturn_t result;
    pthread_mutex_lock(&set->lock);
    while ((result = next_event(set->cursor, &r)) == NVML_SUCCESS && r.count == 1) {
        set->cursor = r.a;
        if (set->registered[r.b % EMU_MAX_GPUS])
            break;
    }
    pthread_mutex_unlock(&set->lock);
    NVML_TRY(result);
    if (r.count == 0)
        return NVML_ERROR_TIMEOUT;
    nvmlDevice_t d = NULL;
    for (unsigned i = 0; (d = nvml_device_at(i)) != NULL && d->gpu != (int)r.b; i++)
        ;
    *out = (nvmlEventData_t){.device = d, .eventType = nvmlEventTypeXidCriticalError, .eventData = r.c,
                             .gpuInstanceId = NVML_NO_INSTANCE, .computeInstanceId = NVML_NO_INSTANCE};
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout_ms)
{
    struct timespec now, end;
    NVML_NEED(set != NULL && out != NULL);
    NVML_TRY(nvml_enter());
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    for (;;) {
        nvmlReturn_t result = take(set, out);
        if (result != NVML_ERROR_TIMEOUT)
            return result;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long long left = (end.tv_sec - now.tv_sec) * 1000000000ll + (end.tv_nsec - now.tv_nsec);
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&(struct timespec){0, (long)(left < POLL_NS ? left : POLL_NS)}, NULL);
    }
}

NVML_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_v1_t *out, unsigned timeout_ms)
{
    nvmlEventData_t data;
    NVML_NEED(out != NULL);
    NVML_TRY(nvmlEventSetWait_v2(set, &data, timeout_ms));
    *out = (nvmlEventData_v1_t){data.device, data.eventType, data.eventData};
    return NVML_SUCCESS;
}
