/* The gate between an application's launches and the driver, without the race between looking and launching.
 *
 * A thread first marks its own slot as busy and then reads the gate's word. Whoever closes the gate first writes the word
 * and then reads all slots. Both writes are exchanges, which no later read overtakes: so either the thread sees the gate
 * closed, or the closer sees the slot busy. A plain store in place of either would break that on x86 as elsewhere.
 *
 * The functions take addresses, so that a test can run them on its own.
 */
#ifndef WEFT_GATE_H
#define WEFT_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "weft_cuda.h"

#define WEFT_LINE 64 /* bytes of a cache line */

/* Bits of a gate's word; the rest is the low part of the epoch. */
#define WEFT_GATE_OPEN 1u
#define WEFT_GATE_WINDOWED 2u /* open, and launches bound what they leave outstanding */
#define WEFT_GATE_AHEAD 4u    /* open before anybody asked: the first launch says so */

static inline uint32_t weft_gate_word(uint64_t epoch, bool windowed, bool ahead) {
    return (uint32_t)epoch << 3 | (ahead ? WEFT_GATE_AHEAD : 0) | (windowed ? WEFT_GATE_WINDOWED : 0) | WEFT_GATE_OPEN;
}

#ifdef WEFT_GATE_MUTANT /* what the litmus test must be able to tell from the real thing */
#define WEFT_GATE_EXCHANGE(at, value) atomic_store_explicit(at, value, memory_order_relaxed)
#else
#define WEFT_GATE_EXCHANGE(at, value) (void)atomic_exchange_explicit(at, value, memory_order_seq_cst)
#endif

/* Counts the calling thread as in flight if the gate's word has all bits of want and none of avoid. Only the thread itself
 * writes busy. A thread that is in flight already passes any gate: it must come out before the gate can close. */
static inline bool weft_gate_enter(_Atomic uint32_t *word, _Atomic uint32_t *busy, uint32_t want, uint32_t avoid) {
    uint32_t depth = atomic_load_explicit(busy, memory_order_relaxed);
    if (__builtin_expect(depth > 0, 0)) {
        atomic_store_explicit(busy, depth + 1, memory_order_relaxed);
        return true;
    }
    WEFT_GATE_EXCHANGE(busy, 1);
    if (__builtin_expect((atomic_load_explicit(word, memory_order_seq_cst) & (want | avoid)) == want, 1))
        return true;
    atomic_store_explicit(busy, 0, memory_order_release);
    return false;
}

static inline void weft_gate_leave(_Atomic uint32_t *busy) {
    uint32_t depth = atomic_load_explicit(busy, memory_order_relaxed);
    atomic_store_explicit(busy, depth - 1, memory_order_release);
}

/* Sets the word; to close, to one without WEFT_GATE_OPEN. Once all slots were seen idle after that, nobody is inside. */
static inline void weft_gate_set(_Atomic uint32_t *word, uint32_t value) { WEFT_GATE_EXCHANGE(word, value); }

static inline bool weft_gate_busy(_Atomic uint32_t *busy) {
    return atomic_load_explicit(busy, memory_order_seq_cst) > 0;
}

#define WEFT_RECENT 4 /* streams that a thread remembers: more than it usually alternates between */

/* A thread's place. Only that thread writes it, but for taken. */
struct weft_slot {
    _Alignas(WEFT_LINE) _Atomic uint32_t busy; /* calls in flight: 1, or more where they nest */
    _Atomic uint32_t taken;
    _Atomic uint64_t launches;  /* of all threads that had this slot */
    _Atomic uint64_t synced;    /* launches when a synchronisation last returned */
    struct weft_window *window; /* that its launch in flight is charged to, or NULL */
    int64_t charged;            /* to it, ns */
    struct weft_stream *recent[WEFT_RECENT]; /* that it launched into, the last one first */
    CUevent start;              /* recorded before its launch in flight, or NULL */
};

/* Moves a stream to the front of the recent ones; from is its place among them, or the last place. */
static inline void weft_slot_remember(struct weft_slot *slot, struct weft_stream *stream, unsigned from) {
    for (; from > 0; from--)
        slot->recent[from] = slot->recent[from - 1];
    slot->recent[0] = stream;
}

extern struct weft_gate {
    _Alignas(WEFT_LINE) _Atomic uint32_t word;
    _Alignas(WEFT_LINE) _Atomic uint32_t waiting; /* threads that wait for the word to change */
} weft_gate;

extern __thread struct weft_slot *weft_own_slot __attribute__((tls_model("initial-exec")));

/* The calling thread's slot. It is given back when the thread ends, with its counts, for another thread to take. */
struct weft_slot *weft_slot_get(void);

/* All slots that there are, taken or not: after NULL the first one, in the end NULL. */
struct weft_slot *weft_slot_next(const struct weft_slot *slot);

/* Whether no thread is in flight, at a moment during the call for each. */
bool weft_slots_idle(void);

/* Launches of all threads so far. */
uint64_t weft_slots_launches(void);

/* Whether each thread that launched has synchronised since. */
bool weft_slots_synced(void);

/* In a forked child: only the calling thread is left. */
void weft_slots_forked(void);

#endif
