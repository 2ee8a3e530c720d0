#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "claim.h"
#include "hook.h"

/* One charge of a reserve. */
struct part {
    uint64_t handle;
    size_t bytes;
};

/* A reserve: a pool of the driver, or what it keeps for the graphs of a device. Never freed, so that a thread that looks at
 * all of them may meet one that is being destroyed. */
struct weft_pool {
    CUmemoryPool handle; /* NULL: of the graphs of the device, or destroyed */
    CUdevice device;
    unsigned gpu; /* WEFT_NO_GPU: host memory, imported, or destroyed: not charged */
    size_t charged;  /* sum of the parts */
    size_t expected; /* of it, for calls of the driver that have not returned */
    struct part *parts;
    size_t count, room;
    struct weft_pool *next;
};

static struct {
    pthread_mutex_t lock;
    struct weft_pool *first;
    _Atomic bool touched;
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

void weft_pools_forked(void) {
    pools.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* What the driver holds for the pool now, and how much of it is handed out. */
static bool reserve(const struct weft_pool *pool, size_t *reserved, size_t *used) {
    uint64_t r = 0, u = 0;
    CUresult result;
    if (pool->handle)
        result = REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &r) |
                 REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &u);
    else
        result = REAL(cuDeviceGetGraphMemAttribute)(pool->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &r) |
                 REAL(cuDeviceGetGraphMemAttribute)(pool->device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &u);
    *reserved = r;
    *used = u;
    return result == CUDA_SUCCESS;
}

/* Under the lock. */
static void push(struct weft_pool *pool, struct part part) {
    if (pool->count == pool->room) {
        size_t room = pool->room ? 2 * pool->room : 8;
        struct part *parts = realloc(pool->parts, room * sizeof *parts);
        if (!parts) { /* out of host memory: better uncharged than charged for ever */
            weft_memory_release(pool->gpu, part.handle);
            return;
        }
        pool->parts = parts;
        pool->room = room;
    }
    pool->parts[pool->count++] = part;
    pool->charged += part.bytes;
}

static void pop(struct weft_pool *pool, size_t i) {
    struct part part = pool->parts[i];
    pool->parts[i] = pool->parts[--pool->count];
    pool->charged -= part.bytes;
    weft_memory_release(pool->gpu, part.handle);
}

/* The part to return of so much too much: the largest that is not more, else the smallest, of which the rest is charged
 * again. */
static size_t surplus_part(const struct weft_pool *pool, size_t surplus) {
    size_t best = 0;
    for (size_t i = 1; i < pool->count; i++) {
        size_t a = pool->parts[i].bytes, b = pool->parts[best].bytes;
        if (a <= surplus ? b > surplus || a > b : b > surplus && a < b)
            best = i;
    }
    return best;
}

/* Returns charges until they are what is reserved or less, and says what is then missing. Under the lock. */
static size_t trim(struct weft_pool *pool) {
    size_t reserved, used;
    if (!reserve(pool, &reserved, &used))
        return 0;
    reserved += pool->expected;
    while (pool->count && pool->charged > reserved)
        pop(pool, surplus_part(pool, pool->charged - reserved));
    return reserved - pool->charged;
}

/* Makes the charges equal to the reserve. Another thread may do the same at once: each looks again after it charged. */
static CUresult settle(struct weft_pool *pool) {
    for (int again = 0; again < 4; again++) {
        pthread_mutex_lock(&pools.lock);
        unsigned gpu = pool->gpu;
        struct part part = {.bytes = gpu == WEFT_NO_GPU ? 0 : trim(pool)};
        pthread_mutex_unlock(&pools.lock);
        if (!part.bytes)
            return CUDA_SUCCESS;
        CUresult result = weft_memory_charge(gpu, WEFT_FAMILY_ASYNC, part.bytes, &part.handle);
        if (result != CUDA_SUCCESS)
            return result;
        pthread_mutex_lock(&pools.lock);
        push(pool, part);
        pthread_mutex_unlock(&pools.lock);
        if (!part.handle)
            return CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}

static struct weft_pool *find(CUmemoryPool handle, CUdevice device) {
    struct weft_pool *p = pools.first;
    while (p && !(p->handle == handle && (handle || (p->device == device && p->gpu != WEFT_NO_GPU))))
        p = p->next;
    return p;
}

/* A reserve that was not known before; a destroyed one's place is taken again. */
static struct weft_pool *add(CUmemoryPool handle, CUdevice device, unsigned gpu) {
    struct weft_pool *p = pools.first;
    while (p && (p->handle || p->gpu != WEFT_NO_GPU))
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p)
            return NULL;
        p->next = pools.first;
        pools.first = p;
    }
    p->handle = handle;
    p->device = device;
    p->gpu = gpu;
    return p;
}

void weft_pool_known(CUmemoryPool handle, CUdevice device) {
    unsigned gpu = device < 0 ? WEFT_NO_GPU : weft_device_gpu(device);
    pthread_mutex_lock(&pools.lock);
    if (!find(handle, device))
        add(handle, device, gpu);
    pthread_mutex_unlock(&pools.lock);
}

void weft_pool_gone(CUmemoryPool handle) {
    pthread_mutex_lock(&pools.lock);
    struct weft_pool *p = find(handle, CU_DEVICE_INVALID);
    while (p && p->count)
        pop(p, p->count - 1);
    if (p) {
        p->handle = NULL;
        p->gpu = WEFT_NO_GPU;
        p->expected = 0;
    }
    pthread_mutex_unlock(&pools.lock);
}

/* The device of a pool that the application was given by the driver: one whose default pool it is, else the current one. */
static CUdevice device_of(CUmemoryPool handle, CUdevice current) {
    const struct weft_welcome *terms = weft_session_terms();
    for (CUdevice d = 0; terms && d < (CUdevice)terms->count; d++) {
        CUmemoryPool pool;
        if (REAL(cuDeviceGetDefaultMemPool)(&pool, d) == CUDA_SUCCESS && pool == handle)
            return d;
    }
    return current;
}

/* The reserve, entered if it is new; NULL where it is not charged. */
static struct weft_pool *charged_pool(CUmemoryPool handle, CUdevice device) {
    pthread_mutex_lock(&pools.lock);
    struct weft_pool *p = find(handle, device);
    bool charged = p && p->gpu != WEFT_NO_GPU;
    pthread_mutex_unlock(&pools.lock);
    if (p)
        return charged ? p : NULL;
    CUdevice owner = handle ? device_of(handle, device) : device;
    unsigned gpu = weft_device_gpu(owner);
    if (gpu == WEFT_NO_GPU)
        return NULL;
    pthread_mutex_lock(&pools.lock);
    p = find(handle, owner);
    if (!p)
        p = add(handle, owner, gpu);
    pthread_mutex_unlock(&pools.lock);
    return p;
}

/* Charges what the reserve lacks for so many bytes more. It may grow by more than that, which settle finds. */
static CUresult begin(struct weft_growth *growth, struct weft_pool *pool, size_t bytes) {
    size_t reserved, used;
    *growth = (struct weft_growth){.pool = pool};
    if (!pool || !reserve(pool, &reserved, &used))
        return CUDA_SUCCESS;
    size_t spare = reserved > used ? reserved - used : 0;
    struct weft_claim claim;
    CUresult result = weft_claim_on(&claim, pool->gpu, WEFT_FAMILY_ASYNC, bytes > spare ? bytes - spare : 0);
    if (result != CUDA_SUCCESS) {
        growth->pool = NULL;
        return result;
    }
    if (claim.handle) {
        growth->bytes = claim.bytes;
        pthread_mutex_lock(&pools.lock);
        pool->expected += claim.bytes;
        push(pool, (struct part){claim.handle, claim.bytes});
        pthread_mutex_unlock(&pools.lock);
    }
    return CUDA_SUCCESS;
}

CUresult weft_pool_begin(struct weft_growth *growth, CUmemoryPool handle, size_t bytes) {
    CUdevice device;
    *growth = (struct weft_growth){.pool = NULL};
    if (!weft_session_terms() || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    if (!handle && REAL(cuDeviceGetMemPool)(&handle, device) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    return begin(growth, charged_pool(handle, device), bytes);
}

CUresult weft_graphs_begin(struct weft_growth *growth, CUdevice device, size_t bytes) {
    return begin(growth, charged_pool(NULL, device), bytes);
}

CUresult weft_pool_end(struct weft_growth *growth) {
    if (!growth->pool)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&pools.lock);
    growth->pool->expected -= growth->bytes < growth->pool->expected ? growth->bytes : growth->pool->expected;
    pthread_mutex_unlock(&pools.lock);
    return settle(growth->pool);
}

void weft_pools_touched(void) {
    atomic_store_explicit(&pools.touched, true, memory_order_release);
}

void weft_pools_synced(void) {
    if (!atomic_load_explicit(&pools.touched, memory_order_relaxed) ||
        !atomic_exchange_explicit(&pools.touched, false, memory_order_acq_rel))
        return;
    pthread_mutex_lock(&pools.lock);
    struct weft_pool *p = pools.first;
    pthread_mutex_unlock(&pools.lock);
    for (; p; p = p->next)
        if (settle(p) != CUDA_SUCCESS)
            weft_pools_touched();
}
