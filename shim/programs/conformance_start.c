/* How a process and the driver come together: before cuInit, forks, threads, contexts. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

/* Entries of a folder of /proc whose link begins with a text; all of them if the text is empty. */
static int count_entries(const char *path, const char *link) {
	DIR *folder = opendir(path);
	EXPECT(folder, "cannot read %s", path);
	int count = 0;
	for (struct dirent *entry; (entry = readdir(folder));) {
		char name[512], target[512] = "";
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
		count += *link == '\0' || (readlink(name, target, sizeof target - 1) > 0 && strncmp(target, link, strlen(link)) == 0);
	}
	closedir(folder);
	return count;
}

/* A fork before CUDA is only safe if nothing is there yet. */
static void lean(void) {
	EXPECT(count_entries("/proc/self/task", "") == 1, "there are threads before cuInit");
	EXPECT(count_entries("/proc/self/fd", "socket:") == 0, "there is a socket before cuInit");
}

static void before_init(void) {
	int count;
	size_t free, total;
	use_driver();
	EXPECT_CODE(CUDA_ERROR_NOT_INITIALIZED, api.cuDeviceGetCount(&count));
	EXPECT_CODE(CUDA_ERROR_NOT_INITIALIZED, api.cuMemGetInfo_v2(&free, &total));
}

static void init_twice(void) {
	use_driver();
	OK(api.cuInit(0));
	OK(api.cuInit(0));
}

static void init_flags(void) {
	use_driver();
	EXPECT_CODE(CUDA_ERROR_INVALID_VALUE, api.cuInit(1));
	OK(api.cuInit(0));
}

static void device_range(void) {
	int count;
	CUdevice device;
	use_driver();
	OK(api.cuInit(0));
	OK(api.cuDeviceGetCount(&count));
	EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, api.cuDeviceGet(&device, count));
	EXPECT_CODE(CUDA_ERROR_INVALID_DEVICE, api.cuDeviceGet(&device, -1));
}

static void launch_once(void) {
	CUfunction spin = use_spin();
	OK(spin_on(spin, NULL, 1000));
	OK(api.cuCtxSynchronize());
}

static void fork_before(void) {
	for (int i = 0; i < 3; i++)
		EXPECT(check_fork(launch_once) == 0, "child %d failed", i);
	launch_once();
}

static void unusable(void) {
	CUdeviceptr address;
	EXPECT_CODE(CUDA_ERROR_NOT_INITIALIZED, api.cuInit(0));
	EXPECT_CODE(CUDA_ERROR_NOT_INITIALIZED, api.cuMemAlloc_v2(&address, MIB));
}

static void fork_after(void) {
	launch_once();
	EXPECT(check_fork(unusable) == 0, "the child could use CUDA, or failed");
	launch_once();
}

/* A data-loading child that never touches CUDA and outlives nobody. */
static void fork_lives(void) {
	launch_once();
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	launch_once();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void fork_exec(void) {
	launch_once();
	EXPECT(check_spawn("start.launch") == 0, "a program started after cuInit failed");
	launch_once();
}

struct shared {
	CUfunction spin;
	CUcontext context;
	int launches;
};

static void *launch_in_thread(void *argument) {
	struct shared *shared = argument;
	CUstream stream;
	OK(api.cuCtxSetCurrent(shared->context));
	OK(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < shared->launches; i++)
		OK(spin_on(shared->spin, stream, 1000));
	OK(api.cuStreamSynchronize(stream));
	OK(api.cuStreamDestroy_v2(stream));
	return NULL;
}

/* Runs so many threads, at most `together` at a time. */
static void run_threads(int threads, int together, int launches) {
	struct shared shared = {.spin = use_spin(), .launches = launches};
	OK(api.cuCtxGetCurrent(&shared.context));
	for (int begun = 0; begun < threads; begun += together) {
		pthread_t ids[16];
		for (int i = 0; i < together; i++)
			EXPECT(pthread_create(&ids[i], NULL, launch_in_thread, &shared) == 0, "cannot start thread %d", begun + i);
		for (int i = 0; i < together; i++)
			pthread_join(ids[i], NULL);
	}
}

static void threads_together(void) { run_threads(8, 8, 200); }
static void threads_in_turn(void) { run_threads(1024, 16, 1); }

static void context_none(void) {
	CUfunction spin = use_spin();
	CUdeviceptr address;
	OK(api.cuCtxSetCurrent(NULL));
	EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, api.cuMemAlloc_v2(&address, MIB));
	EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, spin_on(spin, NULL, 1000));
	EXPECT_CODE(CUDA_ERROR_INVALID_CONTEXT, api.cuCtxSynchronize());
}

/* Memory of a destroyed context comes back, also that which nobody freed. */
static void context_destroy(void) {
	CUdevice device;
	CUcontext primary, other;
	CUdeviceptr address;
	use_gpu();
	OK(api.cuDeviceGet(&device, 0));
	OK(api.cuCtxGetCurrent(&primary));
	size_t before = free_bytes();
	OK(api.cuCtxCreate_v2(&other, 0, device));
	OK(api.cuMemAlloc_v2(&address, 64 * MIB));
	OK(api.cuCtxDestroy_v2(other));
	OK(api.cuCtxSetCurrent(primary));
	size_t after = free_bytes();
	EXPECT(after + 16 * MIB >= before, "of %zu bytes %zu are free after the context is gone", before, after);
}

static void context_reset(void) {
	CUdevice device;
	CUdeviceptr address;
	use_gpu();
	OK(api.cuDeviceGet(&device, 0));
	size_t before = free_bytes();
	OK(api.cuMemAlloc_v2(&address, 64 * MIB));
	OK(api.cuDevicePrimaryCtxReset_v2(device));
	use_gpu();
	size_t after = free_bytes();
	EXPECT(after + 16 * MIB >= before, "of %zu bytes %zu are free after the reset", before, after);
}

static void context_stack(void) {
	CUcontext current, popped;
	use_gpu();
	OK(api.cuCtxGetCurrent(&current));
	OK(api.cuCtxPushCurrent_v2(current));
	OK(api.cuCtxPopCurrent_v2(&popped));
	EXPECT(popped == current, "popped another context than was pushed");
	OK(api.cuMemGetInfo_v2(&(size_t){0}, &(size_t){0}));
}

const struct check start_checks[] = {
	{"start.lean", lean, CHECK_ALWAYS},
	{"start.before_init", before_init, CHECK_ALWAYS},
	{"start.init_twice", init_twice, CHECK_ALWAYS},
	{"start.init_flags", init_flags, CHECK_ALWAYS},
	{"start.device_range", device_range, CHECK_ALWAYS},
	{"start.launch", launch_once, CHECK_ALWAYS},
	{"fork.before_init", fork_before, CHECK_ALWAYS},
	{"fork.after_init", fork_after, CHECK_ALWAYS},
	{"fork.child_lives", fork_lives, CHECK_ALWAYS},
	{"fork.exec", fork_exec, CHECK_ALWAYS},
	{"threads.together", threads_together, CHECK_ALWAYS},
	{"threads.in_turn", threads_in_turn, CHECK_ALWAYS},
	{"context.none", context_none, CHECK_ALWAYS},
	{"context.destroy", context_destroy, CHECK_ALWAYS},
	{"context.reset", context_reset, CHECK_ALWAYS},
	{"context.stack", context_stack, CHECK_ALWAYS},
	{0},
};
