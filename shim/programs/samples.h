/* A growing list of durations in nanoseconds, and its order statistics. Zero-initialised is empty. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stddef.h>
#include <stdint.h>

struct samples {
	size_t count, room;
	uint64_t *values;
};

/* Adds one; ends the program if there is no memory left. */
void samples_add(struct samples *samples, uint64_t value);

/* Puts them in ascending order, as samples_at wants. */
void samples_sort(struct samples *samples);

/* The smallest value that at least a share (0 to 1) of all do not exceed; 0 of none. Sort before. */
uint64_t samples_at(const struct samples *samples, double share);

void samples_free(struct samples *samples);

#endif
