/* Waits and questions after which work is known to be done. */
#include "hook.h"

#define SYNC(name, parameter, given, argument)                                                                         \
    HOOK(name, parameter) {                                                                                            \
        CUresult result = REAL(name)(argument);                                                                        \
        if (result == CUDA_SUCCESS) {                                                                                  \
            weft_synced(given);                                                                                        \
            weft_pools_synced();                                                                                       \
        }                                                                                                              \
        return result;                                                                                                 \
    }

SYNC(cuStreamSynchronize, CUstream stream, stream, stream)
SYNC(cuStreamSynchronize_ptsz, CUstream stream, weft_own(stream), stream)
SYNC(cuStreamQuery, CUstream stream, stream, stream)
SYNC(cuStreamQuery_ptsz, CUstream stream, weft_own(stream), stream)

static CUresult all(CUresult result) {
    if (result == CUDA_SUCCESS) {
        weft_synced_all();
        weft_pools_synced();
    }
    return result;
}

HOOK(cuCtxSynchronize, void) {
    return all(REAL(cuCtxSynchronize)());
}

HOOK(cuCtxSynchronize_v2, CUcontext context) {
    return all(REAL(cuCtxSynchronize_v2)(context));
}
