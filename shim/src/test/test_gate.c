/* The gate under threads that come, go and launch while it opens and closes; slots of threads; what a launch costs. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"
#include "futex.h"
#include "gate.h"
#include "gpu.h"

static _Atomic uint32_t phase; /* odd: the gate was seen closed and drained */
static _Atomic int stop, bad;
static _Atomic uint64_t entered;

static void *launcher(void *unused) {
    (void)unused;
    struct weft_slot *slot = weft_slot_get();
    while (!stop) {
        if (!weft_gate_enter(&weft_gate.word, &slot->busy, WEFT_GATE_OPEN, WEFT_GATE_WINDOWED)) {
            sched_yield();
            continue;
        }
        bad += atomic_load(&phase) & 1;
        entered++;
        bad += atomic_load(&phase) & 1;
        weft_gate_leave(&slot->busy);
    }
    return NULL;
}

/* No thread is inside between the end of a close and the next opening. */
static void hammer(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, launcher, NULL);
    int rounds = 0;
    for (int64_t until = weft_now() + WEFT_S; weft_now() < until; rounds++) {
        weft_gate_set(&weft_gate.word, 0);
        while (!weft_slots_idle())
            sched_yield();
        phase++;
        for (volatile int i = 0; i < 200; i++)
            ;
        phase++;
        weft_gate_set(&weft_gate.word, weft_gate_word((uint64_t)rounds, false, false));
        for (volatile int i = 0; i < 200; i++)
            ;
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(!bad, "%d launches through a closed gate in %d rounds", bad, rounds);
    CHECK(rounds > 100 && entered > 1000, "%d rounds, %lu launches", rounds, (unsigned long)entered);
    printf("hammer: %d rounds, %lu launches\n", rounds, (unsigned long)entered);
}

static void *launch_once(void *unused) {
    weft_launch_begin(NULL, WEFT_WORK_KERNEL, NULL);
    weft_launch_end(NULL, WEFT_WORK_KERNEL, NULL, true);
    return unused;
}

/* Threads give their slots back: 10,000 of them need a few. */
static void churn(void) {
    for (int i = 0; i < 10000; i += 4) {
        pthread_t threads[4];
        for (int k = 0; k < 4; k++)
            CHECK(!pthread_create(&threads[k], NULL, launch_once, NULL), "thread %d", i + k);
        for (int k = 0; k < 4; k++)
            pthread_join(threads[k], NULL);
    }
    int slots = 0;
    for (struct weft_slot *s = NULL; (s = weft_slot_next(s));)
        slots++;
    CHECK(slots <= 64, "%d slots", slots);
    CHECK(weft_slots_launches() == 10000, "%lu launches", (unsigned long)weft_slots_launches());
    CHECK(weft_slots_synced(), "a thread that is gone has nothing to synchronise");
}

static void *stay(void *barrier) {
    launch_once(NULL);
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* More threads at once than a block of slots has: each its own. */
static void many(void) {
    enum { N = 300 };
    pthread_barrier_t barrier;
    pthread_t threads[N];
    pthread_barrier_init(&barrier, NULL, N + 1);
    for (int i = 0; i < N; i++)
        CHECK(!pthread_create(&threads[i], NULL, stay, &barrier), "thread %d", i);
    pthread_barrier_wait(&barrier);
    int taken = 0;
    for (struct weft_slot *s = NULL; (s = weft_slot_next(s));)
        taken += (int)s->taken;
    CHECK(taken == N, "%d slots taken", taken);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    CHECK(weft_slots_launches() == N && weft_slots_idle(), "counts");
}

/* A launch within a launch passes a gate that closed between the two, as the outer one could not end otherwise. */
static void nested(void) {
    weft_launch_begin(NULL, WEFT_WORK_KERNEL, NULL);
    weft_gate_set(&weft_gate.word, 0);
    weft_launch_begin(NULL, WEFT_WORK_KERNEL, NULL);
    weft_launch_end(NULL, WEFT_WORK_KERNEL, NULL, true);
    CHECK(!weft_slots_idle(), "the outer launch is in flight");
    weft_launch_end(NULL, WEFT_WORK_KERNEL, NULL, true);
    CHECK(weft_slots_idle() && weft_slots_launches() == 2, "both are counted");
}

#define LAUNCHES 2000000

static void *measure(void *stream) {
    int64_t start = weft_now();
    gpu_use(gpu_context(0));
    for (int i = 0; i < LAUNCHES; i++) {
        weft_launch_begin(stream, WEFT_WORK_KERNEL, NULL);
        weft_launch_end(stream, WEFT_WORK_KERNEL, NULL, true);
    }
    return (void *)(intptr_t)(weft_now() - start);
}

/* Nanoseconds of thread time per launch, for streams of the program and for the legacy stream. */
static void benchmark(void) {
    gpu_start();
    weft_gate_set(&weft_gate.word, weft_gate_word(1, false, false));
    for (int legacy = 0; legacy < 2; legacy++)
        for (int n = 1; n <= 4; n *= 2) {
            pthread_t threads[4];
            for (int i = 0; i < n; i++)
                pthread_create(&threads[i], NULL, measure, legacy ? NULL : gpu_stream(gpu_context(0)));
            double sum = 0;
            for (int i = 0; i < n; i++) {
                void *ns;
                pthread_join(threads[i], &ns);
                sum += (double)(intptr_t)ns;
            }
            printf("launch, %s stream, %d threads: %.1f ns\n", legacy ? "legacy" : "own", n,
                   sum / LAUNCHES / n / (n > 2 ? n / 2.0 : 1)); /* on two processors */
        }
}

int main(void) {
    int bad = RUN(hammer) + RUN(churn) + RUN(many) + RUN(nested) + RUN(benchmark);
    return bad > 0;
}
