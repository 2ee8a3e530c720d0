/* The command line, and the load that it describes. */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct entry {
	const char *model, *batch, *gpu;
	double rate, busy, persistent_mib, peak_mib; /* 0: unknown, except for rate */
	const char *source;
};
struct shape {
	const char *name;
	double shares[LEVELS];
};
#include "catalogue.inc"

/* What is assumed of a model of which it is not known, as docs/memory.md does. */
#define ASSUMED_BUSY 0.8
#define ASSUMED_PERSISTENT 0.1
#define ASSUMED_SHAPE "resnet50-w0"
#define KERNEL_NS 200000.0 /* about the length of a kernel of a model */

static const char usage[] =
	"usage: " TRAIN " --model NAME [--batch N] [--gpu NAME] [options]\n"
	"       " TRAIN " [--persistent BYTES] [--ephemeral BYTES] [--kernels N] [--kernel-us US] [--gap-ms MS] [options]\n\n"
	"Uses a GPU as a training job does: memory that is always held; in each iteration memory that grows and shrinks, kernels,\n"
	"a wait for them, and a gap on the host. Prints one JSON object a line: type start, rate (each second), final.\n\n"
	"Exit: 0 done, 1 the driver failed or a rank stalled, 2 bad arguments, 3 out of GPU memory, 143 ended by SIGTERM, after the\n"
	"iteration and with its checkpoint written.\n";

static void read_rows(struct settings *s, int argc, char **argv) {
	const struct option_row rows[] = {
		{"model", OPTION_TEXT, &s->model, "NAME  of `weft catalogue`: sets what is not given below"},
		{"batch", OPTION_TEXT, &s->batch, "N  of the model, as the catalogue has it"},
		{"gpu", OPTION_TEXT, &s->gpu, "NAME  whose speed the model has, such as p100"},
		{"busy", OPTION_NUMBER, &s->busy, "SHARE  of time in which the model's kernels run, if the catalogue does not say (0.8)"},
		{"persistent", OPTION_BYTES, &s->persistent, "BYTES  always held, such as 2GiB (64MiB; of a model 10 % of its peak)"},
		{"ephemeral", OPTION_BYTES, &s->ephemeral, "BYTES  at most besides, within an iteration (0; of a model the rest of its peak)"},
		{"shape", OPTION_TEXT, &s->shape, "NAME  of how ephemeral memory is spread, or flat (" ASSUMED_SHAPE ")"},
		{"kernels", OPTION_COUNT, &s->kernels, "N  in an iteration (40)"},
		{"kernel-us", OPTION_NUMBER, &s->kernel_us, "US  length of each (200)"},
		{"gap-ms", OPTION_NUMBER, &s->gap_ms, "MS  on the host after each iteration (5)"},
		{"iterations", OPTION_COUNT, &s->iterations, "N  in all, those of a checkpoint included (no end)"},
		{"seconds", OPTION_NUMBER, &s->seconds, "S  (no end)"},
		{"streams", OPTION_COUNT, &s->streams, "N  that the kernels are spread over, 1 to 16 (1)"},
		{"graph", OPTION_ON, &s->graph, "launch an iteration as one CUDA graph"},
		{"devices", OPTION_LIST, &s->devices, "LIST  CUDA's numbers of the GPUs, all used in each iteration (0)"},
		{"ranks", OPTION_ON, &s->ranks, "one process per device; they wait for each other in each iteration, spinning on the GPU"},
		{"stall-s", OPTION_NUMBER, &s->stall_s, "S  after which a rank that waits for another gives up (30)"},
		{"cooperate", OPTION_ON, &s->cooperate, "tell weft where iterations end (the default)"},
		{"no-cooperate", OPTION_OFF, &s->cooperate, "do not"},
		{"checkpoint", OPTION_TEXT, &s->checkpoint, "FILE  to which the count of iterations goes on SIGTERM"},
		{"resume", OPTION_ON, &s->resume, "go on from the checkpoint, if it is there"},
		{"name", OPTION_TEXT, &s->name, "NAME  for the lines that are printed (the model, or train)"},
		{0},
	};
	options_read(TRAIN, usage, rows, argc, argv);
}

void settings_read(struct settings *s, int argc, char **argv) {
	*s = (struct settings){
		.batch = "", .gpu = "", .persistent = UINT64_MAX, .ephemeral = UINT64_MAX, .kernels = UINT64_MAX, .iterations = UINT64_MAX,
		.streams = 1, .kernel_us = -1, .gap_ms = -1, .busy = ASSUMED_BUSY, .seconds = -1, .stall_s = 30, .cooperate = true,
		.devices = {.count = 1},
	};
	read_rows(s, argc, argv);
	if (!s->name)
		s->name = s->model ? s->model : "train";
	if (strpbrk(s->name, "\"\\\n"))
		options_fault(TRAIN, "--name %s: give one without quotes and backslashes", s->name);
	if (s->streams < 1 || s->streams > GPU_STREAMS)
		options_fault(TRAIN, "--streams %llu: give 1 to %d", (unsigned long long)s->streams, GPU_STREAMS);
	if (s->graph && s->streams != 1)
		options_fault(TRAIN, "--graph needs --streams 1");
	if (s->resume && !s->checkpoint)
		options_fault(TRAIN, "--resume needs --checkpoint FILE");
	if (s->busy <= 0 || s->busy > 1)
		options_fault(TRAIN, "--busy %g: give a share above 0 and up to 1", s->busy);
	if (s->kernels == 0)
		options_fault(TRAIN, "--kernels 0: give at least 1");
}

/* Reports that the catalogue has no such entry, with those of the same model. */
static _Noreturn void entry_missing(const struct settings *s) {
	char others[512] = "";
	size_t length = 0;
	for (size_t i = 0; i < sizeof entries / sizeof entries[0] && length < sizeof others - 64; i++)
		if (strcasecmp(entries[i].model, s->model) == 0)
			length += (size_t)snprintf(others + length, sizeof others - length, "%s %s:%s", length ? "," : "", entries[i].batch, entries[i].gpu);
	if (length)
		options_fault(TRAIN, "the catalogue has no %s of batch '%s' on '%s'; it has batch:gpu%s", s->model, s->batch, s->gpu, others);
	options_fault(TRAIN, "the catalogue has no model %s; `weft catalogue` lists them", s->model);
}

static const struct entry *find_entry(const struct settings *s) {
	for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
		const struct entry *e = &entries[i];
		if (strcasecmp(e->model, s->model) == 0 && strcmp(e->batch, s->batch) == 0 && strcasecmp(e->gpu, s->gpu) == 0)
			return e;
	}
	entry_missing(s);
}

static const double *find_shape(const char *name) {
	if (strcmp(name, "flat") == 0)
		return NULL;
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		if (strcmp(shapes[i].name, name) == 0)
			return shapes[i].shares;
	options_fault(TRAIN, "--shape %s: give flat, %s, %s, %s or %s", name, shapes[0].name, shapes[1].name, shapes[2].name, shapes[3].name);
}
_Static_assert(sizeof shapes / sizeof shapes[0] == 4, "find_shape names all shapes");

/* The load of a catalogue entry: kernels of about 0.2 ms for its busy share of an iteration, a gap for the rest. */
static struct load load_of_entry(const struct entry *e, double busy) {
	double iteration_ns = 1e9 / e->rate, busy_ns = iteration_ns * (e->busy > 0 ? e->busy : busy);
	double kernels = busy_ns / KERNEL_NS < 1 ? 1 : busy_ns / KERNEL_NS;
	double peak = e->peak_mib * 0x1p20, persistent = e->persistent_mib > 0 ? e->persistent_mib * 0x1p20 : ASSUMED_PERSISTENT * peak;
	return (struct load){
		.persistent = (uint64_t)persistent,
		.ephemeral = (uint64_t)(peak - persistent),
		.kernels = (uint64_t)kernels,
		.kernel_ns = (uint64_t)(busy_ns / (double)(uint64_t)kernels),
		.gap_ns = (uint64_t)(iteration_ns - busy_ns),
	};
}

struct load load_of(const struct settings *s) {
	struct load load = {.persistent = 64u << 20, .kernels = 40, .kernel_ns = 200000, .gap_ns = 5000000};
	if (s->model) {
		const struct entry *entry = find_entry(s);
		if (entry->peak_mib == 0 && (s->persistent == UINT64_MAX || s->ephemeral == UINT64_MAX))
			options_fault(TRAIN, "the catalogue does not know the memory of %s; give --persistent and --ephemeral", s->model);
		load = load_of_entry(entry, s->busy);
	}
	if (s->persistent != UINT64_MAX)
		load.persistent = s->persistent;
	if (s->ephemeral != UINT64_MAX)
		load.ephemeral = s->ephemeral;
	if (s->kernels != UINT64_MAX)
		load.kernels = s->kernels;
	if (s->kernel_us >= 0)
		load.kernel_ns = (uint64_t)(s->kernel_us * 1e3);
	if (s->gap_ms >= 0)
		load.gap_ns = (uint64_t)(s->gap_ms * 1e6);
	load.shape = find_shape(s->shape ? s->shape : ASSUMED_SHAPE);
	return load;
}
