/*
 * Ephemeral memory over an iteration. A recorded shape says for what share of an iteration memory is at which level. The gap
 * is spent at the lowest; while kernels run, memory rises once through the levels and falls once, so that the shares come out
 * as recorded, to the precision of PHASES steps.
 */
#include "train.h"

/* The upper edge of the level below which memory is for a share `rank` of the time that kernels run. */
static double level_at(const struct load *load, double rank) {
	double busy_ns = (double)load->kernels * (double)load->kernel_ns, all_ns = busy_ns + (double)load->gap_ns;
	double gap = all_ns > 0 ? (double)load->gap_ns / all_ns : 0;
	double lowest = load->shape[0] > gap ? load->shape[0] - gap : 0; /* what the gap leaves of it */
	double others = 1 - load->shape[0], below = lowest;
	for (int level = 0; level < LEVELS - 1; below += load->shape[++level])
		if (rank * (lowest + others) < below)
			return (double)(level + 1) / LEVELS;
	return 1;
}

uint64_t memory_level(const struct load *load, int phase) {
	if (!load->shape)
		return load->ephemeral;
	int step = phase < PHASES / 2 ? phase : PHASES - 1 - phase;
	double top = PHASES / 2 - 1;
	return (uint64_t)((double)load->ephemeral * (step == (int)top ? 1 : level_at(load, step / top)));
}

void memory_reach(struct memory *memory, uint64_t bytes) {
	while (memory->held > bytes) {
		memory->depth--;
		CU(memory_free, memory->blocks[memory->depth].address);
		memory->held -= memory->blocks[memory->depth].bytes;
	}
	if (memory->held == bytes)
		return;
	uint64_t before = clock_ns(), more = bytes - memory->held;
	CU(memory_alloc, &memory->blocks[memory->depth].address, more);
	uint64_t spent = clock_ns() - before;
	memory->stall_ns += spent > STALL_NS ? spent : 0;
	memory->blocks[memory->depth++].bytes = more;
	memory->held = bytes;
}
