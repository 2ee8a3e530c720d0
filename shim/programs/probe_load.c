/* The measurements of a job with gaps: load and ping. */
#include "probe.h"

#include <signal.h>
#include <time.h>

#include "weft_lookup.h"

/* Set by SIGTERM and SIGINT: the measurement ends after this iteration and prints what it has. */
static volatile sig_atomic_t stopped;

static void stop(int signal) {
	(void)signal;
	stopped = 1;
}

static void stop_on_signals(void) {
	struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

struct load {
	struct probe probe;
	double kernel_us, gap_ms, iteration_ms, seconds;
	uint64_t kernels, streams, iterations;
	bool graph, cooperate;
	CUgraphExec exec;
	struct samples whole, launch; /* of each iteration: all of it, and its first launch */
};

/* One iteration: its kernels spread over the streams, or its graph, then a wait for all of them. */
static void iterate(struct load *load) {
	struct gpu *gpu = &load->probe.gpu;
	uint64_t kernel_ns = (uint64_t)(load->kernel_us * 1e3);
	uint64_t begin = clock_ns();
	if (load->graph) {
		CU(graph_launch, load->exec, gpu->streams[0]);
		samples_add(&load->launch, clock_ns() - begin);
	} else {
		for (uint64_t i = 0; i < load->kernels; i++) {
			gpu_spin(gpu, (int)(i % load->streams), kernel_ns);
			if (i == 0)
				samples_add(&load->launch, clock_ns() - begin);
		}
	}
	gpu_synchronize(gpu);
	samples_add(&load->whole, clock_ns() - begin);
}

static void read_load(struct load *load, int argc, char **argv) {
	const struct option_row rows[] = {
		{"kernels", OPTION_COUNT, &load->kernels, "N  in an iteration (40)"},
		{"kernel-us", OPTION_NUMBER, &load->kernel_us, "US  length of each (200)"},
		{"gap-ms", OPTION_NUMBER, &load->gap_ms, "MS  on the host between two iterations (5)"},
		{"iteration-ms", OPTION_NUMBER, &load->iteration_ms, "MS  length of an iteration alone, gap included; replaces --gap-ms"},
		{"seconds", OPTION_NUMBER, &load->seconds, "S  (5)"},
		{"iterations", OPTION_COUNT, &load->iterations, "N  at most (0: until --seconds)"},
		{"streams", OPTION_COUNT, &load->streams, "N  that the kernels are spread over, 1 to 16 (1)"},
		{"graph", OPTION_ON, &load->graph, "launch an iteration as one CUDA graph"},
		{"cooperate", OPTION_ON, &load->cooperate, "tell weft where each iteration ends"},
		PROBE_ROWS(&load->probe),
		{0},
	};
	options_read(PROBE, "usage: " PROBE " load [options]\n\n"
		"members: iterations, seconds, rate_per_s (gap included), iteration_p50_ms, iteration_p99_ms, iteration_max_ms (first launch\n"
		"until all is done, gap not included), launch_p50_us, launch_p99_us, launch_max_us (the first launch of each iteration: what\n"
		"waits for the token), busy_fraction (kernels x kernel-us / seconds). SIGTERM ends it early, with its object.\n", rows, argc, argv);
	if (load->streams < 1 || load->streams > GPU_STREAMS || load->kernels < 1)
		options_fault(PROBE, "load needs a kernel, and 1 to 16 streams");
	if (load->graph && load->streams != 1)
		options_fault(PROBE, "--graph needs --streams 1");
	double busy_ms = (double)load->kernels * load->kernel_us / 1e3;
	if (load->iteration_ms > 0 && load->iteration_ms < busy_ms)
		options_fault(PROBE, "--iteration-ms %g is shorter than its kernels, %g ms", load->iteration_ms, busy_ms);
	if (load->iteration_ms > 0)
		load->gap_ms = load->iteration_ms - busy_ms;
}

void probe_load(int argc, char **argv) {
	struct load load = {.kernel_us = 200, .kernels = 40, .gap_ms = 5, .seconds = 5, .streams = 1};
	read_load(&load, argc, argv);
	stop_on_signals();
	uint64_t begin = probe_open(&load.probe, (int)load.streams), end = begin + (uint64_t)(load.seconds * 1e9), now = begin;
	if (load.graph)
		load.exec = gpu_capture(&load.probe.gpu, load.kernels, (uint64_t)(load.kernel_us * 1e3));
	while (!stopped && now < end && (!load.iterations || load.whole.count < load.iterations)) {
		iterate(&load);
		if (load.cooperate)
			weft_try_iteration();
		if (load.gap_ms > 0)
			clock_sleep_until(clock_ns() + (uint64_t)(load.gap_ms * 1e6));
		now = clock_ns();
	}
	double elapsed = (double)(now - begin) / 1e9, count = (double)load.whole.count;
	probe_head("load");
	printf(", \"iterations\": %zu, \"seconds\": %.6f, \"rate_per_s\": %.4f", load.whole.count, elapsed, elapsed > 0 ? count / elapsed : 0);
	probe_quantiles("iteration", "ms", 1e6, &load.whole);
	probe_quantiles("launch", "us", 1e3, &load.launch);
	printf(", \"busy_fraction\": %.6f}\n", elapsed > 0 ? count * (double)load.kernels * load.kernel_us / 1e6 / elapsed : 0);
	if (load.exec)
		CU(exec_destroy, load.exec);
	samples_free(&load.whole);
	samples_free(&load.launch);
	probe_close(&load.probe);
}

struct ping {
	struct probe probe;
	double kernel_us, gap_ms, jitter, seconds;
	bool stamps;
	uint64_t random;
	struct samples launched, done; /* since the intent */
	struct samples at; /* the intents, launches and ends in turn, CLOCK_MONOTONIC */
};

/* The next gap, ns: evenly spread over gap-ms +- its jitter. The series is the same in each run (Knuth's MMIX generator). */
static uint64_t next_gap(struct ping *ping) {
	ping->random = ping->random * 6364136223846793005u + 1442695040888963407u;
	double spread = (double)(ping->random >> 11) / (double)(1ull << 53) * 2 - 1;
	return (uint64_t)(ping->gap_ms * 1e6 * (1 + ping->jitter * spread));
}

/* Wakes up after a gap, and measures from the moment at which it wants to launch. */
static void ping_once(struct ping *ping) {
	clock_sleep_until(clock_ns() + next_gap(ping));
	uint64_t intent = clock_ns();
	gpu_spin(&ping->probe.gpu, 0, (uint64_t)(ping->kernel_us * 1e3));
	uint64_t launched = clock_ns();
	gpu_synchronize(&ping->probe.gpu);
	uint64_t done = clock_ns();
	samples_add(&ping->launched, launched - intent);
	samples_add(&ping->done, done - intent);
	if (ping->stamps) {
		samples_add(&ping->at, intent);
		samples_add(&ping->at, launched);
		samples_add(&ping->at, done);
	}
}

static void print_stamps(const struct samples *at) {
	printf(", \"stamps_ns\": [");
	for (size_t i = 0; i + 2 < at->count; i += 3)
		printf("%s[%llu, %llu, %llu]", i ? ", " : "", (unsigned long long)at->values[i], (unsigned long long)at->values[i + 1],
			(unsigned long long)at->values[i + 2]);
	printf("]");
}

void probe_ping(int argc, char **argv) {
	struct ping ping = {.kernel_us = 100, .gap_ms = 5, .seconds = 5};
	const struct option_row rows[] = {
		{"gap-ms", OPTION_NUMBER, &ping.gap_ms, "MS  between the end of one and the next (5)"},
		{"jitter", OPTION_NUMBER, &ping.jitter, "SHARE  of a gap by which gaps vary, either way, 0 to 1 (0)"},
		{"kernel-us", OPTION_NUMBER, &ping.kernel_us, "US  length of the kernel (100)"},
		{"seconds", OPTION_NUMBER, &ping.seconds, "S  (5)"},
		{"stamps", OPTION_ON, &ping.stamps, "print stamps_ns too: [intent, launch returned, done] of each, CLOCK_MONOTONIC"},
		PROBE_ROWS(&ping.probe),
		{0},
	};
	options_read(PROBE, "usage: " PROBE " ping [options]\n\n"
		"members: count, seconds, launch_p50_us, launch_p99_us, launch_max_us (from the intent until the launch returned: the wait for\n"
		"the token, or for the other's work), done_p50_us, done_p99_us, done_max_us (until the kernel was done)\n", rows, argc, argv);
	if (ping.jitter < 0 || ping.jitter > 1)
		options_fault(PROBE, "--jitter %g: give a share from 0 to 1", ping.jitter);
	stop_on_signals();
	uint64_t begin = probe_open(&ping.probe, 1), end = begin + (uint64_t)(ping.seconds * 1e9);
	while (!stopped && clock_ns() < end)
		ping_once(&ping);
	probe_head("ping");
	printf(", \"count\": %zu, \"seconds\": %.6f", ping.done.count, (double)(clock_ns() - begin) / 1e9);
	probe_quantiles("launch", "us", 1e3, &ping.launched);
	probe_quantiles("done", "us", 1e3, &ping.done);
	if (ping.stamps)
		print_stamps(&ping.at);
	printf("}\n");
	samples_free(&ping.launched);
	samples_free(&ping.done);
	samples_free(&ping.at);
	probe_close(&ping.probe);
}
