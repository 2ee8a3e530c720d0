/* Allocating and freeing: what comes back, what is refused, who keeps what alive. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance_paths.h"

enum { PIECE = 64 * MIB };

/* A way takes at least what was asked for, and gives all of it back. */
static void balance(int path) {
	struct piece piece;
	use_gpu();
	OK(memory_give(path, &piece, PIECE)); /* the first use may cost something for good */
	memory_take(path, &piece);
	size_t before = free_bytes();
	OK(memory_give(path, &piece, PIECE));
	size_t during = free_bytes();
	memory_take(path, &piece);
	size_t after = free_bytes();
	bool lazy = path == MEMORY_PATH_cuMemAllocManaged; /* moves in when it is touched, where nobody charges it before */
	EXPECT(lazy || before - during >= PIECE, "64 MiB took %zu bytes", before - during);
	EXPECT(after == before, "%zu bytes were free before, and %zu after", before, after);
}

static void zero_bytes(void) {
	CUdeviceptr address;
	use_gpu();
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuMemAlloc_v2(&address, 0));
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuMemAlloc_v2(NULL, MIB));
}

/* Refused memory leaves everything as it was. */
static void too_much(void) {
	CUdeviceptr address;
	size_t free, total;
	use_gpu();
	OK(api.cuMemGetInfo_v2(&free, &total));
	EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc_v2(&address, total + PIECE));
	EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc_v2(&address, (size_t)1 << 50));
	EXPECT(free_bytes() == free, "a refusal changed what is free");
	OK(api.cuMemAlloc_v2(&address, PIECE));
	OK(api.cuMemFree_v2(address));
}

static void free_twice(void) {
	CUdeviceptr address;
	use_gpu();
	OK(api.cuMemAlloc_v2(&address, PIECE));
	OK(api.cuMemFree_v2(address));
	size_t before = free_bytes();
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuMemFree_v2(address));
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuMemFree_v2((CUdeviceptr)0xdeadbeef000));
	EXPECT(free_bytes() == before, "a false free changed what is free");
}

/* Drivers differ in what they answer; none gives or takes memory for it. */
static void free_nothing(void) {
	use_gpu();
	size_t before = free_bytes();
	api.cuMemFree_v2(0);
	EXPECT(free_bytes() == before, "freeing nothing changed what is free");
}

/* Memory of one family freed by the call of another. */
static void free_across(void) {
	CUdeviceptr address;
	use_gpu();
	NEED(cuMemAllocAsync);
	OK(api.cuMemAllocAsync(&address, PIECE, NULL));
	OK(api.cuMemFree_v2(address));
	struct piece warm;
	OK(memory_give(MEMORY_PATH_cuMemAllocAsync, &warm, PIECE));
	memory_take(MEMORY_PATH_cuMemAllocAsync, &warm);
	size_t before = free_bytes();
	OK(api.cuMemAllocAsync(&address, PIECE, NULL));
	OK(api.cuMemFree_v2(address));
	OK(memory_give(MEMORY_PATH_cuMemAllocAsync, &warm, PIECE));
	memory_take(MEMORY_PATH_cuMemAllocAsync, &warm);
	OK(api.cuMemAlloc_v2(&address, PIECE));
	OK(api.cuMemFreeAsync(address, NULL));
	EXPECT(free_bytes() == before, "frees across families lose memory");
}

/* Many allocations in random order by random ways, and nothing is lost. */
static void mixed(void) {
	enum { ROUNDS = 400, SLOTS = 16 };
	static const int ways[] = {MEMORY_PATH_cuMemAlloc_v2, MEMORY_PATH_cuMemAllocPitch_v2, MEMORY_PATH_cuArrayCreate_v2, MEMORY_PATH_next};
	struct piece pieces[SLOTS];
	int held[SLOTS];
	use_gpu();
	for (int i = 0; i < SLOTS; i++)
		held[i] = -1;
	srand(1);
	size_t before = free_bytes();
	for (int round = 0; round < ROUNDS + SLOTS; round++) {
		int slot = round < ROUNDS ? rand() % SLOTS : round - ROUNDS;
		if (held[slot] >= 0) {
			memory_take(held[slot], &pieces[slot]);
			held[slot] = -1;
		} else if (round < ROUNDS) {
			held[slot] = ways[(size_t)rand() % COUNT(ways)];
			OK(memory_give(held[slot], &pieces[slot], (size_t)(2 + 2 * (rand() % 8)) * MIB));
		}
	}
	size_t after = free_bytes();
	EXPECT(after == before, "%zu bytes were free before, and %zu after", before, after);
}

/* A pool that keeps what is freed holds on to it until it is trimmed. */
static void pool_keeps(void) {
	CUmemoryPool pool;
	CUdeviceptr address;
	uint64_t keep = UINT64_MAX, reserved = 0, used = 0;
	use_gpu();
	NEED(cuMemPoolSetAttribute);
	OK(api.cuDeviceGetDefaultMemPool(&pool, 0));
	OK(api.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	OK(api.cuMemAllocAsync(&address, PIECE, NULL));
	OK(api.cuMemFreeAsync(address, NULL));
	size_t kept = free_bytes();
	OK(api.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	OK(api.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	EXPECT(reserved >= PIECE && used == 0, "the pool reserves %llu bytes and uses %llu", (unsigned long long)reserved, (unsigned long long)used);
	OK(api.cuMemPoolTrimTo(pool, 0));
	size_t trimmed = free_bytes();
	EXPECT(trimmed >= kept + PIECE, "trimming gave back %zu bytes", trimmed - kept);
}

static CUmemAllocationProp pinned(CUmemAllocationHandleType handles) {
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = handles, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

/* Physical memory lives until its last handle and its last mapping are gone, whichever comes last. */
static void mapping_keeps(void) {
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties = pinned(CU_MEM_HANDLE_TYPE_NONE);
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr address;
	use_gpu();
	NEED(cuMemCreate);
	size_t before = free_bytes();
	check_supported(api.cuMemCreate(&handle, PIECE, &properties, 0), "virtual memory management");
	OK(api.cuMemAddressReserve(&address, PIECE, 0, 0, 0));
	OK(api.cuMemMap(address, PIECE, 0, handle, 0));
	OK(api.cuMemSetAccess(address, PIECE, &access, 1));
	OK(api.cuMemRelease(handle));
	size_t mapped = free_bytes();
	EXPECT(before - mapped >= PIECE, "mapped memory was given back with its handle");
	OK(api.cuMemUnmap(address, PIECE));
	OK(api.cuMemAddressFree(address, PIECE));
	size_t after = free_bytes();
	EXPECT(after == before, "%zu bytes were free before, and %zu after", before, after);
}

/* Reserving addresses takes no memory. */
static void addresses_are_free(void) {
	CUdeviceptr address;
	use_gpu();
	NEED(cuMemAddressReserve);
	size_t before = free_bytes();
	OK(api.cuMemAddressReserve(&address, (size_t)1 << 40, 0, 0, 0));
	EXPECT(free_bytes() == before, "reserved addresses took memory");
	OK(api.cuMemAddressFree(address, (size_t)1 << 40));
}

static void exported(void) {
	CUmemGenericAllocationHandle handle, imported;
	CUmemAllocationProp properties = pinned(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	int descriptor = -1;
	use_gpu();
	NEED(cuMemExportToShareableHandle);
	size_t before = free_bytes();
	check_supported(api.cuMemCreate(&handle, PIECE, &properties, 0), "memory that can be exported");
	OK(api.cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(api.cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	OK(api.cuMemRelease(handle));
	EXPECT(before - free_bytes() >= PIECE, "imported memory was given back with its exporter's handle");
	OK(api.cuMemRelease(imported));
	close(descriptor);
	size_t after = free_bytes();
	EXPECT(after == before, "%zu bytes were free before, and %zu after", before, after);
}

/* Another process opens this one's memory; it is started before CUDA, as it must be. */
static void ipc(void) {
	int pipes[2];
	CUipcMemHandle handle;
	CUdeviceptr address;
	EXPECT(pipe(pipes) == 0, "cannot make a pipe");
	pid_t child = fork();
	if (child == 0) {
		close(pipes[1]);
		if (read(pipes[0], &handle, sizeof handle) != sizeof handle)
			_exit(1);
		use_gpu();
		OK(api.cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		OK(api.cuMemsetD8_v2(address, 1, MIB));
		OK(api.cuCtxSynchronize());
		OK(api.cuIpcCloseMemHandle(address));
		_exit(0);
	}
	close(pipes[0]);
	use_gpu();
	OK(api.cuMemAlloc_v2(&address, PIECE));
	check_supported(api.cuIpcGetMemHandle(&handle, address), "memory of other processes");
	EXPECT(write(pipes[1], &handle, sizeof handle) == sizeof handle, "cannot write to the pipe");
	int status;
	waitpid(child, &status, 0);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the importer failed");
	OK(api.cuMemFree_v2(address));
}

/* Memory of the host is not the GPU's. */
static void host(void) {
	void *memory;
	use_gpu();
	size_t before = free_bytes();
	OK(api.cuMemHostAlloc(&memory, PIECE, CU_MEMHOSTALLOC_PORTABLE));
	size_t during = free_bytes();
	EXPECT(before - during < 8 * MIB, "64 MiB on the host took %zu bytes of the GPU", before - during);
	OK(api.cuMemFreeHost(memory));
}

/* Frees on a stream happen when its work is done. */
static void freed_in_order(void) {
	CUfunction spin = use_spin();
	CUstream stream;
	CUdeviceptr address;
	NEED(cuMemAllocAsync);
	OK(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(api.cuMemAllocAsync(&address, PIECE, stream));
	OK(spin_on(spin, stream, 1000000));
	OK(api.cuMemFreeAsync(address, stream));
	OK(api.cuStreamSynchronize(stream));
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuMemFree_v2(address));
}

#define THROUGH(name) \
	static void through_##name(void) { balance(MEMORY_PATH_##name); }
MEMORY_PATHS(THROUGH)
#define ROW(name) {"memory.path." #name, through_##name, CHECK_ALWAYS},
const struct check memory_checks[] = {
	MEMORY_PATHS(ROW)
	{"memory.zero", zero_bytes, CHECK_ALWAYS},
	{"memory.too_much", too_much, CHECK_ALWAYS},
	{"memory.free_twice", free_twice, CHECK_ALWAYS},
	{"memory.free_nothing", free_nothing, CHECK_ALWAYS},
	{"memory.free_across", free_across, CHECK_ALWAYS},
	{"memory.freed_in_order", freed_in_order, CHECK_ALWAYS},
	{"memory.mixed", mixed, CHECK_ALWAYS},
	{"memory.pool_keeps", pool_keeps, CHECK_ALWAYS},
	{"memory.mapping_keeps", mapping_keeps, CHECK_ALWAYS},
	{"memory.addresses_are_free", addresses_are_free, CHECK_ALWAYS},
	{"memory.exported", exported, CHECK_ALWAYS},
	{"memory.ipc", ipc, CHECK_ALWAYS},
	{"memory.host", host, CHECK_ALWAYS},
	{0},
};
