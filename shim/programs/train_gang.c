/*
 * Ranks that wait for each other. A collective's kernel spins on the GPU until its peers run; here each rank launches short
 * spinning kernels until its peers have arrived, which holds the GPU as well and can be ended.
 */
#include "train.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COLLECTIVE_NS = 100000 }; /* one spin while waiting */

struct gang {
	int ranks;
	_Atomic int leaving;                /* a rank has failed */
	_Atomic uint64_t last;              /* iteration after which all stop; 0: not known yet */
	_Atomic uint64_t arrived[LIST_MAX]; /* iteration that each rank is in */
	_Atomic pid_t processes[LIST_MAX];
};

/* The gang that the parent process waits for, for its signal handler. */
static struct gang *waited_for;

static void forward(int signal) {
	for (int i = 0; i < waited_for->ranks; i++)
		if (waited_for->processes[i] > 0)
			kill(waited_for->processes[i], signal);
}

/* Waits for all ranks; returns the first code that is not 0. */
static int wait_for_ranks(struct gang *gang) {
	int code = 0;
	for (int left = gang->ranks; left > 0; left--) {
		int status;
		pid_t process = waitpid(-1, &status, 0);
		for (int i = 0; i < gang->ranks; i++)
			if (gang->processes[i] == process)
				gang->processes[i] = 0;
		int this_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (code == 0)
			code = this_code;
		if (this_code != 0 && this_code != EXIT_TERMINATED)
			gang->leaving = 1;
	}
	return code;
}

struct gang *gang_start(int ranks, int *rank) {
	struct gang *gang = mmap(NULL, sizeof *gang, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (gang == MAP_FAILED) {
		perror(TRAIN ": shared memory for the ranks");
		exit(EXIT_FAILED);
	}
	gang->ranks = ranks;
	waited_for = gang;
	struct sigaction action = {.sa_handler = forward, .sa_flags = SA_RESTART};
	sigaction(SIGTERM, &action, NULL);
	/* A rank that is asked to end before it has its own handler would ask itself again, for ever. */
	sigset_t term, before;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, &before);
	for (int i = 0; i < ranks; i++) {
		pid_t process = fork();
		if (process == 0) {
			signal(SIGTERM, SIG_DFL);
			sigprocmask(SIG_SETMASK, &before, NULL);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			*rank = i;
			return gang;
		}
		if (process < 0) {
			perror(TRAIN ": fork");
			gang->leaving = 1;
			gang->ranks = i;
			break;
		}
		gang->processes[i] = process;
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	int code = wait_for_ranks(gang);
	exit(gang->leaving && code == 0 ? EXIT_FAILED : code);
}

/* A rank that has not arrived in an iteration, or -1. */
static int missing(struct gang *gang, uint64_t iteration) {
	for (int i = 0; i < gang->ranks; i++)
		if (gang->arrived[i] < iteration)
			return i;
	return -1;
}

bool gang_meet(struct gang *gang, int rank, uint64_t iteration, bool stop, struct gpu *gpu, uint64_t stall_ns) {
	if (rank == 0 && stop)
		gang->last = iteration;
	gang->arrived[rank] = iteration;
	uint64_t begin = clock_ns();
	do {
		gpu_spin(gpu, 0, COLLECTIVE_NS);
		CU(stream_synchronize, gpu->streams[0]);
		if (gang->leaving) {
			fprintf(stderr, TRAIN ": rank %d leaves: another has failed\n", rank);
			exit(EXIT_FAILED);
		}
		if (clock_ns() - begin > stall_ns && missing(gang, iteration) >= 0) {
			report_stall(rank, missing(gang, iteration), iteration, (double)stall_ns / 1e9);
			exit(EXIT_FAILED);
		}
	} while (missing(gang, iteration) >= 0);
	return gang->last == iteration;
}
