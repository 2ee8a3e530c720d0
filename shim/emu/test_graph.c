// Graphs: building, launching, updating, and the memory that their nodes allocate.
#include "test.h"

static CUDA_KERNEL_NODE_PARAMS spin_params(uint64_t *ns, void **slot)
{
    *slot = ns;
    return (CUDA_KERNEL_NODE_PARAMS){.func = test_function("given"), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                                     .blockDimY = 1, .blockDimZ = 1, .kernelParams = slot};
}

static float launch_ms(CUgraphExec exec, CUstream s)
{
    CUevent e[2];
    float ms;
    for (int i = 0; i < 2; i++)
        OK(cuEventCreate(&e[i], 0));
    OK(test_spin(s, 10000000)); // the graph is there when its turn comes
    OK(cuEventRecord(e[0], s));
    OK(cuGraphLaunch(exec, s));
    OK(cuEventRecord(e[1], s));
    OK(cuEventSynchronize(e[1]));
    OK(cuEventElapsedTime(&ms, e[0], e[1]));
    for (int i = 0; i < 2; i++)
        OK(cuEventDestroy_v2(e[i]));
    return ms;
}

static void built(CUstream s)
{
    CUgraph g, other;
    CUgraphNode a, b;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    uint64_t ns = 1000000;
    void *slot;
    CUDA_KERNEL_NODE_PARAMS p = spin_params(&ns, &slot);
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddKernelNode_v2(&a, g, NULL, 0, &p));
    ns = 2000000; // parameters are read when the node is added
    OK(cuGraphAddKernelNode_v2(&b, g, &a, 1, &p));
    EXPECT(cuGraphAddDependencies(g, &a, &b, 1), CUDA_ERROR_INVALID_VALUE); // is there
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    float ms = launch_ms(exec, s);
    HOLDS(ms > 2.9f && ms < 3.2f);
    ns = 5000000;
    OK(cuGraphExecKernelNodeSetParams_v2(exec, b, &p));
    HOLDS(launch_ms(exec, s) > 5.9f);
    OK(cuGraphExecUpdate_v2(exec, g, &info)); // back to what the graph says
    HOLDS(launch_ms(exec, s) < 3.2f);
    OK(cuGraphExecKernelNodeSetParams_v2(exec, b, &p)); // nodes still name their counterparts
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddKernelNode_v2(&a, other, NULL, 0, &p));
    EXPECT(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT(cuGraphAddKernelNode_v2(&a, other, &b, 1, &p), CUDA_ERROR_INVALID_VALUE); // of another graph
    OK(cuGraphDestroy(g));
    OK(cuGraphDestroy(other));
    HOLDS(launch_ms(exec, s) > 5.9f); // outlives its graph
    OK(cuGraphExecDestroy(exec));
    EXPECT(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
}

static void cycle(void)
{
    CUgraph g;
    CUgraphNode a, b;
    CUgraphExec exec;
    uint64_t ns = 1;
    void *slot;
    CUDA_KERNEL_NODE_PARAMS p = spin_params(&ns, &slot);
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddKernelNode_v2(&a, g, NULL, 0, &p));
    OK(cuGraphAddKernelNode_v2(&b, g, &a, 1, &p));
    OK(cuGraphAddDependencies(g, &b, &a, 1));
    EXPECT(cuGraphInstantiateWithFlags(&exec, g, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(g));
}

static int ran;

static void count(void *data)
{
    ran += *(int *)data;
}

static void captured(CUstream s)
{
    CUgraph g;
    CUgraphExec exec;
    CUdeviceptr p;
    int step = 1;
    unsigned words[4] = {0};
    OK(cuMemAlloc_v2(&p, 16));
    OK(cuMemsetD32_v2(p, 1, 4));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(test_spin(s, 1000000));
    OK(cuMemsetD32Async(p, 7, 4, s));
    OK(cuLaunchHostFunc(s, count, &step));
    OK(test_spin(s, 1000000));
    OK(cuStreamEndCapture(s, &g));
    EXPECT(ran, 0);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuMemcpyDtoH_v2(words, p, 16));
    EXPECT(words[0], 1);
    for (int i = 0; i < 3; i++)
        HOLDS(launch_ms(exec, s) > 1.9f);
    EXPECT(ran, 3);
    OK(cuMemcpyDtoH_v2(words, p, 16));
    EXPECT(words[3], 7);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
    OK(cuMemFree_v2(p));
}

static uint64_t graph_memory(CUgraphMem_attribute attribute)
{
    uint64_t value;
    OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.bytesize = bytes};
    p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return p;
}

// Memory of nodes is charged at the launch, stays reserved after it, and is given back on demand.
static void memory(CUstream s)
{
    CUgraph g, copy;
    CUgraphNode a, f;
    CUgraphExec exec;
    size_t free = test_free();
    CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params(64 * MIB);
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
    HOLDS(p.dptr != 0);
    EXPECT(cuMemFree_v2(p.dptr), CUDA_ERROR_INVALID_VALUE); // not allocated yet
    OK(cuGraphAddMemFreeNode(&f, g, &a, 1, p.dptr));
    EXPECT(cuGraphClone(&copy, g), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    EXPECT(test_free(), free);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    EXPECT(free - test_free(), 64 * MIB);
    EXPECT(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    EXPECT(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
    OK(cuGraphLaunch(exec, s)); // from the reserve
    EXPECT(free - test_free(), 64 * MIB);
    OK(cuDeviceGraphMemTrim(0));
    EXPECT(test_free(), free);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
}

static void memory_kept(CUstream s)
{
    CUgraph g;
    CUgraphNode a;
    CUgraphExec exec, freeing;
    size_t free = test_free();
    CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params(32 * MIB);
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    OK(cuGraphInstantiateWithFlags(&freeing, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    OK(cuGraphLaunch(exec, s));
    EXPECT(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 32 * MIB);
    EXPECT(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE); // is allocated still
    OK(cuGraphLaunch(freeing, s));
    OK(cuMemsetD8_v2(p.dptr, 1, 32 * MIB));
    OK(cuMemFree_v2(p.dptr));
    EXPECT(cuMemFree_v2(p.dptr), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(freeing));
    OK(cuGraphDestroy(g));
    OK(cuMemsetD8_v2(p.dptr, 1, 32 * MIB)); // outlives all graphs
    OK(cuMemFreeAsync(p.dptr, s));
    EXPECT(cuMemFreeAsync(p.dptr, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceGraphMemTrim(0));
    EXPECT(test_free(), free);
}

static void too_much(CUstream s)
{
    CUgraph g;
    CUgraphNode a;
    CUgraphExec exec;
    size_t free = test_free();
    CUDA_MEM_ALLOC_NODE_PARAMS p = alloc_params(free + 2 * MIB);
    OK(cuGraphCreate(&g, 0));
    OK(cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
    OK(cuGraphInstantiateWithFlags(&exec, g, 0));
    EXPECT(cuGraphLaunch(exec, s), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(test_free(), free);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(g));
}

int main(void)
{
    CUstream s;
    test_context();
    test_function("given");
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    built(s);
    cycle();
    captured(s);
    memory(s);
    memory_kept(s);
    too_much(s);
    test_done("graph");
}
