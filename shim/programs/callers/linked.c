/* A library that is linked to libcuda.so.1, as cuBLAS and most programs are. */
#include "weft_cuda.h"

#define CALLER __attribute__((visibility("default")))

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
	unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters, void **extra);

CALLER CUresult caller_total(size_t *bytes) { return cuDeviceTotalMem_v2(bytes, 0); }
CALLER CUresult caller_alloc(CUdeviceptr *address, size_t bytes) { return cuMemAlloc_v2(address, bytes); }
CALLER CUresult caller_free(CUdeviceptr address) { return cuMemFree_v2(address); }
CALLER CUresult caller_launch(CUfunction function, CUstream stream, void **parameters) {
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
}
