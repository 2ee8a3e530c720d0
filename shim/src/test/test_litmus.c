/* Store buffering on the gate: a thread that enters while another closes must be turned away, or be seen. Fails where the
 * gate lacks its exchanges: built with WEFT_GATE_MUTANT it must fail, or it tests nothing. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"
#include "gate.h"

#define TRIALS 200000
#define ROUNDS 40

struct trial {
    _Alignas(WEFT_LINE) _Atomic uint32_t word;
    _Alignas(WEFT_LINE) _Atomic uint32_t busy;
    _Alignas(WEFT_LINE) bool entered, seen;
};
static struct trial trials[TRIALS];
static _Alignas(WEFT_LINE) _Atomic int at_gate, at_closer;

/* Both threads come to a trial at about the same time; neither waits for long for one that does not run. */
static void meet(_Atomic int *own, _Atomic int *other, int trial) {
    atomic_store_explicit(own, trial, memory_order_release);
    for (int spins = 0; atomic_load_explicit(other, memory_order_acquire) < trial && spins < 200; spins++)
        ;
}

static void *closer(void *unused) {
    (void)unused;
    for (int i = 0; i < TRIALS; i++) {
        struct trial *t = &trials[i];
        meet(&at_closer, &at_gate, i + 1);
        weft_gate_set(&t->word, 0);
        t->seen = weft_gate_busy(&t->busy);
    }
    return NULL;
}

static long round_of(void) {
    pthread_t other;
    long bad = 0;
    for (int i = 0; i < TRIALS; i++)
        trials[i] = (struct trial){.word = WEFT_GATE_OPEN};
    atomic_store(&at_gate, 0);
    atomic_store(&at_closer, 0);
    pthread_create(&other, NULL, closer, NULL);
    for (int i = 0; i < TRIALS; i++) {
        struct trial *t = &trials[i];
        meet(&at_gate, &at_closer, i + 1);
        t->entered = weft_gate_enter(&t->word, &t->busy, WEFT_GATE_OPEN, WEFT_GATE_WINDOWED);
    }
    pthread_join(other, NULL);
    for (int i = 0; i < TRIALS; i++)
        bad += trials[i].entered && !trials[i].seen;
    return bad;
}

int main(void) {
    long bad = 0;
    int rounds = 0;
    while (rounds < ROUNDS && !bad) {
        bad = round_of();
        rounds++;
    }
    printf("litmus: %ld of %ld trials entered a closed gate unseen\n", bad, (long)rounds * TRIALS);
    return bad > 0;
}
