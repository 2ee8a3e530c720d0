/* Memory of other processes by IPC handle. The exporter is charged, once, for as long as anybody has it open. */
#include "books.h"
#include "claim.h"
#include "hook.h"
#include "key.h"

HOOK(cuIpcGetMemHandle, CUipcMemHandle *handle, CUdeviceptr address) {
    uint8_t key[WEFT_KEY];
    CUdeviceptr base = address;
    CUresult result = REAL(cuIpcGetMemHandle)(handle, address);
    if (result != CUDA_SUCCESS)
        return result;
    struct weft_piece *piece = weft_books_get(WEFT_SPACE_ADDRESS, address);
    if (!piece && REAL(cuMemGetAddressRange_v2)(&base, NULL, address) == CUDA_SUCCESS)
        piece = weft_books_get(WEFT_SPACE_ADDRESS, base);
    if (piece && weft_key_of(-1, handle, key))
        weft_memory_export(piece->gpu, piece->handle, key);
    weft_piece_drop(piece);
    return result;
}

/* Opening the same memory again gives the same address and one more reference to it. */
static void opened(struct weft_claim *claim, CUdeviceptr address) {
    struct weft_piece *piece = weft_books_get(WEFT_SPACE_ADDRESS, address);
    if (!piece) {
        weft_claim_enter(claim, CUDA_SUCCESS, WEFT_SPACE_ADDRESS, address);
        return;
    }
    weft_memory_release(claim->gpu, claim->handle);
    weft_books_put(WEFT_SPACE_ADDRESS, address, piece);
}

#define OPEN(name)                                                                                                     \
    HOOK(name, CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {                                          \
        uint8_t key[WEFT_KEY];                                                                                         \
        struct weft_claim claim = {.gpu = weft_current_gpu(&claim.context)};                                           \
        if (claim.gpu != WEFT_NO_GPU && weft_key_of(-1, &handle, key) &&                                               \
            weft_memory_import(claim.gpu, key, &claim.handle) == CUDA_ERROR_OUT_OF_MEMORY)                             \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                                           \
        CUresult result = REAL(name)(address, handle, flags);                                                          \
        if (result == CUDA_SUCCESS)                                                                                    \
            opened(&claim, *address);                                                                                  \
        else                                                                                                           \
            weft_memory_release(claim.gpu, claim.handle);                                                              \
        return result;                                                                                                 \
    }

OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

HOOK(cuIpcCloseMemHandle, CUdeviceptr address) {
    struct weft_piece *piece = weft_books_take(WEFT_SPACE_ADDRESS, address);
    return weft_freed(piece, REAL(cuIpcCloseMemHandle)(address), WEFT_SPACE_ADDRESS, address);
}
