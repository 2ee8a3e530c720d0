/* Physical memory and its mappings. It lives as long as its handle, retained handles or mappings: each is a reference. */
#include "books.h"
#include "claim.h"
#include "hook.h"
#include "key.h"

HOOK(cuMemCreate, CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
     unsigned long long flags) {
    struct weft_claim claim;
    bool on_device = handle && properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = weft_claim_on(&claim, on_device ? weft_device_gpu(properties->location.id) : WEFT_NO_GPU,
                                    WEFT_FAMILY_VIRTUAL, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemCreate)(handle, bytes, properties, flags);
    return weft_claim_enter(&claim, result, WEFT_SPACE_VIRTUAL, result ? 0 : *handle);
}

HOOK(cuMemRelease, CUmemGenericAllocationHandle handle) {
    struct weft_piece *piece = weft_books_take(WEFT_SPACE_VIRTUAL, handle);
    return weft_freed(piece, REAL(cuMemRelease)(handle), WEFT_SPACE_VIRTUAL, handle);
}

/* Enters a mapping, and takes over the reference to the memory. */
static void mapped(CUdeviceptr address, size_t bytes, struct weft_piece *memory) {
    struct weft_piece *mapping = weft_piece_new(memory->gpu, 0, bytes, NULL);
    if (!mapping) {
        weft_piece_drop(memory);
        return;
    }
    mapping->of = memory;
    weft_books_put(WEFT_SPACE_MAPPED, address, mapping);
}

HOOK(cuMemMap, CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
     unsigned long long flags) {
    struct weft_piece *memory = weft_books_get(WEFT_SPACE_VIRTUAL, handle);
    CUresult result = REAL(cuMemMap)(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && memory)
        mapped(address, bytes, memory);
    else
        weft_piece_drop(memory);
    return result;
}

/* Several mappings that follow each other may be unmapped at once. They leave the books after the driver's call, since a
 * refused one changes nothing: an address cannot be mapped again before it is unmapped, and its owner does both. */
HOOK(cuMemUnmap, CUdeviceptr address, size_t bytes) {
    CUresult result = REAL(cuMemUnmap)(address, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    for (CUdeviceptr at = address; at - address < bytes;) {
        struct weft_piece *mapping = weft_books_take(WEFT_SPACE_MAPPED, at);
        if (!mapping)
            break;
        at += mapping->bytes;
        weft_piece_drop(mapping);
    }
    return result;
}

/* The physical memory behind an address within a mapping, or NULL. */
static struct weft_piece *behind(CUdeviceptr address) {
    CUdeviceptr base = address;
    struct weft_piece *mapping = weft_books_get(WEFT_SPACE_MAPPED, address);
    if (!mapping && REAL(cuMemGetAddressRange_v2)(&base, NULL, address) == CUDA_SUCCESS)
        mapping = weft_books_get(WEFT_SPACE_MAPPED, base);
    if (!mapping)
        return NULL;
    struct weft_piece *memory = mapping->of;
    weft_piece_hold(memory);
    weft_piece_drop(mapping);
    return memory;
}

HOOK(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *handle, void *address) {
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    struct weft_piece *memory = result == CUDA_SUCCESS ? behind((CUdeviceptr)(uintptr_t)address) : NULL;
    if (memory)
        weft_books_put(WEFT_SPACE_VIRTUAL, *handle, memory);
    return result;
}

HOOK(cuMemExportToShareableHandle, void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
     unsigned long long flags) {
    uint8_t key[WEFT_KEY];
    CUresult result = REAL(cuMemExportToShareableHandle)(shared, handle, type, flags);
    struct weft_piece *piece = result == CUDA_SUCCESS ? weft_books_get(WEFT_SPACE_VIRTUAL, handle) : NULL;
    if (piece && weft_key_of(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? *(const int *)shared : -1,
                             type == CU_MEM_HANDLE_TYPE_FABRIC ? shared : NULL, key))
        weft_memory_export(piece->gpu, piece->handle, key);
    weft_piece_drop(piece);
    return result;
}

HOOK(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type) {
    uint8_t key[WEFT_KEY];
    struct weft_claim claim = {.gpu = weft_current_gpu(NULL)};
    if (claim.gpu == WEFT_NO_GPU && weft_session_terms())
        claim.gpu = 0;
    if (claim.gpu != WEFT_NO_GPU &&
        weft_key_of(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? (int)(intptr_t)shared : -1,
                    type == CU_MEM_HANDLE_TYPE_FABRIC ? shared : NULL, key)) {
        CUresult refused = weft_memory_import(claim.gpu, key, &claim.handle);
        if (refused == CUDA_ERROR_OUT_OF_MEMORY)
            return refused;
    }
    CUresult result = REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    return weft_claim_enter(&claim, result, WEFT_SPACE_VIRTUAL, result ? 0 : *handle);
}
