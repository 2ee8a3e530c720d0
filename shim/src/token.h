/* What the hooks ask of the session with the agent, and what they tell it. session.c and its neighbours implement it;
 * hooks call it. All functions are thread safe. Before weft_session_begin succeeded, and in a process that runs unshared
 * (no agent), every one of them returns at once and lets the call through.
 *
 * GPUs are numbered as in WELCOME: positions in the allocation, 0 .. count-1.
 */
#ifndef WEFT_TOKEN_H
#define WEFT_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft_cuda.h"
#include "weft_wire.h"

/* Connects to the agent and says HELLO, if this process is not connected yet; called by the hook of cuInit before the
 * driver's own cuInit, when no descriptor, thread or lock of the shim exists yet. The result is WELCOME's terms, or NULL
 * where the process runs unshared. A failure is not remembered: the next cuInit tries again. */
const struct weft_welcome *weft_session_begin(void);

/* The terms of the running session, or NULL. */
const struct weft_welcome *weft_session_terms(void);

/* The same, also in a process that has not called cuInit: it asks the agent once, as an observer, and keeps nothing but the
 * answer. NULL where the process runs unshared. */
const struct weft_welcome *weft_observer_terms(void);

/* A context exists on a GPU from now on, or no longer. Starts the session's thread at the first one, and closes the gate:
 * before it, launches pass (and fail in the driver). Both change the set of GPUs that the agent is told. */
void weft_context_made(unsigned gpu);
void weft_context_gone(unsigned gpu);

/* A context is about to be destroyed or reset (the last release of a primary one, too): from the return on, the session
 * makes no use of it and of its streams. Called before the driver's own function, beside weft_context_gone after it. */
void weft_context_quit(CUcontext context);

/* Around a driver call that puts work on a GPU. weft_launch_begin returns when the gate is open and this thread is counted
 * as in flight; weft_launch_end follows the driver call whatever that returned. kind and key tell what is launched for
 * the estimate of its GPU time: a function, a graph, a size in bytes. Both calls are given the same. Pairs may nest in a
 * thread (a driver function that calls another hooked one). Launches into a capturing stream must not come here. A stream
 * of a _ptsz form is CU_STREAM_PER_THREAD where the application gave 0. */
enum weft_work { WEFT_WORK_KERNEL, WEFT_WORK_GRAPH, WEFT_WORK_COPY };
void weft_launch_begin(CUstream stream, enum weft_work kind, const void *key);
void weft_launch_end(CUstream stream, enum weft_work kind, const void *key, bool launched);

/* A synchronisation returned: nothing of the stream (all: of the context, or of the device) is outstanding. */
void weft_synced(CUstream stream);
void weft_synced_all(void);

/* A stream begins capture or is destroyed: the session records no event on it from now on, until the next launch into it
 * comes here. Returns after work launched on the stream so far can be waited for without it. */
void weft_stream_quit(CUstream stream);

/* Memory. A charge waits until the pool lends or the allocation's limit forbids it, and returns CUDA_SUCCESS with a handle
 * for the release, or CUDA_ERROR_OUT_OF_MEMORY. The caller charges before it asks the driver, and releases when the driver
 * refuses. A release of handle 0 does nothing. */
CUresult weft_memory_charge(unsigned gpu, enum weft_family family, size_t bytes, uint64_t *handle);
void weft_memory_release(unsigned gpu, uint64_t handle);
void weft_memory_export(unsigned gpu, uint64_t handle, const uint8_t key[WEFT_KEY]);
CUresult weft_memory_import(unsigned gpu, const uint8_t key[WEFT_KEY], uint64_t *handle);

/* What the allocation may use and what all its processes use, bytes. False where the process runs unshared: ask the
 * driver. weft_memory_view and weft_processes also work in a process that has not called cuInit (they connect as an
 * observer for one question). */
bool weft_memory_view(unsigned gpu, uint64_t *total, uint64_t *used);

/* The allocation's processes on a GPU: at most `most` are written, the number of all is returned; -1 where unshared. */
int weft_processes(unsigned gpu, struct weft_process *list, int most);

/* The functions of the driver beneath, resolved by lookup.c before the first hook runs; NULL where the driver lacks one.
 * Those that the session itself calls. */
struct weft_driver {
	CUresult (*event_create)(CUevent *, unsigned flags);
	CUresult (*event_destroy)(CUevent);
	CUresult (*event_record)(CUevent, CUstream);
	CUresult (*event_query)(CUevent);
	CUresult (*event_synchronize)(CUevent);
	CUresult (*event_elapsed)(float *ms, CUevent from, CUevent to);
	CUresult (*context_get)(CUcontext *);
	CUresult (*context_push)(CUcontext);
	CUresult (*context_pop)(CUcontext *);
	CUresult (*stream_context)(CUstream, CUcontext *); /* cuStreamGetCtx, since 9.2 */
	CUresult (*stream_is_capturing)(CUstream, CUstreamCaptureStatus *);
	CUresult (*capture_mode)(CUstreamCaptureMode *); /* cuThreadExchangeStreamCaptureMode, since 10.1 */
};
extern struct weft_driver weft_driver;

/* What the session did so far, for tests and measurements. Exported. */
struct weft_counters {
	_Atomic uint64_t sent, received; /* messages */
	_Atomic uint64_t faults;         /* messages of the agent that were none */
	_Atomic uint64_t grants, releases, requests;
	_Atomic uint64_t launches; /* at the time of the call */
	_Atomic uint64_t registered; /* ns, from the last connect() to its WELCOME */
};
__attribute__((visibility("default"))) const struct weft_counters *weft_counters(void);

#endif
