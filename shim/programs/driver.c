#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

struct driver cu;

static const struct result_row {
	CUresult result;
	const char *name;
	const char *remedy;
} results[] = {
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "an argument is outside its range"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "ask for less, or for a larger share"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "start CUDA after fork, not before"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "check CUDA_VISIBLE_DEVICES, nvidia-smi, or the emulated GPUs' broker"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "give the number of a device that is there"},
	{CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "the driver is too old for this program's kernel"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "the context is gone; start again"},
	{CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the GPU is older than compute capability 5.0"},
	{CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "the driver is too old for this program's kernel"},
	{CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "see the kernel's log, and the broker's if the GPU is emulated"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "ask again later"},
	{CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "the context is lost; start again"},
	{CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "the context is lost; start again and look for an XID"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "this GPU or driver does not have it"},
	{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "see the kernel's log for an XID"},
};

static const struct result_row *find_result(CUresult result) {
	static const struct result_row other = {CUDA_ERROR_UNKNOWN, "unknown", "cuda.h names the code"};
	for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
		if (results[i].result == result)
			return &results[i];
	return &other;
}

const char *driver_result_name(CUresult result) { return result == CUDA_SUCCESS ? "CUDA_SUCCESS" : find_result(result)->name; }

/* The symbol behind a member's name, as in "cu.memory_alloc". */
static const char *symbol_of(const char *call) {
#define DRIVER_NAME(member, symbol, arguments) \
	if (strcmp(call, "cu." #member) == 0) \
		return #symbol;
	DRIVER_FUNCTIONS(DRIVER_NAME)
#undef DRIVER_NAME
	return call;
}

void driver_check(CUresult result, const char *call) {
	if (result == CUDA_SUCCESS)
		return;
	const struct result_row *row = find_result(result);
	fprintf(stderr, "%s: %s failed with code %d (%s): %s\n", cu.program, symbol_of(call), (int)result, row->name, row->remedy);
	exit(result == CUDA_ERROR_OUT_OF_MEMORY ? EXIT_OUT_OF_MEMORY : EXIT_FAILED);
}

static void *find(void *library, const char *symbol) {
	void *address = dlsym(library, symbol);
	if (address)
		return address;
	fprintf(stderr, "%s: libcuda.so.1 has no %s: the driver is older than CUDA 11.4; update it\n", cu.program, symbol);
	exit(EXIT_FAILED);
}

void driver_open(const char *program) {
	cu.program = program;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s: no CUDA driver: %s; install one, or set LD_LIBRARY_PATH to the emulated one (bin/lib/emu)\n", program, dlerror());
		exit(EXIT_FAILED);
	}
#define DRIVER_FIND(member, symbol, arguments) \
	{ \
		void *address = find(library, #symbol); \
		memcpy(&cu.member, &address, sizeof address); \
	}
	DRIVER_FUNCTIONS(DRIVER_FIND)
#undef DRIVER_FIND
}
