/*
 * weft-probe: one measurement per run, one JSON object on stdout. The programs that call it run it with and without
 * weft and compare.
 */
#ifndef PROBE_H
#define PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "driver.h"
#include "options.h"
#include "samples.h"

#define PROBE "weft-probe"

/* What all measurements take, and the GPU that they use. */
struct probe {
	uint64_t device;
	uint64_t start_ns; /* 0: at once */
	uint64_t persistent; /* bytes held throughout */
	CUdeviceptr memory;
	struct gpu gpu;
};

/* The rows of a probe's own table that all measurements have in common. */
#define PROBE_ROWS(probe) \
	{"device", OPTION_COUNT, &(probe)->device, "N  CUDA's number of the GPU (0)"}, \
	{"persistent", OPTION_BYTES, &(probe)->persistent, "BYTES  memory held throughout, such as 2GiB (0)"}, \
	{"start-ns", OPTION_COUNT, &(probe)->start_ns, "NS  begin when CLOCK_MONOTONIC reads this (0: at once)"}

/* Opens the driver and the GPU with so many streams, launches once, and waits for the common start. Returns its time. */
uint64_t probe_open(struct probe *probe, int streams);
void probe_close(struct probe *probe);

/* Prints the beginning of the object; the caller prints further ", \"key\": value" and a closing brace. */
void probe_head(const char *name);

/* Prints three members NAME_p50_UNIT, NAME_p99_UNIT and NAME_max_UNIT; ns_per_unit is 1e3 for us. Sorts the samples. */
void probe_quantiles(const char *name, const char *unit, double ns_per_unit, struct samples *samples);

/* The measurements: argv[0] is their name. Each prints its object. */
void probe_launch_cost(int argc, char **argv);
void probe_stream(int argc, char **argv);
void probe_load(int argc, char **argv);
void probe_ping(int argc, char **argv);
void probe_memory(int argc, char **argv);
void probe_churn(int argc, char **argv);
void probe_storm(int argc, char **argv);

#endif
