// cuInit, the process's attachment to the broker, threads, fork.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "cuda_state.h"

struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER, .link = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1}};

static __thread struct thread *self __attribute__((tls_model("initial-exec")));

void driver_lock(void)
{
    pthread_mutex_lock(&driver.lock);
}

void driver_unlock(void)
{
    pthread_mutex_unlock(&driver.lock);
}

// ---- Objects

#define SHELF_REST 16 // objects that lie dead before the oldest is used again

void *object_new(struct shelf *shelf)
{
    struct object *o;
    if (shelf->count > SHELF_REST) {
        o = shelf->first;
        shelf->first = o->next;
        shelf->count--;
        memset(o + 1, 0, shelf->size - sizeof *o);
    } else if ((o = calloc(1, shelf->size)) == NULL) {
        return NULL;
    } else {
        o->older = shelf->newest;
        shelf->newest = o;
    }
    o->next = NULL;
    atomic_store_explicit(&o->magic, shelf->magic, memory_order_release);
    return o;
}

void object_retire(struct shelf *shelf, void *object)
{
    struct object *o = object;
    atomic_store_explicit(&o->magic, DEAD, memory_order_release);
    o->next = NULL;
    if (shelf->count++ == 0)
        shelf->first = o;
    else
        *shelf->last = o;
    shelf->last = &o->next;
}

// ---- Threads

static void thread_end(void *value)
{
    struct thread *t = value;
    self = NULL;
    if (atomic_load(&driver.state) == DRIVER_READY) {
        thread_release_streams(t);
        if (t->slot != NULL)
            emu_thread_leave(&driver.client, t->slot);
    }
    free(t);
}

static struct thread *thread_new(void)
{
    struct thread *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->slot = emu_thread_enter(&driver.client);
    pthread_setspecific(driver.thread_key, t);
    return self = t;
}

CUresult driver_enter(struct thread **thread)
{
    int state = atomic_load_explicit(&driver.state, memory_order_acquire);
    if (__builtin_expect(state != DRIVER_READY, 0))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct thread *t = self != NULL ? self : thread_new();
    if (t == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (t->in_callback)
        return CUDA_ERROR_NOT_PERMITTED;
    *thread = t;
    return CUDA_SUCCESS;
}

EMU_API void weftEmuBlock(void)
{
    if (atomic_load(&driver.state) != DRIVER_READY || self == NULL || self->slot == NULL)
        return;
    emu_thread_leave(&driver.client, self->slot);
    self->slot = NULL;
}

EMU_API void weftEmuUnblock(void)
{
    if (atomic_load(&driver.state) == DRIVER_READY && self != NULL && self->slot == NULL)
        self->slot = emu_thread_enter(&driver.client);
}

// A thread passes model time, as sleeping passes it on the wall. A program does, where the clock may be virtual.
EMU_API void weftEmuSleep(uint64_t ns)
{
    struct thread *t;
    if (driver_enter(&t) == CUDA_SUCCESS && t->slot != NULL)
        emu_sleep(&driver.client, t->slot, ns);
}

// ---- Fork

// The child has nothing of the driver: not even cuInit works in it, as in the real one. The descriptors are closed, lest the broker
// believe that the parent lives.
static void fork_child(void)
{
    if (atomic_load(&driver.state) != DRIVER_READY)
        return;
    atomic_store(&driver.state, DRIVER_FORKED);
    close(driver.link.fd);
    close(driver.client.bell);
    driver.link.fd = driver.client.bell = -1;
}

static void fork_prepare(void)
{
    driver_lock();
}

static void fork_parent(void)
{
    driver_unlock();
}

static void fork_child_unlock(void)
{
    fork_child();
    driver_unlock();
}

// ---- Devices

CUresult driver_call(struct emu_request *request, struct emu_reply *reply, int *fd)
{
    return (CUresult)emu_link_call(&driver.link, request, reply, fd);
}

static int by_speed(const void *a, const void *b)
{
    const struct device *x = a, *y = b;
    uint64_t fast = (uint64_t)x->info.processors * (x->info.major * 10 + x->info.minor);
    uint64_t other = (uint64_t)y->info.processors * (y->info.major * 10 + y->info.minor);
    if (fast != other)
        return fast > other ? -1 : 1;
    return x->gpu - y->gpu;
}

static int by_bus(const void *a, const void *b)
{
    const struct device *x = a, *y = b;
    return strcmp(x->info.bus_id, y->info.bus_id);
}

static bool uuid_has_prefix(const struct device *d, const char *prefix, size_t length)
{
    char text[64] = "GPU-";
    size_t at = 4;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text[at++] = '-';
        at += (size_t)snprintf(text + at, sizeof text - at, "%02x", d->info.uuid[i]);
    }
    return length > 4 && strncasecmp(text, prefix, length) == 0;
}

// visible_index finds the device that one word of CUDA_VISIBLE_DEVICES names, -1 for none: an index, or a unique prefix of a UUID.
static int visible_index(const struct device *all, int count, const char *word, size_t length)
{
    if (strncasecmp(word, "GPU-", 4) == 0) {
        int found = -1;
        for (int i = 0; i < count; i++) {
            if (!uuid_has_prefix(&all[i], word, length))
                continue;
            if (found >= 0)
                return -1;
            found = i;
        }
        return found;
    }
    char *end;
    long n = strtol(word, &end, 10);
    return end == word || n < 0 || n >= count ? -1 : (int)n;
}

// choose_visible keeps the devices that CUDA_VISIBLE_DEVICES names, in its order. The first word that names none ends the list; a
// device named twice hides all.
static int choose_visible(struct device *all, int count, struct device *chosen)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (list == NULL) {
        memcpy(chosen, all, (size_t)count * sizeof *all);
        return count;
    }
    bool taken[EMU_MAX_GPUS] = {false};
    int n = 0;
    while (*list != 0) {
        list += strspn(list, " ");
        size_t length = strcspn(list, ", ");
        int i = visible_index(all, count, list, length);
        if (i < 0)
            break;
        if (taken[i])
            return 0;
        taken[i] = true;
        chosen[n++] = all[i];
        list += length;
        list += strspn(list, " ");
        if (*list == ',')
            list++;
    }
    return n;
}

static CUresult list_devices(int gpus)
{
    struct device all[EMU_MAX_GPUS] = {0};
    for (int i = 0; i < gpus; i++) {
        struct emu_request request = {.op = EMU_DEVICE_GET, .gpu = i};
        struct emu_reply reply;
        TRY(driver_call(&request, &reply, NULL));
        all[i].gpu = i;
        memcpy(&all[i].info, reply.payload, sizeof all[i].info);
    }
    const char *order = getenv("CUDA_DEVICE_ORDER");
    bool bus = order != NULL && strcmp(order, "PCI_BUS_ID") == 0;
    qsort(all, (size_t)gpus, sizeof all[0], bus ? by_bus : by_speed);
    driver.count = choose_visible(all, gpus, driver.devices);
    return driver.count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

struct device *driver_gpu(uint64_t gpu)
{
    for (int i = 0; i < driver.count; i++)
        if ((uint64_t)driver.devices[i].gpu == gpu)
            return &driver.devices[i];
    return NULL;
}

CUresult driver_device(CUdevice ordinal, struct device **device)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (ordinal < 0 || ordinal >= driver.count)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = &driver.devices[ordinal];
    return CUDA_SUCCESS;
}

uint64_t driver_stamp(const struct device *device)
{
    const struct emu_audit_slot *slot = atomic_load_explicit(&driver.audit, memory_order_relaxed);
    bool known = slot != NULL;
    uint64_t stamp = emu_stamp(&driver.client, &slot, (uint32_t)device->gpu);
    if (!known && slot != NULL)
        atomic_store_explicit(&driver.audit, slot, memory_order_relaxed);
    return stamp;
}

// ---- cuInit

static void detach(void)
{
    struct emu_client *c = &driver.client;
    if (c->clock != NULL)
        munmap((void *)(uintptr_t)c->clock, sizeof *c->clock);
    if (c->audit != NULL)
        munmap((void *)(uintptr_t)c->audit, sizeof *c->audit);
    if (c->process != NULL)
        munmap(c->process, sizeof *c->process);
    if (c->bell >= 0)
        close(c->bell);
    *c = (struct emu_client){.bell = -1, .control = -1};
    emu_link_close(&driver.link);
}

static CUresult attach(void)
{
    struct emu_reply hello;
    int fds[4];
    if (!emu_link_open(&driver.link, EMU_ROLE_DRIVER, &hello, fds))
        return CUDA_ERROR_NO_DEVICE;
    driver.client = (struct emu_client){
        .clock = emu_map(fds[0], sizeof(struct emu_clock), false),
        .audit = emu_map(fds[1], sizeof(struct emu_audit), false),
        .process = emu_map(fds[2], sizeof(struct emu_process), true),
        .bell = fds[3],
        .control = driver.link.fd,
    };
    if (driver.client.clock == NULL || driver.client.audit == NULL || driver.client.process == NULL)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    int gpus = hello.b < EMU_MAX_GPUS ? (int)hello.b : (int)EMU_MAX_GPUS;
    return list_devices(gpus);
}

static void once(void)
{
    pthread_key_create(&driver.thread_key, thread_end);
    pthread_atfork(fork_prepare, fork_parent, fork_child_unlock);
}

EMU_API CUresult cuInit(unsigned flags)
{
    static pthread_once_t guard = PTHREAD_ONCE_INIT;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&driver.state) == DRIVER_FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_once(&guard, once);
    driver_lock();
    CUresult result = CUDA_SUCCESS;
    if (atomic_load(&driver.state) == DRIVER_FRESH) {
        result = attach();
        if (result == CUDA_SUCCESS)
            atomic_store_explicit(&driver.state, DRIVER_READY, memory_order_release);
        else
            detach();
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuDriverGetVersion(int *version)
{
    NEED(version != NULL);
    *version = EMU_CUDA_VERSION;
    return CUDA_SUCCESS;
}
