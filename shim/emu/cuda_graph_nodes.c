// The nodes of graphs: adding them, reading and changing their parameters.
#include <string.h>

#include "cuda_state.h"

static CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count, const struct operation *operation)
{
    NEED(out != NULL && (count == 0 || needs != NULL));
    TRY(graph_enter(graph));
    driver_lock();
    CUresult result = graph_add(graph, needs, count, operation, out);
    driver_unlock();
    return result;
}

#define ADD_PARAMS CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t count

// ---- Kernels

static CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1 *old)
{
    CUDA_KERNEL_NODE_PARAMS p = {0};
    memcpy(&p, old, sizeof *old);
    return p;
}

EMU_API CUresult cuGraphAddKernelNode_v2(ADD_PARAMS, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct operation op;
    NEED(params != NULL);
    TRY(kernel_operation(params->func != NULL ? params->func : (CUfunction)params->kern, params, &op));
    return add(out, graph, needs, count, &op);
}

EMU_API CUresult cuGraphAddKernelNode(ADD_PARAMS, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    NEED(params != NULL);
    CUDA_KERNEL_NODE_PARAMS p = widen(params);
    return cuGraphAddKernelNode_v2(out, graph, needs, count, &p);
}

EMU_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    static __thread void *parameter[1];
    NEED(params != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_KERNEL));
    *params = node->operation.launch;
    params->func = node->operation.kernel;
    parameter[0] = &node->operation.parameter;
    params->kernelParams = node->operation.has_parameter ? parameter : NULL;
    params->extra = NULL;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS p;
    NEED(params != NULL);
    TRY(cuGraphKernelNodeGetParams_v2(node, &p));
    memcpy(params, &p, sizeof *params);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct operation op;
    NEED(params != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_KERNEL));
    TRY(kernel_operation(params->func != NULL ? params->func : (CUfunction)params->kern, params, &op));
    node->operation = op;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    NEED(params != NULL);
    CUDA_KERNEL_NODE_PARAMS p = widen(params);
    return cuGraphKernelNodeSetParams_v2(node, &p);
}

// ---- Copies and memsets

EMU_API CUresult cuGraphAddMemcpyNode(ADD_PARAMS, const CUDA_MEMCPY3D *params, CUcontext context)
{
    struct operation op;
    TRY(memcpy_operation(params, context, &op));
    return add(out, graph, needs, count, &op);
}

EMU_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    struct operation op;
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_MEMCPY));
    TRY(memcpy_operation(params, node->operation.context, &op));
    node->operation = op;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphAddMemsetNode(ADD_PARAMS, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    struct operation op;
    TRY(memset_operation(params, context, &op));
    return add(out, graph, needs, count, &op);
}

EMU_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
    NEED(params != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_MEMSET));
    const struct operation *op = &node->operation;
    *params = (CUDA_MEMSET_NODE_PARAMS){.dst = op->to.address, .pitch = op->to.pitch, .value = op->value, .elementSize = op->element,
                                        .width = op->width / op->element, .height = op->height};
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
    struct operation op;
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_MEMSET));
    TRY(memset_operation(params, node->operation.context, &op));
    node->operation = op;
    return CUDA_SUCCESS;
}

// ---- Host functions, events, child graphs, nothing

EMU_API CUresult cuGraphAddHostNode(ADD_PARAMS, const CUDA_HOST_NODE_PARAMS *params)
{
    NEED(params != NULL && params->fn != NULL);
    return add(out, graph, needs, count,
               &(struct operation){.type = CU_GRAPH_NODE_TYPE_HOST, .host = params->fn, .data = params->userData});
}

EMU_API CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
    NEED(params != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_HOST));
    *params = (CUDA_HOST_NODE_PARAMS){node->operation.host, node->operation.data};
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    NEED(params != NULL && params->fn != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_HOST));
    node->operation.host = params->fn;
    node->operation.data = params->userData;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphAddEmptyNode(ADD_PARAMS)
{
    return add(out, graph, needs, count, &(struct operation){.type = CU_GRAPH_NODE_TYPE_EMPTY});
}

EMU_API CUresult cuGraphAddEventRecordNode(ADD_PARAMS, CUevent event)
{
    NEED(object_is(event, EVENT));
    return add(out, graph, needs, count, &(struct operation){.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event});
}

EMU_API CUresult cuGraphAddEventWaitNode(ADD_PARAMS, CUevent event)
{
    NEED(object_is(event, EVENT));
    return add(out, graph, needs, count, &(struct operation){.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event});
}

EMU_API CUresult cuGraphAddChildGraphNode(ADD_PARAMS, CUgraph child)
{
    struct operation op = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    TRY(graph_enter(child));
    driver_lock();
    CUresult result = graph_clone(child, &op.child);
    driver_unlock();
    TRY(result);
    result = add(out, graph, needs, count, &op);
    if (result != CUDA_SUCCESS) {
        driver_lock();
        graph_retire(op.child);
        driver_unlock();
    }
    return result;
}

EMU_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *out)
{
    NEED(out != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_GRAPH));
    *out = node->operation.child;
    return CUDA_SUCCESS;
}

// ---- Memory

EMU_API CUresult cuGraphAddMemAllocNode(ADD_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    struct block *b;
    NEED(out != NULL && params != NULL && params->bytesize > 0 && params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
    NEED(params->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && params->poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE);
    NEED(params->poolProps.location.id >= 0 && params->poolProps.location.id < driver.count);
    TRY(graph_enter(graph));
    driver_lock();
    CUresult result = block_new(params->bytesize, 0, BLOCK_GRAPH, &b);
    if (result == CUDA_SUCCESS) {
        b->device = &driver.devices[params->poolProps.location.id];
        struct operation op = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .pointer = b->base, .alloc = *params};
        params->dptr = op.alloc.dptr = b->base;
        op.alloc.accessDescs = NULL;
        op.alloc.accessDescCount = 0;
        result = graph_add(graph, needs, count, &op, out);
        if (result != CUDA_SUCCESS)
            block_drop(b);
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    NEED(params != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC));
    *params = node->operation.alloc;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphAddMemFreeNode(ADD_PARAMS, CUdeviceptr address)
{
    driver_lock();
    struct block *b = block_find(address);
    bool known = b != NULL && b->kind == BLOCK_GRAPH && b->base == address;
    driver_unlock();
    NEED(known);
    return add(out, graph, needs, count, &(struct operation){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .pointer = address});
}

EMU_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *out)
{
    NEED(out != NULL);
    TRY(node_enter(node, CU_GRAPH_NODE_TYPE_MEM_FREE));
    *out = node->operation.pointer;
    return CUDA_SUCCESS;
}

// ---- Any kind

EMU_API CUresult cuGraphAddNode(ADD_PARAMS, CUgraphNodeParams *params)
{
    NEED(params != NULL);
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return cuGraphAddKernelNode_v2(out, graph, needs, count, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(out, graph, needs, count, &params->memcpy.copyParams, params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return cuGraphAddMemsetNode(out, graph, needs, count, &params->memset.set, params->memset.ctx);
    case CU_GRAPH_NODE_TYPE_HOST:
        return cuGraphAddHostNode(out, graph, needs, count, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphAddChildGraphNode(out, graph, needs, count, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(out, graph, needs, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(out, graph, needs, count, params->event.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(out, graph, needs, count, params->event.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return cuGraphAddMemAllocNode(out, graph, needs, count, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return cuGraphAddMemFreeNode(out, graph, needs, count, params->free.dptr);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

EMU_API CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges, size_t count,
                                   CUgraphNodeParams *params)
{
    (void)edges;
    return cuGraphAddNode(out, graph, needs, count, params);
}
