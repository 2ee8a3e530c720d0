#include "script.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "check.h"
#include "futex.h"
#include "token.h"

#define PATIENCE (30 * WEFT_S)
#define ANSWER (400 * WEFT_MS) /* less than the shim waits for WELCOME */

void script_listen(struct script *script) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (!script->path[0]) {
        *script = (struct script){.fd = -1};
        snprintf(script->path, sizeof script->path, "/tmp/weft-test.%d.sock", (int)getpid());
        setenv("WEFT_SOCKET", script->path, 1);
    }
    unlink(script->path);
    strcpy(at.sun_path, script->path);
    script->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(!bind(script->listener, (struct sockaddr *)&at, sizeof at), "%s", strerror(errno));
    CHECK(!listen(script->listener, 128), "%s", strerror(errno));
}

void script_stop(struct script *script) { close(script->listener); }

static bool readable(int fd, int64_t ns) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct timespec t = weft_timespec(ns);
    return ppoll(&p, 1, &t, NULL) > 0;
}

static void take(struct script *script, union said *said) {
    ssize_t n = recv(script->fd, said, sizeof *said, 0);
    CHECK(n >= (ssize_t)sizeof said->header, "the shim closed the connection (%zd)", n);
    CHECK(said->header.length == n, "length %u in a packet of %zd", said->header.length, n);
    CHECK(said->header.magic == WEFT_WIRE_MAGIC && said->header.version == WEFT_WIRE_VERSION, "header");
    CHECK(said->header.number == ++script->heard, "number %u after %u", said->header.number, script->heard - 1);
}

void script_accept(struct script *script, union said *hello) {
    CHECK(readable(script->listener, PATIENCE), "nobody connects");
    script->fd = accept4(script->listener, NULL, NULL, SOCK_CLOEXEC);
    script->sent = script->heard = 0;
    script->accepted = weft_now();
    script_expect(script, WEFT_HELLO, hello);
}

void script_welcome(struct script *script, enum weft_class class, uint32_t held) {
    struct weft_welcome w = {.session = script->session ? script->session : 7, .count = 2, .class = class, .held = held};
    w.grace_us = SCRIPT_GRACE_US;
    for (uint32_t i = 0; i < w.count; i++)
        w.gpus[i] = (struct weft_gpu){.uuid = {(uint8_t)(i + 1)}, .limit = SCRIPT_LIMIT, .reserved = SCRIPT_LIMIT / 2};
    script_send(script, WEFT_WELCOME, &w, sizeof w);
    IN_TIME(weft_now() - script->accepted < ANSWER, "WELCOME comes too late");
}

void script_hang_up(struct script *script) {
    close(script->fd);
    script->fd = -1;
}

void script_expect(struct script *script, enum weft_type type, union said *said) {
    union said unused;
    said = said ? said : &unused;
    CHECK(readable(script->fd, PATIENCE), "no message of type %d", type);
    take(script, said);
    CHECK(said->header.type == type, "type %d in place of %d", said->header.type, type);
}

void script_find(struct script *script, enum weft_type type, union said *said) {
    union said unused;
    said = said ? said : &unused;
    do {
        CHECK(readable(script->fd, PATIENCE), "no message of type %d", type);
        take(script, said);
    } while (said->header.type != type);
}

bool script_hears(struct script *script, enum weft_type type, int64_t ns) {
    union said said;
    for (int64_t until = weft_now() + ns; readable(script->fd, until - weft_now());) {
        take(script, &said);
        if (said.header.type == type)
            return true;
    }
    return false;
}

void script_quiet(struct script *script, enum weft_type type, int64_t ns) {
    CHECK(!script_hears(script, type, ns), "type %d came", type);
}

void script_send(struct script *script, enum weft_type type, void *message, uint32_t size) {
    struct weft_header *h = message;
    *h = (struct weft_header){WEFT_WIRE_MAGIC, WEFT_WIRE_VERSION, (uint16_t)type, size, ++script->sent};
    script_raw(script, message, size);
}

void script_raw(struct script *script, const void *bytes, uint32_t size) {
    CHECK(send(script->fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size || errno == EPIPE || errno == ECONNRESET, "%s",
          strerror(errno));
}

void script_grant(struct script *script, uint64_t epoch, int64_t lasts, int64_t window) {
    struct weft_grant m = {.epoch = epoch, .lasts_ns = (uint64_t)lasts, .window_ns = (uint64_t)window};
    script_send(script, WEFT_GRANT, &m, sizeof m);
}

void script_tell(struct script *script, enum weft_type type, uint64_t epoch) {
    union {
        struct weft_yield yield;
        struct weft_drop drop;
    } m = {0};
    m.yield.epoch = epoch;
    script_send(script, type, &m, type == WEFT_YIELD ? sizeof m.yield : sizeof m.drop);
}

static void *begin(void *unused) {
    (void)unused;
    CHECK(weft_session_begin(), "no terms");
    weft_context_made(0);
    return NULL;
}

void script_begin(struct script *script, enum weft_class class) {
    pthread_t thread;
    union said said;
    script_listen(script);
    pthread_create(&thread, NULL, begin, NULL);
    script_accept(script, &said);
    CHECK(said.hello.session == 0 && said.hello.epoch == 0 && said.hello.gpus == 0, "first HELLO");
    script_welcome(script, class, 0);
    script_expect(script, WEFT_USE, &said);
    CHECK(said.use.gpus == 1, "gpus %x", said.use.gpus);
    pthread_join(thread, NULL);
}
