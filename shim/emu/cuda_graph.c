// Graphs as data: nodes, dependencies, clones.
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"

static struct shelf graph_shelf = SHELF(struct CUgraph_st, GRAPH);
static struct shelf node_shelf = SHELF(struct CUgraphNode_st, NODE);

CUresult graph_enter(CUgraph graph)
{
    struct thread *t;
    TRY(driver_enter(&t));
    return object_is(graph, GRAPH) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_enter(CUgraphNode node, int type)
{
    struct thread *t;
    TRY(driver_enter(&t));
    return object_is(node, NODE) && (type < 0 || (int)node->operation.type == type) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_new(CUgraph *graph)
{
    *graph = object_new(&graph_shelf);
    return *graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// own_block counts a graph among those that allocate a block, or no longer.
static void own_block(CUgraphNode node, int step)
{
    if (node->operation.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return;
    struct block *b = block_find(node->operation.pointer);
    if (b == NULL)
        return;
    b->owners += (unsigned)step;
    if (b->owners == 0 && !b->live)
        block_drop(b);
}

static void node_retire(CUgraphNode node)
{
    own_block(node, -1);
    if (node->operation.type == CU_GRAPH_NODE_TYPE_GRAPH && node->operation.child != NULL)
        graph_retire(node->operation.child);
    free(node->needs);
    object_retire(&node_shelf, node);
}

void graph_retire(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++)
        node_retire(graph->nodes[i]);
    free(graph->nodes);
    object_retire(&graph_shelf, graph);
}

CUresult graph_depend(CUgraphNode node, CUgraphNode on)
{
    for (size_t i = 0; i < node->needs_count; i++)
        if (node->needs[i] == on)
            return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode *more = realloc(node->needs, (node->needs_count + 1) * sizeof *more);
    if (more == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->needs = more;
    node->needs[node->needs_count++] = on;
    return CUDA_SUCCESS;
}

void graph_undepend(CUgraphNode node, CUgraphNode on)
{
    for (size_t i = 0; i < node->needs_count; i++)
        if (node->needs[i] == on)
            node->needs[i--] = node->needs[--node->needs_count];
}

CUresult graph_add(CUgraph graph, const CUgraphNode *needs, size_t count, const struct operation *operation, CUgraphNode *out)
{
    for (size_t i = 0; i < count; i++)
        NEED(object_is(needs[i], NODE) && needs[i]->graph == graph);
    if (graph->count == graph->room) {
        size_t room = graph->room == 0 ? 16 : graph->room * 2;
        CUgraphNode *more = realloc(graph->nodes, room * sizeof *more);
        if (more == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        graph->nodes = more;
        graph->room = room;
    }
    CUgraphNode n = object_new(&node_shelf);
    if (n == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    n->graph = graph;
    n->operation = *operation;
    for (size_t i = 0; i < count; i++) {
        CUresult result = graph_depend(n, needs[i]);
        if (result != CUDA_SUCCESS) {
            free(n->needs);
            object_retire(&node_shelf, n);
            return result;
        }
    }
    graph->nodes[graph->count++] = n;
    own_block(n, 1);
    *out = n;
    return CUDA_SUCCESS;
}

// clone_node copies a node whose dependencies' copies are at their marks.
static CUresult clone_node(CUgraph to, CUgraphNode from)
{
    CUgraphNode *needs = malloc((from->needs_count + 1) * sizeof *needs), n;
    if (needs == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < from->needs_count; i++)
        needs[i] = to->nodes[from->needs[i]->mark];
    struct operation operation = from->operation;
    CUresult result = CUDA_SUCCESS;
    if (operation.type == CU_GRAPH_NODE_TYPE_GRAPH)
        result = graph_clone(from->operation.child, &operation.child);
    if (result == CUDA_SUCCESS)
        result = graph_add(to, needs, from->needs_count, &operation, &n);
    if (result == CUDA_SUCCESS) {
        n->original = from;
        n->disabled = from->disabled;
    }
    free(needs);
    return result;
}

CUresult graph_clone(CUgraph from, CUgraph *to)
{
    TRY(graph_order(from));
    TRY(graph_new(to));
    (*to)->original = from;
    for (size_t i = 0; i < from->count; i++)
        from->nodes[i]->mark = (unsigned)i;
    for (size_t i = 0; i < from->count; i++) {
        CUresult result = clone_node(*to, from->nodes[i]);
        if (result != CUDA_SUCCESS) {
            graph_retire(*to);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static bool ready(CUgraphNode node)
{
    for (size_t i = 0; i < node->needs_count; i++)
        if (node->needs[i]->mark == 0)
            return false;
    return true;
}

CUresult graph_order(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = 0;
    for (size_t done = 0; done < graph->count; done++) {
        size_t at = done;
        while (at < graph->count && !ready(graph->nodes[at]))
            at++;
        if (at == graph->count)
            return CUDA_ERROR_INVALID_VALUE; // a cycle
        CUgraphNode next = graph->nodes[at];
        memmove(&graph->nodes[done + 1], &graph->nodes[done], (at - done) * sizeof next);
        graph->nodes[done] = next;
        next->mark = 1;
    }
    return CUDA_SUCCESS;
}

// ---- Calls

EMU_API CUresult cuGraphCreate(CUgraph *out, unsigned flags)
{
    struct thread *t;
    NEED(out != NULL && flags == 0);
    TRY(driver_enter(&t));
    driver_lock();
    CUresult result = graph_new(out);
    driver_unlock();
    return result;
}

EMU_API CUresult cuGraphDestroy(CUgraph graph)
{
    TRY(graph_enter(graph));
    driver_lock();
    graph_retire(graph);
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphClone(CUgraph *out, CUgraph graph)
{
    NEED(out != NULL);
    TRY(graph_enter(graph));
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->operation.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || graph->nodes[i]->operation.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return CUDA_ERROR_NOT_SUPPORTED;
    driver_lock();
    CUresult result = graph_clone(graph, out);
    driver_unlock();
    return result;
}

EMU_API CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode node, CUgraph clone)
{
    NEED(out != NULL);
    TRY(graph_enter(clone));
    for (size_t i = 0; i < clone->count; i++)
        if (clone->nodes[i]->original == node) {
            *out = clone->nodes[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

EMU_API CUresult cuGraphDestroyNode(CUgraphNode node)
{
    TRY(node_enter(node, -1));
    CUgraph g = node->graph;
    driver_lock();
    size_t left = 0;
    for (size_t i = 0; i < g->count; i++) {
        graph_undepend(g->nodes[i], node);
        if (g->nodes[i] != node)
            g->nodes[left++] = g->nodes[i];
    }
    g->count = left;
    node_retire(node);
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *out)
{
    NEED(out != NULL);
    TRY(node_enter(node, -1));
    *out = node->operation.type;
    return CUDA_SUCCESS;
}

// give copies as many of the nodes as fit, and says how many there are, or were copied. The rest of a longer array becomes NULL.
static CUresult give(const CUgraphNode *all, size_t n, CUgraphNode *out, size_t *count)
{
    NEED(count != NULL);
    if (out != NULL) {
        size_t copied = n < *count ? n : *count;
        for (size_t i = 0; i < *count; i++)
            out[i] = i < copied ? all[i] : NULL;
        n = copied;
    }
    *count = n;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *out, size_t *count)
{
    TRY(graph_enter(graph));
    return give(graph->nodes, graph->count, out, count);
}

EMU_API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *out, size_t *count)
{
    TRY(graph_enter(graph));
    CUgraphNode *roots = malloc((graph->count + 1) * sizeof *roots);
    size_t n = 0;
    if (roots == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->needs_count == 0)
            roots[n++] = graph->nodes[i];
    CUresult result = give(roots, n, out, count);
    free(roots);
    return result;
}

EMU_API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *out, size_t *count)
{
    TRY(node_enter(node, -1));
    return give(node->needs, node->needs_count, out, count);
}

EMU_API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    TRY(graph_enter(graph));
    CUresult result = CUDA_SUCCESS;
    driver_lock();
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        bool here = object_is(from[i], NODE) && object_is(to[i], NODE) && from[i]->graph == graph && to[i]->graph == graph;
        result = here && from[i] != to[i] ? graph_depend(to[i], from[i]) : CUDA_ERROR_INVALID_VALUE;
    }
    driver_unlock();
    return result;
}

EMU_API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    TRY(graph_enter(graph));
    driver_lock();
    for (size_t i = 0; i < count; i++)
        if (object_is(to[i], NODE) && to[i]->graph == graph)
            graph_undepend(to[i], from[i]);
    driver_unlock();
    return CUDA_SUCCESS;
}

// The forms with edges: an edge has no data here.

EMU_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *out, CUgraphEdgeData *edges, size_t *count)
{
    TRY(cuGraphNodeGetDependencies(node, out, count));
    if (edges != NULL)
        memset(edges, 0, *count * sizeof *edges);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges,
                                           size_t count)
{
    (void)edges;
    return cuGraphAddDependencies(graph, from, to, count);
}

EMU_API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges,
                                              size_t count)
{
    (void)edges;
    return cuGraphRemoveDependencies(graph, from, to, count);
}

EMU_API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    NEED(count != NULL && (from == NULL) == (to == NULL));
    TRY(graph_enter(graph));
    size_t n = 0;
    for (size_t i = 0; i < graph->count; i++)
        for (size_t k = 0; k < graph->nodes[i]->needs_count; k++, n++) {
            if (from == NULL || n >= *count)
                continue;
            from[n] = graph->nodes[i]->needs[k];
            to[n] = graph->nodes[i];
        }
    *count = from != NULL && n > *count ? *count : n;
    return CUDA_SUCCESS;
}
