#include "emu_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>

#define DRIVER_FDS 4

static bool complain(const char *what, const char *detail)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        fprintf(stderr, "weft-emu: %s: %s (start `weft emugpu`, and set WEFT_EMU_SOCKET to its socket)\n", what, detail);
    return false;
}

static int dial(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

// receive takes one reply and up to max descriptors, and returns how many came, or -1.
static int receive(int socket, struct emu_reply *reply, int *fds, int max)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(DRIVER_FDS * sizeof(int))];
    } control;
    struct iovec part = {reply, sizeof *reply};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do
        n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);

    int count = 0;
    struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        int came = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)), got[DRIVER_FDS];
        memcpy(got, CMSG_DATA(c), (size_t)came * sizeof(int));
        for (int i = 0; i < came; i++) {
            if (i < max)
                fds[count++] = got[i];
            else
                close(got[i]);
        }
    }
    return n == sizeof *reply ? count : -1;
}

static int exchange(int socket, const struct emu_request *request, struct emu_reply *reply, int *fds, int max)
{
    ssize_t n;
    do
        n = send(socket, request, sizeof *request, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == sizeof *request ? receive(socket, reply, fds, max) : -1;
}

static void name_program(char text[EMU_HANDLE_BYTES])
{
    const char *name = getenv("WEFT_EMU_NAME");
    snprintf(text, EMU_HANDLE_BYTES, "%s", name != NULL ? name : program_invocation_short_name);
}

bool emu_link_open(struct emu_link *link, enum emu_role role, struct emu_reply *hello, int *fds)
{
    const char *path = getenv("WEFT_EMU_SOCKET");
    if (path == NULL || *path == 0)
        return complain("no broker", "WEFT_EMU_SOCKET is not set");
    int fd = dial(path);
    if (fd < 0)
        return complain(path, strerror(errno));

    int expected = role == EMU_ROLE_DRIVER ? DRIVER_FDS : 0;
    struct emu_request request = {.magic = EMU_MAGIC, .op = EMU_HELLO, .a = EMU_PROTOCOL, .b = role};
    name_program(request.text);
    int came = exchange(fd, &request, hello, fds, expected);
    if (came == expected && hello->status == 0) {
        link->fd = fd;
        return true;
    }
    for (int i = 0; i < came; i++)
        close(fds[i]);
    close(fd);
    hello->payload[EMU_PAYLOAD_BYTES - 1] = 0;
    return complain(path, came < 0 ? "the broker hung up" : (const char *)hello->payload);
}

void emu_link_close(struct emu_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

uint32_t emu_link_call(struct emu_link *link, struct emu_request *request, struct emu_reply *reply, int *fd)
{
    request->magic = EMU_MAGIC;
    if (fd != NULL)
        *fd = -1;
    pthread_mutex_lock(&link->lock);
    int came = link->fd < 0 ? -1 : exchange(link->fd, request, reply, fd, fd != NULL);
    pthread_mutex_unlock(&link->lock);
    return came < 0 || reply->status >= EMU_E_VERSION ? EMU_GONE : reply->status;
}

void *emu_map(int fd, size_t bytes, bool writable)
{
    void *at = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return NULL;
    if (*(const uint32_t *)at == EMU_MAGIC)
        return at;
    munmap(at, bytes);
    return NULL;
}
