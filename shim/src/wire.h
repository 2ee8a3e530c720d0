/* One connection to an agent: packets out and in, with everything checked that can be checked without knowing what they
 * are about. */
#ifndef WEFT_WIRE_CLIENT_H
#define WEFT_WIRE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "weft_wire.h"

union weft_message {
    struct weft_header header;
    struct weft_welcome welcome;
    struct weft_refused refused;
    struct weft_grant grant;
    struct weft_yield yield;
    struct weft_drop drop;
    struct weft_memory memory;
    struct weft_wanted wanted;
    struct weft_list list;
    uint8_t bytes[WEFT_WIRE_MAX + 1]; /* one more than the longest, to notice a longer one */
};

struct weft_wire {
    int fd; /* -1: none */
    uint32_t sent, received; /* numbers of the last messages */
};

/* Where the agent listens: WEFT_SOCKET or the default. */
const char *weft_wire_path(void);

/* Connects without waiting. 0 or an errno: ENOENT where there is no socket, ECONNREFUSED where nobody listens. */
int weft_wire_connect(struct weft_wire *wire, const char *path);
void weft_wire_close(struct weft_wire *wire);

/* Fills in the header and sends. False: the connection is of no use any more, and was shut down so that a poll of it ends.
 * Waits for room up to 100 ms. */
bool weft_wire_send(struct weft_wire *wire, enum weft_type type, void *message, uint32_t size);

enum weft_got {
    WEFT_GOT_NOTHING, /* yet */
    WEFT_GOT_MESSAGE,
    WEFT_GOT_CLOSED,
    WEFT_GOT_FAULT, /* not a message that an agent may send now */
};
enum weft_got weft_wire_receive(struct weft_wire *wire, union weft_message *message);

#endif
