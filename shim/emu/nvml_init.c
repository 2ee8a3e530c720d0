// Initialisation, the system, devices by index, UUID and bus.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nvml_state.h"

#define DRIVER_VERSION "580.82.07"

static struct {
    pthread_mutex_t lock;
    int users; // nvmlInit without nvmlShutdown
    pid_t process;
    struct emu_link link;
    struct nvmlDevice_st devices[EMU_MAX_GPUS];
    unsigned count;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .link = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1}};

// ---- The broker

static nvmlReturn_t status_of(uint32_t status)
{
    switch (status) {
    case 0: return NVML_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE: return NVML_ERROR_INVALID_ARGUMENT;
    default: return NVML_ERROR_UNKNOWN;
    }
}

nvmlReturn_t nvml_call(struct emu_request *request, struct emu_reply *reply)
{
    return status_of(emu_link_call(&state.link, request, reply, NULL));
}

static nvmlReturn_t read_device(struct nvmlDevice_st *d)
{
    struct emu_request request = {.op = EMU_DEVICE_GET, .gpu = d->gpu};
    struct emu_reply reply;
    NVML_TRY(nvml_call(&request, &reply));
    memcpy(&d->info, reply.payload, sizeof d->info);
    return NVML_SUCCESS;
}

static int by_bus(const void *a, const void *b)
{
    return strcmp(((const struct nvmlDevice_st *)a)->info.bus_id, ((const struct nvmlDevice_st *)b)->info.bus_id);
}

static nvmlReturn_t attach(void)
{
    struct emu_reply hello;
    if (!emu_link_open(&state.link, EMU_ROLE_OBSERVER, &hello, NULL))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    state.process = getpid();
    state.count = hello.b < EMU_MAX_GPUS ? (unsigned)hello.b : EMU_MAX_GPUS;
    for (unsigned i = 0; i < state.count; i++) {
        state.devices[i].gpu = (int)i;
        NVML_TRY(read_device(&state.devices[i]));
    }
    qsort(state.devices, state.count, sizeof state.devices[0], by_bus);
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_enter(void)
{
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&state.lock);
    if (state.users == 0) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (state.process != getpid()) {
        emu_link_close(&state.link);
        result = attach();
    }
    pthread_mutex_unlock(&state.lock);
    return result;
}

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    nvmlReturn_t result = NVML_SUCCESS;
    (void)flags;
    pthread_mutex_lock(&state.lock);
    if (state.users == 0)
        result = attach();
    if (result == NVML_SUCCESS)
        state.users++;
    else
        emu_link_close(&state.link);
    pthread_mutex_unlock(&state.lock);
    return result;
}

NVML_API nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

NVML_API nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

NVML_API nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&state.lock);
    nvmlReturn_t result = state.users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (state.users > 0 && --state.users == 0)
        emu_link_close(&state.link);
    pthread_mutex_unlock(&state.lock);
    return result;
}

// ---- The system

nvmlReturn_t nvml_text(char *out, unsigned length, const char *text)
{
    NVML_NEED(out != NULL);
    if (length <= strlen(text))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    NVML_TRY(nvml_enter());
    return nvml_text(out, length, DRIVER_VERSION);
}

NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned length)
{
    NVML_TRY(nvml_enter());
    return nvml_text(out, length, "13." DRIVER_VERSION);
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_enter());
    *out = 13000;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
    return nvmlSystemGetCudaDriverVersion_v2(out);
}

NVML_API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned length)
{
    char path[64], name[1024];
    NVML_NEED(out != NULL && length > 0);
    NVML_TRY(nvml_enter());
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return NVML_ERROR_NOT_FOUND;
    size_t n = fread(name, 1, sizeof name - 1, f);
    fclose(f);
    name[n] = 0; // the first word: the program
    snprintf(out, length, "%s", name);
    return NVML_SUCCESS;
}

// ---- Devices

nvmlDevice_t nvml_device_at(unsigned index)
{
    return index < state.count ? &state.devices[index] : NULL;
}

nvmlReturn_t nvml_device(nvmlDevice_t device)
{
    NVML_TRY(nvml_enter());
    NVML_NEED(device >= &state.devices[0] && device < &state.devices[state.count]);
    NVML_TRY(read_device(device));
    return device->info.health == EMU_GPU_LOST ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_enter());
    *out = state.count;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetCount(unsigned *out)
{
    return nvmlDeviceGetCount_v2(out);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_enter());
    NVML_NEED(index < state.count);
    *out = &state.devices[index];
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByIndex_v2(index, out);
}

void nvml_uuid_text(const struct nvmlDevice_st *device, char text[NVML_DEVICE_UUID_BUFFER_SIZE])
{
    const unsigned char *u = device->info.uuid;
    snprintf(text, NVML_DEVICE_UUID_BUFFER_SIZE,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7],
             u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    char text[NVML_DEVICE_UUID_BUFFER_SIZE];
    NVML_NEED(uuid != NULL && out != NULL);
    NVML_TRY(nvml_enter());
    for (unsigned i = 0; i < state.count; i++) {
        nvml_uuid_text(&state.devices[i], text);
        if (strcasecmp(text, uuid) == 0) {
            *out = &state.devices[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out)
{
    unsigned domain, bus, device, d, b, v;
    NVML_NEED(id != NULL && out != NULL);
    NVML_TRY(nvml_enter());
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        NVML_NEED(sscanf(id, "%x:%x", &bus, &device) == 2);
    }
    for (unsigned i = 0; i < state.count; i++)
        if (sscanf(state.devices[i].info.bus_id, "%x:%x:%x", &d, &b, &v) == 3 && d == domain && b == bus && v == device) {
            *out = &state.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, out);
}

// ---- Texts of results

NVML_API const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } texts[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_MEMORY, "Out of memory"},
        {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].result == result)
            return texts[i].text;
    return "Unknown Error";
}
