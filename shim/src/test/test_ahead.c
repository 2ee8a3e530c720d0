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
    CHECK(rested >= 19 * WEFT_MS && rested < 500 * WEFT_MS, "rested %ld us", (long)rested / 1000);
    CHECK(used < rested && said.released.launches == 3, "used %ld us", (long)used / 1000);
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
    CHECK(weft_now() - before < 500 * WEFT_MS, "%ld us", (long)(weft_now() - before) / 1000);
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

int main(void) {
    int bad = RUN(comes_back) + RUN(stays_away) + RUN(asked_meanwhile);
    return bad > 0;
}
