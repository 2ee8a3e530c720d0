// Streams, events, launches, host functions.
#include <stdatomic.h>

#include "test.h"

static float elapsed(CUevent a, CUevent b)
{
    float ms;
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime(&ms, a, b));
    return ms;
}

static void costs(void)
{
    CUstream s;
    CUevent e[4];
    int processors;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    for (int i = 0; i < 4; i++)
        OK(cuEventCreate(&e[i], 0));
    OK(test_spin(s, 500000000)); // what follows is all there when its turn comes: its times are computed, and do not jitter
    OK(cuEventRecord(e[0], s));
    OK(cuLaunchKernel(test_function("fixed"), 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
    OK(cuEventRecord(e[1], s));
    OK(test_spin(s, 3000000));
    OK(cuEventRecord(e[2], s));
    OK(cuLaunchKernel(test_function("wide"), (unsigned)processors * 2, 1, 1, 64, 1, 1, 0, s, NULL, NULL));
    OK(cuEventRecord(e[3], s));
    float fixed = elapsed(e[0], e[1]), given = elapsed(e[1], e[2]), wide = elapsed(e[2], e[3]);
    HOLDS(fixed > 1.9f && fixed < 2.1f);
    HOLDS(given > 2.9f && given < 3.1f);
    HOLDS(wide > 1.9f && wide < 2.1f);
    uint64_t ns = 1000000;
    size_t size = sizeof ns;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    OK(cuEventRecord(e[0], s));
    OK(cuLaunchKernel(test_function("given"), 1, 1, 1, 1, 1, 1, 0, s, NULL, extra));
    OK(cuFuncSetBlockShape(test_function("given"), 32, 1, 1));
    OK(cuParamSetv(test_function("given"), 0, &ns, sizeof ns));
    OK(cuEventRecord(e[1], s));
    HOLDS(elapsed(e[0], e[1]) > 0.9f);
    OK(cuLaunchGrid(test_function("given"), 2, 2));
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy_v2(s));
}

static void bad_launches(void)
{
    CUfunction f = test_function("fixed"), given = test_function("given");
    EXPECT(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(f, 1, 1, 1, 1024, 2, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 64 * 1024, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(given, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchCooperativeKernel(f, 1000000, 1, 1, 1024, 1, 1, 0, NULL, NULL), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {1000000, 1, 1, 1024, 1, 1, 0, NULL, &cooperative, 1};
    EXPECT(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    config.numAttrs = 0;
    config.gridDimX = 1;
    OK(cuLaunchKernelEx(&config, f, NULL, NULL));
    OK(cuCtxSynchronize());
}

static void queries(void)
{
    CUstream s;
    CUevent e;
    int p;
    OK(cuStreamCreateWithPriority(&s, 0, -100));
    OK(cuStreamGetPriority(s, &p));
    EXPECT(p, -5);
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuEventQuery(e)); // never recorded
    OK(cuStreamQuery(s));
    OK(test_spin(s, 500000000));
    OK(cuEventRecord(e, s));
    EXPECT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    EXPECT(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    while (cuEventQuery(e) == CUDA_ERROR_NOT_READY)
        ;
    OK(cuStreamQuery(s));
    EXPECT(cuEventElapsedTime(&(float){0}, e, e), CUDA_ERROR_INVALID_HANDLE);
    OK(cuEventDestroy_v2(e));
    EXPECT(cuEventDestroy_v2(e), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy_v2(s));
    EXPECT(cuStreamDestroy_v2(s), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuStreamDestroy_v2(NULL), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(test_spin(s, 1), CUDA_ERROR_INVALID_HANDLE);
}

// order tells whether b's work begins only after a's 5 ms have ended, when a comes first.
static bool ordered(CUstream a, CUstream b)
{
    CUevent e[2];
    for (int i = 0; i < 2; i++)
        OK(cuEventCreate(&e[i], 0));
    OK(cuCtxSynchronize());
    OK(cuEventRecord(e[0], a));
    OK(test_spin(a, 5000000));
    OK(cuEventRecord(e[1], b));
    float ms = elapsed(e[0], e[1]);
    OK(cuCtxSynchronize());
    for (int i = 0; i < 2; i++)
        OK(cuEventDestroy_v2(e[i]));
    return ms > 4.9f;
}

// apart tells whether b's work may begin before a's ends. Where this thread had no processor between the two, it is tried again.
static bool apart(CUstream a, CUstream b)
{
    for (int i = 0; i < 20; i++)
        if (!ordered(a, b))
            return true;
    return false;
}

static void null_stream(void)
{
    CUstream blocking, other, free;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 3; i++) {
        HOLDS(ordered(NULL, blocking));
        HOLDS(ordered(blocking, NULL));
        HOLDS(ordered(CU_STREAM_LEGACY, CU_STREAM_PER_THREAD));
        HOLDS(ordered(CU_STREAM_PER_THREAD, NULL));
        HOLDS(apart(NULL, free));
        HOLDS(apart(free, NULL));
        HOLDS(apart(blocking, other));
        HOLDS(apart(blocking, CU_STREAM_PER_THREAD));
    }
    uint64_t ns = 500000000;
    void *params[] = {&ns};
    OK(cuLaunchKernel_ptsz(test_function("given"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    EXPECT(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuStreamDestroy_v2(blocking));
    OK(cuStreamDestroy_v2(other));
    OK(cuStreamDestroy_v2(free));
}

static void waits(void)
{
    CUstream a, b;
    CUevent start, done, end;
    OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&end, 0));
    OK(cuStreamWaitEvent(b, done, 0)); // never recorded: nothing to wait for
    OK(cuEventRecord(start, a));
    OK(test_spin(a, 8000000));
    OK(cuEventRecord(done, a));
    OK(cuStreamWaitEvent(b, done, 0));
    OK(cuEventRecord(end, b));
    HOLDS(elapsed(start, end) > 7.9f);
    OK(cuStreamDestroy_v2(a));
    OK(cuEventQuery(done)); // outlives its stream
    OK(cuStreamDestroy_v2(b));
}

// ---- Host functions

static int order[4];
static _Atomic int ran;

static void note(void *data)
{
    CUstream s;
    EXPECT(cuStreamCreate(&s, 0), CUDA_ERROR_NOT_PERMITTED); // no calls from here
    order[atomic_fetch_add(&ran, 1)] = (int)(intptr_t)data;
}

static void note_callback(CUstream stream, CUresult status, void *data)
{
    HOLDS(stream != NULL && status == CUDA_SUCCESS);
    note(data);
}

static void host_functions(void)
{
    CUstream s;
    CUevent e;
    OK(cuStreamCreate(&s, 0));
    OK(cuEventCreate(&e, 0));
    OK(test_spin(s, 100000000));
    OK(cuLaunchHostFunc(s, note, (void *)1));
    OK(cuStreamAddCallback(s, note_callback, (void *)2, 0));
    OK(test_spin(s, 1000000));
    OK(cuLaunchHostFunc(s, note, (void *)3));
    EXPECT(ran, 0);
    OK(cuEventRecord(e, s));
    OK(cuEventSynchronize(e));
    EXPECT(ran, 3);
    HOLDS(order[0] == 1 && order[1] == 2 && order[2] == 3);
    EXPECT(cuLaunchHostFunc(s, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamDestroy_v2(s));
}

static _Atomic int counted;

static void count(void *data)
{
    (void)data;
    atomic_fetch_add(&counted, 1);
}

// More host functions than a ring has entries, and a stream destroyed before they have run: all of them run.
static void many_host_functions(void)
{
    CUstream s;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(test_spin(s, 5000000));
    for (int i = 0; i < 3000; i++)
        OK(cuLaunchHostFunc(s, count, NULL));
    OK(cuStreamDestroy_v2(s));
    for (int i = 0; i < 1000 && counted < 3000; i++) {
        weftEmuBlock();
        usleep(10000);
        weftEmuUnblock();
    }
    EXPECT(counted, 3000);
}

// Handles of one context are not taken for those of another.
static void other_context(CUcontext mine)
{
    CUcontext c;
    CUstream s;
    CUevent e;
    CUmodule m;
    CUfunction f;
    OK(cuEventCreate(&e, 0));
    OK(cuModuleLoadData(&m, test_image));
    OK(cuModuleGetFunction(&f, m, "fixed"));
    OK(cuCtxCreate_v2(&c, 0, 1));
    OK(cuStreamCreate(&s, 0));
    EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuLaunchKernel(test_function("fixed"), 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL)); // of a library
    EXPECT(cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamWaitEvent(s, e, 0)); // waiting is allowed
    OK(cuCtxDestroy_v2(c));
    OK(cuCtxSetCurrent(mine));
}

// A ring takes 1024 entries: more launches than that wait, and none is lost.
static void full_ring(void)
{
    CUstream s;
    CUevent e[2];
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++)
        OK(cuEventCreate(&e[i], 0));
    OK(cuEventRecord(e[0], s));
    for (int i = 0; i < 10000; i++)
        OK(test_spin(s, 1000));
    OK(cuEventRecord(e[1], s));
    HOLDS(elapsed(e[0], e[1]) > 9.9f);
    OK(cuStreamDestroy_v2(s));
}

// Threads come and go, each with its own default stream and its slot: neither runs out.
static void *own_stream(void *context)
{
    OK(cuCtxSetCurrent(context));
    OK(test_spin(CU_STREAM_PER_THREAD, 1000));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

static void thread_churn(CUcontext context)
{
    for (int i = 0; i < 1500; i++) {
        pthread_t t;
        EXPECT(pthread_create(&t, NULL, own_stream, context), 0);
        test_join(t);
    }
}

int main(void)
{
    CUcontext c = test_context();
    costs();
    bad_launches();
    queries();
    null_stream();
    waits();
    host_functions();
    many_host_functions();
    other_context(c);
    full_ring();
    thread_churn(c);
    test_done("stream");
}
