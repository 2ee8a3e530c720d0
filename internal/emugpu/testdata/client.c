/* A driver in small, on nothing but emu_wire.h: attaches, launches from THREADS threads on one stream, waits, and
 * prints nanoseconds per launch. usage: client SOCKET THREADS LAUNCHES COST_NS */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>

#include "emu_wire.h"

static struct {
    struct emu_client client;
    struct emu_context *context;
    pthread_mutex_t lock;
    uint64_t launches, cost;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static struct emu_reply ask(int socket, struct emu_request q, int *fds, int count)
{
    struct emu_reply r;
    char control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec part = {&r, sizeof r};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    q.magic = EMU_MAGIC;
    if (send(socket, &q, sizeof q, 0) != sizeof q || recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != sizeof r)
        die("ask");
    if (r.status != 0) {
        fprintf(stderr, "status %u: %s\n", r.status, (const char *)r.payload);
        exit(1);
    }
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (count > 0 && (h == NULL || h->cmsg_len != CMSG_LEN(count * sizeof(int))))
        die("descriptors");
    if (count > 0)
        memcpy(fds, CMSG_DATA(h), count * sizeof(int));
    return r;
}

static void *map(int fd, size_t size, int protection)
{
    void *p = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        die("mmap");
    return p;
}

static void attach(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fds[4];
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (connect(s, (struct sockaddr *)&address, sizeof address) != 0)
        die(path);
    ask(s, (struct emu_request){.op = EMU_HELLO, .a = EMU_PROTOCOL, .b = EMU_ROLE_DRIVER, .text = "client"}, fds, 4);
    driver.client.clock = map(fds[0], sizeof(struct emu_clock), PROT_READ);
    driver.client.audit = map(fds[1], sizeof(struct emu_audit), PROT_READ);
    driver.client.process = map(fds[2], sizeof(struct emu_process), PROT_READ | PROT_WRITE);
    driver.client.bell = fds[3];
    driver.client.control = s;
    ask(s, (struct emu_request){.op = EMU_CONTEXT_CREATE}, fds, 1);
    driver.context = map(fds[0], sizeof(struct emu_context), PROT_READ | PROT_WRITE);
}

static void *submit(void *unused)
{
    struct emu_ring *r = &driver.context->rings[0];
    const struct emu_audit_slot *slot = NULL;
    struct emu_thread *t = emu_thread_enter(&driver.client);
    for (uint64_t i = 0; i < driver.launches; i++) {
        pthread_mutex_lock(&driver.lock);
        while (emu_room(r) == 0) {
            uint64_t n = atomic_load(&r->head) - EMU_RING_ENTRIES * 3 / 4;
            pthread_mutex_unlock(&driver.lock);
            if (emu_wait(&driver.client, t, driver.context, 0, n) != 0)
                exit(1);
            pthread_mutex_lock(&driver.lock);
        }
        struct emu_entry e = {.submit = emu_now(driver.client.clock), .cost = driver.cost, .kind = EMU_KERNEL,
                              .epoch = emu_stamp(&driver.client, &slot, 0)};
        emu_push(&driver.client, r, &e);
        pthread_mutex_unlock(&driver.lock);
    }
    emu_thread_leave(&driver.client, t);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int threads = atoi(argv[2]);
    pthread_t list[64];
    driver.launches = strtoull(argv[3], NULL, 10);
    driver.cost = strtoull(argv[4], NULL, 10);
    attach(argv[1]);
    struct emu_thread *t = emu_thread_enter(&driver.client);
    uint64_t begin = emu_now(driver.client.clock);
    for (int i = 0; i < threads; i++)
        pthread_create(&list[i], NULL, submit, NULL);
    emu_thread_leave(&driver.client, t);
    for (int i = 0; i < threads; i++)
        pthread_join(list[i], NULL);
    uint64_t launched = emu_now(driver.client.clock);
    t = emu_thread_enter(&driver.client);
    if (emu_wait(&driver.client, t, driver.context, 0, atomic_load(&driver.context->rings[0].head)) != 0)
        return 1;
    while (!emu_poll(&driver.client, t, &driver.context->rings[0], atomic_load(&driver.context->rings[0].head)))
        ;
    emu_sleep(&driver.client, t, 1000);
    printf("%.1f %llu\n", (double)(launched - begin) / (double)(driver.launches * (uint64_t)threads),
           (unsigned long long)(emu_now(driver.client.clock) - begin));
    return 0;
}
