// Four threads do everything at once. Run with sanitisers too.
#include <stdatomic.h>

#include "test.h"

enum { THREADS = 4, ROUNDS = 60 };

static CUcontext context;
static CUstream shared;
static CUfunction given;
static _Atomic int host_ran;

static void count(void *data)
{
    (void)data;
    atomic_fetch_add(&host_ran, 1);
}

static void spin(CUstream s, uint64_t ns)
{
    void *params[] = {&ns};
    OK(cuLaunchKernel(given, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static void memory_round_trip(CUstream s)
{
    CUdeviceptr p, q;
    unsigned in = 42, out = 0;
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuMemAllocAsync(&q, 3 * MIB, s));
    OK(cuMemcpyHtoDAsync_v2(p, &in, sizeof in, s));
    OK(cuMemcpyDtoH_v2(&out, p, sizeof out));
    EXPECT(out, 42);
    OK(cuMemFreeAsync(q, s));
    OK(cuMemFree_v2(p));
}

static void capture_round(CUstream s)
{
    CUgraph g;
    CUgraphExec e;
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < 5; i++)
        spin(s, 500);
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphInstantiateWithFlags(&e, g, 0));
    OK(cuGraphLaunch(e, s));
    OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(e));
    OK(cuGraphDestroy(g));
}

static void *hammer(void *argument)
{
    CUstream s;
    CUevent e;
    int number = (int)(intptr_t)argument;
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        OK(cuStreamCreate(&s, i % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&e, 0));
        spin(s, 2000);
        spin(shared, 500); // one stream, all threads
        spin(NULL, 500);
        OK(cuEventRecord(e, s));
        OK(cuStreamWaitEvent(shared, e, 0));
        if (i % 8 == number)
            OK(cuLaunchHostFunc(s, count, NULL));
        memory_round_trip(s);
        if (i % 2 == 1)
            capture_round(s);
        OK(cuEventSynchronize(e));
        OK(cuEventDestroy_v2(e));
        OK(cuStreamDestroy_v2(s));
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    context = test_context();
    given = test_function("given");
    OK(cuStreamCreate(&shared, CU_STREAM_DEFAULT));
    size_t free = test_free();
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, hammer, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++)
        test_join(threads[i]);
    OK(cuCtxSynchronize());
    EXPECT(test_free(), free);
    EXPECT(host_ran, THREADS * ((ROUNDS + 7) / 8)); // ROUNDS % 8 is above every thread's number
    test_done("hammer");
}
