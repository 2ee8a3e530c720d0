#include "samples.h"

#include <stdio.h>
#include <stdlib.h>

void samples_add(struct samples *samples, uint64_t value) {
	if (samples->count == samples->room) {
		size_t room = samples->room ? 2 * samples->room : 1024;
		uint64_t *values = realloc(samples->values, room * sizeof *values);
		if (!values) {
			fprintf(stderr, "no memory for %zu samples\n", room);
			exit(1);
		}
		samples->values = values;
		samples->room = room;
	}
	samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b) {
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

void samples_sort(struct samples *samples) {
	if (samples->count)
		qsort(samples->values, samples->count, sizeof *samples->values, compare);
}

uint64_t samples_at(const struct samples *samples, double share) {
	if (samples->count == 0)
		return 0;
	double covered = share * (double)samples->count;
	size_t rank = (size_t)covered;
	rank += (double)rank < covered; /* rounded up */
	return samples->values[rank > 1 ? rank - 1 : 0];
}

void samples_free(struct samples *samples) {
	free(samples->values);
	*samples = (struct samples){0};
}
