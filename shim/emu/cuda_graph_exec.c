// Instantiated graphs: launching, updating. A launch is one entry of its stream, costing the sum of its nodes; a function of the host
// or an event in between splits it.
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"

struct CUgraphExec_st {
    struct object object;
    CUgraph graph; // its own clone, in order
    uint64_t flags;
};

static struct shelf exec_shelf = SHELF(struct CUgraphExec_st, EXEC);

static CUresult exec_enter(CUgraphExec exec)
{
    struct thread *t;
    TRY(driver_enter(&t));
    return object_is(exec, EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- Instantiation

static CUresult instantiate(CUgraphExec *out, CUgraph graph, uint64_t flags)
{
    NEED(out != NULL && flags < 16);
    TRY(graph_enter(graph));
    driver_lock();
    CUgraph clone;
    CUresult result = graph_clone(graph, &clone);
    CUgraphExec e = result == CUDA_SUCCESS ? object_new(&exec_shelf) : NULL;
    if (e != NULL) {
        e->graph = clone;
        e->flags = flags;
        *out = e;
    } else if (result == CUDA_SUCCESS) {
        graph_retire(clone);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    return instantiate(out, graph, flags);
}

// The two older forms share their binary interface.
EMU_API CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t log_size)
{
    if (error != NULL)
        *error = NULL;
    if (log != NULL && log_size > 0)
        log[0] = 0;
    return instantiate(out, graph, 0);
}

EMU_API CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t log_size)
{
    return cuGraphInstantiate_v2(out, graph, error, log, log_size);
}

EMU_API CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    NEED(params != NULL);
    params->hErrNode_out = NULL;
    CUresult result = instantiate(out, graph, params->flags);
    params->result_out = result != CUDA_SUCCESS;
    return result;
}
PTSZ(cuGraphInstantiateWithParams, (CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (out, graph, params))

EMU_API CUresult cuGraphExecGetFlags(CUgraphExec exec, uint64_t *out)
{
    NEED(out != NULL);
    TRY(exec_enter(exec));
    *out = exec->flags;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    TRY(exec_enter(exec));
    driver_lock();
    graph_retire(exec->graph);
    object_retire(&exec_shelf, exec);
    driver_unlock();
    return CUDA_SUCCESS;
}

// ---- Memory of graphs: what their nodes allocate comes from a reserve of the device, which grows at a launch and is trimmed on demand

static void used_add(struct device *d, uint64_t bytes)
{
    d->graphs.used += bytes;
    if (d->graphs.used > d->graphs.used_high)
        d->graphs.used_high = d->graphs.used;
}

void graph_block_free(struct block *b)
{
    b->live = false;
    b->device->graphs.used -= memory_round(b->size);
    if (b->owners == 0)
        block_drop(b);
}

static CUresult reserve_resize(struct device *d, uint64_t bytes)
{
    struct emu_request request = {.op = EMU_MEM_RESIZE, .a = d->graphs.id, .b = bytes};
    struct emu_reply reply;
    if (d->graphs.id == 0)
        TRY(memory_charge(NULL, d->gpu, bytes, EMU_MEM_POOL, &d->graphs.id));
    else
        TRY(driver_call(&request, &reply, NULL));
    d->graphs.reserved = bytes;
    if (bytes > d->graphs.reserved_high)
        d->graphs.reserved_high = bytes;
    return CUDA_SUCCESS;
}

// graph_peak adds to each device's now what the nodes take, and to its peak; what they leave taken stays in now.
static void graph_peak(CUgraph g, int64_t *now, int64_t *peak)
{
    for (size_t i = 0; i < g->count; i++) {
        const struct operation *op = &g->nodes[i]->operation;
        struct block *b = op->pointer != 0 ? block_find(op->pointer) : NULL;
        if (op->type == CU_GRAPH_NODE_TYPE_GRAPH)
            graph_peak(op->child, now, peak);
        if (b == NULL || b->kind != BLOCK_GRAPH)
            continue;
        int64_t *n = &now[b->device - driver.devices], *p = &peak[b->device - driver.devices];
        *n += op->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? (int64_t)memory_round(b->size) : -(int64_t)memory_round(b->size);
        *p = *n > *p ? *n : *p;
    }
}

static CUresult allocated_still(CUgraphExec e)
{
    for (size_t i = 0; i < e->graph->count; i++) {
        const struct operation *op = &e->graph->nodes[i]->operation;
        struct block *b = op->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? block_find(op->pointer) : NULL;
        if (b == NULL || !b->live)
            continue;
        if ((e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0)
            return CUDA_ERROR_INVALID_VALUE;
        graph_block_free(b);
    }
    return CUDA_SUCCESS;
}

static CUresult reserve_for(CUgraphExec e)
{
    int64_t now[EMU_MAX_GPUS] = {0}, peak[EMU_MAX_GPUS] = {0};
    graph_peak(e->graph, now, peak);
    for (int i = 0; i < driver.count; i++) {
        struct device *d = &driver.devices[i];
        uint64_t need = d->graphs.used + (uint64_t)peak[i];
        if (peak[i] > 0 && need > d->graphs.reserved)
            TRY(reserve_resize(d, need));
    }
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    struct device *d;
    TRY(driver_device(dev, &d));
    driver_lock();
    CUresult result = d->graphs.reserved > d->graphs.used ? reserve_resize(d, d->graphs.used) : CUDA_SUCCESS;
    driver_unlock();
    return result;
}

static uint64_t *graph_figure(struct device *d, CUgraphMem_attribute attribute)
{
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT: return &d->graphs.used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH: return &d->graphs.used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT: return &d->graphs.reserved;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH: return &d->graphs.reserved_high;
    default: return NULL;
    }
}

EMU_API CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    struct device *d;
    TRY(driver_device(dev, &d));
    uint64_t *figure = graph_figure(d, attribute);
    NEED(figure != NULL && value != NULL);
    driver_lock();
    *(uint64_t *)value = *figure;
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    struct device *d;
    TRY(driver_device(dev, &d));
    NEED(value != NULL && *(uint64_t *)value == 0);
    NEED(attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
    driver_lock();
    *graph_figure(d, attribute) = *graph_figure(d, (CUgraphMem_attribute)(attribute - 1));
    driver_unlock();
    return CUDA_SUCCESS;
}

// ---- Launch

struct segment {
    CUstream stream;
    uint64_t cost;
    bool any;
};

static CUresult flush(struct segment *s)
{
    if (!s->any)
        return CUDA_SUCCESS;
    struct emu_entry entry = {.kind = EMU_GRAPH, .cost = s->cost, .epoch = driver_stamp(s->stream->context->device)};
    s->cost = 0;
    s->any = false;
    return stream_submit(s->stream, entry, NULL);
}

static void set_live(CUdeviceptr pointer, bool live)
{
    driver_lock();
    struct block *b = block_find(pointer);
    if (b != NULL && b->kind == BLOCK_GRAPH && b->live != live) {
        if (live) {
            b->live = true;
            used_add(b->device, memory_round(b->size));
        } else {
            graph_block_free(b);
        }
    }
    driver_unlock();
}

static CUresult run(CUgraph graph, struct segment *s)
{
    for (size_t i = 0; i < graph->count; i++) {
        const struct operation *op = &graph->nodes[i]->operation;
        if (graph->nodes[i]->disabled)
            continue;
        switch (op->type) {
        case CU_GRAPH_NODE_TYPE_HOST:
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            TRY(flush(s));
            TRY(operation_submit(s->stream, op));
            break;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            TRY(run(op->child, s));
            break;
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            set_live(op->pointer, op->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
            break;
        default:
            if (op->type == CU_GRAPH_NODE_TYPE_MEMCPY || op->type == CU_GRAPH_NODE_TYPE_MEMSET)
                operation_contents(op);
            s->cost += op->cost;
            s->any = true;
        }
    }
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    CUstream s;
    struct capture *capture;
    TRY(exec_enter(exec));
    TRY(stream_enter(stream, &s));
    TRY(capture_of(s, &capture));
    if (capture != NULL) { // becomes a child graph of what is captured
        struct operation op = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
        driver_lock();
        CUresult result = graph_clone(exec->graph, &op.child);
        driver_unlock();
        TRY(result);
        return capture_add(s, capture, &op, NULL);
    }
    driver_lock();
    CUresult result = allocated_still(exec);
    if (result == CUDA_SUCCESS)
        result = reserve_for(exec);
    driver_unlock();
    TRY(result);
    struct segment segment = {.stream = s};
    TRY(run(exec->graph, &segment));
    return flush(&segment);
}
PTSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, OWN(stream)))

EMU_API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    CUstream s;
    TRY(exec_enter(exec));
    TRY(stream_enter(stream, &s));
    driver_lock();
    CUresult result = reserve_for(exec);
    driver_unlock();
    return result;
}
PTSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), (exec, OWN(stream)))

// ---- Update

static CUgraphNode counterpart(CUgraphExec exec, CUgraphNode node)
{
    for (size_t i = 0; i < exec->graph->count; i++)
        if (exec->graph->nodes[i]->original == node)
            return exec->graph->nodes[i];
    return NULL;
}

static CUresult exec_node(CUgraphExec exec, CUgraphNode node, int type, CUgraphNode *mine)
{
    TRY(exec_enter(exec));
    TRY(node_enter(node, type));
    *mine = counterpart(exec, node);
    return *mine != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraphNode mine;
    struct operation op;
    NEED(params != NULL);
    TRY(exec_node(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, &mine));
    TRY(kernel_operation(params->func != NULL ? params->func : (CUfunction)params->kern, params, &op));
    mine->operation = op;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};
    NEED(params != NULL);
    memcpy(&wide, params, sizeof *params);
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &wide);
}

EMU_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context)
{
    CUgraphNode mine;
    struct operation op;
    TRY(exec_node(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, &mine));
    TRY(memcpy_operation(params, context, &op));
    mine->operation = op;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,
                                                CUcontext context)
{
    CUgraphNode mine;
    struct operation op;
    TRY(exec_node(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, &mine));
    TRY(memset_operation(params, context, &op));
    mine->operation = op;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    CUgraphNode mine;
    NEED(params != NULL && params->fn != NULL);
    TRY(exec_node(exec, node, CU_GRAPH_NODE_TYPE_HOST, &mine));
    mine->operation.host = params->fn;
    mine->operation.data = params->userData;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled)
{
    CUgraphNode mine;
    TRY(exec_node(exec, node, -1, &mine));
    NEED(mine->operation.type <= CU_GRAPH_NODE_TYPE_MEMSET);
    mine->disabled = enabled == 0;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *out)
{
    CUgraphNode mine;
    NEED(out != NULL);
    TRY(exec_node(exec, node, -1, &mine));
    *out = !mine->disabled;
    return CUDA_SUCCESS;
}

static CUgraphExecUpdateResult compare(CUgraph mine, CUgraph graph, CUgraphNode *culprit)
{
    if (mine->count != graph->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < graph->count; i++) {
        *culprit = graph->nodes[i];
        if (mine->nodes[i]->operation.type != graph->nodes[i]->operation.type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (mine->nodes[i]->needs_count != graph->nodes[i]->needs_count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (mine->nodes[i]->operation.type >= CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    }
    *culprit = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

EMU_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    NEED(info != NULL);
    TRY(exec_enter(exec));
    TRY(graph_enter(graph));
    *info = (CUgraphExecUpdateResultInfo){0};
    CUgraph clone;
    driver_lock();
    CUresult result = graph_order(graph);
    if (result == CUDA_SUCCESS)
        info->result = compare(exec->graph, graph, &info->errorNode);
    if (result == CUDA_SUCCESS && info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (result == CUDA_SUCCESS)
        result = graph_clone(graph, &clone);
    if (result == CUDA_SUCCESS) {
        for (size_t i = 0; i < clone->count; i++) // still updated by the nodes of the graph it was made from
            clone->nodes[i]->original = exec->graph->nodes[i]->original;
        graph_retire(exec->graph);
        exec->graph = clone;
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *out)
{
    CUgraphExecUpdateResultInfo info = {0};
    NEED(out != NULL);
    CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    *out = info.result;
    if (error != NULL)
        *error = info.errorNode;
    return result;
}
