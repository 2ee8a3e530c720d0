// Arrays and mipmapped arrays.
#include <stdlib.h>

#include "cuda_state.h"

#define LEVELS 16

struct CUmipmappedArray_st {
    struct object object;
    CUcontext context;
    uint64_t allocation;
    unsigned count;
    CUarray levels[LEVELS];
};

static struct shelf array_shelf = SHELF(struct CUarray_st, ARRAY), mipmap_shelf = SHELF(struct CUmipmappedArray_st, MIPMAP);

static size_t element_bytes(CUarray_format format, unsigned channels)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2u * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4u * channels;
    default:
        return 0;
    }
}

// measure fills in an array's sizes from its shape.
static CUresult measure(CUarray a, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    NEED(shape->Width > 0 && (shape->NumChannels == 1 || shape->NumChannels == 2 || shape->NumChannels == 4));
    NEED(element_bytes(shape->Format, shape->NumChannels) > 0 && (shape->Depth == 0 || shape->Height > 0 || (shape->Flags & 1) != 0));
    NEED(shape->Width <= 131072 && shape->Height <= 65536 && shape->Depth <= 16384);
    a->shape = *shape;
    a->row = shape->Width * element_bytes(shape->Format, shape->NumChannels);
    a->rows = shape->Height > 0 ? shape->Height : 1;
    a->bytes = a->row * a->rows * (shape->Depth > 0 ? shape->Depth : 1);
    return CUDA_SUCCESS;
}

static CUarray array_make(CUcontext context, const struct CUarray_st *from)
{
    driver_lock();
    CUarray a = object_new(&array_shelf);
    if (a != NULL) {
        a->context = context;
        a->shape = from->shape;
        a->allocation = from->allocation;
        a->row = from->row;
        a->rows = from->rows;
        a->bytes = from->bytes;
        a->owner = from->owner;
    }
    driver_unlock();
    return a;
}

static void array_retire(CUarray a)
{
    driver_lock();
    free(a->head);
    object_retire(&array_shelf, a);
    driver_unlock();
}

EMU_API CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    CUcontext c;
    struct CUarray_st draft = {0};
    NEED(out != NULL && shape != NULL);
    TRY(context_current(&c));
    TRY(capture_unsafe());
    TRY(measure(&draft, shape));
    bool charged = (shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0;
    if (charged)
        TRY(memory_charge(c, c->device->gpu, memory_round(draft.bytes), EMU_MEM_ARRAY, &draft.allocation));
    *out = array_make(c, &draft);
    if (*out != NULL)
        return CUDA_SUCCESS;
    memory_release(draft.allocation);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_API CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape)
{
    NEED(shape != NULL);
    CUDA_ARRAY3D_DESCRIPTOR box = {.Width = shape->Width, .Height = shape->Height, .Format = shape->Format, .NumChannels = shape->NumChannels};
    return cuArray3DCreate_v2(out, &box);
}

static CUresult array_enter(CUarray array)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (!object_is(array, ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    return context_check(array->context);
}

EMU_API CUresult cuArrayDestroy(CUarray array)
{
    TRY(array_enter(array));
    TRY(capture_unsafe());
    if (array->owner != NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(context_wait(array->context));
    CUresult result = memory_release(array->allocation);
    array_retire(array);
    return result;
}

EMU_API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray array)
{
    NEED(out != NULL);
    TRY(array_enter(array));
    *out = array->shape;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray array)
{
    NEED(out != NULL);
    TRY(array_enter(array));
    const CUDA_ARRAY3D_DESCRIPTOR *s = &array->shape;
    *out = (CUDA_ARRAY_DESCRIPTOR){.Width = s->Width, .Height = s->Height, .Format = s->Format, .NumChannels = s->NumChannels};
    return CUDA_SUCCESS;
}

// ---- Mipmapped arrays: one allocation, each level half as large as the one before

static size_t half(size_t n)
{
    return n == 0 ? 0 : n > 1 ? n / 2 : 1;
}

static void mipmap_retire(CUmipmappedArray m)
{
    for (unsigned i = 0; i < m->count; i++)
        if (m->levels[i] != NULL)
            array_retire(m->levels[i]);
    driver_lock();
    object_retire(&mipmap_shelf, m);
    driver_unlock();
}

static CUresult mipmap_fill(CUmipmappedArray m, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels, uint64_t *bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR level = *shape;
    *bytes = 0;
    for (m->count = 0; m->count < levels; m->count++) {
        struct CUarray_st draft = {.owner = m};
        TRY(measure(&draft, &level));
        m->levels[m->count] = array_make(m->context, &draft);
        if (m->levels[m->count] == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *bytes += draft.bytes;
        level.Width = half(level.Width);
        level.Height = half(level.Height);
        level.Depth = (level.Flags & CUDA_ARRAY3D_LAYERED) != 0 ? level.Depth : half(level.Depth);
    }
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
    CUcontext c;
    uint64_t bytes;
    NEED(out != NULL && shape != NULL && levels > 0);
    TRY(context_current(&c));
    TRY(capture_unsafe());
    driver_lock();
    CUmipmappedArray m = object_new(&mipmap_shelf);
    driver_unlock();
    if (m == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->context = c;
    CUresult result = mipmap_fill(m, shape, levels < LEVELS ? levels : LEVELS, &bytes);
    if (result == CUDA_SUCCESS)
        result = memory_charge(c, c->device->gpu, memory_round(bytes), EMU_MEM_ARRAY, &m->allocation);
    if (result == CUDA_SUCCESS)
        *out = m;
    else
        mipmap_retire(m);
    return result;
}

EMU_API CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray mipmap, unsigned level)
{
    NEED(out != NULL);
    if (!object_is(mipmap, MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    NEED(level < mipmap->count);
    *out = mipmap->levels[level];
    return CUDA_SUCCESS;
}

EMU_API CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    struct thread *t;
    TRY(driver_enter(&t));
    if (!object_is(mipmap, MIPMAP))
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(capture_unsafe());
    TRY(context_wait(mipmap->context));
    CUresult result = memory_release(mipmap->allocation);
    mipmap_retire(mipmap);
    return result;
}
