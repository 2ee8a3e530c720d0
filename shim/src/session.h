/* How the parts of the session know each other. Each part keeps its own lock; where two are held, it is in this order:
 * token, memory, agent; streams and window are held across calls of the driver, and no other lock is taken under them. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "agent.h"
#include "token.h"

/* session.c: the process as the agent knows it. */
uint32_t weft_session_gpus(void);    /* bit i: it has a context on GPU i */
uint64_t weft_session_lowered(void); /* memory limit that WEFT_MEMORY asks for, bytes; UINT64_MAX for none */
void weft_session_kick(void);        /* the thread has something to do before its next deadline */
void weft_session_forked(void);

/* Waits until the word is not 0; serves the socket meanwhile where no thread does. */
void weft_session_wait(_Atomic uint32_t *done);

/* token.c. Messages of the agent return false where they are a fault. Steps and next as of agent.h. */
void weft_token_close_first(void); /* at the first context: from now on launches need a token */
uint64_t weft_token_epoch(void);   /* that is held: gate open, or not drained yet; 0 for none */
void weft_token_welcomed(bool held, int64_t now);
bool weft_token_granted(const struct weft_grant *grant, int64_t now);
void weft_token_narrowed(const struct weft_grant *narrow);
void weft_token_asked_back(uint64_t epoch, uint64_t spare_ns, int64_t now); /* YIELD */
void weft_token_dropped(uint64_t epoch, int64_t now);
void weft_token_step(int64_t now);
int64_t weft_token_next(int64_t now);
void weft_token_leave(void); /* the last context is going */
bool weft_token_give(void); /* now, if another process waits for it; waits for the work in flight */
bool weft_token_wanted(void);
void weft_token_exit(void); /* the process ends */
void weft_token_forked(void);

/* memory.c */
void weft_memory_welcomed(void);
void weft_memory_answered(const struct weft_memory *answer);
void weft_memory_listed(const struct weft_list *list);
void weft_memory_wanted(const struct weft_wanted *wanted);
void weft_memory_step(int64_t now);
int64_t weft_memory_next(void);
bool weft_memory_anyone_waits(void); /* for memory that this process might give back */
bool weft_memory_changed(void);      /* since it was last asked */
void weft_memory_forked(void);

/* observer.c: one question on a connection of its own, by a process without a session. */
bool weft_observe(enum weft_type question, unsigned gpu, union weft_message *answer);
void weft_observer_forked(void);

/* fork.c */
void weft_fork_watch(void);

#endif
