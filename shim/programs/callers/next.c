/* A library that finds the driver's functions behind itself, by RTLD_NEXT, as those do that wrap them. */
#include <dlfcn.h>
#include <string.h>

#include "weft_cuda.h"

#define CALLER __attribute__((visibility("default")))

/* Puts the next function of that name after this library into *function; the driver is there because this is linked to it. */
#define BEHIND(function, symbol) \
	do { \
		void *address = dlsym(RTLD_NEXT, symbol); \
		if (!address) \
			return CUDA_ERROR_NOT_FOUND; \
		memcpy(&(function), &address, sizeof address); \
	} while (0)

CALLER CUresult caller_total(size_t *bytes) {
	CUresult (*total)(size_t *, CUdevice);
	BEHIND(total, "cuDeviceTotalMem_v2");
	return total(bytes, 0);
}

CALLER CUresult caller_alloc(CUdeviceptr *address, size_t bytes) {
	CUresult (*alloc)(CUdeviceptr *, size_t);
	BEHIND(alloc, "cuMemAlloc_v2");
	return alloc(address, bytes);
}

CALLER CUresult caller_free(CUdeviceptr address) {
	CUresult (*release)(CUdeviceptr);
	BEHIND(release, "cuMemFree_v2");
	return release(address);
}

CALLER CUresult caller_launch(CUfunction function, CUstream stream, void **parameters) {
	CUresult (*launch)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
		CUstream, void **, void **);
	BEHIND(launch, "cuLaunchKernel");
	return launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
}

/* Names the driver, so that linking keeps it. */
CUresult cuDriverGetVersion(int *version);
CALLER CUresult caller_version(int *version) { return cuDriverGetVersion(version); }
