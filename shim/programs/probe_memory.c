/* The measurement of a memory limit: what is answered, and what is given. */
#include "probe.h"

#include <stdlib.h>

/* Allocates pieces until the driver refuses, then gives all back. Returns the bytes that were held, and the refusal. */
static uint64_t fill(uint64_t piece, uint64_t most, CUresult *refusal) {
	struct samples held = {0};
	*refusal = CUDA_SUCCESS;
	while (held.count * piece < most) {
		CUdeviceptr address;
		*refusal = cu.memory_alloc(&address, piece);
		if (*refusal != CUDA_SUCCESS)
			break;
		samples_add(&held, address);
	}
	for (size_t i = 0; i < held.count; i++)
		CU(memory_free, held.values[i]);
	uint64_t bytes = held.count * piece;
	samples_free(&held);
	return bytes;
}

void probe_memory(int argc, char **argv) {
	struct probe probe = {0};
	uint64_t piece = 64u << 20, most = UINT64_MAX;
	const struct option_row rows[] = {
		{"piece", OPTION_BYTES, &piece, "BYTES  allocated at a time (64MiB)"},
		{"most", OPTION_BYTES, &most, "BYTES  allocated in all (until the driver refuses)"},
		PROBE_ROWS(&probe),
		{0},
	};
	options_read(PROBE, "usage: " PROBE " memory [options]\n\n"
		"members: device_total_bytes, total_bytes, free_bytes (before the first piece), allocated_bytes, refusal_code (0: none),\n"
		"free_after_bytes (when all was given back)\n", rows, argc, argv);
	if (piece < 1)
		options_fault(PROBE, "--piece 0: give at least 1");
	probe_open(&probe, 1);
	size_t device_total, total, before, after;
	CU(device_total, &device_total, probe.gpu.device);
	CU(memory_info, &before, &total);
	CUresult refusal;
	uint64_t allocated = fill(piece, most, &refusal);
	CU(memory_info, &after, &total);
	probe_head("memory");
	printf(", \"device_total_bytes\": %zu, \"total_bytes\": %zu, \"free_bytes\": %zu, \"allocated_bytes\": %llu, \"refusal_code\": %d, "
		"\"free_after_bytes\": %zu}\n", device_total, total, before, (unsigned long long)allocated, (int)refusal, after);
	probe_close(&probe);
}
