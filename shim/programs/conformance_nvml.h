/* What the checks ask of NVML about CUDA's device 0, found there by its UUID. */
#ifndef CONFORMANCE_NVML_H
#define CONFORMANCE_NVML_H

#include "weft_cuda.h"

struct nvml {
	nvmlDevice_t device;
	nvmlReturn_t (*init)(void);
	nvmlReturn_t (*by_uuid)(const char *uuid, nvmlDevice_t *device);
	nvmlReturn_t (*uuid)(nvmlDevice_t device, char *text, unsigned int length);
	nvmlReturn_t (*memory)(nvmlDevice_t device, nvmlMemory_t *memory);
	nvmlReturn_t (*memory_v2)(nvmlDevice_t device, nvmlMemory_v2_t *memory);
	nvmlReturn_t (*processes)(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *list);
};

/* Opens NVML and finds the device; skips the check where there is no NVML. Call use_gpu before. */
struct nvml use_nvml(void);

/* Memory of the device in both forms; the second has version 0 where NVML does not know it. */
nvmlMemory_t nvml_memory(const struct nvml *nvml);
nvmlMemory_v2_t nvml_memory_v2(const struct nvml *nvml);

#endif
