/* An agent that does what a test says, step by step. */
#ifndef WEFT_TEST_SCRIPT_H
#define WEFT_TEST_SCRIPT_H

#include <stdbool.h>
#include <stdint.h>

#include "weft_wire.h"

union said { /* by the shim */
    struct weft_header header;
    struct weft_hello hello;
    struct weft_use use;
    struct weft_plain plain;
    struct weft_released released;
    struct weft_epoch epoch;
    struct weft_alloc alloc;
    struct weft_handle handle;
    struct weft_shared shared;
    struct weft_iteration iteration;
    uint8_t bytes[WEFT_WIRE_MAX];
};

struct script {
    int listener, fd;
    uint32_t sent, heard; /* numbers of messages */
    uint64_t session;
    int64_t accepted; /* when */
    char path[108];
};

/* Makes the socket, and points WEFT_SOCKET to it. */
void script_listen(struct script *script);
void script_stop(struct script *script); /* no longer listens; the socket stays, stale */

/* Waits for a connection and its HELLO; answers it. */
void script_accept(struct script *script, union said *hello);
void script_welcome(struct script *script, enum weft_class class, uint32_t held);
void script_hang_up(struct script *script);

/* The next message must be of the type and come soon. Others are passed over by script_find. */
void script_expect(struct script *script, enum weft_type type, union said *said);
void script_find(struct script *script, enum weft_type type, union said *said);
/* Nothing of the type comes for so long. */
void script_quiet(struct script *script, enum weft_type type, int64_t ns);
bool script_hears(struct script *script, enum weft_type type, int64_t ns); /* or does it? */

void script_send(struct script *script, enum weft_type type, void *message, uint32_t size);
void script_grant(struct script *script, uint64_t epoch, int64_t lasts, int64_t window);
void script_tell(struct script *script, enum weft_type type, uint64_t epoch); /* YIELD, DROP */
void script_raw(struct script *script, const void *bytes, uint32_t size);

/* The process with its agent: WELCOME answered, a context on GPU 0 made, USE read. */
void script_begin(struct script *script, enum weft_class class);

#define SCRIPT_GRACE_US 1000
#define SCRIPT_LIMIT (8ull << 30)

#endif
