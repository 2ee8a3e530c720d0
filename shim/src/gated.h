/* A hook around a call that puts work on a GPU: it waits for the gate, unless the stream is being captured. */
#ifndef WEFT_GATED_H
#define WEFT_GATED_H

#include "hook.h"

#define GATED(name, parameters, given_stream, kind, given_key, arguments)                                              \
    HOOK(name, WEFT_OPEN parameters) {                                                                                 \
        CUstream gated_stream = (given_stream);                                                                        \
        const void *gated_key = (const void *)(given_key);                                                             \
        if (weft_capturing(gated_stream))                                                                              \
            return REAL(name) arguments;                                                                               \
        weft_launch_begin(gated_stream, kind, gated_key);                                                              \
        CUresult gated_result = REAL(name) arguments;                                                                  \
        weft_launch_end(gated_stream, kind, gated_key, gated_result == CUDA_SUCCESS);                                  \
        return gated_result;                                                                                           \
    }

/* Both forms of an asynchronous call: with the legacy stream 0, and with the thread's own. */
#define GATED_BOTH(name, parameters, stream, kind, key, arguments)                                                     \
    GATED(name, parameters, stream, kind, key, arguments)                                                              \
    GATED(name##_ptsz, parameters, weft_own(stream), kind, key, arguments)

#endif
