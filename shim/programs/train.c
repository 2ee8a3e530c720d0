#include "train.h"

#include <signal.h>
#include <stdio.h>

#include "weft_lookup.h"

/* The signal that asked the program to end, or 0. */
static volatile sig_atomic_t asked;

static void ask(int signal) { asked = signal; }

/* One process of the job: its GPUs, their memory, and what it has done. */
struct job {
	struct settings settings;
	struct load load;
	struct gang *gang; /* null without ranks */
	int rank, gpu_count;
	struct gpu gpus[LIST_MAX];
	struct memory memories[LIST_MAX];
	CUdeviceptr persistent[LIST_MAX];
	CUgraphExec graphs[LIST_MAX];
	struct progress progress;
};

/* Runs a call and counts its time as a stall if it did not return at once. */
#define TIMED(stall_ns, call) \
	do { \
		uint64_t before = clock_ns(); \
		call; \
		uint64_t spent = clock_ns() - before; \
		*(stall_ns) += spent > STALL_NS ? spent : 0; \
	} while (0)

/* The kernels of one phase on one GPU: an equal share, the remainder in the last phase. */
static void launch_phase(struct job *job, struct gpu *gpu, int phase) {
	uint64_t first = job->load.kernels * (uint64_t)phase / PHASES, end = job->load.kernels * ((uint64_t)phase + 1) / PHASES;
	for (uint64_t i = first; i < end; i++)
		TIMED(&job->progress.launch_stall_ns, gpu_spin(gpu, (int)(i % job->settings.streams), job->load.kernel_ns));
}

static void synchronize(struct job *job) {
	for (int i = 0; i < job->gpu_count; i++) {
		CU(context_set, job->gpus[i].context);
		gpu_synchronize(&job->gpus[i]);
	}
}

/* Memory follows the kernels, so each change of it waits for those before. A graph runs at the peak, in one piece. */
static void run_kernels(struct job *job) {
	int phases = job->settings.graph ? 1 : PHASES;
	for (int phase = 0; phase < phases; phase++) {
		uint64_t level = memory_level(&job->load, job->settings.graph ? PHASES / 2 : phase);
		if (level != job->memories[0].held)
			synchronize(job);
		for (int i = 0; i < job->gpu_count; i++) {
			CU(context_set, job->gpus[i].context);
			memory_reach(&job->memories[i], level);
			if (job->settings.graph)
				TIMED(&job->progress.launch_stall_ns, CU(graph_launch, job->graphs[i], job->gpus[i].streams[0]));
			else
				launch_phase(job, &job->gpus[i], phase);
		}
	}
	synchronize(job);
}

/* Whether the iteration that is now running is to be the last. */
static bool is_last(const struct job *job) {
	const struct progress *p = &job->progress;
	bool late = job->settings.seconds >= 0 && (double)(clock_ns() - p->begin_ns) >= job->settings.seconds * 1e9;
	return asked || late || p->iterations + 1 >= job->settings.iterations;
}

/* One iteration with its boundary and gap. Returns false after the last. */
static bool iterate(struct job *job) {
	uint64_t begin = clock_ns();
	run_kernels(job);
	bool last = is_last(job);
	if (job->gang)
		last = gang_meet(job->gang, job->rank, job->progress.iterations + 1, last, &job->gpus[0], (uint64_t)(job->settings.stall_s * 1e9));
	for (int i = 0; i < job->gpu_count; i++) {
		CU(context_set, job->gpus[i].context);
		memory_reach(&job->memories[i], 0);
		job->progress.memory_stall_ns += job->memories[i].stall_ns;
		job->memories[i].stall_ns = 0;
	}
	job->progress.iterations++;
	if (job->settings.cooperate)
		weft_try_iteration();
	uint64_t now = clock_ns();
	if (now - begin > job->progress.longest_ns)
		job->progress.longest_ns = now - begin;
	if (job->rank == 0)
		report_rate(&job->progress, now);
	if (job->load.gap_ns)
		clock_sleep_until(now + job->load.gap_ns);
	return !last;
}

/* Opens the GPUs of this process: its rank's, or all. */
static void open_gpus(struct job *job) {
	const struct list *devices = &job->settings.devices;
	driver_open(TRAIN);
	CU(init, 0);
	job->gpu_count = job->gang ? 1 : devices->count;
	for (int i = 0; i < job->gpu_count; i++) {
		gpu_open(&job->gpus[i], devices->values[job->gang ? job->rank : i], (int)job->settings.streams);
		if (job->load.persistent)
			CU(memory_alloc, &job->persistent[i], job->load.persistent);
		if (job->settings.graph)
			job->graphs[i] = gpu_capture(&job->gpus[i], job->load.kernels, job->load.kernel_ns);
	}
}

static void close_gpus(struct job *job) {
	for (int i = 0; i < job->gpu_count; i++) {
		CU(context_set, job->gpus[i].context);
		if (job->graphs[i])
			CU(exec_destroy, job->graphs[i]);
		if (job->persistent[i])
			CU(memory_free, job->persistent[i]);
		gpu_close(&job->gpus[i]);
	}
}

int main(int argc, char **argv) {
	static struct job job;
	settings_read(&job.settings, argc, argv);
	job.load = load_of(&job.settings);
	job.progress.settings = &job.settings;
	if (job.settings.resume)
		job.progress.resumed = job.progress.iterations = checkpoint_read(job.settings.checkpoint);
	if (job.settings.ranks)
		job.gang = gang_start(job.settings.devices.count, &job.rank);
	job.progress.rank = job.rank;
	struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};
	sigaction(SIGTERM, &action, NULL);
	open_gpus(&job);
	job.progress.begin_ns = job.progress.printed_ns = clock_ns();
	job.progress.printed_iterations = job.progress.resumed;
	if (job.rank == 0)
		report_start(&job.progress, &job.load);
	while (job.progress.iterations < job.settings.iterations && iterate(&job))
		;
	if (job.rank == 0 && asked && job.settings.checkpoint)
		checkpoint_write(job.settings.checkpoint, job.progress.iterations);
	if (job.rank == 0)
		report_final(&job.progress, clock_ns(), asked);
	close_gpus(&job);
	return asked ? EXIT_TERMINATED : EXIT_OK;
}
