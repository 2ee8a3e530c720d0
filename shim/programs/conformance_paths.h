/* Every way in which a program gets memory of a GPU, and every way in which it makes one work. Other checks run over them. */
#ifndef CONFORMANCE_PATHS_H
#define CONFORMANCE_PATHS_H

#include "conformance.h"

/* One allocation. */
struct piece {
	CUdeviceptr address;
	uint64_t handle; /* a pointer, or a handle of the driver, as the way has it */
};

/* A way of allocating: give answers what the driver answered; take gives a piece back. */
struct memory_path {
	CUresult (*give)(struct piece *piece, size_t bytes);
	CUresult (*take)(struct piece *piece);
};

/* The names of the ways; each is a member of the enumeration and of the table. Symbols stand for themselves. */
#define MEMORY_PATHS(F) \
	F(cuMemAlloc_v2) \
	F(cuMemAlloc) \
	F(cuMemAllocPitch_v2) \
	F(cuMemAllocManaged) \
	F(cuMemAllocAsync) \
	F(cuMemAllocAsync_ptsz) \
	F(cuMemAllocFromPoolAsync) \
	F(cuMemAllocFromPoolAsync_ptsz) \
	F(own_pool) \
	F(cuMemCreate) \
	F(cuArrayCreate_v2) \
	F(cuArray3DCreate_v2) \
	F(cuMipmappedArrayCreate) \
	F(cuGraphAddMemAllocNode) \
	F(cuGetProcAddress) \
	F(cuGetProcAddress_v2) \
	F(linked) \
	F(next)

#define MEMORY_PATH_NUMBER(name) MEMORY_PATH_##name,
enum { MEMORY_PATHS(MEMORY_PATH_NUMBER) MEMORY_PATH_COUNT };
#undef MEMORY_PATH_NUMBER

extern const struct memory_path memory_paths[MEMORY_PATH_COUNT];

/* Allocates, and skips the check where the driver has no such way. Call use_gpu before. */
CUresult memory_give(int path, struct piece *piece, size_t bytes);

/* Gives back, and waits until the driver has it. */
void memory_take(int path, struct piece *piece);

/* What a launch needs. */
struct launch {
	CUfunction spin;
	CUstream stream;
	uint64_t ns;
	CUgraphExec exec;
	CUdeviceptr from, to;
	CUresult (*caller)(CUfunction function, CUstream stream, void **parameters);
};

/* A way of making the GPU work: ready does what comes before and is never held back; go launches. */
struct launch_path {
	void (*ready)(struct launch *launch); /* may be null */
	CUresult (*go)(struct launch *launch);
	bool spins; /* the kernel runs for launch.ns; else it is a copy or the like */
};

#define LAUNCH_PATHS(F) \
	F(cuLaunchKernel) \
	F(cuLaunchKernel_ptsz) \
	F(cuLaunchKernelEx) \
	F(cuLaunchKernelEx_ptsz) \
	F(cuLaunchCooperativeKernel) \
	F(cuLaunchCooperativeKernel_ptsz) \
	F(cuLaunchCooperativeKernelMultiDevice) \
	F(cuLaunch) \
	F(cuLaunchGrid) \
	F(cuLaunchGridAsync) \
	F(cuGraphLaunch) \
	F(cuGraphLaunch_ptsz) \
	F(cuMemcpyDtoD_v2) \
	F(cuMemcpyDtoDAsync_v2) \
	F(cuMemsetD8_v2) \
	F(cuMemsetD32Async) \
	F(cuGetProcAddress) \
	F(cuGetProcAddress_v2) \
	F(linked) \
	F(next)

#define LAUNCH_PATH_NUMBER(name) LAUNCH_PATH_##name,
enum { LAUNCH_PATHS(LAUNCH_PATH_NUMBER) LAUNCH_PATH_COUNT };
#undef LAUNCH_PATH_NUMBER

extern const struct launch_path launch_paths[LAUNCH_PATH_COUNT];

/* Prepares a launch of ns on a stream of its own; skips the check where the driver has no such way. */
void launch_ready(int path, struct launch *launch, uint64_t ns);

#endif
