/* How much GPU time a process may leave outstanding: where a grant bounds it, a launch waits until less
 * than that is outstanding. So a drain ends within the window and, at the worst, one launch.
 *
 * What a launch will cost is an estimate: the smoothed cost of the same function, graph or size of copy, measured between
 * two events around some of the launches. A launch of something unknown counts as a whole window, so it runs alone and is
 * measured. Kernels that overlap in several streams are each counted whole.
 *
 * There is one window per context, that is per GPU. Without a bound none of this costs a launch anything.
 */
#ifndef WEFT_WINDOW_H
#define WEFT_WINDOW_H

#include "gate.h"
#include "token.h"

/* The bound from now on, ns; 0 for none. */
void weft_window_set(int64_t bound);

/* Waits until a launch fits and charges it to the slot. The thread is not in flight. */
void weft_window_admit(struct weft_slot *slot, CUstream stream, enum weft_work kind, const void *key);

/* The admitted launch is out, or was not made: the gate closed meanwhile, or the driver refused. */
void weft_window_launched(struct weft_slot *slot, CUstream stream, enum weft_work kind, const void *key);
void weft_window_cancel(struct weft_slot *slot);

/* GPU time of all launches ever admitted that are done: as measured, else as estimated; ns. Looks for what is done. */
int64_t weft_window_spent(void);

/* Nothing is outstanding any more. */
void weft_window_drained(void);

/* A context is about to be destroyed. */
void weft_window_quit(CUcontext context);

void weft_window_forked(void);

#endif
