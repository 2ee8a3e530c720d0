#include "devices.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "hook.h"

#define DEVICES 64 /* more than a machine holds; beyond it each question goes to the driver */

/* Answers by device number: 0 unknown, else the GPU + 2, so that WEFT_NO_GPU is 1. The driver never renumbers. */
static struct {
    _Atomic unsigned known[DEVICES];
} devices;

void weft_uuid_text(const uint8_t u[16], char text[WEFT_UUID_TEXT]) {
    snprintf(text, WEFT_UUID_TEXT, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

unsigned weft_uuid_gpu(const struct weft_welcome *terms, const uint8_t uuid[16]) {
    for (unsigned i = 0; terms && i < terms->count; i++)
        if (!memcmp(terms->gpus[i].uuid, uuid, 16))
            return i;
    return WEFT_NO_GPU;
}

static unsigned ask(const struct weft_welcome *terms, CUdevice device) {
    CUuuid uuid;
    CUresult result = weft_has(WEFT_SYMBOL_cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&uuid, device)
                                                              : REAL(cuDeviceGetUuid)(&uuid, device);
    return result == CUDA_SUCCESS ? weft_uuid_gpu(terms, (const uint8_t *)uuid.bytes) : WEFT_NO_GPU;
}

unsigned weft_device_gpu(CUdevice device) {
    const struct weft_welcome *terms = weft_session_terms();
    if (!terms || device < 0)
        return WEFT_NO_GPU;
    if (device >= DEVICES)
        return ask(terms, device);
    unsigned known = atomic_load_explicit(&devices.known[device], memory_order_relaxed);
    if (!known) {
        known = ask(terms, device) + 2;
        atomic_store_explicit(&devices.known[device], known, memory_order_relaxed);
    }
    return known - 2;
}

unsigned weft_current_gpu(CUcontext *context) {
    CUdevice device;
    if (!weft_session_terms() || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return WEFT_NO_GPU;
    if (context && REAL(cuCtxGetCurrent)(context) != CUDA_SUCCESS)
        return WEFT_NO_GPU;
    return weft_device_gpu(device);
}
