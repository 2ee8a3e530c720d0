/* A forked child has its parent's memory but none of its threads, and must not speak on its connection: it lets go of all of
 * that, and begins anew where it calls cuInit itself. A child of a process that had a context cannot use the driver: its
 * calls fail in it, without a token and without a wait. */
#include <errno.h>
#include <pthread.h>

#include "drain.h"
#include "gate.h"
#include "session.h"
#include "window.h"

static void in_child(void) {
    int saved = errno;
    weft_agent_forked();
    weft_session_forked();
    weft_token_forked();
    weft_memory_forked();
    weft_observer_forked();
    weft_streams_forked();
    weft_window_forked();
    weft_slots_forked();
    errno = saved;
}

void weft_fork_watch(void) {
    static atomic_flag watched = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&watched))
        pthread_atfork(NULL, NULL, in_child);
}
