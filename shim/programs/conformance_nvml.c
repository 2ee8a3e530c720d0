#include "conformance_nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "conformance.h"

static void find(void *library, const char *symbol, void *function) {
	void *address = dlsym(library, symbol);
	memcpy(function, &address, sizeof address);
}

/* A UUID as NVML writes it. */
static void write_uuid(const CUuuid *uuid, char text[64]) {
	static const char breaks[16] = {[4] = 1, [6] = 1, [8] = 1, [10] = 1};
	char *at = text + sprintf(text, "GPU-");
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", breaks[i] ? "-" : "", (unsigned char)uuid->bytes[i]);
}

struct nvml use_nvml(void) {
	struct nvml nvml;
	CUuuid uuid;
	char text[64];
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		check_skip("there is no NVML");
	find(library, "nvmlInit_v2", &nvml.init);
	find(library, "nvmlDeviceGetHandleByUUID", &nvml.by_uuid);
	find(library, "nvmlDeviceGetUUID", &nvml.uuid);
	find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory);
	find(library, "nvmlDeviceGetMemoryInfo_v2", &nvml.memory_v2);
	find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes);
	EXPECT(nvml.init && nvml.by_uuid && nvml.uuid && nvml.memory, "NVML lacks a function that it has had since CUDA 4");
	EXPECT(nvml.init() == NVML_SUCCESS, "NVML does not start");
	OK(api.cuDeviceGetUuid(&uuid, 0));
	write_uuid(&uuid, text);
	EXPECT(nvml.by_uuid(text, &nvml.device) == NVML_SUCCESS, "NVML does not know %s, CUDA's device 0", text);
	return nvml;
}

nvmlMemory_t nvml_memory(const struct nvml *nvml) {
	nvmlMemory_t memory;
	EXPECT(nvml->memory(nvml->device, &memory) == NVML_SUCCESS, "nvmlDeviceGetMemoryInfo failed");
	return memory;
}

nvmlMemory_v2_t nvml_memory_v2(const struct nvml *nvml) {
	nvmlMemory_v2_t memory = {.version = WEFT_NVML_VERSION(nvmlMemory_v2_t, 2)};
	if (!nvml->memory_v2)
		return (nvmlMemory_v2_t){0};
	EXPECT(nvml->memory_v2(nvml->device, &memory) == NVML_SUCCESS, "nvmlDeviceGetMemoryInfo_v2 failed");
	return memory;
}
