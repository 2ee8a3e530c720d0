/* The measurements of a busy host: launch-cost and stream. */
#include "probe.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH = 256 }; /* launches between two synchronisations: below what a driver queues, so that none waits */

struct launcher {
	struct gpu *gpu;
	int stream;
	uint64_t launches, kernel_ns;
	uint64_t elapsed_ns; /* of the launches alone */
};

/* Launches in batches and times the launches only. The first of each batch is not timed: the token may have to come back. */
static void *launch_batches(void *argument) {
	struct launcher *launcher = argument;
	CU(context_set, launcher->gpu->context);
	for (uint64_t left = launcher->launches; left > 0;) {
		uint64_t batch = left < BATCH ? left : BATCH;
		gpu_spin(launcher->gpu, launcher->stream, launcher->kernel_ns);
		uint64_t before = clock_ns();
		for (uint64_t i = 0; i < batch; i++)
			gpu_spin(launcher->gpu, launcher->stream, launcher->kernel_ns);
		launcher->elapsed_ns += clock_ns() - before;
		CU(stream_synchronize, launcher->gpu->streams[launcher->stream]);
		left -= batch;
	}
	return NULL;
}

/* One round: all threads at once. Returns nanoseconds per launch, as a thread sees it. */
static double launch_round(struct gpu *gpu, int threads, uint64_t launches, uint64_t kernel_ns) {
	struct launcher launchers[GPU_STREAMS];
	pthread_t ids[GPU_STREAMS];
	uint64_t elapsed = 0;
	for (int i = 0; i < threads; i++) {
		launchers[i] = (struct launcher){.gpu = gpu, .stream = i, .launches = launches, .kernel_ns = kernel_ns};
		if (pthread_create(&ids[i], NULL, launch_batches, &launchers[i]) != 0) {
			fprintf(stderr, PROBE ": cannot start thread %d of %d\n", i + 1, threads);
			exit(EXIT_FAILED);
		}
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		elapsed += launchers[i].elapsed_ns;
	}
	return (double)elapsed / (double)launches / threads;
}

void probe_launch_cost(int argc, char **argv) {
	struct probe probe = {0};
	uint64_t launches = 20000, rounds = 7, threads = 1;
	double kernel_us = 0;
	const struct option_row rows[] = {
		{"launches", OPTION_COUNT, &launches, "N  per round and thread (20000)"},
		{"rounds", OPTION_COUNT, &rounds, "N  (7)"},
		{"threads", OPTION_COUNT, &threads, "N  that launch at once, each on its stream; 1 to 16 (1)"},
		{"kernel-us", OPTION_NUMBER, &kernel_us, "US  length of each kernel (0)"},
		PROBE_ROWS(&probe),
		{0},
	};
	options_read(PROBE, "usage: " PROBE " launch-cost [options]\n\n"
		"members: threads, launches (per round and thread), rounds, launch_min_ns, launch_median_ns (over rounds)\n", rows, argc, argv);
	if (threads < 1 || threads > GPU_STREAMS || rounds < 1 || launches < 1)
		options_fault(PROBE, "launch-cost needs a launch, a round, and 1 to 16 threads");
	probe_open(&probe, (int)threads);
	struct samples samples = {0}; /* in picoseconds, to keep the fraction */
	for (uint64_t i = 0; i < rounds; i++)
		samples_add(&samples, (uint64_t)(launch_round(&probe.gpu, (int)threads, launches, (uint64_t)(kernel_us * 1e3)) * 1e3));
	samples_sort(&samples);
	probe_head("launch-cost");
	printf(", \"threads\": %d, \"launches\": %llu, \"rounds\": %llu, \"launch_min_ns\": %.1f, \"launch_median_ns\": %.1f}\n", (int)threads,
		(unsigned long long)launches, (unsigned long long)rounds, (double)samples_at(&samples, 0) / 1e3, (double)samples_at(&samples, 0.5) / 1e3);
	samples_free(&samples);
	probe_close(&probe);
}

enum { AHEAD = 2 }; /* batches that are queued while one runs */

/* Keeps the stream busy until end: launches a batch, then waits for the one before the last. Returns the kernels launched. */
static uint64_t saturate(struct gpu *gpu, uint64_t batch, uint64_t kernel_ns, uint64_t end) {
	CUevent done[AHEAD];
	uint64_t kernels = 0;
	for (int i = 0; i < AHEAD; i++)
		CU(event_create, &done[i], CU_EVENT_DISABLE_TIMING);
	for (uint64_t turn = 0; clock_ns() < end; turn++) {
		CUevent event = done[turn % AHEAD];
		if (turn >= AHEAD)
			CU(event_synchronize, event);
		for (uint64_t i = 0; i < batch; i++)
			gpu_spin(gpu, 0, kernel_ns);
		CU(event_record, event, gpu->streams[0]);
		kernels += batch;
	}
	gpu_synchronize(gpu);
	for (int i = 0; i < AHEAD; i++)
		CU(event_destroy, done[i]);
	return kernels;
}

/* Forks children as a data loader's workers are: they inherit all that is open, and sleep. Nobody waits for their output. */
static void fork_loaders(uint64_t count) {
	enum { LINGER = 5 }; /* s */
	for (uint64_t i = 0; i < count; i++) {
		if (fork() == 0) {
			close(STDOUT_FILENO);
			close(STDERR_FILENO);
			sleep(LINGER);
			_exit(EXIT_OK);
		}
	}
}

void probe_stream(int argc, char **argv) {
	struct probe probe = {0};
	double kernel_us = 10, seconds = 2, warm_up = 0;
	uint64_t batch = 64, loaders = 0;
	const struct option_row rows[] = {
		{"kernel-us", OPTION_NUMBER, &kernel_us, "US  length of each kernel (10)"},
		{"seconds", OPTION_NUMBER, &seconds, "S  (2)"},
		{"warm-up", OPTION_NUMBER, &warm_up, "S  of the same load before, which is not counted (0)"},
		{"batch", OPTION_COUNT, &batch, "N  kernels between two events; two batches are queued (64)"},
		{"loaders", OPTION_COUNT, &loaders, "N  children forked once the GPU is in use: they do nothing, and outlive this process by seconds (0)"},
		PROBE_ROWS(&probe),
		{0},
	};
	options_read(PROBE, "usage: " PROBE " stream [options]\n\n"
		"members: kernels, seconds (until the last was done), kernels_per_s, busy_fraction (kernels x kernel-us / seconds)\n", rows, argc, argv);
	if (batch < 1)
		options_fault(PROBE, "--batch 0: give at least 1");
	uint64_t begin = probe_open(&probe, 1);
	fork_loaders(loaders);
	uint64_t kernel_ns = (uint64_t)(kernel_us * 1e3);
	if (warm_up > 0) {
		saturate(&probe.gpu, batch, kernel_ns, begin + (uint64_t)(warm_up * 1e9));
		begin = clock_ns();
	}
	uint64_t kernels = saturate(&probe.gpu, batch, kernel_ns, begin + (uint64_t)(seconds * 1e9));
	double elapsed = (double)(clock_ns() - begin) / 1e9;
	probe_head("stream");
	printf(", \"kernels\": %llu, \"seconds\": %.6f, \"kernels_per_s\": %.3f, \"busy_fraction\": %.6f}\n", (unsigned long long)kernels, elapsed,
		(double)kernels / elapsed, (double)kernels * kernel_us / 1e6 / elapsed);
	probe_close(&probe);
}
