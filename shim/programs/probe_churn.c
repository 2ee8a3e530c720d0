/* The measurement of memory under pressure: random iterations, each of which allocates in random ways up to its peak. */
#include "probe.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "weft_lookup.h"

/* What is called beside driver.h's, by the driver's own names. */
#define CHURN_FUNCTIONS(F) \
	F(cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned int)) \
	F(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream)) \
	F(cuMemFreeAsync, (CUdeviceptr, CUstream)) \
	F(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice)) \
	F(cuMemPoolTrimTo, (CUmemoryPool, size_t)) \
	F(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
	F(cuMemRelease, (CUmemGenericAllocationHandle)) \
	F(cuArrayCreate_v2, (CUarray *, const CUDA_ARRAY_DESCRIPTOR *)) \
	F(cuArrayDestroy, (CUarray))

static struct {
#define CHURN_MEMBER(symbol, arguments) CUresult(*symbol) arguments;
	CHURN_FUNCTIONS(CHURN_MEMBER)
#undef CHURN_MEMBER
} api;

static void find_functions(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol;
#define CHURN_FIND(name, arguments) \
	symbol = library ? dlsym(library, #name) : NULL; \
	if (!symbol) { \
		fprintf(stderr, PROBE ": the driver has no " #name "\n"); \
		exit(EXIT_FAILED); \
	} \
	memcpy(&api.name, &symbol, sizeof symbol);
	CHURN_FUNCTIONS(CHURN_FIND)
#undef CHURN_FIND
}

enum family { PLAIN, PITCH, ASYNC, CREATE, ARRAY, FAMILIES };
enum {
	PIECES = 24,
	UNIT = 2 << 20,   /* sizes are multiples: no way of allocating rounds them */
	ROW = 16384,      /* texels of an array's row */
	ROWS = 65535,     /* of an array, at most */
	TEXEL = 16,       /* bytes: four floats */
	STALL_NS = 1000000, /* an allocation that takes longer waited for others */
};

struct piece {
	enum family family;
	uint64_t bytes, handle; /* an address, or what the driver gave */
};

struct churn {
	struct probe probe;
	uint64_t seed, schedules, peak;
	uint64_t random, held;
	int count;
	struct piece pieces[PIECES];
	CUmemoryPool pool;
	uint64_t allocations, out_of_memory, stalls, stall_ns, highest;
};

/* A number below n, n > 0. The series of a seed is the same in each run (splitmix64). */
static uint64_t below(struct churn *c, uint64_t n) {
	uint64_t z = c->random += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % n;
}

static CUresult give(struct churn *c, struct piece *piece) {
	CUmemAllocationProp pinned = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, c->probe.gpu.device}};
	CUDA_ARRAY_DESCRIPTOR texels = {ROW, piece->bytes / ROW / TEXEL, CU_AD_FORMAT_FLOAT, 4};
	CUdeviceptr address = 0;
	CUmemGenericAllocationHandle handle = 0;
	CUarray array = NULL;
	size_t pitch;
	CUresult result;
	switch (piece->family) {
	case PITCH: result = api.cuMemAllocPitch_v2(&address, &pitch, 4096, piece->bytes / 4096, 4); break;
	case ASYNC: result = api.cuMemAllocAsync(&address, piece->bytes, c->probe.gpu.streams[0]); break;
	case CREATE: result = api.cuMemCreate(&handle, piece->bytes, &pinned, 0); break;
	case ARRAY: result = api.cuArrayCreate_v2(&array, &texels); break;
	default: result = cu.memory_alloc(&address, piece->bytes);
	}
	piece->handle = piece->family == CREATE ? handle : piece->family == ARRAY ? (uint64_t)(uintptr_t)array : address;
	return result;
}

static CUresult take(struct churn *c, const struct piece *piece) {
	switch (piece->family) {
	case ASYNC: return api.cuMemFreeAsync(piece->handle, c->probe.gpu.streams[0]);
	case CREATE: return api.cuMemRelease(piece->handle);
	case ARRAY: return api.cuArrayDestroy((CUarray)(uintptr_t)piece->handle);
	default: return cu.memory_free(piece->handle);
	}
}

/* Allocates a random piece that still fits below the peak. Out of memory is counted, and no fault. */
static void allocate(struct churn *c) {
	uint64_t room = (c->peak - c->held) / UNIT;
	if (c->count == PIECES || room == 0)
		return;
	struct piece piece = {.family = (enum family)below(c, FAMILIES), .bytes = (1 + below(c, room)) * UNIT};
	if (piece.family == ARRAY && piece.bytes / ROW / TEXEL > ROWS)
		piece.family = PLAIN;
	uint64_t before = clock_ns();
	CUresult result = give(c, &piece);
	uint64_t spent = clock_ns() - before;
	c->allocations++;
	c->stalls += spent > STALL_NS;
	c->stall_ns += spent > STALL_NS ? spent : 0;
	if (result == CUDA_ERROR_OUT_OF_MEMORY) {
		c->out_of_memory++;
		return;
	}
	driver_check(result, "an allocation");
	c->pieces[c->count++] = piece;
	c->held += piece.bytes;
	c->highest = c->held > c->highest ? c->held : c->highest;
}

/* Frees a piece. What an asynchronous free gives back is the pool's until it is trimmed, so it stays counted till then. */
static void release(struct churn *c, int i) {
	driver_check(take(c, &c->pieces[i]), "a free");
	if (c->pieces[i].family == ASYNC) {
		gpu_synchronize(&c->probe.gpu);
		driver_check(api.cuMemPoolTrimTo(c->pool, 0), "cuMemPoolTrimTo");
	}
	c->held -= c->pieces[i].bytes;
	c->pieces[i] = c->pieces[--c->count];
}

/* One iteration: from the trough of memory to the next. */
static void schedule(struct churn *c) {
	for (uint64_t steps = 3 + below(c, 12); steps > 0; steps--) {
		uint64_t what = below(c, 100);
		if (what < 55)
			allocate(c);
		else if (what < 75 && c->count > 0)
			release(c, (int)below(c, (uint64_t)c->count));
		else if (what < 92)
			gpu_spin(&c->probe.gpu, 0, (1 + below(c, 100)) * 1000);
		else
			clock_sleep_until(clock_ns() + below(c, 200000));
	}
	gpu_synchronize(&c->probe.gpu);
	while (c->count > 0)
		release(c, c->count - 1);
	weft_try_iteration();
}

void probe_churn(int argc, char **argv) {
	struct churn c = {.seed = 1, .schedules = 1000, .peak = 1u << 30};
	const struct option_row rows[] = {
		{"schedules", OPTION_COUNT, &c.schedules, "N  random iterations (1000)"},
		{"seed", OPTION_COUNT, &c.seed, "N  equal seeds make equal iterations (1)"},
		{"peak", OPTION_BYTES, &c.peak, "BYTES  allocated within an iteration at most, beside --persistent (1GiB)"},
		PROBE_ROWS(&c.probe),
		{0},
	};
	options_read(PROBE, "usage: " PROBE " churn [options]\n\n"
		"members: schedules, allocations, out_of_memory (allocations refused), stalls (allocations that took longer than 1 ms),\n"
		"stall_s (their time), highest_bytes, seconds\n", rows, argc, argv);
	c.random = c.seed;
	uint64_t begin = probe_open(&c.probe, 1);
	find_functions();
	driver_check(api.cuDeviceGetDefaultMemPool(&c.pool, c.probe.gpu.device), "cuDeviceGetDefaultMemPool");
	for (uint64_t i = 0; i < c.schedules; i++)
		schedule(&c);
	probe_head("churn");
	printf(", \"schedules\": %llu, \"allocations\": %llu, \"out_of_memory\": %llu, \"stalls\": %llu, \"stall_s\": %.6f, \"highest_bytes\": %llu, "
		"\"seconds\": %.6f}\n", (unsigned long long)c.schedules, (unsigned long long)c.allocations, (unsigned long long)c.out_of_memory,
		(unsigned long long)c.stalls, (double)c.stall_ns / 1e9, (unsigned long long)c.highest, (double)(clock_ns() - begin) / 1e9);
	probe_close(&c.probe);
}
