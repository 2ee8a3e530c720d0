/*
 * weft-train: a program that uses a GPU as a training job does, and computes nothing. Parts: what an iteration is
 * (train_load.c), its memory (train_memory.c), the ranks of a gang (train_gang.c), what it prints and keeps
 * (train_report.c), and the loop (train.c).
 */
#ifndef TRAIN_H
#define TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "options.h"

#define TRAIN "weft-train"

enum { EXIT_TERMINATED = 128 + 15 };
enum { LEVELS = 12 }; /* of a recorded shape */
enum { PHASES = 8 };  /* steps of memory in an iteration: half of them up, half down */

/* One iteration on one GPU, and what is held throughout. */
struct load {
	uint64_t persistent, ephemeral; /* bytes: always, and at most besides */
	uint64_t kernels, kernel_ns;
	uint64_t gap_ns; /* on the host, after the kernels */
	const double *shape; /* share of time at each of LEVELS levels of ephemeral memory; null: all of it while kernels run */
};

struct settings {
	const char *name, *model, *batch, *gpu, *shape, *checkpoint;
	uint64_t persistent, ephemeral, kernels, iterations, streams; /* UINT64_MAX: as the model has it */
	double kernel_us, gap_ms, busy, seconds, stall_s;             /* below 0: likewise, except stall_s */
	struct list devices;
	bool ranks, graph, cooperate, resume;
};

/* Reads the command line; ends the program if it is not well. */
void settings_read(struct settings *settings, int argc, char **argv);

/* The load that the settings describe: the model's, if one is named, with what is given beside it. */
struct load load_of(const struct settings *settings);

/* Ephemeral memory of one GPU: a stack of blocks. */
struct memory {
	int depth;
	struct {
		CUdeviceptr address;
		uint64_t bytes;
	} blocks[PHASES];
	uint64_t held;
	uint64_t stall_ns; /* spent in allocations that did not return at once */
};

/* Ephemeral bytes of a load in phase 0 to PHASES-1; the phases are equally long. */
uint64_t memory_level(const struct load *load, int phase);

/* Allocates or frees so that bytes are held; before it frees, the GPU's work must be done. */
void memory_reach(struct memory *memory, uint64_t bytes);

/* A call that takes longer than this waited for somebody: it returns at once on a GPU of one's own. */
enum { STALL_NS = 1000000 };

/* The ranks of a job, one process each, in memory that they share. */
struct gang;

/*
 * Starts a process per rank and returns in each, with its rank. Returns in them only: the calling process forwards
 * SIGTERM, waits for all, and exits with the first code that is not 0. Call before the driver is initialised.
 */
struct gang *gang_start(int ranks, int *rank);

/*
 * Waits with a spinning kernel, as a collective does, until all ranks are in this iteration (1, 2, ...). stop is rank 0's word
 * that it is the last one. Returns that word in every rank. After stall_ns it reports who is missing and exits.
 */
bool gang_meet(struct gang *gang, int rank, uint64_t iteration, bool stop, struct gpu *gpu, uint64_t stall_ns);

/* What has happened so far; printed as one JSON object per line. */
struct progress {
	const struct settings *settings;
	int rank;
	uint64_t resumed, iterations; /* done before this run, and in all */
	uint64_t begin_ns, printed_ns, printed_iterations;
	uint64_t launch_stall_ns, memory_stall_ns, longest_ns;
};

void report_start(const struct progress *progress, const struct load *load);

/* Prints a line if a second has passed since the last. */
void report_rate(struct progress *progress, uint64_t now_ns);
void report_final(const struct progress *progress, uint64_t now_ns, int signal);
void report_stall(int rank, int peer, uint64_t iteration, double seconds);

/* The count of iterations in a checkpoint; ends the program if the file is not one. 0 where there is no file. */
uint64_t checkpoint_read(const char *path);
void checkpoint_write(const char *path, uint64_t iterations);

#endif
