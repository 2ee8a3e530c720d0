/* All entry points that the checks call, by their symbols. One that the driver lacks is null. */
#ifndef CONFORMANCE_API_H
#define CONFORMANCE_API_H

#include "weft_cuda.h"

#define LAUNCH_ARGUMENTS \
	(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, \
		unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
#define COOPERATIVE_ARGUMENTS \
	(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, \
		unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters)

#define API(F) \
	F(cuInit, (unsigned int flags)) \
	F(cuDriverGetVersion, (int *version)) \
	F(cuDeviceGetCount, (int *count)) \
	F(cuDeviceGet, (CUdevice *device, int ordinal)) \
	F(cuDeviceGetUuid, (CUuuid *uuid, CUdevice device)) \
	F(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device)) \
	F(cuDeviceTotalMem, (unsigned int *bytes, CUdevice device)) \
	F(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device)) \
	F(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device)) \
	F(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
	F(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
	F(cuDevicePrimaryCtxReset_v2, (CUdevice device)) \
	F(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device)) \
	F(cuCtxDestroy_v2, (CUcontext context)) \
	F(cuCtxSetCurrent, (CUcontext context)) \
	F(cuCtxGetCurrent, (CUcontext *context)) \
	F(cuCtxPushCurrent_v2, (CUcontext context)) \
	F(cuCtxPopCurrent_v2, (CUcontext *context)) \
	F(cuCtxSynchronize, (void)) \
	F(cuModuleLoadData, (CUmodule *module, const void *image)) \
	F(cuModuleUnload, (CUmodule module)) \
	F(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
	F(cuFuncSetBlockShape, (CUfunction function, int x, int y, int z)) \
	F(cuParamSetSize, (CUfunction function, unsigned int bytes)) \
	F(cuParamSetv, (CUfunction function, int offset, void *value, unsigned int bytes)) \
	F(cuLaunch, (CUfunction function)) \
	F(cuLaunchGrid, (CUfunction function, int width, int height)) \
	F(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream)) \
	F(cuLaunchKernel, LAUNCH_ARGUMENTS) \
	F(cuLaunchKernel_ptsz, LAUNCH_ARGUMENTS) \
	F(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)) \
	F(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)) \
	F(cuLaunchCooperativeKernel, COOPERATIVE_ARGUMENTS) \
	F(cuLaunchCooperativeKernel_ptsz, COOPERATIVE_ARGUMENTS) \
	F(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * list, unsigned int count, unsigned int flags)) \
	F(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data)) \
	F(cuMemGetInfo_v2, (size_t *free, size_t *total)) \
	F(cuMemGetInfo, (unsigned int *free, unsigned int *total)) \
	F(cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes)) \
	F(cuMemAlloc, (CUdeviceptr_v1 *address, unsigned int bytes)) \
	F(cuMemFree_v2, (CUdeviceptr address)) \
	F(cuMemFree, (CUdeviceptr_v1 address)) \
	F(cuMemAllocPitch_v2, (CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)) \
	F(cuMemAllocManaged, (CUdeviceptr *address, size_t bytes, unsigned int flags)) \
	F(cuMemAllocHost_v2, (void **address, size_t bytes)) \
	F(cuMemHostAlloc, (void **address, size_t bytes, unsigned int flags)) \
	F(cuMemFreeHost, (void *address)) \
	F(cuMemAllocAsync, (CUdeviceptr *address, size_t bytes, CUstream stream)) \
	F(cuMemAllocAsync_ptsz, (CUdeviceptr *address, size_t bytes, CUstream stream)) \
	F(cuMemFreeAsync, (CUdeviceptr address, CUstream stream)) \
	F(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream)) \
	F(cuMemAllocFromPoolAsync, (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)) \
	F(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)) \
	F(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *properties)) \
	F(cuMemPoolDestroy, (CUmemoryPool pool)) \
	F(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep)) \
	F(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
	F(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)) \
	F(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags)) \
	F(cuMemRelease, (CUmemGenericAllocationHandle handle)) \
	F(cuMemAddressReserve, (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags)) \
	F(cuMemAddressFree, (CUdeviceptr address, size_t bytes)) \
	F(cuMemMap, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
	F(cuMemUnmap, (CUdeviceptr address, size_t bytes)) \
	F(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *list, size_t count)) \
	F(cuMemGetAllocationGranularity, (size_t *bytes, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option)) \
	F(cuMemExportToShareableHandle, \
		(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)) \
	F(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *handle, void *in, CUmemAllocationHandleType type)) \
	F(cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr address)) \
	F(cuIpcOpenMemHandle_v2, (CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)) \
	F(cuIpcCloseMemHandle, (CUdeviceptr address)) \
	F(cuArrayCreate_v2, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *description)) \
	F(cuArray3DCreate_v2, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *description)) \
	F(cuArrayDestroy, (CUarray array)) \
	F(cuMipmappedArrayCreate, (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *description, unsigned int levels)) \
	F(cuMipmappedArrayDestroy, (CUmipmappedArray array)) \
	F(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) \
	F(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
	F(cuMemsetD8_v2, (CUdeviceptr to, unsigned char value, size_t count)) \
	F(cuMemsetD32Async, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream)) \
	F(cuStreamCreate, (CUstream *stream, unsigned int flags)) \
	F(cuStreamDestroy_v2, (CUstream stream)) \
	F(cuStreamSynchronize, (CUstream stream)) \
	F(cuStreamSynchronize_ptsz, (CUstream stream)) \
	F(cuStreamQuery, (CUstream stream)) \
	F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags)) \
	F(cuEventCreate, (CUevent *event, unsigned int flags)) \
	F(cuEventDestroy_v2, (CUevent event)) \
	F(cuEventRecord, (CUevent event, CUstream stream)) \
	F(cuEventQuery, (CUevent event)) \
	F(cuEventSynchronize, (CUevent event)) \
	F(cuEventElapsedTime, (float *ms, CUevent from, CUevent to)) \
	F(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode)) \
	F(cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
	F(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status)) \
	F(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode)) \
	F(cuGraphCreate, (CUgraph *graph, unsigned int flags)) \
	F(cuGraphAddMemAllocNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)) \
	F(cuGraphAddMemFreeNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr address)) \
	F(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *count)) \
	F(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
	F(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) \
	F(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream)) \
	F(cuGraphDestroy, (CUgraph graph)) \
	F(cuGraphExecDestroy, (CUgraphExec exec)) \
	F(cuDeviceGraphMemTrim, (CUdevice device)) \
	F(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags)) \
	F(cuGetProcAddress_v2, (const char *symbol, void **function, int version, uint64_t flags, CUdriverProcAddressQueryResult *status)) \
	F(cuGetErrorName, (CUresult result, const char **name))

struct api {
	void *library; /* libcuda.so.1 */
#define API_MEMBER(symbol, arguments) CUresult(*symbol) arguments;
	API(API_MEMBER)
#undef API_MEMBER
};

/* Of this process; filled by use_driver. */
extern struct api api;

/* Fills api. False where there is no driver. */
_Bool api_open(void);

#endif
