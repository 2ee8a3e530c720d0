/* What most checks begin with. */
#include <dlfcn.h>
#include <stdio.h>

#include "conformance.h"
#include "spin_ptx.h"

void use_driver(void) {
	if (!api_open())
		check_fail(__FILE__, __LINE__, "no CUDA driver: %s", dlerror());
}

void use_gpu(void) {
	CUdevice device;
	CUcontext context;
	use_driver();
	OK(api.cuInit(0));
	OK(api.cuDeviceGet(&device, 0));
	OK(api.cuDevicePrimaryCtxRetain(&context, device));
	OK(api.cuCtxSetCurrent(context));
}

CUfunction use_spin(void) {
	CUmodule module;
	CUfunction spin;
	use_gpu();
	OK(api.cuModuleLoadData(&module, spin_ptx));
	OK(api.cuModuleGetFunction(&spin, module, SPIN_KERNEL));
	return spin;
}

CUresult spin_on(CUfunction spin, CUstream stream, uint64_t ns) {
	void *parameters[] = {&ns};
	return api.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

size_t free_bytes(void) {
	size_t free, total;
	OK(api.cuCtxSynchronize());
	OK(api.cuMemGetInfo_v2(&free, &total));
	EXPECT(free <= total, "free %zu is above total %zu", free, total);
	return free;
}

void *caller_symbol(const char *library, const char *symbol) {
	char path[4096];
	snprintf(path, sizeof path, "%s/lib%s.so", expected.callers, library);
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		check_fail(__FILE__, __LINE__, "%s", dlerror());
	void *address = dlsym(handle, symbol);
	EXPECT(address, "%s has no %s", path, symbol);
	return address;
}
