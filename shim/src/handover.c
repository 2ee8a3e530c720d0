/* weft.h: what a program tells about itself. */
#define WEFT_IMPLEMENTATION
#include "weft.h"

#include <errno.h>

#include "futex.h"
#include "gate.h"
#include "session.h"

#define EVERY (100 * WEFT_MS) /* between messages that only count */

static struct {
    _Atomic uint64_t pending; /* iterations that the agent was not told of */
    _Atomic int64_t told;     /* when it last was */
} iterations;

/* At once where memory changed hands, since what is not in use any more goes back with it; otherwise now and then. */
static void tell(int64_t now) {
    if (!weft_memory_changed() && now - atomic_load(&iterations.told) < EVERY)
        return;
    struct weft_iteration m = {.count = atomic_exchange(&iterations.pending, 0)};
    atomic_store(&iterations.told, now);
    if (m.count && !weft_send(WEFT_ITERATION, &m, sizeof m))
        atomic_fetch_add(&iterations.pending, m.count);
}

int weft_iteration(void) {
    if (!weft_session_terms())
        return 0;
    int saved = errno;
    atomic_fetch_add(&iterations.pending, 1);
    tell(weft_now());
    weft_token_give();
    errno = saved;
    return 1;
}

int weft_yield(void) {
    int saved = errno;
    int given = weft_session_terms() && weft_token_give();
    errno = saved;
    return given;
}

int weft_managed(void) { return weft_session_terms() != NULL; }
int weft_waiting(void) { return weft_token_wanted() || weft_memory_anyone_waits(); }

WEFT_API const struct weft_counters *weft_counters(void) {
    atomic_store(&weft_counts.launches, weft_slots_launches());
    return &weft_counts;
}
