#include "probe.h"

#include <string.h>

#include "weft_lookup.h"

static const struct {
	const char *name;
	void (*run)(int argc, char **argv);
	const char *help;
} probes[] = {
	{"launch-cost", probe_launch_cost, "time of one cuLaunchKernel on the host, while nobody else wants the GPU"},
	{"stream", probe_stream, "kernels per second of a stream that is never empty"},
	{"load", probe_load, "iterations of kernels and a host gap: rate and latency"},
	{"ping", probe_ping, "wake, launch one kernel, wait for it: time until the launch returned and until it was done"},
	{"memory", probe_memory, "what the memory queries answer, and how much can be allocated"},
	{"churn", probe_churn, "random iterations that allocate in all ways: what was refused, and what waited"},
	{"storm", probe_storm, "hundreds of processes that start at once: how long each takes until it may launch"},
};

static void print_usage(FILE *out) {
	fprintf(out, "usage: " PROBE " MEASUREMENT [--option VALUE ...]\n\n"
		"Measures once and prints one JSON object. Every object has \"schema\", \"probe\" (the name) and \"managed\" (1 under\n"
		"weft). Exit: 0 measured, 1 the driver failed, 2 bad arguments, 3 out of GPU memory.\n\n");
	for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++)
		fprintf(out, "  %-12s %s\n", probes[i].name, probes[i].help);
	fprintf(out, "\n" PROBE " MEASUREMENT --help lists its options and its members.\n");
}

uint64_t probe_open(struct probe *probe, int streams) {
	driver_open(PROBE);
	CU(init, 0);
	gpu_open(&probe->gpu, (int)probe->device, streams);
	if (probe->persistent)
		CU(memory_alloc, &probe->memory, probe->persistent);
	gpu_spin(&probe->gpu, 0, 0);
	gpu_synchronize(&probe->gpu);
	if (probe->start_ns)
		clock_sleep_until(probe->start_ns);
	return clock_ns();
}

void probe_close(struct probe *probe) {
	if (probe->memory)
		CU(memory_free, probe->memory);
	gpu_close(&probe->gpu);
}

void probe_head(const char *name) {
	printf("{\"schema\": 1, \"probe\": \"%s\", \"managed\": %d", name, weft_try_managed());
}

void probe_quantiles(const char *name, const char *unit, double ns_per_unit, struct samples *samples) {
	static const struct {
		const char *name;
		double share;
	} quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"max", 1}};
	samples_sort(samples);
	for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++)
		printf(", \"%s_%s_%s\": %.3f", name, quantiles[i].name, unit, (double)samples_at(samples, quantiles[i].share) / ns_per_unit);
}

int main(int argc, char **argv) {
	if (argc < 2) {
		print_usage(stderr);
		return EXIT_BAD_ARGUMENTS;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_usage(stdout);
		return EXIT_OK;
	}
	for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
		if (strcmp(argv[1], probes[i].name) == 0) {
			probes[i].run(argc - 1, argv + 1);
			return EXIT_OK;
		}
	}
	options_fault(PROBE, "unknown measurement %s", argv[1]);
}
