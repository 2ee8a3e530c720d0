/*
 * conformance: what weft relies on of a CUDA driver, as checks that run alike against the emulated driver and a real one,
 * with and without weft.
 *
 * Each check runs in a process of its own, forked before any use of CUDA: it may crash, hang or exit. It ends well by
 * returning. A check is a function in a table of its subject (conformance_SUBJECT.c).
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conformance_api.h"
#include "weft_cuda.h"

/* When a check runs. */
enum check_kind {
	CHECK_ALWAYS,
	CHECK_LIMIT, /* with --expect-limit: fails where nobody enforces the limit */
	CHECK_GATED, /* with --expect-gated: another job holds the GPU; fails where launches pass all the same */
	CHECK_PART,  /* never by itself: a process that another check starts */
};

struct check {
	const char *name; /* subject.what */
	void (*run)(void);
	enum check_kind kind;
};

/* Tables of checks by subject, each ended by a row without a name. */
extern const struct check start_checks[], lookup_checks[], launch_checks[], graph_checks[], memory_checks[], query_checks[],
	limit_checks[], gate_checks[];

/* What the command line says. */
struct expectations {
	uint64_t limit; /* bytes of the process's share; 0: not given */
	bool gated;
	uint64_t gated_ms; /* how long a gated launch is watched */
	const char *self;  /* path of this program */
	const char *callers; /* folder of the libraries that call the driver in their own ways */
};
extern struct expectations expected;

/* Fails the check in printf form, with its place, unless condition holds. */
#define EXPECT(condition, ...) \
	do { \
		if (!(condition)) \
			check_fail(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)

/* Fails the check unless the call answers code. */
#define EXPECT_CODE(code, call) check_code(__FILE__, __LINE__, (code), (call), #call)
#define OK(call) EXPECT_CODE(CUDA_SUCCESS, call)

/* Skips the check where the driver has no such function. */
#define NEED(symbol) \
	do { \
		if (!api.symbol) \
			check_skip("the driver has no " #symbol); \
	} while (0)

_Noreturn void check_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void check_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
void check_code(const char *file, int line, CUresult wanted, CUresult got, const char *call);

/* Skips where the driver says that it does not have something (801), else fails unless it is well. */
void check_supported(CUresult result, const char *what);

/* Runs function in a forked child and returns its exit status: 0, or the code of a fault, which it reports itself. */
int check_fork(void (*function)(void));

/* Starts this program again for one check, and returns its exit status. */
int check_spawn(const char *name);

/* For CHECK_GATED: all is ready, and what comes next must not return while another job holds the GPU. */
void check_armed(void);

/* --- What most checks begin with */

/* Opens the driver's library and fills api. No call is made to it. */
void use_driver(void);

/* use_driver, cuInit, and the primary context of device 0. */
void use_gpu(void);

/* use_gpu, and the function of the spinning kernel. */
CUfunction use_spin(void);

/* Launches ns of spinning on a stream; returns the driver's answer. */
CUresult spin_on(CUfunction spin, CUstream stream, uint64_t ns);

/* Bytes that the driver calls free; all work and all deferred frees are done before. */
size_t free_bytes(void);

/* Loads lib%s.so from the folder of callers, and returns a symbol of it. */
void *caller_symbol(const char *library, const char *symbol);

enum { MIB = 1 << 20 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#endif
