/* With --expect-limit: that much memory is reported, and no more is given, whoever asks and on whatever path. */
#include <sys/wait.h>
#include <unistd.h>

#include "conformance_nvml.h"
#include "conformance_paths.h"

enum { PIECES = 16 }; /* that a limit is cut into */

/* The size of a piece: a multiple of 2 MiB, so that no way rounds it up. */
static size_t piece_bytes(void) {
	size_t bytes = expected.limit / PIECES / (2 * MIB) * (2 * MIB);
	return bytes ? bytes : 2 * MIB;
}

/* Takes pieces by one way until it is refused; at least half of the limit must be had, and never more than it. */
static int fill(int path, struct piece *pieces, int most) {
	size_t bytes = piece_bytes();
	for (int count = 0; count < most; count++) {
		CUresult result = memory_give(path, &pieces[count], bytes);
		if (result == CUDA_SUCCESS)
			continue;
		EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY, "refused with code %d, not 2", (int)result);
		EXPECT(count * bytes <= expected.limit, "%zu bytes were given, the limit is %llu", count * bytes, (unsigned long long)expected.limit);
		EXPECT(count * bytes >= expected.limit / 2, "only %zu bytes were given, the limit is %llu", count * bytes, (unsigned long long)expected.limit);
		return count;
	}
	check_fail(__FILE__, __LINE__, "%zu bytes were given and no end, the limit is %llu", most * bytes, (unsigned long long)expected.limit);
}

/* Of the form of 32-bit addresses there may be less than the limit: most of the limit is taken in another way first. */
static void limit_on_narrow(int path) {
	size_t free, total, bytes = piece_bytes();
	struct piece first, second;
	CUdeviceptr most;
	use_gpu();
	OK(api.cuMemGetInfo_v2(&free, &total));
	OK(api.cuMemAlloc_v2(&most, expected.limit - (total - free) - bytes * 3 / 2));
	OK(memory_give(path, &first, bytes));
	EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, memory_give(path, &second, bytes));
	memory_take(path, &first);
	OK(memory_give(path, &second, bytes));
}

/* The limit holds on a way, and what is given back can be had again. */
static void limit_on(int path) {
	if (path == MEMORY_PATH_cuMemAlloc)
		return limit_on_narrow(path);
	struct piece pieces[PIECES + 4];
	use_gpu();
	int count = fill(path, pieces, COUNT(pieces));
	for (int i = 0; i < count; i++)
		memory_take(path, &pieces[i]);
	OK(memory_give(path, &pieces[0], piece_bytes()));
	memory_take(path, &pieces[0]);
}

#define REPORTED(bytes, who) \
	EXPECT((unsigned long long)(bytes) == expected.limit, who " says %llu bytes, the limit is %llu", (unsigned long long)(bytes), \
		(unsigned long long)expected.limit)

static void memory_info(void) {
	size_t free, total;
	use_gpu();
	OK(api.cuMemGetInfo_v2(&free, &total));
	REPORTED(total, "cuMemGetInfo");
	EXPECT(free <= total, "%zu bytes of %zu are free", free, total);
}

static void device_total(void) {
	size_t total;
	use_gpu();
	OK(api.cuDeviceTotalMem_v2(&total, 0));
	REPORTED(total, "cuDeviceTotalMem");
}

/* Asked before there is a context, as programs that choose a GPU do. */
static void device_total_early(void) {
	size_t total;
	use_driver();
	OK(api.cuInit(0));
	OK(api.cuDeviceTotalMem_v2(&total, 0));
	REPORTED(total, "cuDeviceTotalMem without a context");
}

static void nvml_first(void) {
	use_gpu();
	struct nvml nvml = use_nvml();
	REPORTED(nvml_memory(&nvml).total, "NVML");
}

static void nvml_second(void) {
	use_gpu();
	struct nvml nvml = use_nvml();
	nvmlMemory_v2_t memory = nvml_memory_v2(&nvml);
	if (memory.version == 0)
		check_skip("this NVML has no second form");
	REPORTED(memory.total, "NVML's second form");
}

/* What is reported as free can be had, and not much more. */
static void free_is_true(void) {
	CUdeviceptr address;
	use_gpu();
	size_t free = free_bytes();
	EXPECT(free <= expected.limit, "%zu bytes are free, the limit is %llu", free, (unsigned long long)expected.limit);
	EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc_v2(&address, free + 2 * MIB));
	OK(api.cuMemAlloc_v2(&address, free > 32 * MIB ? free - 32 * MIB : free));
}

/* The limit is the job's, not the process's: 60 % twice do not fit. */
static size_t sixty(void) { return expected.limit / 5 * 3; }

static void take_sixty(void) {
	CUdeviceptr address;
	use_gpu();
	OK(api.cuMemAlloc_v2(&address, sixty()));
}

static void miss_sixty(void) {
	CUdeviceptr address;
	use_gpu();
	EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, api.cuMemAlloc_v2(&address, sixty()));
}

static void two_programs(void) {
	take_sixty();
	EXPECT(check_spawn("limit.part.miss_sixty") == 0, "a second program has memory beyond the limit, or fails");
}

/* A child that was forked before CUDA, and uses it after its parent has taken memory. */
static void two_forks(void) {
	int pipes[2];
	EXPECT(pipe(pipes) == 0, "cannot make a pipe");
	pid_t child = fork();
	if (child == 0) {
		char ready;
		if (read(pipes[0], &ready, 1) == 1)
			miss_sixty();
		_exit(0);
	}
	take_sixty();
	EXPECT(write(pipes[1], "", 1) == 1, "cannot write to the pipe");
	int status;
	waitpid(child, &status, 0);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child has memory beyond the limit, or fails");
}

/* Memory of a process that ended without freeing it comes back, and soon. */
static void comes_back(void) {
	CUdeviceptr address;
	EXPECT(check_fork(take_sixty) == 0, "the first process failed");
	use_gpu();
	for (int wait = 0; wait < 20; wait++) {
		if (api.cuMemAlloc_v2(&address, sixty()) == CUDA_SUCCESS)
			return;
		usleep(100000);
	}
	check_fail(__FILE__, __LINE__, "2 s after a process ended its memory is not there");
}

/* Memory of the host is not limited by the GPU's. */
static void host(void) {
	struct piece pieces[PIECES + 4];
	void *memory;
	use_gpu();
	fill(MEMORY_PATH_cuMemAlloc_v2, pieces, COUNT(pieces));
	OK(api.cuMemHostAlloc(&memory, 2 * piece_bytes(), 0));
	OK(api.cuMemFreeHost(memory));
}

/* Two ways share one limit. */
static void shared(void) {
	struct piece first, second;
	use_gpu();
	OK(memory_give(MEMORY_PATH_cuMemCreate, &first, sixty() / (2 * MIB) * (2 * MIB)));
	EXPECT_CODE(CUDA_ERROR_OUT_OF_MEMORY, memory_give(MEMORY_PATH_cuMemAlloc_v2, &second, sixty()));
	memory_take(MEMORY_PATH_cuMemCreate, &first);
	OK(memory_give(MEMORY_PATH_cuMemAlloc_v2, &second, sixty()));
}

#define THROUGH(name) \
	static void through_##name(void) { limit_on(MEMORY_PATH_##name); }
MEMORY_PATHS(THROUGH)
#define ROW(name) {"limit.path." #name, through_##name, CHECK_LIMIT},
const struct check limit_checks[] = {
	{"limit.reported.cuMemGetInfo", memory_info, CHECK_LIMIT},
	{"limit.reported.cuDeviceTotalMem", device_total, CHECK_LIMIT},
	{"limit.reported.early", device_total_early, CHECK_LIMIT},
	{"limit.reported.nvml", nvml_first, CHECK_LIMIT},
	{"limit.reported.nvml_v2", nvml_second, CHECK_LIMIT},
	MEMORY_PATHS(ROW)
	{"limit.free_is_true", free_is_true, CHECK_LIMIT},
	{"limit.shared", shared, CHECK_LIMIT},
	{"limit.two_programs", two_programs, CHECK_LIMIT},
	{"limit.two_forks", two_forks, CHECK_LIMIT},
	{"limit.comes_back", comes_back, CHECK_LIMIT},
	{"limit.host", host, CHECK_LIMIT},
	{"limit.part.miss_sixty", miss_sixty, CHECK_PART},
	{0},
};
