/* Arrays. The driver says their size nowhere, so it is computed from their elements. */
#include "claim.h"
#include "hook.h"

/* Bytes of one channel of one element. Formats of several elements a block are charged as if each were one of 4 bytes. */
static size_t channel_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default:
        return 4;
    }
}

static size_t times(size_t a, size_t b) {
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static size_t either(size_t extent) {
    return extent ? extent : 1;
}

/* Memory of an array with so many levels, each half as long, wide and deep as the one before; layers are not halved. What
 * is mapped later has none of its own. */
static size_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
    size_t width = d->Width, height = either(d->Height), depth = either(d->Depth), total = 0;
    if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    for (unsigned level = 0; level < levels; level++) {
        size_t bytes = times(times(times(width, height), depth), channel_bytes(d->Format) * d->NumChannels);
        if (__builtin_add_overflow(total, bytes, &total))
            return SIZE_MAX;
        if (width <= 1 && height <= 1 && ((d->Flags & CUDA_ARRAY3D_LAYERED) || depth <= 1))
            break;
        width = either(width / 2);
        height = either(height / 2);
        if (!(d->Flags & CUDA_ARRAY3D_LAYERED))
            depth = either(depth / 2);
    }
    return total;
}

#define CREATE(name, descriptor, array_of)                                                                             \
    HOOK(name, CUarray *array, const descriptor *d) {                                                                  \
        struct weft_claim claim;                                                                                       \
        CUresult result = weft_claim_here(&claim, WEFT_FAMILY_ARRAY, array && d ? array_bytes(&array_of, 1) : 0);      \
        if (result != CUDA_SUCCESS)                                                                                    \
            return result;                                                                                             \
        result = REAL(name)(array, d);                                                                                 \
        return weft_claim_enter(&claim, result, WEFT_SPACE_ARRAY, result ? 0 : (uintptr_t)*array);                     \
    }

#define FLAT ((CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0})
#define DEEP ((CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, d->Depth, d->Format, d->NumChannels, d->Flags})

CREATE(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, FLAT)
CREATE(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR, FLAT)
CREATE(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, DEEP)
CREATE(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR, DEEP)

HOOK(cuMipmappedArrayCreate, CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
    struct weft_claim claim;
    CUresult result = weft_claim_here(&claim, WEFT_FAMILY_ARRAY, array && d ? array_bytes(d, levels) : 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMipmappedArrayCreate)(array, d, levels);
    return weft_claim_enter(&claim, result, WEFT_SPACE_ARRAY, result ? 0 : (uintptr_t)*array);
}

HOOK(cuArrayDestroy, CUarray array) {
    struct weft_piece *piece = weft_books_take(WEFT_SPACE_ARRAY, (uintptr_t)array);
    return weft_freed(piece, REAL(cuArrayDestroy)(array), WEFT_SPACE_ARRAY, (uintptr_t)array);
}

HOOK(cuMipmappedArrayDestroy, CUmipmappedArray array) {
    struct weft_piece *piece = weft_books_take(WEFT_SPACE_ARRAY, (uintptr_t)array);
    return weft_freed(piece, REAL(cuMipmappedArrayDestroy)(array), WEFT_SPACE_ARRAY, (uintptr_t)array);
}
