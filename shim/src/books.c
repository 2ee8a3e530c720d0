#include "books.h"

#include <pthread.h>
#include <stdlib.h>

#define SHARDS 64u     /* threads that allocate at once seldom meet */
#define FIRST_SLOTS 64u /* of a shard; doubled at three quarters */

struct entry {
    uint64_t key;
    struct weft_piece *piece; /* NULL: the slot is free */
    uint32_t space, count;
};

/* An open table with linear probing; its size is a power of two. */
struct shard {
    pthread_mutex_t lock;
    struct entry *slots;
    size_t size, used;
};

static struct {
    struct shard shards[SHARDS];
} books = {.shards = {[0 ... SHARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}}};

struct weft_piece *weft_piece_new(unsigned gpu, uint64_t handle, size_t bytes, CUcontext context) {
    struct weft_piece *piece = malloc(sizeof *piece);
    if (!piece) {
        weft_memory_release(gpu, handle);
        return NULL;
    }
    *piece = (struct weft_piece){.references = 1, .gpu = gpu, .handle = handle, .bytes = bytes, .context = context};
    return piece;
}

void weft_piece_hold(struct weft_piece *piece) {
    atomic_fetch_add_explicit(&piece->references, 1, memory_order_relaxed);
}

void weft_piece_drop(struct weft_piece *piece) {
    if (!piece || atomic_fetch_sub_explicit(&piece->references, 1, memory_order_acq_rel) != 1)
        return;
    weft_memory_release(piece->gpu, piece->handle);
    weft_piece_drop(piece->of);
    free(piece);
}

static uint64_t mix(enum weft_space space, uint64_t key) {
    key = (key ^ (uint64_t)space << 56) * 0x9e3779b97f4a7c15u;
    return key ^ key >> 32;
}

static struct shard *shard_of(enum weft_space space, uint64_t key) {
    return &books.shards[mix(space, key) % SHARDS];
}

static size_t home(const struct shard *shard, enum weft_space space, uint64_t key) {
    return mix(space, key) / SHARDS & (shard->size - 1);
}

/* The slot of a key, or the free one where it belongs. The shard is not empty. */
static struct entry *slot(const struct shard *shard, enum weft_space space, uint64_t key) {
    size_t i = home(shard, space, key);
    while (shard->slots[i].piece && (shard->slots[i].key != key || shard->slots[i].space != space))
        i = (i + 1) & (shard->size - 1);
    return &shard->slots[i];
}

/* Makes room for one more. False when out of host memory. */
static bool grow(struct shard *shard) {
    if (4 * (shard->used + 1) <= 3 * shard->size)
        return true;
    struct shard old = *shard;
    struct entry *slots = calloc(old.size ? 2 * old.size : FIRST_SLOTS, sizeof *slots);
    if (!slots)
        return false;
    shard->size = old.size ? 2 * old.size : FIRST_SLOTS;
    shard->slots = slots;
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[i].piece)
            *slot(shard, old.slots[i].space, old.slots[i].key) = old.slots[i];
    free(old.slots);
    return true;
}

/* Empties a slot, and moves up what had been pushed behind it. */
static void clear(struct shard *shard, struct entry *gone) {
    size_t hole = (size_t)(gone - shard->slots), i = hole;
    for (;;) {
        i = (i + 1) & (shard->size - 1);
        struct entry *e = &shard->slots[i];
        if (!e->piece)
            break;
        size_t from = home(shard, e->space, e->key);
        if (((i - from) & (shard->size - 1)) >= ((i - hole) & (shard->size - 1))) {
            shard->slots[hole] = *e;
            hole = i;
        }
    }
    shard->slots[hole].piece = NULL;
    shard->used--;
}

void weft_books_put(enum weft_space space, uint64_t key, struct weft_piece *piece) {
    struct shard *shard = shard_of(space, key);
    struct entry old = {0};
    pthread_mutex_lock(&shard->lock);
    if (grow(shard)) {
        struct entry *e = slot(shard, space, key);
        if (e->piece == piece) {
            e->count++;
        } else {
            old = *e;
            shard->used += !old.piece;
            *e = (struct entry){.key = key, .piece = piece, .space = space, .count = 1};
        }
    } else {
        old = (struct entry){.piece = piece, .count = 1};
    }
    pthread_mutex_unlock(&shard->lock);
    for (uint32_t i = 0; old.piece && i < old.count; i++)
        weft_piece_drop(old.piece);
}

struct weft_piece *weft_books_take(enum weft_space space, uint64_t key) {
    struct shard *shard = shard_of(space, key);
    struct weft_piece *piece = NULL;
    pthread_mutex_lock(&shard->lock);
    if (shard->used) {
        struct entry *e = slot(shard, space, key);
        piece = e->piece;
        if (piece && --e->count == 0)
            clear(shard, e);
    }
    pthread_mutex_unlock(&shard->lock);
    return piece;
}

struct weft_piece *weft_books_get(enum weft_space space, uint64_t key) {
    struct shard *shard = shard_of(space, key);
    struct weft_piece *piece = NULL;
    pthread_mutex_lock(&shard->lock);
    if (shard->used && (piece = slot(shard, space, key)->piece))
        weft_piece_hold(piece);
    pthread_mutex_unlock(&shard->lock);
    return piece;
}

/* Removes one entry of the context from the shard, at or after *from; false: there is none. */
static bool forget_one(struct shard *shard, CUcontext context, size_t *from) {
    struct entry gone = {0};
    pthread_mutex_lock(&shard->lock);
    for (; *from < shard->size; ++*from) {
        struct entry *e = &shard->slots[*from];
        if (e->piece && e->piece->context == context) {
            gone = *e;
            clear(shard, e); /* which may move another entry here */
            break;
        }
    }
    pthread_mutex_unlock(&shard->lock);
    for (uint32_t i = 0; gone.piece && i < gone.count; i++)
        weft_piece_drop(gone.piece);
    return gone.piece != NULL;
}

void weft_books_forget(CUcontext context) {
    for (unsigned i = 0; i < SHARDS; i++) {
        size_t from = 0;
        while (forget_one(&books.shards[i], context, &from))
            ;
    }
}

void weft_books_forked(void) {
    for (unsigned i = 0; i < SHARDS; i++)
        books.shards[i].lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
