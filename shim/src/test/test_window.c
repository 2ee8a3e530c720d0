/* Launches that wait for room in the window, while the window changes. */
#include "gate.h"
#include "program.h"

static const char known;

static void *launches(void *unused) {
    (void)unused;
    gpu_use(gpu_context(0));
    for (int i = 0; i < 20; i++)
        gpu_launch(NULL, 2 * WEFT_MS, &known);
    return NULL;
}

/* A window is lifted once a job is alone: who waits for room goes on, whatever was outstanding. */
static void lifted(void) {
    pthread_t threads[4];
    start(WEFT_BESTEFFORT);
    pthread_t thread = launching(1);
    script_find(&agent, WEFT_REQUEST, NULL);
    script_grant(&agent, 5, 0, WEFT_MS);
    launched(thread);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, launches, NULL);
    weft_sleep(20 * WEFT_MS);
    int before = gpu_counts.launches;
    struct weft_grant none = {.epoch = 5};
    script_send(&agent, WEFT_NARROW, &none, sizeof none);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    IN_TIME(before < 60, "%d launches of 81 before: nobody waited", before);
    CHECK(gpu_counts.launches == 81, "%d launches of 81", gpu_counts.launches);
}

int main(void) { return RUN(lifted) > 0; }
