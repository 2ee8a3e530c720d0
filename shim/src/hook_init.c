/* cuInit, and the driver's own look-up of its functions. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "books.h"
#include "context.h"
#include "devices.h"
#include "hook.h"
#include "pool.h"

/* The driver reads these once, in cuInit. Whatever a script set before, the allocation's GPUs are the ones there are, in
 * the allocation's order. */
static void show_only(const struct weft_welcome *terms) {
    char list[WEFT_GPUS * WEFT_UUID_TEXT + 1] = "";
    size_t used = 0;
    for (unsigned i = 0; i < terms->count && i < WEFT_GPUS; i++) {
        if (i)
            list[used++] = ',';
        weft_uuid_text(terms->gpus[i].uuid, list + used);
        used += strlen(list + used);
    }
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
}

/* A lock that another thread held at the fork would never open in the child, which still expects the driver's answer. */
static void forked(void) {
    weft_books_forked();
    weft_contexts_forked();
    weft_pools_forked();
}

/* Nothing of this exists in a process that never calls cuInit. */
static void prepare(void) {
    static atomic_flag prepared = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&prepared))
        pthread_atfork(NULL, NULL, forked);
    weft_pin();
}

HOOK(cuInit, unsigned flags) {
    const struct weft_welcome *terms = weft_session_begin();
    if (terms)
        show_only(terms);
    CUresult result = REAL(cuInit)(flags);
    if (result == CUDA_SUCCESS)
        prepare();
    return result;
}

/* The driver decides by name, version and flags; only the address that it gives is exchanged. */
static CUresult swapped(CUresult result, void **function) {
    if (result == CUDA_SUCCESS && function && *function)
        *function = weft_swap(*function);
    return result;
}

HOOK(cuGetProcAddress, const char *name, void **function, int version, uint64_t flags) {
    return swapped(REAL(cuGetProcAddress)(name, function, version, flags), function);
}

HOOK(cuGetProcAddress_v2, const char *name, void **function, int version, uint64_t flags,
     CUdriverProcAddressQueryResult *status) {
    return swapped(REAL(cuGetProcAddress_v2)(name, function, version, flags, status), function);
}

HOOK(cuGetProcAddress_v2_ptsz, const char *name, void **function, int version, uint64_t flags,
     CUdriverProcAddressQueryResult *status) {
    return swapped(REAL(cuGetProcAddress_v2_ptsz)(name, function, version, flags, status), function);
}
