#include <errno.h>
#include <time.h>

#include "driver.h"
#include "spin_ptx.h"

void gpu_open(struct gpu *gpu, int ordinal, int streams) {
	*gpu = (struct gpu){.stream_count = streams};
	CU(device_get, &gpu->device, ordinal);
	CU(context_retain, &gpu->context, gpu->device);
	CU(context_set, gpu->context);
	CU(module_load, &gpu->module, spin_ptx);
	CU(module_function, &gpu->spin, gpu->module, SPIN_KERNEL);
	for (int i = 0; i < streams; i++)
		CU(stream_create, &gpu->streams[i], CU_STREAM_NON_BLOCKING);
}

void gpu_close(struct gpu *gpu) {
	CU(context_set, gpu->context);
	gpu_synchronize(gpu);
	for (int i = 0; i < gpu->stream_count; i++)
		CU(stream_destroy, gpu->streams[i]);
	CU(module_unload, gpu->module);
	CU(context_release, gpu->device);
}

void gpu_spin(struct gpu *gpu, int stream, uint64_t ns) {
	void *parameters[] = {&ns};
	CU(launch, gpu->spin, 1, 1, 1, 1, 1, 1, 0, gpu->streams[stream], parameters, NULL);
}

void gpu_synchronize(struct gpu *gpu) {
	for (int i = 0; i < gpu->stream_count; i++)
		CU(stream_synchronize, gpu->streams[i]);
}

CUgraphExec gpu_capture(struct gpu *gpu, uint64_t kernels, uint64_t kernel_ns) {
	CUgraph graph;
	CUgraphExec exec;
	CU(capture_begin, gpu->streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	for (uint64_t i = 0; i < kernels; i++)
		gpu_spin(gpu, 0, kernel_ns);
	CU(capture_end, gpu->streams[0], &graph);
	CU(graph_instantiate, &exec, graph, 0);
	CU(graph_destroy, graph);
	return exec;
}

uint64_t clock_ns(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_sleep_until(uint64_t ns) {
	struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}
