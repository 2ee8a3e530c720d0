/* What this process has charged, found by the address or handle that the driver gave for it. Any call that frees finds it,
 * whichever family made it. No limit on the number; thread safe.
 *
 * A piece is one charge. Places in the books refer to it: an address, a handle, each mapping of it. The charge is returned
 * when the last reference goes.
 */
#ifndef WEFT_BOOKS_H
#define WEFT_BOOKS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "token.h"

/* Kinds of key; the driver numbers each by itself. */
enum weft_space {
    WEFT_SPACE_ADDRESS, /* device address */
    WEFT_SPACE_VIRTUAL, /* handle of physical memory (cuMemCreate) */
    WEFT_SPACE_MAPPED,  /* start of a mapping of it */
    WEFT_SPACE_ARRAY,   /* CUarray or CUmipmappedArray */
    WEFT_SPACE_GRAPH,   /* executable graph that allocates */
};

struct weft_piece {
    _Atomic unsigned references;
    unsigned gpu;
    uint64_t handle; /* of the charge; 0: none */
    size_t bytes;
    CUcontext context; /* with which the memory goes; NULL: with none */
    struct weft_piece *of; /* a mapping: the physical memory, which it keeps */
};

/* A piece with one reference, the caller's. It owns the charge. NULL, and the charge returned, when out of host memory. */
struct weft_piece *weft_piece_new(unsigned gpu, uint64_t handle, size_t bytes, CUcontext context);
void weft_piece_hold(struct weft_piece *piece);
void weft_piece_drop(struct weft_piece *piece); /* NULL is nothing */

/* Enters a piece under a key and takes over one reference. The same piece may be entered several times under one key. An
 * older piece there is dropped: the driver gave its key anew, so its memory is gone. */
void weft_books_put(enum weft_space space, uint64_t key, struct weft_piece *piece);

/* Removes one entry and hands its reference to the caller; NULL: unknown. */
struct weft_piece *weft_books_take(enum weft_space space, uint64_t key);

/* A new reference to what is entered; NULL: unknown. */
struct weft_piece *weft_books_get(enum weft_space space, uint64_t key);

/* Removes everything that goes with a context. */
void weft_books_forget(CUcontext context);

/* In a forked child: makes the locks usable. */
void weft_books_forked(void);

#endif
