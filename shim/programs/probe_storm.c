/* The measurement of many starts at once: processes forked in one go, each of which opens the GPU and takes some memory. */
#include "probe.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "token.h" /* the counters of libweft.so; nothing of it is linked */

/* What a process of the storm measured, ns, in memory that it shares with its parent. */
struct start {
	_Atomic uint64_t registered; /* from its connection to the agent until the answer; 0 where nobody manages it */
	_Atomic uint64_t init;       /* cuInit in whole */
	_Atomic uint64_t open;       /* cuInit, context and memory */
};

struct storm {
	uint64_t processes, piece, device, start_ns;
	double hold_s;
	struct start *starts;
};

/* How long libweft.so took to register this process; 0 without it. */
static uint64_t registration(void) {
	const struct weft_counters *(*counters)(void);
	void *symbol = dlsym(RTLD_DEFAULT, "weft_counters");
	memcpy(&counters, &symbol, sizeof counters);
	return symbol ? counters()->registered : 0;
}

/* A process of the storm, from its fork to its end. */
static _Noreturn void start(const struct storm *storm, struct start *mine, uint64_t until) {
	struct gpu gpu;
	CUdeviceptr memory;
	uint64_t begin = clock_ns();
	CU(init, 0);
	mine->init = clock_ns() - begin;
	mine->registered = registration();
	CU(device_get, &gpu.device, (int)storm->device);
	CU(context_retain, &gpu.context, gpu.device);
	CU(context_set, gpu.context);
	CU(memory_alloc, &memory, storm->piece);
	mine->open = clock_ns() - begin;
	clock_sleep_until(until);
	exit(EXIT_OK);
}

/* Starts all at once and waits for their ends. Returns how many failed. */
static uint64_t run(const struct storm *storm, uint64_t begin) {
	uint64_t failed = 0, until = begin + (uint64_t)(storm->hold_s * 1e9);
	int status;
	for (uint64_t i = 0; i < storm->processes; i++) {
		pid_t pid = fork();
		if (pid == 0)
			start(storm, &storm->starts[i], until);
		failed += pid < 0;
	}
	while (wait(&status) > 0)
		failed += status != 0;
	return failed;
}

static void print_starts(const struct storm *storm) {
	struct samples registered = {0}, init = {0}, open = {0};
	for (uint64_t i = 0; i < storm->processes; i++) {
		samples_add(&registered, storm->starts[i].registered);
		samples_add(&init, storm->starts[i].init);
		samples_add(&open, storm->starts[i].open);
	}
	probe_quantiles("registration", "ms", 1e6, &registered);
	probe_quantiles("init", "ms", 1e6, &init);
	probe_quantiles("open", "ms", 1e6, &open);
	samples_free(&registered);
	samples_free(&init);
	samples_free(&open);
}

void probe_storm(int argc, char **argv) {
	struct storm storm = {.processes = 300, .piece = 64u << 20, .hold_s = 2};
	const struct option_row rows[] = {
		{"processes", OPTION_COUNT, &storm.processes, "N  forked one after the other without a pause (300)"},
		{"piece", OPTION_BYTES, &storm.piece, "BYTES  allocated by each (64MiB)"},
		{"hold-s", OPTION_NUMBER, &storm.hold_s, "S  from the first fork until all end (2)"},
		{"device", OPTION_COUNT, &storm.device, "N  CUDA's number of the GPU (0)"},
		{"start-ns", OPTION_COUNT, &storm.start_ns, "NS  begin when CLOCK_MONOTONIC reads this (0: at once)"},
		{0},
	};
	options_read(PROBE, "usage: " PROBE " storm [options]\n\n"
		"members: processes, failed, and p50, p99, max of registration_ms (from a process's connection to the agent until it reads the\n"
		"answer; 0 without weft), init_ms (cuInit) and open_ms (cuInit, context and memory)\n", rows, argc, argv);
	if (storm.processes < 1 || storm.processes > 10000)
		options_fault(PROBE, "--processes %llu: give 1 to 10000", (unsigned long long)storm.processes);
	driver_open(PROBE);
	size_t bytes = storm.processes * sizeof *storm.starts;
	storm.starts = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (storm.starts == MAP_FAILED)
		options_fault(PROBE, "no memory for %llu processes", (unsigned long long)storm.processes);
	if (storm.start_ns)
		clock_sleep_until(storm.start_ns);
	uint64_t failed = run(&storm, clock_ns());
	CU(init, 0); /* which this process did not do before: a driver that is initialised cannot be forked */
	probe_head("storm");
	printf(", \"processes\": %llu, \"failed\": %llu", (unsigned long long)storm.processes, (unsigned long long)failed);
	print_starts(&storm);
	printf("}\n");
	munmap(storm.starts, bytes);
}
