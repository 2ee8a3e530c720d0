/* The session's connection to the agent, through agents that come and go.
 *
 *            connect, HELLO                WELCOME
 *   DOWN ----------------------> ASKED -----------------> UP
 *    ^  <--- no answer, REFUSED ---+                       |
 *    +------ closed, a fault of the agent, no room --------+
 *
 * Tries follow each other with pauses from 1 ms to 1 s. Only who serves the session (session.c) moves the state; any thread
 * may send.
 */
#ifndef WEFT_AGENT_H
#define WEFT_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include "token.h"
#include "wire.h"

enum weft_agent_state { WEFT_AGENT_DOWN, WEFT_AGENT_ASKED, WEFT_AGENT_UP };

/* An agent that is gone for so long is not waited for any more: the process goes on without it. */
#define WEFT_PATIENCE (100 * WEFT_MS)

/* What weft_counters() of token.h shows. */
extern struct weft_counters weft_counts;

/* Sends in state UP, and returns on which connection. 0: there is none, and what matters of the message is told to the
 * next agent. */
uint32_t weft_send(enum weft_type type, void *message, uint32_t size);

/* Number of the connection that is UP, rising from 1; 0 for none. */
uint32_t weft_agent_connection(void);

/* Whether the agent has been away for longer than patience, and when it will have been; WEFT_NEVER while it is there. */
bool weft_agent_gone(int64_t now);
int64_t weft_agent_gone_at(void);

/* For who serves the session. A step tries to connect where it is time for it; next is when it wants the next step. */
int weft_agent_fd(void);
void weft_agent_step(int64_t now);
int64_t weft_agent_next(void);
enum weft_got weft_agent_receive(union weft_message *message);
void weft_agent_lost(int64_t now);
bool weft_agent_welcomed(const struct weft_welcome *welcome);
void weft_agent_refused(const struct weft_refused *refused, int64_t now);

/* Whether an agent may still be hoped for: not after a refusal, and not where there never was a socket. */
bool weft_agent_hopes(void);

/* Before the first try of a session, and when it is given up. */
void weft_agent_reset(void);

/* What the last HELLO said of the token and the GPUs. */
uint64_t weft_agent_said_epoch(void);
uint32_t weft_agent_said_gpus(void);

void weft_agent_forked(void);

#endif
