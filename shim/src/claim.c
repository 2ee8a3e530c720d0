#include "claim.h"

#include "hook.h"

CUresult weft_claim_on(struct weft_claim *claim, unsigned gpu, enum weft_family family, size_t bytes) {
    *claim = (struct weft_claim){.gpu = gpu, .bytes = bytes};
    if (gpu == WEFT_NO_GPU || !bytes)
        return CUDA_SUCCESS;
    CUresult result = weft_memory_charge(gpu, family, bytes, &claim->handle);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    /* A pool may have given memory back since it was last looked at. */
    weft_pools_synced();
    return weft_memory_charge(gpu, family, bytes, &claim->handle);
}

CUresult weft_claim_here(struct weft_claim *claim, enum weft_family family, size_t bytes) {
    CUcontext context = NULL;
    unsigned gpu = weft_current_gpu(&context);
    CUresult result = weft_claim_on(claim, gpu, family, bytes);
    claim->context = context;
    return result;
}

CUresult weft_claim_enter(struct weft_claim *claim, CUresult result, enum weft_space space, uint64_t key) {
    if (result != CUDA_SUCCESS) {
        weft_memory_release(claim->gpu, claim->handle);
    } else if (claim->handle) {
        struct weft_piece *piece = weft_piece_new(claim->gpu, claim->handle, claim->bytes, claim->context);
        if (piece)
            weft_books_put(space, key, piece);
    }
    return result;
}

CUresult weft_freed(struct weft_piece *piece, CUresult result, enum weft_space space, uint64_t key) {
    if (!piece)
        return result;
    if (result == CUDA_SUCCESS)
        weft_piece_drop(piece);
    else
        weft_books_put(space, key, piece);
    return result;
}
