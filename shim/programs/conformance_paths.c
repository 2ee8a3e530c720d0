/* The ways of allocating. */
#include "conformance_paths.h"

#include <string.h>

/* Ends a way that the driver lacks. */
#define ABSENT CUDA_ERROR_NOT_SUPPORTED

static CUresult give_cuMemAlloc_v2(struct piece *p, size_t bytes) { return api.cuMemAlloc_v2(&p->address, bytes); }
static CUresult take_address(struct piece *p) { return api.cuMemFree_v2(p->address); }

/* The form of 32-bit addresses: a 64-bit driver may not have it, or refuse it. */
static CUresult give_cuMemAlloc(struct piece *p, size_t bytes) {
	CUdeviceptr_v1 address;
	CUresult result = api.cuMemAlloc ? api.cuMemAlloc(&address, (unsigned int)bytes) : ABSENT;
	p->handle = result == CUDA_SUCCESS ? address : 0;
	return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ? result : ABSENT;
}
static CUresult take_cuMemAlloc(struct piece *p) { return api.cuMemFree ? api.cuMemFree((CUdeviceptr_v1)p->handle) : ABSENT; }

static CUresult give_cuMemAllocPitch_v2(struct piece *p, size_t bytes) {
	size_t pitch;
	return api.cuMemAllocPitch_v2(&p->address, &pitch, 4096, bytes / 4096, 4);
}

static CUresult give_cuMemAllocManaged(struct piece *p, size_t bytes) {
	return api.cuMemAllocManaged(&p->address, bytes, CU_MEM_ATTACH_GLOBAL);
}

static CUresult give_cuMemAllocAsync(struct piece *p, size_t bytes) {
	return api.cuMemAllocAsync ? api.cuMemAllocAsync(&p->address, bytes, NULL) : ABSENT;
}
static CUresult give_cuMemAllocAsync_ptsz(struct piece *p, size_t bytes) {
	return api.cuMemAllocAsync_ptsz ? api.cuMemAllocAsync_ptsz(&p->address, bytes, NULL) : ABSENT;
}
static CUresult take_async(struct piece *p) { return api.cuMemFreeAsync(p->address, NULL); }
static CUresult take_async_ptsz(struct piece *p) { return api.cuMemFreeAsync_ptsz(p->address, NULL); }

static CUmemoryPool default_pool(void) {
	CUmemoryPool pool = NULL;
	if (api.cuDeviceGetDefaultMemPool)
		OK(api.cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}
static CUresult give_cuMemAllocFromPoolAsync(struct piece *p, size_t bytes) {
	return api.cuMemAllocFromPoolAsync ? api.cuMemAllocFromPoolAsync(&p->address, bytes, default_pool(), NULL) : ABSENT;
}
static CUresult give_cuMemAllocFromPoolAsync_ptsz(struct piece *p, size_t bytes) {
	return api.cuMemAllocFromPoolAsync_ptsz ? api.cuMemAllocFromPoolAsync_ptsz(&p->address, bytes, default_pool(), NULL) : ABSENT;
}

/* A pool per piece, gone with it. */
static CUresult give_own_pool(struct piece *p, size_t bytes) {
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool;
	if (!api.cuMemPoolCreate || !api.cuMemAllocFromPoolAsync)
		return ABSENT;
	OK(api.cuMemPoolCreate(&pool, &properties));
	p->handle = (uint64_t)(uintptr_t)pool;
	CUresult result = api.cuMemAllocFromPoolAsync(&p->address, bytes, pool, NULL);
	if (result != CUDA_SUCCESS)
		OK(api.cuMemPoolDestroy(pool));
	return result;
}
static CUresult take_own_pool(struct piece *p) {
	CUresult result = api.cuMemFreeAsync(p->address, NULL);
	OK(api.cuCtxSynchronize());
	OK(api.cuMemPoolDestroy((CUmemoryPool)(uintptr_t)p->handle));
	return result;
}

static CUresult give_cuMemCreate(struct piece *p, size_t bytes) {
	CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUresult result = api.cuMemCreate ? api.cuMemCreate(&handle, bytes, &properties, 0) : ABSENT;
	p->handle = result == CUDA_SUCCESS ? handle : 0;
	return result;
}
static CUresult take_cuMemCreate(struct piece *p) { return api.cuMemRelease(p->handle); }

enum { TEXEL = 16, ROW = 1024 }; /* bytes of four floats; texels of a row */

static CUresult give_cuArrayCreate_v2(struct piece *p, size_t bytes) {
	CUDA_ARRAY_DESCRIPTOR description = {ROW, bytes / ROW / TEXEL, CU_AD_FORMAT_FLOAT, 4};
	CUarray array = NULL;
	CUresult result = api.cuArrayCreate_v2(&array, &description);
	p->handle = (uint64_t)(uintptr_t)array;
	return result;
}
static CUresult give_cuArray3DCreate_v2(struct piece *p, size_t bytes) {
	CUDA_ARRAY3D_DESCRIPTOR description = {ROW, 16, bytes / ROW / TEXEL / 16, CU_AD_FORMAT_FLOAT, 4, 0};
	CUarray array = NULL;
	CUresult result = api.cuArray3DCreate_v2(&array, &description);
	p->handle = (uint64_t)(uintptr_t)array;
	return result;
}
static CUresult take_array(struct piece *p) { return api.cuArrayDestroy((CUarray)(uintptr_t)p->handle); }

static CUresult give_cuMipmappedArrayCreate(struct piece *p, size_t bytes) {
	CUDA_ARRAY3D_DESCRIPTOR description = {ROW, bytes / ROW / TEXEL, 0, CU_AD_FORMAT_FLOAT, 4, 0};
	CUmipmappedArray array = NULL;
	CUresult result = api.cuMipmappedArrayCreate(&array, &description, 1);
	p->handle = (uint64_t)(uintptr_t)array;
	return result;
}
static CUresult take_mipmapped(struct piece *p) { return api.cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)p->handle); }

/* A graph that allocates and leaves its memory to the program. */
static CUresult give_cuGraphAddMemAllocNode(struct piece *p, size_t bytes) {
	CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = bytes,
	};
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec = NULL;
	if (!api.cuGraphAddMemAllocNode)
		return ABSENT;
	OK(api.cuGraphCreate(&graph, 0));
	CUresult result = api.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters);
	if (result == CUDA_SUCCESS)
		result = api.cuGraphInstantiateWithFlags(&exec, graph, 0);
	if (result == CUDA_SUCCESS)
		result = api.cuGraphLaunch(exec, NULL);
	p->address = parameters.dptr;
	p->handle = (uint64_t)(uintptr_t)exec;
	if (result != CUDA_SUCCESS && exec)
		OK(api.cuGraphExecDestroy(exec));
	OK(api.cuGraphDestroy(graph));
	return result;
}
static CUresult take_cuGraphAddMemAllocNode(struct piece *p) {
	CUresult result = api.cuMemFree_v2(p->address);
	OK(api.cuGraphExecDestroy((CUgraphExec)(uintptr_t)p->handle));
	if (api.cuDeviceGraphMemTrim)
		OK(api.cuDeviceGraphMemTrim(0));
	return result;
}

typedef CUresult (*alloc_function)(CUdeviceptr *address, size_t bytes);

static CUresult give_cuGetProcAddress(struct piece *p, size_t bytes) {
	void *found = NULL;
	alloc_function alloc;
	if (!api.cuGetProcAddress)
		return ABSENT;
	OK(api.cuGetProcAddress("cuMemAlloc", &found, 11030, 0));
	memcpy(&alloc, &found, sizeof found);
	return alloc(&p->address, bytes);
}
static CUresult give_cuGetProcAddress_v2(struct piece *p, size_t bytes) {
	void *found = NULL;
	alloc_function alloc;
	if (!api.cuGetProcAddress_v2)
		return ABSENT;
	OK(api.cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, NULL));
	memcpy(&alloc, &found, sizeof found);
	return alloc(&p->address, bytes);
}

/* Allocates and frees by a library that calls the driver in its own way. */
static CUresult give_by(const char *library, struct piece *p, size_t bytes) {
	void *symbol = caller_symbol(library, "caller_alloc");
	alloc_function alloc;
	memcpy(&alloc, &symbol, sizeof symbol);
	return alloc(&p->address, bytes);
}
static CUresult take_by(const char *library, struct piece *p) {
	void *symbol = caller_symbol(library, "caller_free");
	CUresult (*release)(CUdeviceptr);
	memcpy(&release, &symbol, sizeof symbol);
	return release(p->address);
}
static CUresult give_linked(struct piece *p, size_t bytes) { return give_by("linked", p, bytes); }
static CUresult take_linked(struct piece *p) { return take_by("linked", p); }
static CUresult give_next(struct piece *p, size_t bytes) { return give_by("next", p, bytes); }
static CUresult take_next(struct piece *p) { return take_by("next", p); }

#define PATH(name, how_to_take) [MEMORY_PATH_##name] = {give_##name, how_to_take}
const struct memory_path memory_paths[MEMORY_PATH_COUNT] = {
	PATH(cuMemAlloc_v2, take_address),
	PATH(cuMemAlloc, take_cuMemAlloc),
	PATH(cuMemAllocPitch_v2, take_address),
	PATH(cuMemAllocManaged, take_address),
	PATH(cuMemAllocAsync, take_async),
	PATH(cuMemAllocAsync_ptsz, take_async_ptsz),
	PATH(cuMemAllocFromPoolAsync, take_async),
	PATH(cuMemAllocFromPoolAsync_ptsz, take_async_ptsz),
	PATH(own_pool, take_own_pool),
	PATH(cuMemCreate, take_cuMemCreate),
	PATH(cuArrayCreate_v2, take_array),
	PATH(cuArray3DCreate_v2, take_array),
	PATH(cuMipmappedArrayCreate, take_mipmapped),
	PATH(cuGraphAddMemAllocNode, take_cuGraphAddMemAllocNode),
	PATH(cuGetProcAddress, take_address),
	PATH(cuGetProcAddress_v2, take_address),
	PATH(linked, take_linked),
	PATH(next, take_next),
};

CUresult memory_give(int path, struct piece *piece, size_t bytes) {
	*piece = (struct piece){0};
	CUresult result = memory_paths[path].give(piece, bytes);
	if (result == ABSENT)
		check_skip("the driver does not allocate in this way");
	return result;
}

void memory_take(int path, struct piece *piece) {
	OK(memory_paths[path].take(piece));
	OK(api.cuCtxSynchronize());
	if (api.cuStreamSynchronize_ptsz)
		OK(api.cuStreamSynchronize_ptsz(NULL));
	CUmemoryPool pool = default_pool();
	if (pool)
		OK(api.cuMemPoolTrimTo(pool, 0));
}
