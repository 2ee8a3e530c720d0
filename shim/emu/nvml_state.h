// What the emulated NVML keeps in a process. Devices are in the order of the PCI bus, whatever CUDA_VISIBLE_DEVICES says.
#ifndef EMU_NVML_STATE_H
#define EMU_NVML_STATE_H

#include "emu_link.h"
#include "weft_cuda.h"

#define NVML_API __attribute__((visibility("default")))
#define NVML_TRY(expr)                        \
    do {                                      \
        nvmlReturn_t result_ = (expr);        \
        if (result_ != NVML_SUCCESS)          \
            return result_;                   \
    } while (0)
#define NVML_NEED(condition) NVML_TRY((condition) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT)

struct nvmlDevice_st {
    int gpu;
    struct emu_device info;
};

// nvml_enter is the first thing every call does: it is initialised, and in a child of fork attached anew.
nvmlReturn_t nvml_enter(void);
// nvml_call asks the broker about a device. GPU lost: NVML_ERROR_GPU_IS_LOST.
nvmlReturn_t nvml_call(struct emu_request *request, struct emu_reply *reply);
nvmlReturn_t nvml_device(nvmlDevice_t device); // a device of this library, still there
nvmlReturn_t nvml_text(char *out, unsigned length, const char *text);
nvmlDevice_t nvml_device_at(unsigned index); // NULL: there is none
void nvml_uuid_text(const struct nvmlDevice_st *device, char text[NVML_DEVICE_UUID_BUFFER_SIZE]);

#endif
