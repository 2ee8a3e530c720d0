// What the emulated driver keeps in a process, and what its files offer each other.
//
// Locks, in the order in which they may be taken: driver.lock, then a stream's. Neither is held while waiting for model time: the
// virtual clock stands still until every thread waits where the broker can see it.
//
// Handles that programs hold (contexts, streams, events, ...) point to objects that are recycled, never freed, and whose first word
// tells what they are; so a stale handle is told from a live one as the driver does, by an error.
#ifndef EMU_CUDA_STATE_H
#define EMU_CUDA_STATE_H

#include <pthread.h>

#include "emu_link.h"
#include "weft_cuda.h"

#define EMU_API __attribute__((visibility("default")))
#define EMU_CUDA_VERSION 13000
#define EMU_PRIMARY_API 3020u
#define MIB (1024ull * 1024)

#define TRY(expr)                       \
    do {                                \
        CUresult result_ = (expr);      \
        if (result_ != CUDA_SUCCESS)    \
            return result_;             \
    } while (0)
#define NEED(condition) TRY((condition) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)

// An export whose stream 0 is the calling thread's own. args passes OWN(stream) where the plain form takes stream.
#define OWN(stream) ((stream) == NULL ? CU_STREAM_PER_THREAD : (stream))
#define PTSZ(name, params, args) \
    EMU_API CUresult name##_ptsz params { return name args; }

enum magic { DEAD = 0, CONTEXT = 0x63747865, STREAM = 0x73747265, EVENT = 0x65766e74, GRAPH = 0x67726170, NODE = 0x6e6f6465,
             EXEC = 0x65786563, MODULE = 0x6d6f6475, FUNCTION = 0x66756e63, POOL = 0x706f6f6c, ARRAY = 0x61727261, MIPMAP = 0x6d69706d,
             EXTERNAL = 0x65787465 };

// ---- Objects

struct object {
    _Atomic uint32_t magic; // DEAD when it waits to be used again
    struct object *next;    // on the shelf
    struct object *older;
};
// A shelf holds the dead objects of one kind, oldest first, and knows of all that it ever made. Under driver.lock.
struct shelf {
    size_t size;
    enum magic magic;
    struct object *first, **last;
    unsigned count;
    struct object *newest;
};
#define SHELF(type, name) {sizeof(type), (name), NULL, NULL, 0, NULL}
void *object_new(struct shelf *shelf); // zeroed past the header, alive; NULL: out of host memory
void object_retire(struct shelf *shelf, void *object);
static inline bool object_is(const void *object, enum magic magic)
{
    return object != NULL && atomic_load_explicit(&((const struct object *)object)->magic, memory_order_acquire) == magic;
}

// ---- Process and threads

struct device {
    int gpu; // the broker's index; the position in driver.devices is the program's ordinal
    struct emu_device info;
    CUcontext primary; // one object for ever, alive while retained
    unsigned primary_flags;
    CUmemoryPool own_pool, pool; // the default pool, and the one that cuMemAllocAsync uses
    struct {
        uint64_t id, reserved, used, reserved_high, used_high; // memory of graphs
    } graphs;
};

enum driver_state { DRIVER_FRESH, DRIVER_READY, DRIVER_FORKED };

struct driver {
    pthread_mutex_t lock; // everything below that is not atomic, the blocks, captures and graphs
    _Atomic int state;
    struct emu_link link;
    struct emu_client client;
    _Atomic(const struct emu_audit_slot *) audit; // of this process, once the agent has made it
    struct device devices[EMU_MAX_GPUS];
    int count;
    pthread_key_t thread_key;
    uint64_t last_id; // of contexts, captures, buffers
};
extern struct driver driver;

#define CONTEXT_STACK 64
struct thread {
    struct emu_thread *slot; // NULL: all slots are in use
    CUcontext stack[CONTEXT_STACK];
    int depth;
    CUstreamCaptureMode mode;
    bool in_callback; // no driver call is allowed
    struct {
        CUstream stream;
        uint64_t id; // of the stream, lest another be taken for it
    } own[8]; // the thread's default streams, by context
};

// driver_enter is the first thing every call does: the driver is ready, and the thread known.
CUresult driver_enter(struct thread **thread);
CUresult driver_call(struct emu_request *request, struct emu_reply *reply, int *fd);
CUresult driver_device(CUdevice ordinal, struct device **device);
uint64_t driver_stamp(const struct device *device); // of an audited entry
struct device *driver_gpu(uint64_t gpu); // by the broker's index; NULL: not visible
void driver_lock(void);
void driver_unlock(void);

// A thread that is about to block in something that the broker cannot see gives its slot back, so that virtual time may pass.
void weftEmuBlock(void);
void weftEmuUnblock(void);
void weftEmuSleep(uint64_t ns);

// ---- Contexts

struct CUctx_st {
    struct object object;
    struct device *device;
    struct emu_context *shared;
    uint64_t id;
    unsigned flags, api, users; // users: retained (primary) or attached
    bool primary;
    CUstream streams[EMU_STREAMS]; // by ring; 0 is the NULL stream. Under driver.lock
    _Atomic uint32_t rings;        // above every ring ever used
    _Atomic uint64_t seen[EMU_STREAMS]; // the NULL stream waits for this entry of the ring already
    uint32_t events_free[EMU_EVENTS], events_count, events_used;
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig banks;
    bool peers[EMU_MAX_GPUS];
};

CUresult context_current(CUcontext *context);
CUresult context_check(CUcontext context);
CUresult context_wait(CUcontext context); // until all work submitted so far has ended
void thread_forget(struct thread *thread, CUcontext context);
void thread_release_streams(struct thread *thread);

// ---- Streams and events

struct host_worker;
struct capture;

struct CUstream_st {
    struct object object;
    CUcontext context;
    struct emu_ring *ring;
    uint32_t index; // of the ring
    unsigned flags;
    int priority;
    uint64_t id;
    pthread_mutex_t lock;            // one producer at a time
    uint64_t legacy_seen;            // waits for this entry of ring 0 already
    struct host_worker *worker;      // runs its host functions
    _Atomic(struct capture *) capture;
    CUgraphNode *ends;               // while capturing: what the next node depends on
    size_t ends_count;
};

struct CUevent_st {
    struct object object;
    CUcontext context;
    uint64_t context_id;             // a primary context comes back as another
    uint32_t index;
    unsigned flags;
    // One thread may record while another waits: it finds the last record or this one.
    _Atomic bool recorded;
    _Atomic uint64_t generation;     // of the last record
    _Atomic uint64_t place;          // of the last record: number of its entry << 16 | ring, which outlives its stream
    _Atomic uint64_t capture;        // id of the capture that it was recorded in; 0: in reality
    CUgraphNode *ends;
    size_t ends_count;
};

extern struct shelf stream_shelf, event_shelf;

// stream_enter finds the stream of a handle, with its context in order.
CUresult stream_enter(CUstream handle, CUstream *stream);
// stream_submit appends an entry, ordered against the NULL stream, and returns its number where number is not NULL.
CUresult stream_submit(CUstream stream, struct emu_entry entry, uint64_t *number);
CUresult stream_wait(CUcontext context, uint32_t ring, uint64_t number);
CUresult stream_drain(CUstream stream); // until all it has been given so far has ended
CUresult stream_host(CUstream stream, CUhostFn fn, CUstreamCallback callback, void *data);
CUresult stream_new(CUcontext context, unsigned flags, int priority, CUstream *stream);
void stream_bind(CUstream stream, CUcontext context, uint32_t ring); // makes an object the stream of a ring
void stream_retire(CUstream stream);
void host_worker_leave(CUstream stream); // it ends by itself when it has run what is queued
CUresult event_record(CUevent event, CUstream stream);
CUresult event_wait(CUstream stream, CUevent event);

// ---- Capture

#define CAPTURE_STREAMS 64
struct capture { // under driver.lock
    uint64_t id;
    CUstreamCaptureMode mode;
    pthread_t owner;
    CUstream streams[CAPTURE_STREAMS]; // the origin first, then those that joined it
    int streams_count;
    CUgraph graph;
    bool into; // the graph is the program's (cuStreamBeginCaptureToGraph)
    bool invalid;
    struct capture *next;
};

// capture_unsafe is called by what may not happen while a capture is under way: 900, and that capture is spoilt.
CUresult capture_unsafe(void);
// capture_refuse is called by what no capturing stream may do: 900 (or 901 when it is spoilt already), and the capture is spoilt.
CUresult capture_refuse(CUstream stream);
// capture_of tells the capture a stream's operation goes to; NULL: none. An error where a NULL stream meets a capture.
CUresult capture_of(CUstream stream, struct capture **capture);
// capture_add appends a node to a capturing stream. On success the stream depends on it.
struct operation;
CUresult capture_add(CUstream stream, struct capture *capture, const struct operation *operation, CUgraphNode *node);
CUresult capture_record(CUevent event, CUstream stream, struct capture *capture);
CUresult capture_wait(CUstream stream, CUevent event);
bool capture_event(CUevent event); // recorded in a capture that still goes on
void capture_drop_stream(CUstream stream);

// ---- Memory

enum block_kind { BLOCK_DEVICE, BLOCK_ASYNC, BLOCK_GRAPH, BLOCK_MANAGED, BLOCK_HOST, BLOCK_REGISTERED, BLOCK_IPC, BLOCK_EXTERNAL,
                  BLOCK_MAPPED };

#define BLOCK_HEAD 65536u // bytes of an allocation whose contents are kept

struct block { // a range of addresses with memory behind it
    CUdeviceptr base;
    size_t size;
    enum block_kind kind;
    uint64_t allocation; // the broker's id; 0: charged elsewhere
    CUcontext context;
    struct device *device; // NULL: host memory
    CUmemoryPool pool;
    unsigned flags;
    unsigned owners;        // graphs with a node that allocates it
    bool live;              // of a graph's block: it is allocated now
    uint64_t buffer;
    unsigned char *head;    // contents, allocated at the first write; host memory has its own
    bool host_visible;      // base is memory of the process
    struct physical *physical;
    size_t offset;
    CUmemAccess_flags access;
};

// All under driver.lock.
CUresult block_new(size_t size, size_t alignment, enum block_kind kind, struct block **block); // with addresses of its own
CUresult block_place(CUdeviceptr base, size_t size, enum block_kind kind, struct block **block);
struct block *block_find(CUdeviceptr address); // NULL: none holds it
void block_drop(struct block *block);
void block_drop_context(CUcontext context);
CUresult address_reserve(size_t size, size_t alignment, CUdeviceptr hint, bool low, CUdeviceptr *base);
void address_release(CUdeviceptr base, size_t size);

CUresult memory_charge(CUcontext context, int gpu, uint64_t bytes, enum emu_memory kind, uint64_t *id);
CUresult memory_release(uint64_t id);
uint64_t memory_round(uint64_t bytes); // what an allocation takes
CUresult memory_alloc(size_t bytes, enum emu_memory kind, bool low, struct block **block);
CUresult memory_free(CUdeviceptr address, CUstream stream); // of any family
// A broker's allocation is shared with other processes by a file that holds its handle. context NULL: held by the process.
CUresult memory_export(uint64_t id, int *fd);
CUresult memory_import(CUcontext context, int fd, struct emu_reply *reply); // a = id, b = bytes, c = gpu
void graph_block_free(struct block *block); // makes a live block of a graph free

// ---- Pools

struct CUmemPoolHandle_st {
    struct object object;
    struct device *device;
    CUmemPoolProps props;
    uint64_t id, reserved, used, reserved_high, used_high, threshold;
    int reuse[3];
    bool imported; // the reserve is another process's, which alone allocates from it
    CUmemoryPool next;
};
void pool_return(CUmemoryPool pool, uint64_t bytes);
void pool_trim_all(struct device *device);
CUresult pool_default(struct device *device, CUmemoryPool *pool);
void pool_reset(struct device *device);
CUmemoryPool pool_new(struct device *device, const CUmemPoolProps *props); // NULL: out of host memory
CUresult pool_found(CUmemoryPool pool); // the broker knows it, even before its first allocation

// ---- Operations: what a stream does, at once or as a node of a graph

struct span { // one side of a copy
    CUmemorytype type;
    CUdeviceptr address; // also of host memory
    CUarray array;
    size_t x, y, z, pitch, slice; // bytes, rows, planes
};
struct operation {
    CUgraphNodeType type;
    uint16_t kind;      // the entry's
    uint64_t cost;      // ns
    uint32_t function;
    CUcontext context;
    struct span to, from;
    size_t width, height, depth; // of a copy or memset; width in bytes
    uint32_t value, element;     // of a memset
    CUfunction kernel;
    CUDA_KERNEL_NODE_PARAMS launch;
    uint64_t parameter; // the kernel's first
    bool has_parameter;
    CUhostFn host;
    CUstreamCallback callback;
    void *data;
    CUevent event;
    CUgraph child;
    CUdeviceptr pointer;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
};
// operation_run puts an operation on a stream, or into its capture.
CUresult operation_run(CUstream stream, struct operation *operation);
CUresult operation_submit(CUstream stream, const struct operation *operation);
// operation_contents does to the contents of memory what a copy or memset does.
CUresult operation_contents(const struct operation *operation);
CUresult copy_check(struct operation *operation); // sides, sizes; fills kind and cost
CUresult kernel_operation(CUfunction f, const CUDA_KERNEL_NODE_PARAMS *params, struct operation *operation);
CUresult memset_operation(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context, struct operation *operation);
CUresult memcpy_operation(const CUDA_MEMCPY3D *params, CUcontext context, struct operation *operation);
uint64_t memory_time(const struct device *device, uint64_t bytes, bool copy_engine); // ns

struct CUarray_st {
    struct object object;
    CUcontext context;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    uint64_t allocation;
    size_t row, rows, bytes;
    unsigned char *head;
    CUmipmappedArray owner; // destroyed with it
};
unsigned char *block_contents(struct block *block, CUdeviceptr address, size_t bytes, size_t *kept);

// ---- Graphs

struct CUgraphNode_st {
    struct object object;
    CUgraph graph;
    CUgraphNode original; // in the graph that this one's was cloned from
    struct operation operation;
    CUgraphNode *needs;
    size_t needs_count;
    bool disabled;
    unsigned mark; // of a walk
};
struct CUgraph_st {
    struct object object;
    CUgraphNode *nodes;
    size_t count, room;
    CUgraph original;
    bool owned; // belongs to an exec or a child node
};
CUresult graph_new(CUgraph *graph);
void graph_retire(CUgraph graph);
CUresult graph_enter(CUgraph graph);
CUresult node_enter(CUgraphNode node, int type); // type: what it has to be; -1: any
CUresult graph_clone(CUgraph from, CUgraph *to);
CUresult graph_add(CUgraph graph, const CUgraphNode *needs, size_t count, const struct operation *operation, CUgraphNode *node);
CUresult graph_depend(CUgraphNode node, CUgraphNode on);
void graph_undepend(CUgraphNode node, CUgraphNode on);
CUresult graph_order(CUgraph graph); // sorts its nodes by their dependencies

// ---- Modules

struct CUfunc_st {
    struct object object;
    CUmodule module;
    uint64_t context_id; // of the module's context; 0: of a library's, which any may launch
    char name[128];
    enum { COST_FIXED, COST_PARAMETER, COST_GRID } cost;
    uint64_t ns;
    uint32_t id;
    int attributes[CU_FUNC_ATTRIBUTE_MAX];
    int block[3];      // of the launch calls before CUDA 4
    unsigned shared;
    unsigned char parameters[64];
};

#endif
