/* The token over the wire: grants, yields, drops, deadlines, windows, and what is waited for before a release. */
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "check.h"
#include "drain.h"
#include "futex.h"
#include "gate.h"
#include "gpu.h"
#include "script.h"
#include "session.h"
#include "weft.h"
#include "window.h"

static struct script agent;
static CUstream stream;
static int key_a, key_b;

static void start(enum weft_class class) {
    gpu_start();
    gpu_use(gpu_context(0));
    stream = gpu_stream(gpu_context(0));
    script_begin(&agent, class);
}

/* Work of an application's thread. */
struct work {
    CUstream stream;
    int64_t ns;
    const void *key;
    int count;
    _Atomic int done;
    int64_t last; /* when the last launch went out */
    pthread_t thread;
};

static void *run(void *argument) {
    struct work *w = argument;
    gpu_use(gpu_context(0));
    for (int i = 0; i < w->count; i++) {
        gpu_launch(w->stream, w->ns, w->key);
        w->last = weft_now();
        w->done = i + 1;
    }
    return NULL;
}

static void go(struct work *w) {
    w->done = 0;
    pthread_create(&w->thread, NULL, run, w);
}

static void finish(struct work *w) { pthread_join(w->thread, NULL); }

static void request_and_grant(struct work *w, uint64_t epoch, int64_t lasts, int64_t window) {
    go(w);
    script_expect(&agent, WEFT_REQUEST, NULL);
    CHECK(w->done == 0, "launched without a token");
    script_grant(&agent, epoch, lasts, window);
}

/* Asks it to yield while work is outstanding. */
static void tell_at_work(uint64_t epoch) {
    script_tell(&agent, WEFT_YIELD, epoch);
    while (!weft_waiting()) {
        IN_TIME(weft_now() < gpu_busy_until(), "the work has ended");
        weft_sleep(WEFT_MS / 10);
    }
}

/* A launch waits for the grant; four threads that wait ask once. */
static void one_request(void) {
    struct work w[4];
    start(WEFT_GUARANTEED);
    for (int i = 0; i < 4; i++) {
        w[i] = (struct work){.stream = stream, .count = 1};
        go(&w[i]);
    }
    script_expect(&agent, WEFT_REQUEST, NULL);
    script_quiet(&agent, WEFT_REQUEST, 20 * WEFT_MS);
    script_grant(&agent, 5, 0, 0);
    for (int i = 0; i < 4; i++)
        finish(&w[i]);
    CHECK(weft_counters()->requests == 1 && weft_counters()->grants == 1 && weft_counters()->launches == 4, "counters");
}

/* After a drop nothing is launched, and the release comes after the end of the work, with its figures. */
static void drop_drains(void) {
    union said said;
    struct work w = {.stream = stream, .ns = 4 * WEFT_MS, .count = 3};
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    int64_t end = gpu_busy_until(), dropped = weft_now();
    script_tell(&agent, WEFT_DROP, 5);
    script_expect(&agent, WEFT_RELEASED, &said);
    int64_t released = weft_now();
    CHECK(released >= end, "released %ld us before the work ended", (long)(end - released) / 1000);
    CHECK(said.released.epoch == 5 && said.released.launches == 3, "epoch and launches");
    CHECK((int64_t)said.released.used_ns >= 11 * WEFT_MS, "used %lu", (unsigned long)said.released.used_ns);
    IN_TIME((int64_t)said.released.used_ns < 60 * WEFT_MS, "used %lu", (unsigned long)said.released.used_ns);
    CHECK((int64_t)said.released.overrun_ns <= released - dropped + WEFT_MS, "overrun %lu", (unsigned long)said.released.overrun_ns);
    IN_TIME((int64_t)said.released.overrun_ns >= end - dropped - 5 * WEFT_MS, "overrun %lu", (unsigned long)said.released.overrun_ns);
    w.count = 1;
    request_and_grant(&w, 6, 0, 0);
    finish(&w);
    script_tell(&agent, WEFT_YIELD, 6); /* the next release knows nothing of that drop */
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.epoch == 6 && said.released.overrun_ns == 0, "overrun %lu", (unsigned long)said.released.overrun_ns);
    CHECK(gpu_counts.faults == 0, "%d faults", gpu_counts.faults);
}

/* A drop of another epoch changes nothing. */
static void foreign_epochs(void) {
    struct work w = {.stream = stream, .count = 1};
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    script_tell(&agent, WEFT_DROP, 4);
    script_tell(&agent, WEFT_YIELD, 6);
    script_quiet(&agent, WEFT_RELEASED, 20 * WEFT_MS);
    go(&w);
    finish(&w);
}

/* The gate closes by itself at the deadline. */
static void deadline(void) {
    union said said;
    struct work w = {.ns = 100 * WEFT_US, .count = 100000};
    start(WEFT_BESTEFFORT);
    w.stream = stream;
    w.count = 1;
    int64_t before = weft_now();
    request_and_grant(&w, 5, 20 * WEFT_MS, 0);
    script_find(&agent, WEFT_RELEASED, &said);
    IN_TIME(w.done == 1, "nothing was launched before the deadline");
    finish(&w);
    int64_t took = weft_now() - before;
    CHECK(took >= 20 * WEFT_MS, "released after %ld us", (long)took / 1000);
    IN_TIME((int64_t)said.released.overrun_ns < 20 * WEFT_MS, "overrun");
    printf("deadline of 20 ms: released after %.2f ms\n", (double)took / WEFT_MS);
}

/* Asked to yield with work outstanding: released by the synchronisation that ends it, in the thread that synchronises. */
static void yield_at_sync(void) {
    union said said;
    struct work w = {.ns = 20 * WEFT_MS, .count = 1};
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    tell_at_work(5);
    weft_synced(gpu_stream(gpu_context(0))); /* of another stream */
    bool waiting = weft_waiting();
    IN_TIME(weft_now() < gpu_busy_until(), "the work has ended");
    CHECK(waiting, "released with work outstanding");
    gpu_sync(stream);
    CHECK(!weft_waiting(), "not released by the synchronisation");
    script_expect(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.epoch == 5 && said.released.overrun_ns == 0, "epoch, overrun");
}

/* In a gap after a synchronisation it is released at once; in a pause without one, after the grace. */
static void yield_in_gap(void) {
    for (int synced = 0; synced < 2; synced++) {
        uint64_t epoch = 5 + (uint64_t)synced;
        struct work w = {.ns = WEFT_US, .count = 1};
        if (!synced)
            start(WEFT_GUARANTEED);
        w.stream = stream;
        request_and_grant(&w, epoch, 0, 0);
        finish(&w);
        if (synced)
            gpu_sync(stream);
        script_tell(&agent, WEFT_YIELD, epoch);
        script_find(&agent, WEFT_RELEASED, NULL);
    }
}

/* Asked to yield together with the grant: whoever waited for it launches first. */
static void yield_with_grant(void) {
    union said said;
    start(WEFT_GUARANTEED);
    for (uint64_t epoch = 1; epoch <= 20; epoch++) {
        struct work w = {.stream = stream, .count = 1};
        go(&w);
        script_expect(&agent, WEFT_REQUEST, NULL);
        script_grant(&agent, epoch, 0, 0);
        script_tell(&agent, WEFT_YIELD, epoch);
        finish(&w);
        gpu_sync(stream);
        script_expect(&agent, WEFT_RELEASED, &said);
        CHECK(said.released.launches == 1, "epoch %lu: %lu launches", (unsigned long)epoch, (unsigned long)said.released.launches);
    }
}

/* And however late it is scheduled. */
static void yield_before_start(void) {
    start(WEFT_GUARANTEED);
    atomic_fetch_add(&weft_gate.waiting, 1);
    script_grant(&agent, 5, 0, 0);
    script_tell(&agent, WEFT_YIELD, 5);
    script_quiet(&agent, WEFT_RELEASED, 20 * WEFT_MS);
    atomic_fetch_sub(&weft_gate.waiting, 1);
    script_find(&agent, WEFT_RELEASED, NULL);
}

/* One IDLE for each grant, and none while the program works. */
static void idle_once(void) {
    struct work w = {.ns = 40 * WEFT_MS, .count = 1};
    union said said;
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    script_expect(&agent, WEFT_IDLE, &said);
    CHECK(weft_now() >= gpu_busy_until(), "idle while the GPU works");
    CHECK(said.epoch.epoch == 5, "epoch");
    script_quiet(&agent, WEFT_IDLE, 30 * WEFT_MS);
    script_tell(&agent, WEFT_YIELD, 5);
    script_expect(&agent, WEFT_RELEASED, &said);
    IN_TIME((int64_t)said.released.used_ns < 60 * WEFT_MS, "the pause is not used time: %lu", (unsigned long)said.released.used_ns);
}

/* A thread inside the driver holds the release up; work of several streams and contexts is all waited for. */
static void all_streams(void) {
    union said said;
    struct work w = {.ns = 2 * WEFT_MS, .count = 1};
    CUstream streams[5] = {NULL};
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    for (int i = 0; i < 5; i++) {
        CUcontext context = gpu_context(i % 2);
        gpu_use(context);
        streams[i] = i == 1 ? CU_STREAM_PER_THREAD : i ? gpu_stream(context) : NULL;
        gpu_launch(streams[i], (20 + 3 * i) * WEFT_MS, &key_a);
    }
    int64_t end = gpu_busy_until();
    gpu_use(gpu_context(0));
    weft_launch_begin(stream, WEFT_WORK_KERNEL, &key_a); /* in flight */
    script_tell(&agent, WEFT_DROP, 5);
    script_quiet(&agent, WEFT_RELEASED, 60 * WEFT_MS);
    CHECK(weft_now() > end, "the test is too slow");
    weft_launch_end(stream, WEFT_WORK_KERNEL, &key_a, true);
    script_expect(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.launches == 7, "%lu launches", (unsigned long)said.released.launches);
    CHECK(gpu_counts.faults == 0, "%d faults", gpu_counts.faults);
}

static void drain_waits_for_each(void) {
    static const int64_t length[] = {30 * WEFT_MS, WEFT_MS};
    start(WEFT_GUARANTEED);
    CUstream other = gpu_stream(gpu_context(0));
    for (int turn = 0; turn < 2; turn++) {
        struct work w = {.stream = stream, .count = 1};
        request_and_grant(&w, 5 + (uint64_t)turn, 0, 0);
        finish(&w);
        gpu_launch(stream, length[turn], NULL);
        gpu_launch(other, length[!turn], NULL);
        int64_t end = gpu_busy_until();
        script_tell(&agent, WEFT_DROP, 5 + (uint64_t)turn);
        script_find(&agent, WEFT_RELEASED, NULL);
        CHECK(weft_now() >= end, "released before the end of stream %d", turn);
    }
}

static void drop_and_check(uint64_t epoch, const char *what) {
    int64_t end = gpu_busy_until();
    script_tell(&agent, WEFT_DROP, epoch);
    script_find(&agent, WEFT_RELEASED, NULL);
    CHECK(weft_now() >= end, "released before the end of %s", what);
    CHECK(gpu_counts.faults == 0, "%d faults with %s", gpu_counts.faults, what);
}

static void grant_once(uint64_t epoch) {
    struct work w = {.stream = stream, .count = 1};
    request_and_grant(&w, epoch, 0, 0);
    finish(&w);
}

/* Streams that capture get no event, but what ran before is waited for; also on the legacy stream, where none may be
 * recorded either meanwhile. Destroyed streams are waited for by what they left. */
static void capture_and_destroy(void) {
    start(WEFT_GUARANTEED);
    CUstream s = gpu_stream(gpu_context(0));
    grant_once(5);
    gpu_launch(s, 25 * WEFT_MS, NULL);
    gpu_capture(s, true);
    drop_and_check(5, "work before a capture");
    gpu_capture(s, false);
    grant_once(6);
    gpu_launch(s, 20 * WEFT_MS, NULL);
    drop_and_check(6, "work after a capture");
    grant_once(7);
    gpu_launch(s, WEFT_MS, NULL);
    gpu_launch(NULL, 25 * WEFT_MS, NULL);
    gpu_capture(s, true);
    drop_and_check(7, "work on the legacy stream");
    gpu_capture(s, false);
    grant_once(8);
    gpu_launch(s, 25 * WEFT_MS, NULL);
    gpu_destroy_stream(s);
    drop_and_check(8, "a destroyed stream");
}

/* A stream that joins a capture unseen is left alone; and no thread that looks disturbs a capture of another. */
static void capture_unseen(void) {
    start(WEFT_GUARANTEED);
    CUstream joins = gpu_stream(gpu_context(0));
    grant_once(5);
    gpu_launch(joins, WEFT_MS, NULL);
    gpu_join_capture(joins, true);
    script_tell(&agent, WEFT_YIELD, 5);
    while (weft_token_epoch() == 5 && !weft_waiting())
        weft_sleep(WEFT_MS / 10);
    gpu_sync(stream);
    script_find(&agent, WEFT_RELEASED, NULL);
    CHECK(gpu_counts.faults == 0, "%d faults", gpu_counts.faults);
    struct work w = {.stream = stream, .ns = WEFT_US, .key = &key_a, .count = 20};
    request_and_grant(&w, 6, 0, WEFT_MS); /* launches with events */
    finish(&w);
    gpu_sync(stream);
    CHECK(gpu_counts.faults == 0, "%d faults", gpu_counts.faults);
}

/* A device that failed has nothing outstanding; a destroyed context is not touched. */
static void errors_are_drained(void) {
    struct work w = {.ns = 10 * WEFT_S, .count = 1};
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    script_tell(&agent, WEFT_DROP, 5);
    script_quiet(&agent, WEFT_RELEASED, 20 * WEFT_MS);
    gpu_break(CUDA_ERROR_ILLEGAL_ADDRESS);
    script_find(&agent, WEFT_RELEASED, NULL);
    gpu_break(CUDA_SUCCESS);
    w.stream = gpu_stream(gpu_context(0));
    request_and_grant(&w, 6, 0, 0);
    finish(&w);
    gpu_use(gpu_context(1));
    gpu_destroy_context(gpu_context(0));
    CHECK(gpu_counts.events == 0, "%d events outlive their context", gpu_counts.events);
    script_tell(&agent, WEFT_DROP, 6);
    script_find(&agent, WEFT_RELEASED, NULL);
    CHECK(gpu_counts.faults == 0, "%d faults", gpu_counts.faults);
}

/* What is outstanding stays within the window and one launch once costs are known; without a window no event is recorded at all. */
static void window_bounds(void) {
    struct work w = {.ns = 300 * WEFT_US, .key = &key_a, .count = 40};
    start(WEFT_BESTEFFORT);
    w.stream = stream;
    request_and_grant(&w, 5, 0, WEFT_MS);
    finish(&w);
    int64_t most = 0;
    for (int i = 0; i < 40; i++) {
        gpu_launch(stream, 300 * WEFT_US, &key_a);
        int64_t left = gpu_busy_until() - weft_now();
        most = left > most ? left : most;
    }
    CHECK(most <= WEFT_MS + 300 * WEFT_US, "%ld us outstanding: more than the window and a launch", (long)most / 1000);
    IN_TIME(most >= 500 * WEFT_US, "%ld us outstanding: the window is not used", (long)most / 1000);
    weft_sleep(30 * WEFT_MS); /* not used */
    gpu_launch(stream, 5 * WEFT_MS, &key_b); /* unknown: alone, however long it is */
    CHECK(gpu_busy_until() - weft_now() <= 5 * WEFT_MS, "something runs before the unknown launch");
    gpu_launch(stream, WEFT_US, &key_a);
    CHECK(gpu_busy_until() - weft_now() <= WEFT_MS, "something else runs beside the unknown launch");
    script_tell(&agent, WEFT_DROP, 5);
    union said said;
    script_find(&agent, WEFT_RELEASED, &said);
    double used = (double)said.released.used_ns / WEFT_MS;
    IN_TIME(used > 25 && used < 34, "used %.2f ms of 29.0", used);
    CHECK(gpu_counts.faults == 0, "%d faults", gpu_counts.faults);
    printf("window of 1 ms: at most %.2f ms outstanding, used %.2f ms of 29.0\n", (double)most / WEFT_MS, used);
}

static void no_window_no_events(void) {
    struct work w = {.ns = WEFT_US, .key = &key_a, .count = 1000};
    start(WEFT_GUARANTEED);
    w.stream = stream;
    int before = gpu_counts.records;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    int records = gpu_counts.records - before;
    CHECK(records < 20, "%d events recorded for 1000 launches", records);
    struct weft_grant narrow = {.epoch = 5, .window_ns = 500 * WEFT_US};
    script_send(&agent, WEFT_NARROW, &narrow, sizeof narrow);
    while (!(weft_gate.word & WEFT_GATE_WINDOWED))
        weft_sleep(WEFT_MS / 10);
    go(&w);
    finish(&w);
    CHECK(gpu_counts.records - before >= 1000, "narrowed, and no events");
}

/* A drain that hangs asks again, as the agent may have taken the token; another grant then counts. */
static void hung_drain(void) {
    struct work w = {.ns = WEFT_S, .count = 1};
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    script_tell(&agent, WEFT_DROP, 5);
    weft_sleep(20 * WEFT_MS);
    w.ns = 0;
    go(&w);
    script_find(&agent, WEFT_REQUEST, NULL);
    script_grant(&agent, 6, 0, 0);
    finish(&w);
    IN_TIME(weft_now() < gpu_busy_until(), "the new grant waited for the old work");
}

static void *iterate(void *unused) {
    return weft_iteration() == 1 && !weft_waiting() ? unused : NULL;
}

/* weft_iteration and weft_yield give the token back where somebody waits, after the work; otherwise they return at once. */
static void boundary(void) {
    struct work w = {.ns = 10 * WEFT_MS, .count = 1};
    union said said;
    pthread_t thread;
    void *good;
    CHECK(weft_managed() == 0 && weft_iteration() == 0 && weft_yield() == 0 && weft_waiting() == 0, "unmanaged");
    start(WEFT_GUARANTEED);
    CHECK(weft_managed() == 1, "managed");
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    CHECK(weft_iteration() == 1 && weft_yield() == 0, "nobody waits");
    script_expect(&agent, WEFT_ITERATION, &said);
    CHECK(said.iteration.count == 1, "count");
    gpu_launch(stream, 30 * WEFT_MS, NULL);
    int64_t end = gpu_busy_until();
    tell_at_work(5);
    pthread_create(&thread, NULL, iterate, &w);
    pthread_join(thread, &good);
    CHECK(good, "weft_iteration");
    CHECK(weft_now() >= end, "the token left before the work in flight was done");
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(weft_yield() == 0, "nothing to give");
}

/* Iterations are told at once where memory changed hands, and ten times a second otherwise. */
static void iterations(void) {
    union said said;
    uint64_t told = 0, messages = 0, handle;
    start(WEFT_GUARANTEED);
    for (int64_t until = weft_now() + 350 * WEFT_MS; weft_now() < until;) {
        weft_iteration();
        weft_sleep(WEFT_MS);
    }
    CHECK(weft_memory_charge(0, WEFT_FAMILY_HOST, 4096, &handle) == CUDA_SUCCESS, "host memory");
    weft_iteration();
    for (;; messages++) {
        CHECK(recv(agent.fd, &said, sizeof said, 0) > 0, "closed");
        if (said.header.type != WEFT_ITERATION)
            break;
        told += said.iteration.count;
    }
    CHECK(said.header.type == WEFT_ALLOC, "type %d", said.header.type);
    CHECK(messages <= 5, "%lu messages in 350 ms", (unsigned long)messages);
    IN_TIME(messages >= 3, "%lu messages in 350 ms", (unsigned long)messages);
    CHECK(recv(agent.fd, &said, sizeof said, 0) > 0 && said.header.type == WEFT_ITERATION, "not at once after memory");
    IN_TIME(told > 50, "%lu iterations", (unsigned long)told);
}

/* The end of a process gives the token back, with its launches, and never blocks. */
static void exits(void) {
    struct work w = {.ns = WEFT_MS, .count = 2};
    union said said;
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    weft_token_exit();
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.launches == 2, "launches");
    w.count = 1;
    w.ns = 20 * WEFT_S;
    request_and_grant(&w, 6, 0, 0);
    finish(&w);
    int64_t before = weft_now();
    weft_token_exit();
    IN_TIME(weft_now() - before < WEFT_S, "an exit waited for a kernel");
    go(&w); /* and a launch of a later handler does not hang */
    finish(&w);
}

/* Without contexts there is no token to hold. */
static void last_context(void) {
    struct work w = {.ns = WEFT_US, .count = 1};
    union said said;
    start(WEFT_GUARANTEED);
    w.stream = stream;
    request_and_grant(&w, 5, 0, 0);
    finish(&w);
    weft_context_made(1);
    script_find(&agent, WEFT_USE, &said);
    CHECK(said.use.gpus == 3, "gpus %x", said.use.gpus);
    weft_context_gone(0);
    script_find(&agent, WEFT_USE, &said);
    CHECK(said.use.gpus == 2, "gpus %x", said.use.gpus);
    go(&w);
    finish(&w);
    weft_context_gone(1);
    while (weft_gate.word & WEFT_GATE_OPEN)
        weft_sleep(WEFT_MS / 10);
    weft_context_made(0);
    go(&w);
    script_find(&agent, WEFT_REQUEST, NULL);
    script_grant(&agent, 6, 0, 0);
    finish(&w);
}

/* Two threads that launch, synchronise and meet grants, yields and drops in any order: all ends well. */
static void *toil(void *seed) {
    unsigned s = (unsigned)(uintptr_t)seed;
    CUstream own = gpu_stream(gpu_context(0));
    gpu_use(gpu_context(0));
    for (int i = 0; i < 20000; i++) {
        gpu_launch(rand_r(&s) % 4 ? own : NULL, rand_r(&s) % 40 * WEFT_US, (void *)(uintptr_t)(64 * (rand_r(&s) % 50 + 1)));
        if (rand_r(&s) % 16 == 0)
            gpu_sync(own);
        if (rand_r(&s) % 64 == 0)
            weft_iteration();
        if (rand_r(&s) % 256 == 0) {
            gpu_destroy_stream(own);
            own = gpu_stream(gpu_context(0));
        }
    }
    return NULL;
}

struct mill {
    _Atomic int done;
    pthread_t threads[2];
};

static void *grind(void *argument) {
    struct mill *m = argument;
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&m->threads[i], NULL, toil, (void *)(i + 1));
    for (int i = 0; i < 2; i++)
        pthread_join(m->threads[i], NULL);
    m->done = 1;
    return NULL;
}

static void random_decisions(void) {
    struct mill mill = {0};
    pthread_t thread;
    uint64_t epoch = 0, launches = 0;
    bool held = false;
    unsigned seed = 42;
    start(WEFT_BESTEFFORT);
    pthread_create(&thread, NULL, grind, &mill);
    while (!mill.done) {
        union said said;
        struct timeval wait = {.tv_usec = 1000};
        setsockopt(agent.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        ssize_t n = recv(agent.fd, &said, sizeof said, 0);
        if (n > 0 && said.header.type == WEFT_RELEASED) {
            CHECK(held && said.released.epoch == epoch, "a release of epoch %lu under %lu", (unsigned long)said.released.epoch, (unsigned long)epoch);
            CHECK(weft_now() >= gpu_busy_until() || (weft_gate.word & 1), "released with work outstanding");
            launches += said.released.launches;
            held = false;
        }
        if (n > 0 && said.header.type == WEFT_REQUEST)
            CHECK(!held, "a request under a token");
        if (!held && (n > 0 && said.header.type == WEFT_REQUEST)) {
            held = true;
            script_grant(&agent, ++epoch, rand_r(&seed) % 3 ? 0 : 2 * WEFT_MS, rand_r(&seed) % 2 ? 0 : 300 * WEFT_US);
        } else if (held && rand_r(&seed) % 2) {
            script_tell(&agent, rand_r(&seed) % 2 ? WEFT_YIELD : WEFT_DROP, epoch);
        }
    }
    pthread_join(thread, NULL);
    CHECK(epoch > 20 && launches > 1000, "%lu epochs, %lu launches", (unsigned long)epoch, (unsigned long)launches);
    CHECK(gpu_counts.faults == 0, "%d faults", gpu_counts.faults);
    printf("random decisions: %lu epochs\n", (unsigned long)epoch);
}

int main(void) {
    int bad = RUN(one_request) + RUN(drop_drains) + RUN(foreign_epochs) + RUN(deadline) + RUN(yield_at_sync) +
              RUN(yield_in_gap) + RUN(yield_with_grant) + RUN(yield_before_start) + RUN(idle_once) + RUN(all_streams) + RUN(drain_waits_for_each) +
              RUN(capture_and_destroy) + RUN(capture_unseen) + RUN(errors_are_drained) + RUN(window_bounds) + RUN(no_window_no_events) +
              RUN(hung_drain) + RUN(boundary) + RUN(iterations) + RUN(exits) + RUN(last_context) + RUN(random_decisions);
    return bad > 0;
}
