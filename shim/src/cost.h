/* What launches cost: a table of bounded size, by what is launched. The caller holds the window's lock. */
#ifndef WEFT_COST_H
#define WEFT_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "token.h"

struct weft_cost {
    uintptr_t key; /* kind and function, graph, or power of two of the size; 0: free */
    uint32_t samples, launches;
    int64_t ns; /* smoothed: each new sample counts an eighth */
};

/* The entry of what is launched, made if there is none; another one may lose its place for it. */
struct weft_cost *weft_cost_of(enum weft_work kind, const void *key);

/* Whether it was measured, and with what result, ns. */
static inline bool weft_cost_known(const struct weft_cost *cost) { return cost->samples > 0; }
static inline int64_t weft_cost_ns(const struct weft_cost *cost) { return cost->ns; }

/* Whether to time the next launch: all of the first ones, then some. */
bool weft_cost_wants(struct weft_cost *cost);

void weft_cost_learn(struct weft_cost *cost, int64_t ns);
void weft_cost_forked(void);

#endif
