/* Whether all who are asked about a GPU's memory and processes say the same. */
#include <string.h>
#include <unistd.h>

#include "conformance_nvml.h"
#include "conformance.h"
#include "weft_lookup.h"

static void totals(void) {
	size_t free, total, device_total;
	use_gpu();
	OK(api.cuMemGetInfo_v2(&free, &total));
	OK(api.cuDeviceTotalMem_v2(&device_total, 0));
	EXPECT(total == device_total, "cuMemGetInfo says %zu bytes, cuDeviceTotalMem %zu", total, device_total);
	EXPECT(free > 0 && free <= total, "%zu bytes of %zu are free", free, total);
}

/* NVML's total has what the driver keeps for itself; under weft all show the share. */
static void nvml_total(void) {
	size_t total;
	use_gpu();
	struct nvml nvml = use_nvml();
	OK(api.cuDeviceTotalMem_v2(&total, 0));
	unsigned long long theirs = nvml_memory(&nvml).total;
	EXPECT(theirs >= total, "NVML says %llu bytes, CUDA %zu", theirs, total);
	EXPECT(!weft_try_managed() || theirs == total, "under weft NVML says %llu bytes, CUDA %zu", theirs, total);
}

static void nvml_forms(void) {
	use_gpu();
	struct nvml nvml = use_nvml();
	nvmlMemory_t first = nvml_memory(&nvml);
	nvmlMemory_v2_t second = nvml_memory_v2(&nvml);
	if (second.version == 0)
		check_skip("this NVML has no second form");
	EXPECT(first.total == second.total, "totals of %llu and %llu bytes", first.total, second.total);
	EXPECT(first.used == second.used + second.reserved, "%llu bytes used, and %llu and %llu reserved", first.used, second.used, second.reserved);
	EXPECT(first.total == first.used + first.free, "%llu bytes are not %llu used and %llu free", first.total, first.used, first.free);
	EXPECT(first.free == second.free, "%llu and %llu bytes free", first.free, second.free);
}

/* An allocation shows with all of them alike. */
static void nvml_moves(void) {
	CUdeviceptr address;
	use_gpu();
	struct nvml nvml = use_nvml();
	unsigned long long nvml_before = nvml_memory(&nvml).used;
	size_t before = free_bytes();
	OK(api.cuMemAlloc_v2(&address, 256 * MIB));
	size_t taken = before - free_bytes();
	unsigned long long grown = nvml_memory(&nvml).used - nvml_before;
	EXPECT(taken >= 256 * MIB, "256 MiB took %zu bytes", taken);
	EXPECT(grown == taken, "cuMemGetInfo fell by %zu bytes, NVML's use rose by %llu", taken, grown);
}

static void uuids(void) {
	char text[NVML_DEVICE_UUID_BUFFER_SIZE] = "";
	use_gpu();
	struct nvml nvml = use_nvml(); /* found by CUDA's UUID */
	EXPECT(nvml.uuid(nvml.device, text, sizeof text) == NVML_SUCCESS && strncmp(text, "GPU-", 4) == 0, "NVML names the GPU \"%s\"", text);
}

static void processes(void) {
	nvmlProcessInfo_v2_t list[128];
	unsigned int count = COUNT(list);
	CUdeviceptr address;
	use_gpu();
	struct nvml nvml = use_nvml();
	if (!nvml.processes)
		check_skip("this NVML has no third form of its list of processes");
	OK(api.cuMemAlloc_v2(&address, 64 * MIB));
	EXPECT(nvml.processes(nvml.device, &count, list) == NVML_SUCCESS, "NVML lists no processes");
	for (unsigned int i = 0; i < count; i++) {
		if (list[i].pid != (unsigned int)getpid())
			continue;
		EXPECT(list[i].usedGpuMemory >= 64 * MIB, "NVML says that this process uses %llu bytes", list[i].usedGpuMemory);
		return;
	}
	EXPECT(!weft_try_managed(), "this process is not among the %u that NVML lists", count);
	check_skip("NVML counts processes in another namespace");
}

static void names(void) {
	const char *name = NULL;
	use_driver();
	OK(api.cuInit(0));
	OK(api.cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
	EXPECT(name && strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0, "code 2 is called %s", name ? name : "nothing");
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuGetErrorName((CUresult)123456, &name));
}

const struct check query_checks[] = {
	{"query.totals", totals, CHECK_ALWAYS},
	{"query.nvml_total", nvml_total, CHECK_ALWAYS},
	{"query.nvml_forms", nvml_forms, CHECK_ALWAYS},
	{"query.nvml_moves", nvml_moves, CHECK_ALWAYS},
	{"query.uuids", uuids, CHECK_ALWAYS},
	{"query.processes", processes, CHECK_ALWAYS},
	{"query.error_names", names, CHECK_ALWAYS},
	{0},
};
