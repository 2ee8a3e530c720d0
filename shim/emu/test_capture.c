// Stream capture: what it forbids, with the driver's error codes, and what becomes of a capture that was spoilt.
#include "test.h"

static CUstream s, other;
static CUgraph graph;

static CUstreamCaptureStatus status(CUstream stream)
{
    CUstreamCaptureStatus st;
    OK(cuStreamIsCapturing(stream, &st));
    return st;
}

static void begin(CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture_v2(s, mode));
    EXPECT(status(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

static void end(CUresult wanted)
{
    EXPECT(cuStreamEndCapture(s, &graph), wanted);
    EXPECT(status(s), CU_STREAM_CAPTURE_STATUS_NONE);
    HOLDS((graph != NULL) == (wanted == CUDA_SUCCESS));
    if (graph != NULL)
        OK(cuGraphDestroy(graph));
}

static void lifecycle(void)
{
    size_t n;
    uint64_t id;
    CUgraph g;
    const CUgraphNode *ends;
    CUstreamCaptureStatus st;
    EXPECT(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)7), CUDA_ERROR_INVALID_VALUE);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    OK(test_spin(s, 1000000000)); // is not run
    OK(cuStreamGetCaptureInfo_v2(s, &st, &id, &g, &ends, &n));
    HOLDS(st == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && g != NULL && n == 1);
    OK(cuGraphGetNodes(g, NULL, &n));
    EXPECT(n, 1);
    end(CUDA_SUCCESS);
}

// What no capturing stream may do: 900, and from then on 901, until the capture is ended.
static void synchronising(void)
{
    CUevent e;
    OK(cuEventCreate(&e, 0));
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(status(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(test_spin(s, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cuEventQuery(e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, s));
    EXPECT(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
    end(CUDA_SUCCESS);
    EXPECT(cuStreamWaitEvent(other, e, 0), CUDA_ERROR_CAPTURED_EVENT); // its capture is over
    OK(cuEventRecord(e, s));
    OK(cuEventSynchronize(e));
    OK(cuEventDestroy_v2(e));
}

static void allocating(void)
{
    CUdeviceptr p, q;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cuMemAlloc_v2(&p, MIB), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemAlloc_v2(&p, MIB));
    OK(cuMemFree_v2(p));
    OK(cuMemAllocAsync(&p, MIB, s)); // becomes a node
    OK(cuMemFreeAsync(p, s));
    OK(cuMemAllocAsync(&q, MIB, other));
    EXPECT(cuMemFreeAsync(q, s), CUDA_ERROR_INVALID_VALUE); // not of this graph
    OK(cuMemFreeAsync(q, other));
    end(CUDA_SUCCESS);
}

// ---- Other threads

struct attempt {
    CUcontext context;
    CUstreamCaptureMode mode;
    CUresult alloc, event;
};

static void *attempt(void *argument)
{
    struct attempt *a = argument;
    CUdeviceptr p;
    CUevent e;
    CUstreamCaptureMode mode = a->mode;
    OK(cuCtxSetCurrent(a->context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventCreate(&e, 0));
    a->event = cuEventQuery(e);
    a->alloc = cuMemAlloc_v2(&p, MIB);
    if (a->alloc == CUDA_SUCCESS)
        a->alloc = cuMemFree_v2(p);
    return NULL;
}

static CUresult elsewhere(CUcontext context, CUstreamCaptureMode capture, CUstreamCaptureMode thread)
{
    struct attempt a = {.context = context, .mode = thread};
    pthread_t t;
    begin(capture);
    EXPECT(pthread_create(&t, NULL, attempt, &a), 0);
    test_join(t);
    HOLDS(a.alloc == a.event);
    end(a.alloc == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return a.alloc;
}

static void modes(CUcontext c)
{
    const CUstreamCaptureMode G = CU_STREAM_CAPTURE_MODE_GLOBAL, T = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, R = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT(elsewhere(c, G, G), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(elsewhere(c, G, T), CUDA_SUCCESS);
    EXPECT(elsewhere(c, G, R), CUDA_SUCCESS);
    EXPECT(elsewhere(c, T, G), CUDA_SUCCESS);
    EXPECT(elsewhere(c, R, G), CUDA_SUCCESS);
    CUdeviceptr p;
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT(cuMemAlloc_v2(&p, MIB), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void *end_it(void *context)
{
    OK(cuCtxSetCurrent(context));
    EXPECT(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    return NULL;
}

static void wrong_thread(CUcontext c)
{
    pthread_t t;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(pthread_create(&t, NULL, end_it, c), 0);
    test_join(t);
    end(CUDA_SUCCESS);
}

// ---- Several streams

static void fork_and_join(void)
{
    CUevent out, back, outside;
    for (CUevent **e = (CUevent *[]){&out, &back, &outside, NULL}; *e != NULL; e++)
        OK(cuEventCreate(*e, 0));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(test_spin(s, 1000));
    OK(cuEventRecord(out, s));
    OK(cuStreamWaitEvent(other, out, 0));
    EXPECT(status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(test_spin(other, 1000));
    OK(cuEventRecord(back, other));
    OK(cuStreamWaitEvent(s, back, 0));
    EXPECT(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(status(other), CU_STREAM_CAPTURE_STATUS_NONE);

    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuEventRecord(out, s));
    OK(cuStreamWaitEvent(other, out, 0));
    OK(test_spin(other, 1000));
    end(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

    OK(cuEventRecord(outside, other));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cuStreamWaitEvent(s, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(test_spin(other, 1000));
    OK(cuEventRecord(back, other));
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(cuStreamWaitEvent(s, back, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void null_stream(void)
{
    CUstream blocking, mine = s;
    CUstreamCaptureStatus st;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL); // of a stream that does not block the NULL stream
    OK(test_spin(NULL, 1000));
    end(CUDA_SUCCESS);
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    s = blocking;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT(cuStreamIsCapturing(NULL, &st), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT); // asking spoils nothing
    EXPECT(status(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT(test_spin(NULL, 1000), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(test_spin(NULL, 1000));
    s = mine;
    OK(cuStreamDestroy_v2(blocking));
}

static void destroyed(void)
{
    CUstream mine = s;
    CUdeviceptr p;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(test_spin(s, 1000));
    OK(cuStreamDestroy_v2(s)); // ends its capture
    OK(cuMemAlloc_v2(&p, MIB));
    OK(cuMemFree_v2(p));
    s = mine;
}

int main(void)
{
    CUcontext c = test_context();
    test_function("given");
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    lifecycle();
    synchronising();
    allocating();
    modes(c);
    wrong_thread(c);
    fork_and_join();
    null_stream();
    destroyed();
    test_done("capture");
}
