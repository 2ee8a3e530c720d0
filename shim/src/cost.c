#include "cost.h"

#include <string.h>

#define ENTRIES 1024u /* a power of two; programs launch some hundred different kernels */
#define PROBES 8u
#define FIRST 8u  /* launches timed at first */
#define EVERY 16u /* one of so many after that */

static struct {
    struct weft_cost entries[ENTRIES];
} costs;

static uintptr_t key_of(enum weft_work kind, const void *key) {
    uintptr_t k = (uintptr_t)key;
    if (kind == WEFT_WORK_COPY)
        k = k ? 63 - (uintptr_t)__builtin_clzl(k) : 0;
    return (k << 2 | (uintptr_t)kind) + 1; /* handles are pointers: their upper bits are free */
}

struct weft_cost *weft_cost_of(enum weft_work kind, const void *key) {
    uintptr_t k = key_of(kind, key);
    uint32_t at = (uint32_t)(k * 0x9e3779b97f4a7c15u >> 40);
    struct weft_cost *least = NULL;
    for (uint32_t i = 0; i < PROBES; i++) {
        struct weft_cost *c = &costs.entries[(at + i) % ENTRIES];
        if (c->key == k)
            return c;
        if (!c->key) {
            c->key = k;
            return c;
        }
        if (!least || c->launches < least->launches)
            least = c;
    }
    *least = (struct weft_cost){.key = k};
    return least;
}

bool weft_cost_wants(struct weft_cost *cost) {
    return cost->launches++ < FIRST || cost->launches % EVERY == 0;
}

void weft_cost_learn(struct weft_cost *cost, int64_t ns) {
    cost->ns = cost->samples ? cost->ns + (ns - cost->ns) / 8 : ns;
    if (cost->samples < UINT32_MAX)
        cost->samples++;
}

void weft_cost_forked(void) { memset(&costs, 0, sizeof costs); }
