// What may be asked of a device. Temperature and power follow the utilisation; nothing measures them.
#include <stdio.h>
#include <string.h>

#include "nvml_state.h"

// ---- Identity

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned length)
{
    NVML_TRY(nvml_device(device));
    return nvml_text(out, length, device->info.name);
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned length)
{
    char text[NVML_DEVICE_UUID_BUFFER_SIZE];
    nvmlReturn_t result = nvml_device(device);
    if (result != NVML_ERROR_GPU_IS_LOST) // a lost GPU is still known by name
        NVML_TRY(result);
    nvml_uuid_text(device, text);
    return nvml_text(out, length, text);
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_device(device));
    *out = (unsigned)(device - nvml_device_at(0));
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *out)
{
    return nvmlDeviceGetIndex(device, out);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_device(device));
    memset(out, 0, sizeof *out);
    snprintf(out->busId, sizeof out->busId, "%s", device->info.bus_id);
    sscanf(device->info.bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04x:%02x:%02x.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0xff);
    out->pciDeviceId = 0x20b010de; // the vendor in the low half
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *out)
{
    nvmlPciInfo_t pci;
    NVML_NEED(out != NULL);
    NVML_TRY(nvmlDeviceGetPciInfo_v3(device, &pci));
    memset(out, 0, sizeof *out);
    memcpy(out->busId, pci.busIdLegacy, sizeof out->busId);
    out->domain = pci.domain;
    out->bus = pci.bus;
    out->device = pci.device;
    out->pciDeviceId = pci.pciDeviceId;
    return NVML_SUCCESS;
}

// The first form's structure ends before the subsystem.
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, void *out)
{
    nvmlPciInfo_v2_t pci;
    NVML_NEED(out != NULL);
    NVML_TRY(nvmlDeviceGetPciInfo_v2(device, &pci));
    memcpy(out, &pci, offsetof(nvmlPciInfo_v2_t, pciSubSystemId));
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    NVML_NEED(major != NULL && minor != NULL);
    NVML_TRY(nvml_device(device));
    *major = (int)device->info.major;
    *minor = (int)device->info.minor;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_device(device));
    unsigned capability = device->info.major * 10 + device->info.minor; // 4 Pascal, 5 Volta, 6 Turing, 7 Ampere, 8 Ada, 9 Hopper
    *out = capability >= 90 ? 9 : capability == 89 ? 8 : capability >= 80 ? 7 : capability >= 75 ? 6 : capability >= 70 ? 5 : 4;
    return NVML_SUCCESS;
}

// ---- Memory

static nvmlReturn_t memory_of(nvmlDevice_t device, struct emu_reply *reply)
{
    NVML_TRY(nvml_device(device));
    struct emu_request request = {.op = EMU_MEM_INFO, .gpu = device->gpu};
    return nvml_call(&request, reply);
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    struct emu_reply r;
    NVML_NEED(out != NULL);
    NVML_TRY(memory_of(device, &r));
    *out = (nvmlMemory_t){.total = r.c, .free = r.a, .used = r.c - r.a};
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    struct emu_reply r;
    NVML_NEED(out != NULL);
    if (out->version != WEFT_NVML_VERSION(nvmlMemory_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    NVML_TRY(memory_of(device, &r));
    out->total = r.c;
    out->reserved = r.c - r.b;
    out->free = r.a;
    out->used = r.d;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_device(device));
    *out = (nvmlBAR1Memory_t){.bar1Total = device->info.total_bytes, .bar1Free = device->info.total_bytes};
    return NVML_SUCCESS;
}

// ---- Activity

NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    struct emu_reply r;
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_device(device));
    struct emu_request request = {.op = EMU_UTILISATION, .gpu = device->gpu};
    NVML_TRY(nvml_call(&request, &r));
    *out = (nvmlUtilization_t){.gpu = (unsigned)r.a, .memory = (unsigned)r.b};
    return NVML_SUCCESS;
}

static nvmlReturn_t activity(nvmlDevice_t device, unsigned at_rest, unsigned per_percent, unsigned *out)
{
    nvmlUtilization_t u;
    NVML_NEED(out != NULL);
    NVML_TRY(nvmlDeviceGetUtilizationRates(device, &u));
    *out = at_rest + per_percent * u.gpu / 100;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *out)
{
    NVML_NEED(sensor == 0);
    return activity(device, 35, 40, out);
}

NVML_API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *out)
{
    return activity(device, 50000, 250000, out); // mW
}

NVML_API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *out)
{
    return activity(device, 300000, 0, out);
}

NVML_API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *out)
{
    return nvmlDeviceGetPowerManagementLimit(device, out);
}

NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *out)
{
    NVML_NEED(type >= 0 && type <= 3);
    return activity(device, type == 2 ? 1215 : 1410, 0, out); // MHz
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned *out)
{
    return nvmlDeviceGetClockInfo(device, type, out);
}

// ---- Modes

static nvmlReturn_t mode(nvmlDevice_t device, unsigned value, unsigned *out)
{
    NVML_NEED(out != NULL);
    NVML_TRY(nvml_device(device));
    *out = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t unsupported(nvmlDevice_t device)
{
    NVML_TRY(nvml_device(device));
    return NVML_ERROR_NOT_SUPPORTED;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *out)
{
    return mode(device, 0, out); // shared by all
}

NVML_API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *out)
{
    return mode(device, 1, out);
}

NVML_API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *out)
{
    return mode(device, 0, out);
}

NVML_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out)
{
    return mode(device, 0, out);
}

NVML_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *out)
{
    return mode(device, 0, out);
}

NVML_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    NVML_NEED(current != NULL && pending != NULL);
    return unsupported(device);
}

NVML_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *out)
{
    (void)index;
    NVML_NEED(out != NULL);
    return unsupported(device);
}

NVML_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    NVML_NEED(current != NULL && pending != NULL);
    return unsupported(device);
}

NVML_API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *out)
{
    NVML_NEED(out != NULL);
    return unsupported(device);
}

NVML_API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *out, unsigned length)
{
    NVML_NEED(out != NULL && length > 0);
    return unsupported(device);
}
