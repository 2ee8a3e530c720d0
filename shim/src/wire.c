#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ROOM_MS 100 /* an agent that reads nothing for so long hangs */

const char *weft_wire_path(void) {
    const char *path = getenv("WEFT_SOCKET");
    return path && *path ? path : "/run/weft/agent.sock";
}

int weft_wire_connect(struct weft_wire *wire, const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    *wire = (struct weft_wire){.fd = -1};
    if (strlen(path) >= sizeof at.sun_path)
        return ENAMETOOLONG;
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    if (connect(fd, (struct sockaddr *)&at, sizeof at)) {
        int error = errno;
        close(fd);
        return error;
    }
    wire->fd = fd;
    return 0;
}

void weft_wire_close(struct weft_wire *wire) {
    if (wire->fd >= 0)
        close(wire->fd);
    wire->fd = -1;
}

static bool wait_for_room(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;
    do
        n = poll(&p, 1, ROOM_MS);
    while (n < 0 && errno == EINTR);
    return n > 0 && !(p.revents & (POLLHUP | POLLERR));
}

bool weft_wire_send(struct weft_wire *wire, enum weft_type type, void *message, uint32_t size) {
    if (wire->fd < 0)
        return false;
    struct weft_header *header = message;
    *header = (struct weft_header){
        .magic = WEFT_WIRE_MAGIC, .version = WEFT_WIRE_VERSION, .type = (uint16_t)type, .length = size,
        .number = wire->sent + 1,
    };
    for (;;) {
        if (send(wire->fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size) {
            wire->sent++;
            return true;
        }
        if (errno == EINTR || (errno == EAGAIN && wait_for_room(wire->fd)))
            continue;
        shutdown(wire->fd, SHUT_RDWR);
        return false;
    }
}

/* The size of a message of the agent, or 0 where it may send none of the type. */
static uint32_t size_of(const union weft_message *m) {
    switch (m->header.type) {
    case WEFT_WELCOME: return sizeof m->welcome;
    case WEFT_REFUSED: return sizeof m->refused;
    case WEFT_GRANT:
    case WEFT_NARROW: return sizeof m->grant;
    case WEFT_YIELD: return sizeof m->yield;
    case WEFT_DROP: return sizeof m->drop;
    case WEFT_MEMORY: return sizeof m->memory;
    case WEFT_WANTED: return sizeof m->wanted;
    case WEFT_PING: return sizeof(struct weft_plain);
    case WEFT_LIST:
        if (m->header.length < sizeof m->list || m->list.count > WEFT_PROCESSES)
            return 0;
        return (uint32_t)(sizeof m->list + m->list.count * sizeof(struct weft_process));
    default: return 0;
    }
}

/* Whether the packet of n bytes is a message. A refusal is read whatever its version is: it says why. */
static bool sound(const struct weft_wire *wire, const union weft_message *m, size_t n) {
    if (n < sizeof m->header || m->header.magic != WEFT_WIRE_MAGIC || m->header.length != n)
        return false;
    if (m->header.type == WEFT_REFUSED && n >= sizeof m->refused)
        return true;
    return m->header.version == WEFT_WIRE_VERSION && m->header.number == wire->received + 1 && size_of(m) == n;
}

enum weft_got weft_wire_receive(struct weft_wire *wire, union weft_message *message) {
    for (;;) {
        ssize_t n = recv(wire->fd, message, sizeof message->bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return WEFT_GOT_NOTHING;
        if (n <= 0)
            return WEFT_GOT_CLOSED;
        if (!sound(wire, message, (size_t)n))
            return WEFT_GOT_FAULT;
        wire->received++;
        return WEFT_GOT_MESSAGE;
    }
}
