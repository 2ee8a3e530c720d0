/* Plain allocations, and every call that frees an address. */
#include "claim.h"
#include "hook.h"
#include "pool.h"

/* What is asked for is charged; the driver refuses an address of NULL and no bytes by itself. */
#define ALLOC(name, family, address_type, parameters, bytes, arguments)                                                \
    HOOK(name, address_type *address, WEFT_OPEN parameters) {                                                          \
        struct weft_claim claim;                                                                                       \
        CUresult result = weft_claim_here(&claim, family, address ? (bytes) : 0);                                      \
        if (result != CUDA_SUCCESS)                                                                                    \
            return result;                                                                                             \
        result = REAL(name) arguments;                                                                                 \
        return weft_claim_enter(&claim, result, WEFT_SPACE_ADDRESS, result ? 0 : *address);                            \
    }

ALLOC(cuMemAlloc_v2, WEFT_FAMILY_DEVICE, CUdeviceptr, (size_t bytes), bytes, (address, bytes))
ALLOC(cuMemAlloc, WEFT_FAMILY_DEVICE, CUdeviceptr_v1, (unsigned bytes), bytes, (address, bytes))
ALLOC(cuMemAllocManaged, WEFT_FAMILY_MANAGED, CUdeviceptr, (size_t bytes, unsigned flags), bytes,
      (address, bytes, flags))

/* Taken off the books before the driver may give the address to another thread, and entered again if it refuses. What is
 * not in the books may come from a pool, which gives memory back at a synchronisation. */
#define FREE(name, address_type)                                                                                       \
    HOOK(name, address_type address) {                                                                                 \
        struct weft_piece *piece = weft_books_take(WEFT_SPACE_ADDRESS, address);                                       \
        CUresult result = weft_freed(piece, REAL(name)(address), WEFT_SPACE_ADDRESS, address);                         \
        if (!piece && address && result == CUDA_SUCCESS)                                                               \
            weft_pools_touched();                                                                                      \
        return result;                                                                                                 \
    }

FREE(cuMemFree_v2, CUdeviceptr)
FREE(cuMemFree, CUdeviceptr_v1)

#define PITCH_ALIGNMENT ((size_t)512) /* of every GPU so far; a row of another is corrected after the call */

/* Bytes of rows that each begin at a multiple of the alignment; the most there can be where that overflows. */
static size_t padded(size_t width, size_t height) {
    size_t row = 0, bytes = 0;
    if (__builtin_add_overflow(width, PITCH_ALIGNMENT - 1, &row) ||
        __builtin_mul_overflow(row / PITCH_ALIGNMENT * PITCH_ALIGNMENT, height, &bytes))
        return SIZE_MAX;
    return bytes;
}

/* The driver chose another row than was charged. */
static CUresult correct(struct weft_claim *claim, size_t bytes, CUdeviceptr address) {
    if (!claim->handle || claim->bytes == bytes)
        return CUDA_SUCCESS;
    struct weft_claim old = *claim;
    weft_memory_release(old.gpu, old.handle);
    CUresult result = weft_claim_on(claim, old.gpu, WEFT_FAMILY_DEVICE, bytes);
    claim->context = old.context;
    if (result != CUDA_SUCCESS)
        weft_hook_cuMemFree_v2(address);
    return result;
}

#define PITCH(name, address_type, size_type)                                                                           \
    HOOK(name, address_type *address, size_type *pitch, size_type width, size_type height, unsigned element) {         \
        struct weft_claim claim;                                                                                       \
        CUresult result = weft_claim_here(&claim, WEFT_FAMILY_DEVICE, address && pitch ? padded(width, height) : 0);   \
        if (result != CUDA_SUCCESS)                                                                                    \
            return result;                                                                                             \
        result = REAL(name)(address, pitch, width, height, element);                                                   \
        if (result == CUDA_SUCCESS)                                                                                    \
            result = correct(&claim, (size_t)*pitch * height, *address);                                               \
        return weft_claim_enter(&claim, result, WEFT_SPACE_ADDRESS, result ? 0 : *address);                            \
    }

PITCH(cuMemAllocPitch_v2, CUdeviceptr, size_t)
PITCH(cuMemAllocPitch, CUdeviceptr_v1, unsigned)
