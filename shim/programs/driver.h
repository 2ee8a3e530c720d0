/*
 * The CUDA driver, found when a program runs and not when it is linked, and one GPU of it as the programs here use it.
 *
 * A call that fails ends the program: it prints which call, the code and what to do, and exits with EXIT_FAILED, or with
 * EXIT_OUT_OF_MEMORY where the driver's code is 2. Calls whose failure is an answer are made through the table.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft_cuda.h"

enum { EXIT_OUT_OF_MEMORY = 3 };

/* Member, symbol, arguments: what the programs call. */
#define DRIVER_FUNCTIONS(F) \
	F(init, cuInit, (unsigned int flags)) \
	F(device_count, cuDeviceGetCount, (int *count)) \
	F(device_get, cuDeviceGet, (CUdevice *device, int ordinal)) \
	F(device_total, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device)) \
	F(context_retain, cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
	F(context_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
	F(context_set, cuCtxSetCurrent, (CUcontext context)) \
	F(context_synchronize, cuCtxSynchronize, (void)) \
	F(module_load, cuModuleLoadData, (CUmodule *module, const void *image)) \
	F(module_unload, cuModuleUnload, (CUmodule module)) \
	F(module_function, cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
	F(memory_info, cuMemGetInfo_v2, (size_t *free, size_t *total)) \
	F(memory_alloc, cuMemAlloc_v2, (CUdeviceptr *address, size_t bytes)) \
	F(memory_free, cuMemFree_v2, (CUdeviceptr address)) \
	F(stream_create, cuStreamCreate, (CUstream *stream, unsigned int flags)) \
	F(stream_destroy, cuStreamDestroy_v2, (CUstream stream)) \
	F(stream_synchronize, cuStreamSynchronize, (CUstream stream)) \
	F(event_create, cuEventCreate, (CUevent *event, unsigned int flags)) \
	F(event_destroy, cuEventDestroy_v2, (CUevent event)) \
	F(event_record, cuEventRecord, (CUevent event, CUstream stream)) \
	F(event_synchronize, cuEventSynchronize, (CUevent event)) \
	F(launch, cuLaunchKernel, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
		unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, \
		void **parameters, void **extra)) \
	F(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode)) \
	F(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
	F(graph_instantiate, cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
	F(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream)) \
	F(graph_destroy, cuGraphDestroy, (CUgraph graph)) \
	F(exec_destroy, cuGraphExecDestroy, (CUgraphExec exec))

struct driver {
	const char *program; /* for messages */
#define DRIVER_MEMBER(member, symbol, arguments) CUresult(*member) arguments;
	DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
};

/* The driver of this process: filled by driver_open, constant after. */
extern struct driver cu;

/* Finds libcuda.so.1 and what the table names. Does not initialise it. program is the name for messages. */
void driver_open(const char *program);

/* Ends the program if result is an error; call is the text to name. */
void driver_check(CUresult result, const char *call);
#define CU(member, ...) driver_check(cu.member(__VA_ARGS__), "cu." #member)

/* The name of a result as the driver's header has it, or "unknown". */
const char *driver_result_name(CUresult result);

enum { GPU_STREAMS = 16 };

/* One device with its primary context, the spin kernel and some streams. Used by one thread at a time, except for launches. */
struct gpu {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction spin;
	int stream_count;
	CUstream streams[GPU_STREAMS];
};

/* Opens device number ordinal after cuInit, and makes its context current. 1 <= streams <= GPU_STREAMS. */
void gpu_open(struct gpu *gpu, int ordinal, int streams);

/* Waits for all work and gives everything back. */
void gpu_close(struct gpu *gpu);

/* Launches one kernel of so many nanoseconds on stream number stream. The GPU's context must be current. */
void gpu_spin(struct gpu *gpu, int stream, uint64_t ns);

/* Waits until all streams are empty. */
void gpu_synchronize(struct gpu *gpu);

/* Captures kernels of kernel_ns each, one after the other, as a graph ready to launch. */
CUgraphExec gpu_capture(struct gpu *gpu, uint64_t kernels, uint64_t kernel_ns);

/* CLOCK_MONOTONIC in nanoseconds, and a sleep until it. */
uint64_t clock_ns(void);
void clock_sleep_until(uint64_t ns);

#endif
