/* Capture of streams into graphs, and the end of streams. */
#include "hook.h"

/* One that is lost with its context only makes launches ask the driver. */
_Atomic unsigned weft_captures;

bool weft_stream_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Follows the driver's call that was to begin a capture, before which the session quit the stream. */
static CUresult begun(CUresult result) {
    if (result == CUDA_SUCCESS)
        atomic_fetch_add_explicit(&weft_captures, 1, memory_order_acq_rel);
    return result;
}

#define BEGIN(name, parameters, given, arguments)                                                                      \
    HOOK(name, WEFT_OPEN parameters) {                                                                                 \
        weft_stream_quit(given);                                                                                       \
        return begun(REAL(name) arguments);                                                                            \
    }
#define BEGIN_BOTH(name, parameters, arguments)                                                                        \
    BEGIN(name, parameters, stream, arguments)                                                                         \
    BEGIN(name##_ptsz, parameters, weft_own(stream), arguments)

BEGIN_BOTH(cuStreamBeginCapture, (CUstream stream), (stream))
BEGIN_BOTH(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN_BOTH(cuStreamBeginCaptureToGraph,
           (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
            CUstreamCaptureMode mode),
           (stream, graph, nodes, edges, count, mode))
BEGIN_BOTH(cuStreamBeginRecaptureToGraph,
           (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void *callback, void *data),
           (stream, mode, graph, callback, data))

/* A capture also ends when its end is reported as an error; it goes on where another thread began it. */
#define END(name, given)                                                                                               \
    HOOK(name, CUstream stream, CUgraph *graph) {                                                                      \
        bool before = weft_stream_captured(given);                                                                     \
        CUresult result = REAL(name)(stream, graph);                                                                   \
        if (before && !weft_stream_captured(given))                                                                    \
            atomic_fetch_sub_explicit(&weft_captures, 1, memory_order_acq_rel);                                        \
        return result;                                                                                                 \
    }

END(cuStreamEndCapture, stream)
END(cuStreamEndCapture_ptsz, weft_own(stream))

static CUresult destroy(weft_type_cuStreamBeginCapture *call, CUstream stream) {
    bool capturing = weft_capturing(stream);
    weft_stream_quit(stream);
    CUresult result = call(stream);
    if (result == CUDA_SUCCESS && capturing)
        atomic_fetch_sub_explicit(&weft_captures, 1, memory_order_acq_rel);
    return result;
}

HOOK(cuStreamDestroy, CUstream stream) {
    return destroy(REAL(cuStreamDestroy), stream);
}

HOOK(cuStreamDestroy_v2, CUstream stream) {
    return destroy(REAL(cuStreamDestroy_v2), stream);
}
