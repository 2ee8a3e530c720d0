/* Grants that come before anybody asks, to a process that is expected back from a gap. */
#include "gate.h"
#include "program.h"
#include "session.h"
#include "weft.h"

static void ahead(uint64_t epoch) {
    struct weft_grant m = {.epoch = epoch, .ahead = 1};
    script_send(&agent, WEFT_GRANT, &m, sizeof m);
    while (!(weft_gate.word & WEFT_GATE_OPEN))
        weft_sleep(WEFT_MS / 10);
}

/* The program comes back: it does not ask, and the release says how long the token lay idle. */
static void comes_back(void) {
    union said said;
    start(WEFT_GUARANTEED);
    ahead(5);
    weft_sleep(20 * WEFT_MS);
    launched(launching(3));
    script_tell(&agent, WEFT_DROP, 5);
    script_find(&agent, WEFT_RELEASED, &said);
    int64_t rested = (int64_t)said.released.rested_ns, used = (int64_t)said.released.used_ns;
    CHECK(rested >= 19 * WEFT_MS && said.released.launches == 3, "rested %ld us", (long)rested / 1000);
    IN_TIME(rested < 500 * WEFT_MS && used < rested, "rested %ld us, used %ld us", (long)rested / 1000, (long)used / 1000);
    CHECK(weft_counters()->requests == 0, "asked");
}

/* It does not: taken back at once, though nothing was launched. */
static void stays_away(void) {
    union said said;
    start(WEFT_GUARANTEED);
    ahead(5);
    int64_t before = weft_now();
    script_tell(&agent, WEFT_YIELD, 5);
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.rested_ns == 0 && said.released.launches == 0, "nothing ran");
    IN_TIME(weft_now() - before < 500 * WEFT_MS, "%ld us", (long)(weft_now() - before) / 1000);
    granted_once(6);
}

/* It had asked when the grant was on its way: an ordinary one. */
static void asked_meanwhile(void) {
    union said said;
    start(WEFT_GUARANTEED);
    pthread_t thread = launching(1);
    script_expect(&agent, WEFT_REQUEST, NULL);
    ahead(5);
    launched(thread);
    script_tell(&agent, WEFT_DROP, 5);
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.rested_ns == 0 && said.released.launches == 1, "rested");
}

static void yield_sparing(uint64_t epoch, int64_t spare) {
    struct weft_yield m = {.epoch = epoch, .spare_ns = (uint64_t)spare};
    script_send(&agent, WEFT_YIELD, &m, sizeof m);
}

/* Gaps are left to the program until they have lasted as long as was said, but for one that it tells of itself. */
static void spares_short_gaps(void) {
    union said said;
    start(WEFT_GUARANTEED);
    granted_once(5);
    yield_sparing(5, 100 * WEFT_MS);
    for (int i = 0; i < 10; i++) {
        int64_t begun = weft_now();
        launch((void *)1);
        gpu_sync(NULL);
        bool released = script_hears(&agent, WEFT_RELEASED, 15 * WEFT_MS); /* together longer than what is spared */
        IN_TIME(weft_now() - begun < 100 * WEFT_MS, "a gap that is long enough");
        CHECK(!released, "released in gap %d", i);
    }
    int64_t before = weft_now();
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(weft_now() - before >= 50 * WEFT_MS, "released after %ld us", (long)(weft_now() - before) / 1000);
    CHECK(said.released.launches >= 10, "%lu launches", (unsigned long)said.released.launches);
    granted_once(6);
    yield_sparing(6, 10 * WEFT_S);
    script_tell(&agent, WEFT_YIELD, 6); /* now in any gap */
    script_find(&agent, WEFT_RELEASED, NULL);
    granted_once(7);
    yield_sparing(7, 10 * WEFT_S);
    while (!weft_waiting())
        weft_sleep(WEFT_MS / 10);
    CHECK(weft_yield() == 1, "weft_yield does not yield");
    script_find(&agent, WEFT_RELEASED, NULL);
    ahead(8);
    yield_sparing(8, 10 * WEFT_S); /* the gap that it is in is the one that was asked for */
    script_find(&agent, WEFT_RELEASED, NULL);
}

int main(void) {
    int bad = RUN(comes_back) + RUN(stays_away) + RUN(asked_meanwhile) + RUN(spares_short_gaps);
    return bad > 0;
}
