// Initialisation, devices, contexts, modules.
#include "test.h"

static void before_init(void)
{
    int n;
    CUcontext c;
    CUdeviceptr p;
    EXPECT(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuMemAlloc_v2(&p, 1), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT(cuStreamQuery(NULL), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&n));
    EXPECT(n, 13000);
    EXPECT(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

static void fork_before_init(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        OK(cuInit(0));
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    EXPECT(status, 0);
}

static void devices(void)
{
    int n, major, processors[2];
    char name[96], bus[32];
    size_t bytes;
    CUdevice d;
    OK(cuInit(0));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    EXPECT(n, 3);
    EXPECT(cuDeviceGet(&d, 3), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuDeviceGet(&d, -1), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetName(name, sizeof name, 0));
    HOLDS(strlen(name) > 0);
    for (int i = 0; i < 2; i++)
        OK(cuDeviceGetAttribute(&processors[i], CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, i));
    HOLDS(processors[0] > processors[1]); // fastest first
    OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    EXPECT(major, 9);
    EXPECT(cuDeviceGetAttribute(&major, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    HOLDS(bytes > 6000 * MIB && bytes < 8192 * MIB);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
    OK(cuDeviceGetByPCIBusId(&d, bus));
    EXPECT(d, 1);
    EXPECT(cuDeviceGetByPCIBusId(&d, "00ff:00:00.0"), CUDA_ERROR_INVALID_DEVICE);
}

static void stack(void)
{
    CUcontext a, b, c, top;
    CUdevice d;
    EXPECT(cuCtxGetDevice(&d), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuCtxPopCurrent_v2(&top), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetCurrent(&top));
    HOLDS(top == NULL);
    OK(cuCtxCreate_v2(&a, 0, 0));
    OK(cuCtxCreate_v4(&b, NULL, 0, 1));
    OK(cuCtxGetDevice(&d));
    EXPECT(d, 1);
    OK(cuCtxPushCurrent_v2(a));
    OK(cuCtxPopCurrent_v2(&top));
    HOLDS(top == a);
    OK(cuCtxGetCurrent(&top));
    HOLDS(top == b);
    OK(cuCtxDestroy_v2(b)); // leaves the top of the stack
    OK(cuCtxGetCurrent(&top));
    HOLDS(top == a);
    EXPECT(cuCtxSetCurrent(b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cuCtxDestroy_v2(b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cuCtxCreate_v2(&c, 0, 7), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuCtxCreate_v2(&c, 0x1000, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxDestroy_v2(a));
    EXPECT(cuCtxGetDevice(&d), CUDA_ERROR_INVALID_CONTEXT);
}

static void other_thread_holds_it(void)
{
    CUcontext a;
    OK(cuCtxCreate_v2(&a, 0, 0));
    OK(cuCtxPushCurrent_v2(a)); // twice on the stack: the second stays, dead
    OK(cuCtxDestroy_v2(a));
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxPopCurrent_v2(&a));
}

static void primary(void)
{
    CUcontext a, b;
    unsigned flags, version;
    int active;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active, 0);
    EXPECT(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN));
    OK(cuDevicePrimaryCtxRetain(&a, 0));
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    HOLDS(a == b);
    EXPECT(cuDevicePrimaryCtxSetFlags(0, 0), CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    OK(cuDevicePrimaryCtxSetFlags_v2(0, 0));
    EXPECT(cuCtxDestroy_v2(a), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxGetApiVersion(a, &version));
    EXPECT(version, 3020);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active, 1);
    OK(cuCtxSetCurrent(a));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EXPECT(active, 0);
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    HOLDS(a == b);
    OK(cuCtxSynchronize());
}

// A context takes memory, and gives it back with all that was allocated in it.
static void context_memory(void)
{
    CUcontext extra;
    CUdeviceptr p;
    CUstream s;
    CUevent e;
    size_t before = test_free();
    OK(cuCtxCreate_v2(&extra, 0, 0));
    size_t with = test_free();
    EXPECT(before - with, 256 * MIB);
    OK(cuMemAlloc_v2(&p, 64 * MIB));
    OK(cuStreamCreate(&s, 0));
    OK(cuEventCreate(&e, 0));
    OK(cuCtxDestroy_v2(extra));
    EXPECT(test_free(), before);
    EXPECT(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemAlloc_v2(&p, 64 * MIB));
    OK(cuMemAllocAsync(&p, 64 * MIB, NULL));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&extra, 0));
    EXPECT(test_free(), before);
}

static void limits(void)
{
    size_t value;
    int least, greatest;
    OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB));
    OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    EXPECT(value, 16 * MIB);
    EXPECT(cuCtxGetLimit(&value, (CUlimit)99), CUDA_ERROR_UNSUPPORTED_LIMIT);
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    HOLDS(greatest < least);
}

static void modules(void)
{
    CUmodule m;
    CUfunction f;
    CUlibrary l;
    CUkernel k;
    int value, grid, block;
    EXPECT(cuModuleLoadData(&m, ".version 8.0\n.target sm_80\n"), CUDA_ERROR_INVALID_PTX);
    EXPECT(cuModuleLoadData(&m, "neither"), CUDA_ERROR_INVALID_IMAGE);
    EXPECT(cuModuleLoadData(&m, ""), CUDA_ERROR_INVALID_IMAGE);
    EXPECT(cuModuleLoadData(&m, "\177ELF\2\1\1"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT(cuModuleLoadData(&m, "// weft-emu: kernel k cost=strange\n"), CUDA_ERROR_INVALID_PTX);
    EXPECT(cuModuleLoad(&m, "/nowhere/module.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
    OK(cuModuleLoadData(&m, test_image));
    EXPECT(cuModuleGetFunction(&f, m, "unknown"), CUDA_ERROR_NOT_FOUND);
    OK(cuModuleGetFunction(&f, m, "wide"));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    EXPECT(value, 1024);
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 0));
    HOLDS(block > 0 && grid > 0);
    OK(cuModuleUnload(m));
    EXPECT(cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuLibraryLoadData(&l, test_image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&k, l, "fixed"));
    OK(cuKernelGetFunction(&f, k));
    OK(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
    OK(cuLibraryUnload(l));
}

static void error_names(void)
{
    const char *name;
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    EXPECT(strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY"), 0);
    EXPECT(cuGetErrorName((CUresult)123456, &name), CUDA_ERROR_INVALID_VALUE);
    HOLDS(name == NULL);
}

int main(void)
{
    before_init();
    fork_before_init();
    devices();
    stack();
    other_thread_holds_it();
    primary();
    context_memory();
    limits();
    modules();
    error_names();
    test_done("context");
}
