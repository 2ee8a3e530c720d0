/* The books against a list that is searched from end to end: random entries, some of them several times, over few keys, so that
 * chains form, wrap and close again. Every charge must be returned once. */
#include "books.h"

#include <stdio.h>
#include <stdlib.h>

#define KEYS 4000
#define STEPS 400000
#define CONTEXTS 3

static struct {
    unsigned returned[STEPS + 1]; /* by handle */
    struct {
        uint64_t handle;
        unsigned count;
        CUcontext context;
    } keys[KEYS]; /* what the books should hold */
} model;

void weft_memory_release(unsigned gpu, uint64_t handle) {
    (void)gpu;
    model.returned[handle]++;
}

static void fail(const char *what, uint64_t step, uint64_t key) {
    printf("books: %s at step %lu, key %lu\n", what, (unsigned long)step, (unsigned long)key);
    exit(1);
}

static uint64_t address(unsigned key) {
    return 0x7f0000000000u + (uint64_t)key * 0x200; /* as drivers number: in steps of their granularity */
}

static void put(uint64_t step, unsigned key) {
    CUcontext context = (CUcontext)(uintptr_t)(1 + rand() % CONTEXTS);
    struct weft_piece *piece = weft_books_get(WEFT_SPACE_ADDRESS, address(key));
    if (piece && rand() % 2) {
        weft_books_put(WEFT_SPACE_ADDRESS, address(key), piece);
        model.keys[key].count++;
        return;
    }
    weft_piece_drop(piece);
    weft_books_put(WEFT_SPACE_ADDRESS, address(key), weft_piece_new(0, step, 1, context));
    if (model.keys[key].handle && model.returned[model.keys[key].handle] != 1)
        fail("an older piece was not returned", step, key);
    model.keys[key].handle = step;
    model.keys[key].count = 1;
    model.keys[key].context = context;
}

static void take(uint64_t step, unsigned key) {
    struct weft_piece *piece = weft_books_take(WEFT_SPACE_ADDRESS, address(key));
    if ((piece ? piece->handle : 0) != model.keys[key].handle)
        fail("took another piece", step, key);
    if (weft_books_take(WEFT_SPACE_ARRAY, address(key)))
        fail("took out of another space", step, key);
    weft_piece_drop(piece);
    if (!piece)
        return;
    unsigned left = --model.keys[key].count;
    if (model.returned[model.keys[key].handle] != !left)
        fail("returned too early or too late", step, key);
    if (!left)
        model.keys[key].handle = 0;
}

static void forget(uint64_t step) {
    CUcontext context = (CUcontext)(uintptr_t)(1 + rand() % CONTEXTS);
    weft_books_forget(context);
    for (unsigned key = 0; key < KEYS; key++) {
        if (!model.keys[key].handle || model.keys[key].context != context)
            continue;
        if (model.returned[model.keys[key].handle] != 1)
            fail("not forgotten", step, key);
        model.keys[key].handle = 0;
    }
}

int main(void) {
    srand(1);
    for (uint64_t step = 1; step <= STEPS; step++) {
        unsigned key = (unsigned)rand() % KEYS;
        if (rand() % 50000 == 0)
            forget(step);
        else if (rand() % 100 < (step / 50000 % 2 ? 45 : 60)) /* fuller and emptier in turn */
            put(step, key);
        else
            take(step, key);
    }
    for (unsigned key = 0; key < KEYS; key++)
        while (model.keys[key].handle)
            take(STEPS, key);
    for (uint64_t handle = 1; handle <= STEPS; handle++)
        if (model.returned[handle] > 1)
            fail("returned twice", handle, 0);
    puts("books: as a list would keep them");
    return 0;
}
