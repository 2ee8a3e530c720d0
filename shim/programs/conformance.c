/* The runner: chooses checks, runs each in a process of its own, and prints TAP. */
#include "conformance.h"

#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "options.h"

#define CONFORMANCE "conformance"

enum { CHECK_FAILED = 70, CHECK_SKIPPED = 77, CHECK_SECONDS = 60 };

struct expectations expected = {.gated_ms = 300};

/* Of the process of one check: where its fault or reason goes, and its word that it is armed. */
static int outcome = STDERR_FILENO;
static const char armed_mark = '\1';

static const struct check *const subjects[] = {start_checks, lookup_checks, launch_checks, graph_checks, memory_checks, query_checks,
	limit_checks, gate_checks};

static _Noreturn void leave(int code, const char *format, va_list arguments) {
	char text[512];
	int length = vsnprintf(text, sizeof text, format, arguments);
	if (length > (int)sizeof text - 1)
		length = (int)sizeof text - 1;
	if (write(outcome, text, (size_t)length) < 0)
		code = CHECK_FAILED;
	_exit(code);
}

_Noreturn void check_fail(const char *file, int line, const char *format, ...) {
	char place[512];
	snprintf(place, sizeof place, "%s (%s:%d)", format, strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
	va_list arguments;
	va_start(arguments, format);
	leave(CHECK_FAILED, place, arguments);
}

_Noreturn void check_skip(const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	leave(CHECK_SKIPPED, format, arguments);
}

void check_code(const char *file, int line, CUresult wanted, CUresult got, const char *call) {
	if (got != wanted)
		check_fail(file, line, "%s answered %d (%s), not %d", call, (int)got, driver_result_name(got), (int)wanted);
}

void check_supported(CUresult result, const char *what) {
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		check_skip("the driver does not support %s", what);
	check_code(__FILE__, __LINE__, CUDA_SUCCESS, result, what);
}

void check_armed(void) {
	if (write(outcome, &armed_mark, 1) != 1)
		_exit(CHECK_FAILED);
}

/* Exit code of a child that this process waits for. */
static int wait_code(pid_t child) {
	int status;
	if (waitpid(child, &status, 0) != child)
		return CHECK_FAILED;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int check_fork(void (*function)(void)) {
	pid_t child = fork();
	if (child == 0) {
		function();
		_exit(0);
	}
	return wait_code(child);
}

int check_spawn(const char *name) {
	char limit[32];
	snprintf(limit, sizeof limit, "%llu", (unsigned long long)expected.limit);
	pid_t child = fork();
	if (child == 0) {
		dup2(outcome, STDOUT_FILENO); /* what it prints of a failure becomes part of this one's */
		execl(expected.self, expected.self, "--part", name, "--expect-limit", limit, (char *)NULL);
		_exit(127);
	}
	return wait_code(child);
}

/* Runs a check in this process; does not return. */
static _Noreturn void run_here(const struct check *check) {
	alarm(CHECK_SECONDS);
	check->run();
	_exit(0);
}

/* What a check's process has said and done. */
struct result {
	bool armed;
	int code;
	char text[600];
};

/* Reads what the process says until it and all that it started have ended, or for gated_ms once it is armed, or for too long.
   True if they ended. */
static bool listen_to(int from, struct result *result) {
	size_t length = 0;
	for (;;) {
		struct pollfd ready = {.fd = from, .events = POLLIN};
		if (poll(&ready, 1, result->armed ? (int)expected.gated_ms : (CHECK_SECONDS + 1) * 1000) == 0)
			return false;
		char piece[256];
		ssize_t got = read(from, piece, sizeof piece);
		if (got <= 0)
			return true;
		for (ssize_t i = 0; i < got; i++) {
			if (piece[i] == armed_mark)
				result->armed = true;
			else if (length < sizeof result->text - 1)
				result->text[length++] = piece[i] == '\n' ? ' ' : piece[i];
		}
	}
}

/* Judges a gated check that was armed: it must still be in its launch. */
static void judge_gated(struct result *result, bool ended) {
	if (!ended) {
		result->code = 0;
	} else if (result->code == 0) {
		result->code = CHECK_FAILED;
		snprintf(result->text, sizeof result->text, "returned although another job holds the GPU");
	}
}

static struct result run_check(const struct check *check) {
	struct result result = {0};
	int pipes[2];
	if (pipe(pipes) != 0) {
		perror(CONFORMANCE ": pipe");
		exit(EXIT_FAILED);
	}
	pid_t child = fork();
	if (child == 0) {
		close(pipes[0]);
		outcome = pipes[1];
		setpgid(0, 0);
		run_here(check);
	}
	setpgid(child, child); /* whoever of the two comes first */
	close(pipes[1]);
	bool ended = listen_to(pipes[0], &result);
	if (!ended)
		kill(-child, SIGKILL);
	close(pipes[0]);
	result.code = wait_code(child);
	if (check->kind == CHECK_GATED && result.armed) {
		judge_gated(&result, ended);
	} else if (!ended || result.code == 128 + SIGALRM) {
		result.code = CHECK_FAILED;
		snprintf(result.text, sizeof result.text, "did not end within %d s, or left a process behind", CHECK_SECONDS);
	}
	return result;
}

/* Prints one line of TAP; returns whether the check failed. */
static bool print_result(int number, const struct check *check, const struct result *result) {
	bool failed = result->code != 0 && result->code != CHECK_SKIPPED;
	printf("%s %d - %s", failed ? "not ok" : "ok", number, check->name);
	if (result->code == CHECK_SKIPPED)
		printf(" # skip %s", result->text);
	else if (failed && result->text[0])
		printf(" # %s", result->text);
	else if (failed)
		printf(" # ended with code %d", result->code);
	printf("\n");
	fflush(stdout);
	return failed;
}

/* Whether a check is asked for: by its name or a beginning of it up to a dot, and by what is expected. */
static bool chosen(const struct check *check, const char *only) {
	size_t length = only ? strlen(only) : 0;
	if (only && (strncmp(check->name, only, length) != 0 || (check->name[length] != '\0' && check->name[length] != '.')))
		return false;
	switch (check->kind) {
	case CHECK_LIMIT:
		return expected.limit > 0;
	case CHECK_GATED:
		return expected.gated;
	case CHECK_PART:
		return false;
	default:
		return !expected.gated; /* a GPU that another job holds answers nothing else */
	}
}

/* Calls visit for each check in order until it returns true. */
static const struct check *find_check(bool (*visit)(const struct check *, void *), void *context) {
	for (size_t s = 0; s < COUNT(subjects); s++)
		for (const struct check *check = subjects[s]; check->name; check++)
			if (visit(check, context))
				return check;
	return NULL;
}

struct run {
	const char *only;
	bool list;
	int number, failed;
};

static bool count_one(const struct check *check, void *context) {
	struct run *run = context;
	run->number += chosen(check, run->only);
	return false;
}

static bool run_one(const struct check *check, void *context) {
	struct run *run = context;
	if (!chosen(check, run->only))
		return false;
	if (run->list) {
		printf("%s\n", check->name);
		return false;
	}
	struct result result = run_check(check);
	run->failed += print_result(++run->number, check, &result);
	return false;
}

static bool is_called(const struct check *check, void *context) { return strcmp(check->name, context) == 0; }

/* The folder of callers beside this program, unless the command line names another. */
static void find_places(void) {
	static char self[PATH_MAX], folder[PATH_MAX + 16], copy[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	if (length < 0) {
		perror(CONFORMANCE ": /proc/self/exe");
		exit(EXIT_FAILED);
	}
	expected.self = self;
	strcpy(copy, self);
	snprintf(folder, sizeof folder, "%s/callers", dirname(copy));
	if (!expected.callers)
		expected.callers = folder;
}

int main(int argc, char **argv) {
	const char *part = NULL;
	struct run run = {0};
	const struct option_row rows[] = {
		{"list", OPTION_ON, &run.list, "print the names of the checks that would run"},
		{"only", OPTION_TEXT, &run.only, "NAME  this check, or all whose names begin with NAME and a dot"},
		{"expect-limit", OPTION_BYTES, &expected.limit, "BYTES  check that this much memory is reported, and no more given on any path"},
		{"expect-gated", OPTION_ON, &expected.gated, "check only that no path launches while another job holds the GPU"},
		{"gated-ms", OPTION_COUNT, &expected.gated_ms, "MS  for which such a launch is watched (300)"},
		{"callers", OPTION_TEXT, &expected.callers, "FOLDER  of libweft-caller libraries (callers, beside this program)"},
		{"part", OPTION_TEXT, &part, "NAME  run a check in this process; checks use it that need a second program"},
		{0},
	};
	options_read(CONFORMANCE, "usage: conformance [options]\n\nChecks what weft relies on of a CUDA driver; prints TAP. Exit: 0 all well, 1 not, "
		"2 bad arguments.\n", rows, argc, argv);
	find_places();
	if (part) {
		outcome = STDOUT_FILENO;
		const struct check *check = find_check(is_called, (void *)part);
		if (!check)
			options_fault(CONFORMANCE, "--part %s: no such check", part);
		run_here(check);
	}
	find_check(count_one, &run);
	if (run.number == 0)
		options_fault(CONFORMANCE, "--only %s: no such check with these expectations", run.only ? run.only : "");
	if (!run.list)
		printf("TAP version 13\n1..%d\n", run.number);
	fflush(stdout);
	run.number = 0;
	find_check(run_one, &run);
	return run.failed ? EXIT_FAILED : EXIT_OK;
}
