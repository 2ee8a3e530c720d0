// The map from addresses to the memory behind them. Addresses of device memory are reserved in the process, without access, so that
// they never coincide with the program's own. Of the contents of device memory the first BLOCK_HEAD bytes of each allocation are kept,
// of managed memory the first 64 MiB by what a stream does to it.
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_state.h"

static void *blocks; // tree of struct block by address, no two overlapping

static int by_range(const void *a, const void *b)
{
    const struct block *x = a, *y = b;
    if (x->base + x->size <= y->base)
        return -1;
    return x->base >= y->base + y->size;
}

struct block *block_find(CUdeviceptr address)
{
    struct block key = {.base = address, .size = 1};
    struct block **found = tfind(&key, &blocks, by_range);
    return found == NULL ? NULL : *found;
}

CUresult block_place(CUdeviceptr base, size_t size, enum block_kind kind, struct block **out)
{
    struct block *b = calloc(1, sizeof *b);
    if (b == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    b->base = base;
    b->size = size;
    b->kind = kind;
    b->buffer = ++driver.last_id;
    struct block **at = tsearch(b, &blocks, by_range);
    if (at != NULL && *at == b) {
        *out = b;
        return CUDA_SUCCESS;
    }
    free(b);
    return at == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

static bool owns_addresses(const struct block *b)
{
    return b->kind != BLOCK_REGISTERED && b->kind != BLOCK_MAPPED;
}

CUresult block_new(size_t size, size_t alignment, enum block_kind kind, struct block **out)
{
    CUdeviceptr base;
    TRY(address_reserve(size, alignment, 0, false, &base));
    CUresult result = block_place(base, size, kind, out);
    if (result != CUDA_SUCCESS)
        address_release(base, size);
    return result;
}

void block_drop(struct block *b)
{
    tdelete(b, &blocks, by_range);
    if (owns_addresses(b))
        address_release(b->base, b->size);
    free(b->head);
    free(b);
}

struct search {
    CUcontext context;
    struct block *found;
};

static void pick(const void *node, VISIT visit, void *argument)
{
    struct search *s = argument;
    struct block *b = *(struct block *const *)node;
    if ((visit == preorder || visit == leaf) && b->context == s->context)
        s->found = b;
}

void block_drop_context(CUcontext context)
{
    for (;;) {
        struct search s = {.context = context};
        twalk_r(blocks, pick, &s);
        if (s.found == NULL)
            return;
        if (s.found->kind == BLOCK_ASYNC)
            pool_return(s.found->pool, memory_round(s.found->size));
        block_drop(s.found);
    }
}

// ---- Addresses

#define PAGE 4096ull

static uint64_t pages(uint64_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

CUresult address_reserve(size_t size, size_t alignment, CUdeviceptr hint, bool low, CUdeviceptr *base)
{
    size_t align = alignment > PAGE ? alignment : PAGE, all = pages(size) + (align > PAGE ? align : 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (low ? MAP_32BIT : 0);
    char *at = mmap((void *)(uintptr_t)hint, all, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t start = ((uint64_t)(uintptr_t)at + align - 1) / align * align, before = start - (uint64_t)(uintptr_t)at;
    if (before > 0)
        munmap(at, before);
    if (all - before > pages(size))
        munmap(at + before + pages(size), all - before - pages(size));
    *base = start;
    return CUDA_SUCCESS;
}

void address_release(CUdeviceptr base, size_t size)
{
    munmap((void *)(uintptr_t)base, pages(size));
}

// ---- Contents

// block_contents is where an address's contents are; kept becomes how many of the bytes from there on are, at most what was asked.
unsigned char *block_contents(struct block *b, CUdeviceptr address, size_t bytes, size_t *kept)
{
    size_t offset = (size_t)(address - b->base), limit = b->kind == BLOCK_MANAGED && b->size > 64 * MIB ? 64 * MIB : b->size;
    unsigned char *at = (unsigned char *)(uintptr_t)b->base;
    if (!b->host_visible) {
        limit = b->size < BLOCK_HEAD ? b->size : BLOCK_HEAD;
        if (b->head == NULL && offset < limit)
            b->head = calloc(1, limit);
        at = b->head;
    }
    size_t rest = at == NULL || offset >= limit ? 0 : limit - offset;
    *kept = rest < bytes ? rest : bytes;
    return *kept > 0 ? at + offset : NULL;
}
