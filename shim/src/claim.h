/* A charge on its way into the books: claimed before the driver is asked, entered or returned by what the driver says.
 *
 *     struct weft_claim claim;
 *     CUresult result = weft_claim_here(&claim, WEFT_FAMILY_DEVICE, bytes);
 *     if (result != CUDA_SUCCESS)
 *         return result;
 *     result = REAL(cuMemAlloc_v2)(address, bytes);
 *     return weft_claim_enter(&claim, result, WEFT_SPACE_ADDRESS, result ? 0 : *address);
 */
#ifndef WEFT_CLAIM_H
#define WEFT_CLAIM_H

#include "books.h"
#include "devices.h"

struct weft_claim {
    unsigned gpu;
    uint64_t handle;
    size_t bytes;
    CUcontext context;
};

/* Charges a GPU; nothing where gpu is WEFT_NO_GPU or bytes is 0. CUDA_ERROR_OUT_OF_MEMORY beyond the allocation's limit. */
CUresult weft_claim_on(struct weft_claim *claim, unsigned gpu, enum weft_family family, size_t bytes);

/* Charges the GPU of the calling thread's context, with which the memory goes. */
CUresult weft_claim_here(struct weft_claim *claim, enum weft_family family, size_t bytes);

/* Follows the driver's call: enters the charge under the key, or returns it. Returns the driver's result. */
CUresult weft_claim_enter(struct weft_claim *claim, CUresult result, enum weft_space space, uint64_t key);

/* Follows the driver's call that frees what was taken from the books before it: returns the charge, or enters it again
 * where the driver refused. Returns the driver's result. */
CUresult weft_freed(struct weft_piece *piece, CUresult result, enum weft_space space, uint64_t key);

#endif
