/* Memory that the driver keeps in reserve: of stream-ordered pools, and of the graphs of a device. What counts is the
 * reserve, not what is handed out of it. */
#ifndef WEFT_POOL_H
#define WEFT_POOL_H

#include "token.h"

/* A coming allocation in a reserve, with what was charged for its growth. */
struct weft_growth {
    struct weft_pool *pool; /* NULL: not charged */
    size_t bytes;
};

/* Before an allocation of so many bytes from a pool (NULL: the current device's), or by graphs of a device: charges what
 * the reserve lacks. CUDA_ERROR_OUT_OF_MEMORY beyond the allocation's limit. */
CUresult weft_pool_begin(struct weft_growth *growth, CUmemoryPool pool, size_t bytes);
CUresult weft_graphs_begin(struct weft_growth *growth, CUdevice device, size_t bytes);

/* After the driver's call, whatever it returned: the charge becomes what is reserved now. CUDA_ERROR_OUT_OF_MEMORY if that
 * is beyond the limit: the caller frees what it got. */
CUresult weft_pool_end(struct weft_growth *growth);

/* A pool was made on a device, or of memory that is not charged here (CU_DEVICE_INVALID); a pool was destroyed. */
void weft_pool_known(CUmemoryPool pool, CUdevice device);
void weft_pool_gone(CUmemoryPool pool);

/* Something was freed that may still be reserved: the next synchronisation settles the charges (weft_pools_synced). */
void weft_pools_touched(void);

/* In a forked child: makes the lock usable. */
void weft_pools_forked(void);

#endif
