#include "gate.h"

#include <string.h>
#include <sys/mman.h>

#include "futex.h"
#include "threads.h"
#include "window.h"

#define SLOTS 64 /* of a block of 8 KiB */

struct block {
    struct weft_slot slots[SLOTS - 1];
    _Alignas(WEFT_LINE) _Atomic(struct block *) next;
};

struct weft_gate weft_gate = {.word = WEFT_GATE_OPEN};
__thread struct weft_slot *weft_own_slot __attribute__((tls_model("initial-exec")));

/* Blocks are added when more threads launch than ever before, and stay: whoever walks them needs no lock. */
static struct {
    struct block first;
    pthread_mutex_t lock; /* the making of the key */
    pthread_key_t key;    /* its destructor gives a slot back */
    bool keyed;
    int (*setspecific)(pthread_key_t, const void *);
} slots = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void forget_work(struct weft_slot *slot) {
    memset(slot->recent, 0, sizeof slot->recent);
    slot->window = NULL;
    slot->start = NULL;
}

static void give_back(void *value) {
    struct weft_slot *slot = value;
    weft_own_slot = NULL;
    weft_window_cancel(slot); /* of a launch that the thread ended in */
    forget_work(slot);
    atomic_store_explicit(&slot->synced, slot->launches, memory_order_relaxed); /* it will synchronise no more */
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
    atomic_store_explicit(&slot->taken, 0, memory_order_release);
}

static void keep_until_exit(struct weft_slot *slot) {
    pthread_mutex_lock(&slots.lock);
    if (!slots.keyed) {
        struct weft_threads threads = weft_threads();
        slots.setspecific = threads.setspecific;
        slots.keyed = threads.key_create && threads.setspecific && !threads.key_create(&slots.key, give_back);
    }
    bool keyed = slots.keyed;
    pthread_mutex_unlock(&slots.lock);
    if (keyed)
        slots.setspecific(slots.key, slot);
}

static struct block *add_block(struct block *last) {
    struct block *fresh = mmap(NULL, sizeof *fresh, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
        weft_sleep(WEFT_MS); /* the next round looks for a slot that was given back */
        return &slots.first;
    }
    struct block *other = NULL;
    if (atomic_compare_exchange_strong(&last->next, &other, fresh))
        return fresh;
    munmap(fresh, sizeof *fresh);
    return other;
}

static struct weft_slot *take(void) {
    for (struct block *block = &slots.first;;) {
        for (size_t i = 0; i < SLOTS - 1; i++) {
            struct weft_slot *slot = &block->slots[i];
            uint32_t free = 0;
            if (!atomic_load_explicit(&slot->taken, memory_order_relaxed) &&
                atomic_compare_exchange_strong(&slot->taken, &free, 1))
                return slot;
        }
        struct block *next = atomic_load(&block->next);
        block = next ? next : add_block(block);
    }
}

struct weft_slot *weft_slot_get(void) {
    if (!weft_own_slot) {
        struct weft_slot *slot = take();
        keep_until_exit(slot);
        weft_own_slot = slot;
    }
    return weft_own_slot;
}

struct weft_slot *weft_slot_next(const struct weft_slot *slot) {
    if (!slot)
        return &slots.first.slots[0];
    for (struct block *block = &slots.first; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
        if (slot < block->slots || slot >= block->slots + SLOTS - 1)
            continue;
        if (slot + 1 < block->slots + SLOTS - 1)
            return block->slots + (slot + 1 - block->slots);
        struct block *next = atomic_load_explicit(&block->next, memory_order_acquire);
        return next ? &next->slots[0] : NULL;
    }
    return NULL;
}

bool weft_slots_idle(void) {
    for (struct weft_slot *slot = NULL; (slot = weft_slot_next(slot));)
        if (weft_gate_busy(&slot->busy))
            return false;
    return true;
}

uint64_t weft_slots_launches(void) {
    uint64_t sum = 0;
    for (struct weft_slot *slot = NULL; (slot = weft_slot_next(slot));)
        sum += atomic_load_explicit(&slot->launches, memory_order_relaxed);
    return sum;
}

bool weft_slots_synced(void) {
    for (struct weft_slot *slot = NULL; (slot = weft_slot_next(slot));) {
        uint64_t launches = atomic_load_explicit(&slot->launches, memory_order_relaxed);
        if (launches != atomic_load_explicit(&slot->synced, memory_order_relaxed))
            return false;
    }
    return true;
}

void weft_slots_forked(void) {
    for (struct weft_slot *slot = NULL; (slot = weft_slot_next(slot));) {
        atomic_store(&slot->busy, 0);
        forget_work(slot);
        atomic_store(&slot->taken, slot == weft_own_slot);
    }
    slots.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&weft_gate.waiting, 0);
    atomic_store(&weft_gate.word, WEFT_GATE_OPEN);
}
