/* A driver that computes when work ends: each stream does one thing after the other, in real time. It keeps the rules that
 * the session must keep, and counts what breaks them. */
#ifndef WEFT_TEST_GPU_H
#define WEFT_TEST_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "token.h"

/* Fills weft_driver. */
void gpu_start(void);

CUcontext gpu_context(int number);
void gpu_use(CUcontext context); /* current for the calling thread */
CUstream gpu_stream(CUcontext context);
void gpu_destroy_stream(CUstream stream);
void gpu_destroy_context(CUcontext context);

/* Work of so many ns on the stream; with the session's brackets around it. */
void gpu_launch(CUstream stream, int64_t ns, const void *key);
/* The same without them. */
void gpu_work(CUstream stream, int64_t ns);

/* Waits for the stream, and reports it to the session. */
void gpu_sync(CUstream stream);

/* When all work so far ends, on the monotonic clock; ns. */
int64_t gpu_busy_until(void);

void gpu_capture(CUstream stream, bool on);
void gpu_join_capture(CUstream stream, bool on); /* by waiting for an event of a stream that captures */
void gpu_break(CUresult error); /* returned by all calls from now on; CUDA_SUCCESS: repaired */

struct gpu_counts {
    _Atomic int creates, records, queries, launches, pushes;
    _Atomic int faults; /* records on capturing or destroyed streams, calls in the wrong context or capture mode */
    _Atomic int events; /* that exist */
};
extern struct gpu_counts gpu_counts;

#endif
