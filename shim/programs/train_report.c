/* What weft-train prints, and the file in which it keeps how far it is. */
#include "train.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weft_lookup.h"

/* Begins an object with its type, the time, and who prints it. */
static void begin_line(const char *type, const char *name, int rank) {
	struct timespec now;
	struct tm utc;
	char text[32];
	clock_gettime(CLOCK_REALTIME, &now);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
	printf("{\"type\": \"%s\", \"time\": \"%s.%03ldZ\", \"name\": \"%s\", \"rank\": %d, \"pid\": %d", type, text, now.tv_nsec / 1000000, name,
		rank, (int)getpid());
}

static void end_line(void) {
	printf("}\n");
	fflush(stdout);
}

void report_start(const struct progress *p, const struct load *load) {
	begin_line("start", p->settings->name, p->rank);
	printf(", \"managed\": %d, \"resumed\": %" PRIu64 ", \"persistent_bytes\": %" PRIu64 ", \"ephemeral_bytes\": %" PRIu64 ", \"kernels\": %" PRIu64
		", \"kernel_us\": %.3f, \"gap_ms\": %.3f", weft_try_managed(), p->resumed, load->persistent, load->ephemeral, load->kernels,
		(double)load->kernel_ns / 1e3, (double)load->gap_ns / 1e6);
	end_line();
}

/* The members that the rate and the final line share. */
static void print_totals(const struct progress *p, uint64_t now_ns) {
	printf(", \"iterations\": %" PRIu64 ", \"seconds\": %.6f, \"stall_s\": %.6f, \"launch_stall_s\": %.6f, \"memory_stall_s\": %.6f", p->iterations,
		(double)(now_ns - p->begin_ns) / 1e9, (double)(p->launch_stall_ns + p->memory_stall_ns) / 1e9, (double)p->launch_stall_ns / 1e9,
		(double)p->memory_stall_ns / 1e9);
}

static double rate(uint64_t iterations, uint64_t ns) { return ns ? (double)iterations * 1e9 / (double)ns : 0; }

void report_rate(struct progress *p, uint64_t now_ns) {
	if (now_ns - p->printed_ns < 1000000000u)
		return;
	begin_line("rate", p->settings->name, p->rank);
	print_totals(p, now_ns);
	printf(", \"rate_per_s\": %.4f", rate(p->iterations - p->printed_iterations, now_ns - p->printed_ns));
	end_line();
	p->printed_ns = now_ns;
	p->printed_iterations = p->iterations;
}

void report_final(const struct progress *p, uint64_t now_ns, int signal) {
	begin_line("final", p->settings->name, p->rank);
	print_totals(p, now_ns);
	printf(", \"rate_per_s\": %.4f, \"iteration_max_ms\": %.3f, \"resumed\": %" PRIu64 ", \"signal\": %d",
		rate(p->iterations - p->resumed, now_ns - p->begin_ns), (double)p->longest_ns / 1e6, p->resumed, signal);
	end_line();
}

void report_stall(int rank, int peer, uint64_t iteration, double seconds) {
	printf("{\"type\": \"stall\", \"rank\": %d, \"peer\": %d, \"iteration\": %" PRIu64 ", \"seconds\": %.3f}\n", rank, peer, iteration, seconds);
	fflush(stdout);
	fprintf(stderr, TRAIN ": rank %d waited %g s for rank %d in iteration %" PRIu64 " and gave up\n", rank, seconds, peer, iteration);
}

static _Noreturn void file_fault(const char *what, const char *path) {
	fprintf(stderr, TRAIN ": checkpoint %s: %s: %s\n", path, what, errno ? strerror(errno) : "begin anew without --resume");
	exit(EXIT_FAILED);
}

uint64_t checkpoint_read(const char *path) {
	FILE *file = fopen(path, "re");
	if (!file && errno == ENOENT)
		return 0;
	if (!file)
		file_fault("cannot be opened", path);
	uint64_t iterations;
	char end;
	errno = 0;
	if (fscanf(file, "iterations %" SCNu64 "%c", &iterations, &end) != 2 || end != '\n')
		file_fault("is not one of " TRAIN, path);
	fclose(file);
	return iterations;
}

void checkpoint_write(const char *path, uint64_t iterations) {
	char temporary[4096];
	if ((size_t)snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid()) >= sizeof temporary) {
		errno = ENAMETOOLONG;
		file_fault("cannot be written", path);
	}
	FILE *file = fopen(temporary, "we");
	if (!file)
		file_fault("cannot be written", temporary);
	int fine = fprintf(file, "iterations %" PRIu64 "\n", iterations) > 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
	if (fclose(file) != 0 || !fine || rename(temporary, path) != 0) {
		int reason = errno;
		unlink(temporary);
		errno = reason;
		file_fault("cannot be written", path);
	}
}
