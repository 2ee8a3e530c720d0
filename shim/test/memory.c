/* The books against the emulated driver: what is charged for each way of allocating, and that nothing stays. Linked to the
 * driver as a program is, so that the exported hooks are the ones that serve it.
 *
 *   memory             all checks, in a process whose allocation has 2 GiB and nobody else in it
 *   memory open HANDLE opens an IPC handle, writes a line, waits for one, closes it
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weft_cuda.h"

#define MIB ((size_t)1 << 20)
#define LIMIT (2048 * MIB)
#define THREADS 4
#ifdef __SANITIZE_THREAD__ /* finds a race at its first turn, and makes each free of the emulated driver cost milliseconds */
#define ROUNDS 300
#else
#define ROUNDS 1500
#endif

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemAllocHost_v2(void **, size_t);
CUresult cuMemFreeHost(void *);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CUresult cuMemPoolCreate(CUmemoryPool *, const CUmemPoolProps *);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t);
CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void *);
CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, void *);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemCreate(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *, void *);
CUresult cuMemExportToShareableHandle(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
CUresult cuArray3DCreate_v2(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
CUresult cuArrayDestroy(CUarray);
CUresult cuIpcGetMemHandle(CUipcMemHandle *, CUdeviceptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, CUipcMemHandle, unsigned);
CUresult cuIpcCloseMemHandle(CUdeviceptr);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphDestroy(CUgraph);
CUresult cuDeviceGraphMemTrim(CUdevice);
CUresult cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void *);

static bool good = true;

static void expect(int line, const char *what, long long got, long long wanted) {
    if (got == wanted)
        return;
    fprintf(stderr, "memory.c:%d: %s is %lld and not %lld\n", line, what, got, wanted);
    good = false;
}

#define EXPECT(got, wanted) expect(__LINE__, #got, (long long)(got), (long long)(wanted))
#define DO(call) EXPECT(call, CUDA_SUCCESS)

static size_t used(void) {
    size_t available = 0, total = 0;
    DO(cuMemGetInfo_v2(&available, &total));
    EXPECT(total, LIMIT);
    return total - available;
}

/* A check must leave what it found. */
#define CHECK(name)                                                                                                    \
    static void name##_(size_t before);                                                                                \
    static void name(void) {                                                                                           \
        size_t before = used();                                                                                        \
        name##_(before);                                                                                               \
        expect(__LINE__, "charged after " #name, (long long)(used() - before), 0);                                     \
    }                                                                                                                  \
    static void name##_(size_t before)

CHECK(exactly_the_limit) {
    CUdeviceptr all, more;
    EXPECT(cuMemAlloc_v2(&all, LIMIT - before + 1), CUDA_ERROR_OUT_OF_MEMORY);
    DO(cuMemAlloc_v2(&all, LIMIT - before));
    EXPECT(used(), LIMIT);
    EXPECT(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAllocManaged(&more, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAllocAsync(&more, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    DO(cuMemFree_v2(all));
    EXPECT(cuMemAlloc_v2(&all, ~(size_t)0), CUDA_ERROR_OUT_OF_MEMORY);
}

/* The driver's own codes, and nothing charged. */
CHECK(wrong_calls) {
    CUdeviceptr address = 0;
    EXPECT(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAlloc_v2(NULL, MIB), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree_v2(0xdeadbeef000), CUDA_ERROR_INVALID_VALUE);
    DO(cuMemFree_v2(0));
    DO(cuMemAlloc_v2(&address, 3 * MIB));
    EXPECT(cuMemFree_v2(address + 256), CUDA_ERROR_INVALID_VALUE);
    EXPECT(used() - before, 3 * MIB);
    DO(cuMemFree_v2(address));
    EXPECT(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemRelease(0x1234) != CUDA_SUCCESS, 1);
}

CHECK(any_free_finds_it) {
    CUdeviceptr a, b, c, d;
    size_t pitch;
    DO(cuMemAlloc_v2(&a, 5 * MIB));
    DO(cuMemAllocPitch_v2(&b, &pitch, 1000, 1000, 4));
    EXPECT(used() - before, 5 * MIB + pitch * 1000);
    DO(cuMemAllocManaged(&c, 7 * MIB, CU_MEM_ATTACH_GLOBAL));
    DO(cuMemAllocAsync(&d, 9 * MIB, NULL));
    DO(cuMemFreeAsync(a, NULL));
    DO(cuMemFreeAsync(b, NULL));
    DO(cuMemFree_v2(c));
    DO(cuMemFree_v2(d));
    DO(cuCtxSynchronize());
}

CHECK(host_memory_is_free) {
    void *host;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp numa = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    DO(cuMemAllocHost_v2(&host, 64 * MIB));
    CUresult created = cuMemCreate(&handle, 2 * MIB, &numa, 0);
    EXPECT(used(), before);
    if (created == CUDA_SUCCESS)
        DO(cuMemRelease(handle));
    DO(cuMemFreeHost(host));
}

static size_t reserve(CUmemoryPool pool) {
    uint64_t bytes = 0;
    DO(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

CHECK(a_pool_costs_its_reserve) {
    CUmemoryPool pool, own;
    CUdeviceptr a, b;
    uint64_t keep = ~0ull, nothing = 0;
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    DO(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    DO(cuMemAllocAsync(&a, 100 * MIB, NULL));
    DO(cuMemAllocAsync(&b, 10 * MIB, NULL));
    EXPECT(used() - before, reserve(pool));
    DO(cuMemFreeAsync(a, NULL));
    DO(cuMemFreeAsync(b, NULL));
    DO(cuStreamSynchronize(NULL));
    EXPECT(reserve(pool) >= 110 * MIB, 1);
    EXPECT(used() - before, reserve(pool));
    DO(cuMemAllocAsync(&a, 90 * MIB, NULL)); /* out of the reserve */
    EXPECT(used() - before, reserve(pool));
    DO(cuMemFreeAsync(a, NULL));
    DO(cuStreamSynchronize(NULL));
    DO(cuMemPoolTrimTo(pool, 0));
    EXPECT(used() - before, reserve(pool));
    DO(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing));

    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    DO(cuMemPoolCreate(&own, &properties));
    DO(cuMemAllocFromPoolAsync(&a, 50 * MIB, own, NULL));
    EXPECT(used() - before, reserve(own));
    DO(cuMemFreeAsync(a, NULL));
    DO(cuMemPoolDestroy(own));
    DO(cuStreamSynchronize(NULL));
}

CHECK(a_pool_is_refused_at_the_limit) {
    CUdeviceptr most, pooled = 0;
    DO(cuMemAlloc_v2(&most, LIMIT - before - 40 * MIB));
    CUresult result = cuMemAllocAsync(&pooled, 41 * MIB, NULL);
    EXPECT(result, CUDA_ERROR_OUT_OF_MEMORY);
    DO(cuMemAllocAsync(&pooled, 30 * MIB, NULL));
    EXPECT(used() <= LIMIT, 1);
    DO(cuMemFreeAsync(pooled, NULL));
    DO(cuMemFree_v2(most));
    DO(cuCtxSynchronize());
}

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

CHECK(physical_memory_lives_by_its_mappings) {
    CUmemGenericAllocationHandle first, second, again;
    CUdeviceptr space;
    DO(cuMemAddressReserve(&space, 6 * MIB, 0, 0, 0));
    DO(cuMemCreate(&first, 2 * MIB, &on_device, 0));
    DO(cuMemCreate(&second, 4 * MIB, &on_device, 0));
    DO(cuMemMap(space, 2 * MIB, 0, first, 0));
    DO(cuMemMap(space + 2 * MIB, 4 * MIB, 0, second, 0));
    DO(cuMemRelease(first));
    DO(cuMemRelease(second));
    EXPECT(used() - before, 6 * MIB);
    DO(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(space + 3 * MIB)));
    DO(cuMemUnmap(space, 6 * MIB));
    EXPECT(used() - before, 4 * MIB);
    DO(cuMemRelease(again));
    DO(cuMemAddressFree(space, 6 * MIB));
}

CHECK(what_is_imported_is_charged_once) {
    CUmemGenericAllocationHandle mine, theirs;
    int descriptor = -1;
    DO(cuMemCreate(&mine, 8 * MIB, &on_device, 0));
    DO(cuMemExportToShareableHandle(&descriptor, mine, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    DO(cuMemImportFromShareableHandle(&theirs, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    EXPECT(used() - before, 8 * MIB);
    DO(cuMemRelease(mine));
    EXPECT(used() - before, 8 * MIB);
    DO(cuMemRelease(theirs));
    close(descriptor);
}

/* Starts this program again, with a pipe to it and one from it. */
static pid_t start(const char *handle, int *to, int *from) {
    int in[2], out[2];
    if (pipe(in) || pipe(out))
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        execl("/proc/self/exe", "memory", "open", handle, NULL);
        _exit(2);
    }
    close(in[0]);
    close(out[1]);
    *to = in[1];
    *from = out[0];
    return child;
}

CHECK(other_processes_open_it) {
    CUdeviceptr address;
    CUipcMemHandle handle;
    char text[2 * sizeof handle + 1], line;
    int to, from, status;
    DO(cuMemAlloc_v2(&address, 16 * MIB));
    DO(cuIpcGetMemHandle(&handle, address));
    for (size_t i = 0; i < sizeof handle; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle.reserved[i]);
    pid_t child = start(text, &to, &from);
    EXPECT(read(from, &line, 1), 1);
    EXPECT(used() - before, 16 * MIB + 256 * MIB); /* and the child's context */
    DO(cuMemFree_v2(address));
    EXPECT(used() - before, 16 * MIB + 256 * MIB);
    EXPECT(write(to, "x", 1), 1);
    waitpid(child, &status, 0);
    EXPECT(status, 0);
    close(to);
    close(from);
    for (int i = 0; i < 2000 && used() != before; i++)
        usleep(10000); /* until the agent has seen the child's end */
}

static int open_handle(const char *text) {
    CUipcMemHandle handle;
    CUcontext context;
    CUdeviceptr address;
    unsigned byte;
    char line;
    for (size_t i = 0; i < sizeof handle; i++) {
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return 2;
        handle.reserved[i] = (char)byte;
    }
    DO(cuInit(0));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    DO(cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (write(1, "x", 1) != 1 || read(0, &line, 1) != 1)
        return 3;
    DO(cuIpcCloseMemHandle(address));
    return !good;
}

CHECK(arrays_cost_their_elements) {
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    DO(cuArray3DCreate_v2(&array, &d));
    EXPECT(used() - before, 4 * MIB);
    DO(cuArrayDestroy(array));
    EXPECT(cuArrayDestroy(array) != CUDA_SUCCESS, 1);
}

CHECK(a_context_takes_all_with_it) {
    CUcontext context, old;
    CUdeviceptr address;
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 512, .Height = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    DO(cuCtxCreate_v2(&context, 0, 0));
    size_t own = used() - before;
    for (int i = 0; i < 300; i++)
        DO(cuMemAlloc_v2(&address, 4096));
    DO(cuArray3DCreate_v2(&array, &d));
    EXPECT(used() - before - own, 300 * 4096 + 4 * MIB);
    DO(cuCtxDestroy_v2(context));
    DO(cuDevicePrimaryCtxRetain(&old, 0));
    DO(cuCtxSetCurrent(old));
    DO(cuDevicePrimaryCtxRelease_v2(0));
}

CHECK(graphs_cost_what_their_nodes_allocate) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr inside;
    uint64_t held = 0;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DO(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DO(cuMemAllocAsync(&inside, 48 * MIB, stream));
    DO(cuMemFreeAsync(inside, stream));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &held));
    EXPECT(held >= 48 * MIB, 1);
    EXPECT(used() - before, held);
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    DO(cuDeviceGraphMemTrim(0));
    DO(cuStreamDestroy_v2(stream));
}

/* Several threads, each mixing everything. */
static void *mix(void *data) {
    CUcontext context = *(CUcontext *)data;
    unsigned seed = (unsigned)(uintptr_t)&context;
    DO(cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr a = 0, b = 0;
        CUmemGenericAllocationHandle handle = 0;
        size_t bytes = ((size_t)rand_r(&seed) % 4096 + 1) * 512, pitch;
        bool async = rand_r(&seed) % 2, pitched = rand_r(&seed) % 2;
        DO(async ? cuMemAllocAsync(&a, bytes, NULL) : cuMemAlloc_v2(&a, bytes));
        DO(pitched ? cuMemAllocPitch_v2(&b, &pitch, bytes / 512, 512, 4) : cuMemAllocManaged(&b, bytes, CU_MEM_ATTACH_GLOBAL));
        DO(cuMemCreate(&handle, 2 * MIB, &on_device, 0));
        DO(rand_r(&seed) % 2 ? cuMemFree_v2(a) : cuMemFreeAsync(a, NULL));
        DO(cuMemRelease(handle));
        DO(cuMemFree_v2(b));
    }
    return NULL;
}

/* A child of a process that uses the driver cannot use it; it is told so, at once, whatever other threads held at the fork. */
CHECK(children_are_told_by_the_driver) {
    pthread_t threads[THREADS];
    CUcontext context;
    int status;
    (void)before;
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, mix, &context);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            CUdeviceptr address;
            size_t available, total;
            alarm(60);
            cuMemFree_v2(0x1000);
            cuCtxSynchronize();
            cuMemGetInfo_v2(&available, &total);
            cuDevicePrimaryCtxRetain(&context, 0);
            _exit((int)cuMemAlloc_v2(&address, MIB));
        }
        waitpid(child, &status, 0);
        EXPECT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, CUDA_ERROR_NOT_INITIALIZED);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    DO(cuCtxSynchronize());
    DO(cuDevicePrimaryCtxRelease_v2(0));
}

CHECK(threads_leave_nothing) {
    pthread_t threads[THREADS];
    CUcontext context;
    (void)before;
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, mix, &context);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    DO(cuCtxSynchronize());
    DO(cuDevicePrimaryCtxRelease_v2(0));
}

int main(int count, char **arguments) {
    CUcontext context;
    size_t total;
    if (count > 2)
        return open_handle(arguments[2]);
    DO(cuInit(0));
    DO(cuDevicePrimaryCtxRetain(&context, 0));
    DO(cuCtxSetCurrent(context));
    DO(cuDeviceTotalMem_v2(&total, 0));
    EXPECT(total, LIMIT);
    EXPECT(used(), 256 * MIB);
    exactly_the_limit();
    wrong_calls();
    any_free_finds_it();
    host_memory_is_free();
    a_pool_costs_its_reserve();
    a_pool_is_refused_at_the_limit();
    physical_memory_lives_by_its_mappings();
    what_is_imported_is_charged_once();
    other_processes_open_it();
    arrays_cost_their_elements();
    a_context_takes_all_with_it();
    graphs_cost_what_their_nodes_allocate();
    threads_leave_nothing();
    children_are_told_by_the_driver();
    DO(cuDevicePrimaryCtxRelease_v2(0));
    return !good;
}
