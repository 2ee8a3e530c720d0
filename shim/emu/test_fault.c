// Faults: memory that runs out at will, kernels that hang, GPUs that break or vanish, and a broker that dies.
#include <signal.h>

#include "test.h"

static void fault(const char *words)
{
    char command[512];
    snprintf(command, sizeof command, "%s -q emugpu fault --socket %s %s >/dev/null", getenv("WEFT"), getenv("WEFT_EMU_SOCKET"), words);
    weftEmuBlock();
    EXPECT(system(command), 0);
    weftEmuUnblock();
}

// The broker's GPU of the program's first device: the H100 is the second of t4, h100, a10.
#define FIRST "--gpu 1"

static void out_of_memory(void)
{
    CUdeviceptr p;
    CUarray a;
    CUDA_ARRAY_DESCRIPTOR shape = {64, 64, CU_AD_FORMAT_FLOAT, 1};
    fault(FIRST " oom 3");
    EXPECT(cuMemAlloc_v2(&p, MIB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuArrayCreate_v2(&a, &shape), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAllocManaged(&p, MIB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&p, MIB));
    OK(cuMemFree_v2(p));
}

// XID 31, a page fault, breaks contexts, and every later call in them says so.
static void sticky(void)
{
    CUcontext mine;
    CUdeviceptr p;
    CUstream s;
    CUevent e;
    OK(cuCtxCreate_v2(&mine, 0, 0));
    OK(cuStreamCreate(&s, 0));
    OK(cuEventCreate(&e, 0));
    OK(test_spin(s, 3600000000000ull));
    fault(FIRST " xid 31");
    CUresult broken = cuStreamSynchronize(s);
    HOLDS(broken != CUDA_SUCCESS);
    EXPECT(cuStreamQuery(s), broken);
    EXPECT(cuEventRecord(e, s), broken);
    EXPECT(test_spin(s, 1), broken);
    EXPECT(cuMemAlloc_v2(&p, MIB), broken);
    EXPECT(cuCtxSynchronize(), broken);
    OK(cuCtxDestroy_v2(mine)); // a broken context can still be destroyed
    fault(FIRST " reset");
}

// A kernel that hangs keeps its waiters until its process ends; a thread that waits does not keep the others from working.
static void *wait_for_ever(void *stream)
{
    cuStreamSynchronize(stream);
    return NULL;
}

static void hang(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_fault", "hang", (char *)NULL);
        _exit(127);
    }
    test_child(pid);
}

static int child_hang(void)
{
    CUstream s, other;
    pthread_t t;
    test_context();
    test_function("given");
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    fault(FIRST " hang 1");
    OK(test_spin(s, 1000));
    EXPECT(pthread_create(&t, NULL, wait_for_ever, s), 0);
    usleep(50000);
    EXPECT(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    OK(cuStreamQuery(other));
    _exit(0);
}

static void lost(void)
{
    CUcontext c, again;
    OK(cuCtxCreate_v2(&c, 0, 2)); // the T4, the first of the broker
    OK(test_spin(NULL, 3600000000000ull));
    fault("--gpu 0 lost");
    HOLDS(cuCtxSynchronize() != CUDA_SUCCESS);
    HOLDS(cuCtxCreate_v2(&again, 0, 2) != CUDA_SUCCESS);
    OK(cuCtxDestroy_v2(c));
    fault("--gpu 0 reset");
    OK(cuCtxCreate_v2(&c, 0, 2));
    OK(cuCtxDestroy_v2(c));
}

// With its broker, a process loses its GPUs: waits end, and calls fail; nothing hangs.
static void broker_dies(void)
{
    CUcontext c;
    CUdeviceptr p;
    CUstream s;
    OK(cuCtxCreate_v2(&c, 0, 1));
    OK(cuStreamCreate(&s, 0));
    OK(test_spin(s, 3600000000000ull));
    kill(atoi(getenv("BROKER_PID")), SIGKILL);
    EXPECT(cuStreamSynchronize(s), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT(cuMemAlloc_v2(&p, MIB), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

int main(int count, char **words)
{
    (void)words;
    if (count == 2)
        return child_hang();
    test_context();
    test_function("given");
    out_of_memory();
    sticky();
    hang();
    lost();
    broker_dies();
    test_done("fault");
}
