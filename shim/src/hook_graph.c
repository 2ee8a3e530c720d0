/* Executable graphs: launched as one piece of work. Memory that their nodes allocate comes from the reserve that the driver
 * keeps for the graphs of a device, and is charged when a graph is launched or uploaded. */
#include <stdlib.h>

#include "claim.h"
#include "hook.h"
#include "pool.h"

#define DEEPEST 8 /* graphs within graphs; the driver's own limit on nesting is lower */

static size_t allocated_by(CUgraph graph, CUdevice *device, int depth);

static size_t allocated_by_node(CUgraphNode node, CUdevice *device, int depth) {
    CUgraphNodeType type;
    CUgraph child;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS)
        return 0;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS)
        return allocated_by(child, device, depth + 1);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        REAL(cuGraphMemAllocNodeGetParams)(node, &alloc) != CUDA_SUCCESS ||
        alloc.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return 0;
    *device = alloc.poolProps.location.id;
    return alloc.bytesize;
}

/* Bytes that the nodes of a graph allocate, and on which device. */
static size_t allocated_by(CUgraph graph, CUdevice *device, int depth) {
    size_t count = 0, bytes = 0;
    if (depth > DEEPEST || REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return 0;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (!nodes)
        return 0;
    if (REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            bytes += allocated_by_node(nodes[i], device, depth);
    free(nodes);
    return bytes;
}

/* Executable graphs that allocate: in the books, with the device in place of a GPU and no charge. */
static struct {
    _Atomic unsigned count;
} allocating;

static CUresult instantiated(CUresult result, CUgraphExec *exec, CUgraph graph) {
    CUdevice device = 0;
    size_t bytes = result == CUDA_SUCCESS && weft_session_terms() ? allocated_by(graph, &device, 0) : 0;
    struct weft_piece *piece = bytes ? weft_piece_new((unsigned)device, 0, bytes, NULL) : NULL;
    if (piece) {
        weft_books_put(WEFT_SPACE_GRAPH, (uintptr_t)*exec, piece);
        atomic_fetch_add_explicit(&allocating.count, 1, memory_order_release);
    }
    return result;
}

#define INSTANTIATE(name, parameters, arguments)                                                                       \
    HOOK(name, CUgraphExec *exec, CUgraph graph, WEFT_OPEN parameters) {                                               \
        return instantiated(REAL(name) arguments, exec, graph);                                                        \
    }

INSTANTIATE(cuGraphInstantiate, (CUgraphNode *node, char *log, size_t bytes), (exec, graph, node, log, bytes))
INSTANTIATE(cuGraphInstantiate_v2, (CUgraphNode *node, char *log, size_t bytes), (exec, graph, node, log, bytes))
INSTANTIATE(cuGraphInstantiateWithFlags, (unsigned long long flags), (exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams, (CUDA_GRAPH_INSTANTIATE_PARAMS *options), (exec, graph, options))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, (CUDA_GRAPH_INSTANTIATE_PARAMS *options), (exec, graph, options))

HOOK(cuGraphExecDestroy, CUgraphExec exec) {
    struct weft_piece *piece = weft_books_take(WEFT_SPACE_GRAPH, (uintptr_t)exec);
    if (piece) {
        atomic_fetch_sub_explicit(&allocating.count, 1, memory_order_release);
        weft_pools_touched();
    }
    return weft_freed(piece, REAL(cuGraphExecDestroy)(exec), WEFT_SPACE_GRAPH, (uintptr_t)exec);
}

/* Charges what a graph's own allocations may make the reserve grow by. */
static CUresult grow(struct weft_growth *growth, CUgraphExec exec) {
    *growth = (struct weft_growth){.pool = NULL};
    if (!atomic_load_explicit(&allocating.count, memory_order_acquire))
        return CUDA_SUCCESS;
    struct weft_piece *piece = weft_books_get(WEFT_SPACE_GRAPH, (uintptr_t)exec);
    if (!piece)
        return CUDA_SUCCESS;
    CUresult result = weft_graphs_begin(growth, (CUdevice)piece->gpu, piece->bytes);
    weft_piece_drop(piece);
    weft_pools_touched();
    return result;
}

typedef CUresult on_stream(CUgraphExec exec, CUstream stream);

/* What the reserve grew by beyond the limit cannot be taken back from a graph that runs: the next charge finds it. */
static CUresult upload(on_stream *call, CUgraphExec exec, CUstream stream) {
    struct weft_growth growth;
    CUresult result = grow(&growth, exec);
    if (result != CUDA_SUCCESS)
        return result;
    result = call(exec, stream);
    weft_pool_end(&growth);
    return result;
}

/* Charged before the gate: a wait for memory holds no token. */
static CUresult launch(on_stream *call, CUgraphExec exec, CUstream stream, CUstream meant) {
    if (weft_capturing(meant))
        return call(exec, stream);
    struct weft_growth growth;
    CUresult result = grow(&growth, exec);
    if (result != CUDA_SUCCESS)
        return result;
    weft_launch_begin(meant, WEFT_WORK_GRAPH, exec);
    result = call(exec, stream);
    weft_launch_end(meant, WEFT_WORK_GRAPH, exec, result == CUDA_SUCCESS);
    weft_pool_end(&growth);
    return result;
}

HOOK(cuGraphLaunch, CUgraphExec exec, CUstream stream) {
    return launch(REAL(cuGraphLaunch), exec, stream, stream);
}

HOOK(cuGraphLaunch_ptsz, CUgraphExec exec, CUstream stream) {
    return launch(REAL(cuGraphLaunch_ptsz), exec, stream, weft_own(stream));
}

HOOK(cuGraphUpload, CUgraphExec exec, CUstream stream) {
    return upload(REAL(cuGraphUpload), exec, stream);
}

HOOK(cuGraphUpload_ptsz, CUgraphExec exec, CUstream stream) {
    return upload(REAL(cuGraphUpload_ptsz), exec, stream);
}
