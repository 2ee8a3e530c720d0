/* Threads that end in the middle of a launch: cancelled in the driver, or left by an exception of another language. */
#include "gate.h"
#include "program.h"
#include "session.h"
#include "weft.h"

static const char known, unknown;

static void *ends_inside(void *key) {
    gpu_use(gpu_context(0));
    weft_launch_begin(NULL, WEFT_WORK_KERNEL, key);
    return NULL;
}

static void end_inside(const void *key) {
    pthread_t thread;
    pthread_create(&thread, NULL, ends_inside, (void *)(uintptr_t)key);
    pthread_join(thread, NULL);
}

/* It holds up no drain, and its share of the window is free again: others launch on. */
static void ends_in_window(void) {
    union said said;
    start(WEFT_BESTEFFORT);
    pthread_t thread = launching(1);
    script_find(&agent, WEFT_REQUEST, NULL);
    script_grant(&agent, 5, 0, WEFT_MS);
    launched(thread);
    for (int i = 0; i < 20; i++)
        gpu_launch(NULL, 100 * WEFT_US, &known);
    for (int i = 0; i < 20; i++) {
        end_inside(&unknown);
        end_inside(&known);
    }
    gpu_launch(NULL, 100 * WEFT_US, &known);
    gpu_launch(NULL, 100 * WEFT_US, &unknown);
    script_tell(&agent, WEFT_DROP, 5);
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.launches == 23, "%lu launches", (unsigned long)said.released.launches);
}

int main(void) { return RUN(ends_in_window) > 0; }
