/* Contract between the emulated driver (libcuda.so.1, libnvidia-ml.so.1 in this folder) and the broker of the
 * emulated GPUs (weft emugpu, Go package internal/emugpu).
 *
 * Slow calls are requests over a unix socket of packets (SOCK_SEQPACKET, path in WEFT_EMU_SOCKET): one fixed-size
 * emu_request, one fixed-size emu_reply, one at a time per connection. Launches, copies, events and waits go through
 * shared memory and touch no socket.
 *
 * A driver is attached (EMU_HELLO with EMU_ROLE_DRIVER) and receives four descriptors, in this order:
 *   1. the clock page, read only                 struct emu_clock
 *   2. the audit table, read only                struct emu_audit
 *   3. its own process page                      struct emu_process
 *   4. its doorbell, an eventfd                  emu_ring_bell()
 * EMU_CONTEXT_CREATE returns one more, the context's own memory: struct emu_context, a ring per stream.
 * A child of fork attaches anew: nothing of its parent's connection or pages is its own.
 *
 * Time is model time: nanoseconds since the broker started (emu_now). In real mode it follows CLOCK_MONOTONIC, times
 * the scale; in virtual mode it stands still until every thread with a thread slot waits or sleeps, and rings are read
 * only then: a thread that submits has to have a slot.
 *
 * Submission (emu_push): a stream's ring has one producer at a time. The driver holds a lock of its own per stream,
 * in private memory, from before it reads emu_now() until emu_push returned; thus submit times rise along a ring, and
 * several threads may use one stream. An entry's number is its position counted from 1; entry n has ended when
 * done >= n. At most EMU_RING_ENTRIES are outstanding: when emu_room is 0 the driver waits (emu_wait) for a quarter of
 * the ring; a real driver blocks at about the same depth. The broker is not told of a launch. It reads all rings in
 * order of submit times whenever somebody waits, so only waiting, polling and every half ring ring the bell.
 *
 * Needs _GNU_SOURCE, C11 and Linux 5.11.
 *
 * Whatever a client writes into its own memory can only harm itself. */
#ifndef WEFT_EMU_WIRE_H
#define WEFT_EMU_WIRE_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EMU_PROTOCOL 1u          /* refused unless equal */
#define EMU_MAGIC 0x554d4577u    /* "wEMU": first word of every shared page and request */
#define EMU_MAX_GPUS 16u
#define EMU_STREAMS 256u         /* rings per context; ring 0 is made with the context, for the NULL stream */
#define EMU_RING_ENTRIES 1024u   /* power of two */
#define EMU_EVENTS 32768u        /* event records per context, handed out by the driver itself */
#define EMU_THREADS 1024u        /* thread slots per process */
#define EMU_AUDIT_SLOTS 4096u    /* power of two */
#define EMU_AUDIT_PROBES 64u     /* a pid's slot is among this many after its hash */
#define EMU_MAX_COST 86400000000000ull /* ns; a longer entry counts as a day */
#define EMU_POLL_NS 1000ull      /* virtual mode: a query that finds work unfinished sleeps this long (emu_poll) */
#define EMU_NEVER UINT64_MAX

/* ---- clock page ------------------------------------------------------------------------------------------------ */

enum { EMU_CLOCK_REAL = 0, EMU_CLOCK_VIRTUAL = 1 };

struct emu_clock {
    uint32_t magic, protocol;
    uint32_t mode;                      /* EMU_CLOCK_* */
    uint32_t gpus;
    uint64_t base;                      /* CLOCK_MONOTONIC at model time 0, ns */
    uint64_t scale_num, scale_den;      /* model time = (monotonic - base) * num / den */
    uint8_t pad0[24];
    _Atomic uint64_t now;               /* virtual mode: model time */
    uint8_t pad1[56];
    _Atomic uint32_t sleeping;          /* 1: the broker waits for a doorbell */
    uint8_t pad2[60];
};

/* ---- rings ----------------------------------------------------------------------------------------------------- */

enum emu_kind {
    EMU_KERNEL = 1,   /* compute engine; audited */
    EMU_GRAPH = 2,    /* a whole cuGraphLaunch: cost is the sum of its nodes; compute engine; audited */
    EMU_H2D = 3,      /* copy engine host to device */
    EMU_D2H = 4,      /* copy engine device to host */
    EMU_DEVICE = 5,   /* memset, copy within or between devices: compute engine, not audited */
    EMU_RECORD = 6,   /* event record: function = index in events[], cost = generation, written there at its end */
    EMU_WAIT = 7,     /* stream waits: epoch = context id, function = ring there, cost = entry number that must end.
                         Contexts of the same process only; an unknown context or a destroyed stream does not block */
    EMU_HOST = 8,     /* host function: the stream stops until host_done >= the entry's number */
};

struct emu_entry {
    uint64_t submit;   /* model time */
    uint64_t cost;     /* ns of engine time when alone, or as the kind says */
    uint64_t epoch;    /* audited kinds: emu_stamp(); others 0, or as the kind says */
    uint32_t function; /* id of the kernel for diagnosis, or as the kind says */
    uint16_t kind;
    uint16_t reserved; /* 0 */
};

struct emu_ring {
    _Atomic uint64_t head;       /* driver: entries written */
    uint8_t pad0[56];
    _Atomic uint64_t done;       /* broker: entries ended */
    uint8_t pad1[56];
    _Atomic uint64_t want;       /* driver: entry number that somebody polls for, 0 none (emu_poll) */
    uint8_t pad2[56];
    _Atomic uint64_t host_done;  /* driver: number of the last EMU_HOST entry whose function returned; then ring the bell */
    uint8_t pad3[3896];
    struct emu_entry entries[EMU_RING_ENTRIES];
};

struct emu_event {
    _Atomic uint64_t generation; /* of the last record that ended */
    _Atomic uint64_t time;       /* model time at which it did; written before the generation */
};

struct emu_context {
    uint32_t magic, id;
    uint32_t gpu;
    uint32_t reserved;
    uint8_t pad0[48];
    _Atomic uint32_t error; /* broker: 0, or the CUresult that every further call on this context returns (sticky).
                               Waiters are woken when it is set; done no longer moves */
    uint8_t pad1[4028];
    struct emu_event events[EMU_EVENTS];
    struct emu_ring rings[EMU_STREAMS];
};

/* ---- threads --------------------------------------------------------------------------------------------------- */

/* A thread takes a slot (emu_thread_enter) at its first call that may submit or wait, and gives it back when it ends
 * (from a pthread_key destructor). In virtual mode time passes only while no slot is EMU_RUNNING: a thread that blocks
 * in something the emulator does not see (a lock, a socket) has to leave its slot before and enter one after, which the
 * emulated driver offers to programs as weftEmuBlock() and weftEmuUnblock(). */
enum emu_state { EMU_FREE = 0, EMU_RUNNING = 1, EMU_WAITING = 2, EMU_SLEEPING = 3 };

struct emu_thread {
    _Atomic uint32_t state;    /* futex word; the broker sets it back to EMU_RUNNING when the wait is over */
    uint32_t context, ring;    /* EMU_WAITING: until entry `until` of this ring ended, or the context has an error */
    uint32_t reserved;
    uint64_t until;            /* EMU_SLEEPING: model time */
    uint8_t pad[40];
};

struct emu_process {
    uint32_t magic, pid;           /* pid as the broker sees it: the key of the audit table */
    _Atomic uint32_t threads;      /* driver: slots ever used, a bound for the broker's scan */
    uint8_t pad[52];
    struct emu_thread slots[EMU_THREADS];
};

/* ---- audit ----------------------------------------------------------------------------------------------------- */

/* Who may launch on which GPU, as the node agent says it; the broker holds launches against it. The agent writes,
 * drivers read. A pid's slot is at (pid * EMU_AUDIT_HASH) >> 20 modulo the size, or among the next EMU_AUDIT_PROBES;
 * an empty slot (pid 0) ends the search. A slot of a dead process becomes EMU_AUDIT_GONE and may be taken again. */
#define EMU_AUDIT_HASH 2654435761u
#define EMU_AUDIT_GONE UINT32_MAX
#define EMU_EPOCH_OVERRUN (1ull << 63) /* set in a word: the token was taken from its hung holder */
#define EMU_EPOCH_UNMANAGED UINT64_MAX /* stamp of a process without a slot */

struct emu_audit_slot {
    _Atomic uint32_t pid;
    uint8_t pad[60];
    _Atomic uint64_t epoch[EMU_MAX_GPUS]; /* 0: no token */
};

struct emu_audit {
    uint32_t magic, protocol;
    uint8_t pad[56];
    struct emu_audit_slot slots[EMU_AUDIT_SLOTS];
};

/* ---- control socket -------------------------------------------------------------------------------------------- */

enum emu_role {
    EMU_ROLE_DRIVER = 0,  /* libcuda: a process with contexts and memory; all of it is freed when the connection ends */
    EMU_ROLE_OBSERVER = 1 /* libnvidia-ml, weft itself: queries, faults, audit */
};

enum emu_op {
    EMU_HELLO = 1,       /* a = EMU_PROTOCOL, b = role, text = name of the program (WEFT_EMU_NAME, else its short name)
                            -> a = pid, b = GPUs, c = clock mode; descriptors for a driver */
    EMU_DEVICE_GET,      /* gpu -> payload emu_device */
    EMU_CONTEXT_CREATE,  /* gpu -> a = context id; descriptor of its memory. Charges the device's context_bytes */
    EMU_CONTEXT_DESTROY, /* context. What it still has queued is dropped: synchronise first. Frees its memory */
    EMU_STREAM_CREATE,   /* context -> a = ring. The ring may have been used: its numbers go on from head */
    EMU_STREAM_DESTROY,  /* context, a = ring. Queued work still runs; the ring is handed out again after it */
    EMU_MEM_ALLOC,       /* context, a = bytes, b = enum emu_memory -> a = allocation id, not 0, never used again. It is
                            freed with the context; context 0: it belongs to the process, on gpu. Charged as asked for */
    EMU_MEM_FREE,        /* a = allocation id: drops one reference of this process */
    EMU_MEM_RETAIN,      /* a = allocation id: one reference more (cuMemMap, cuMemRetainAllocationHandle) */
    EMU_MEM_RESIZE,      /* a = allocation id, b = bytes: a pool's reserve grows (may be out of memory) or is trimmed */
    EMU_MEM_EXPORT,      /* a = allocation id -> payload: a handle of EMU_HANDLE_BYTES that any process may import */
    EMU_MEM_IMPORT,      /* context or 0, text = handle -> a = allocation id, b = bytes, c = gpu. The exporter stays
                            charged; when it ends before the importer, the importer is charged */
    EMU_MEM_INFO,        /* gpu -> a = free, b = usable, c = total, d = used; bytes */
    EMU_PROCESSES,       /* gpu, a = how many to skip -> count, payload emu_usage[]; c = how many there are in all */
    EMU_UTILISATION,     /* gpu -> a = % of the last second of model time the compute engine worked, b = % of memory used */
    EMU_EVENT_NEXT,      /* a = cursor -> count = 1 and a = next cursor, b = gpu, c = xid, d = model time; or count = 0.
                            Cursor EMU_NEVER: only says the present end in a. Never blocks: poll */
    EMU_AUDIT_OPEN,      /* -> descriptor of the audit table, writable. From here on launches are held against it */
    EMU_FAULT,           /* gpu, a = enum emu_fault, b = its number */
    EMU_STATS,           /* -> descriptor of a file with JSON */
    EMU_OPS
};

enum emu_memory {
    EMU_MEM_DEVICE = 0, EMU_MEM_PITCHED, EMU_MEM_ARRAY, EMU_MEM_MANAGED, EMU_MEM_POOL, EMU_MEM_PHYSICAL /* cuMemCreate */,
    EMU_MEM_HOST /* not charged */, EMU_MEMORIES
};

enum emu_fault {
    EMU_FAULT_HANG = 1, /* the next b kernels on the gpu never end until their process does */
    EMU_FAULT_OOM,      /* the next b allocations on the gpu are out of memory */
    EMU_FAULT_XID,      /* the driver reports XID b; what it breaks is in docs/emulator.md */
    EMU_FAULT_LOST,     /* the gpu is gone: its contexts have an error, new ones are refused (as XID 79) */
    EMU_FAULT_SLOW,     /* every request of a driver takes b ns more (gpu is ignored); 0 ends it */
    EMU_FAULT_RESET,    /* the gpu is well again; contexts that lived through the fault keep their error */
    EMU_FAULTS
};

/* Status of a reply: 0 or a CUresult (1 invalid value, 2 out of memory, 46 device unavailable, 101 invalid device,
 * 201 invalid context, 214 ECC, 400 invalid handle, 719 launch failed), or one of these with a text in payload. */
enum { EMU_E_VERSION = 10001, EMU_E_REQUEST = 10002, EMU_E_ROLE = 10003 };

#define EMU_HANDLE_BYTES 64u
#define EMU_PAYLOAD_BYTES 448u

struct emu_request {
    uint32_t magic, op;
    int32_t gpu;
    uint32_t context;
    uint64_t a, b, c;
    char text[EMU_HANDLE_BYTES];
};

struct emu_reply {
    uint32_t status, op;
    uint32_t count, reserved;
    uint64_t a, b, c, d;
    uint8_t payload[EMU_PAYLOAD_BYTES];
};

enum { EMU_GPU_OK = 0, EMU_GPU_UNHEALTHY = 1, EMU_GPU_LOST = 2 };

struct emu_device {
    char name[96];            /* "NVIDIA A10" */
    char bus_id[32];          /* "00000000:01:00.0" */
    uint8_t uuid[16];
    uint32_t major, minor;    /* compute capability */
    uint32_t processors;      /* SMs */
    uint32_t health;          /* EMU_GPU_* */
    uint32_t last_xid;        /* 0: none since the last reset */
    uint32_t reserved;
    uint64_t total_bytes;     /* as nvidia-smi shows it */
    uint64_t usable_bytes;    /* as cuDeviceTotalMem returns it */
    uint64_t context_bytes;   /* charged for every context */
    uint64_t copy_bytes_s;    /* of each copy engine */
    uint64_t memory_bytes_s;  /* of device memory: memset and copies within */
};

struct emu_usage {
    uint32_t pid, contexts;
    uint64_t bytes;           /* charged to it on this gpu */
    uint64_t busy_ns;         /* compute engine, model time */
    uint64_t kernels;         /* ended */
};

/* ---- operations of a driver ------------------------------------------------------------------------------------ */

/* emu_client is a driver's view of its attachment. */
struct emu_client {
    const struct emu_clock *clock;
    const struct emu_audit *audit;
    struct emu_process *process;
    int bell;
    int control; /* the socket: its end tells that the broker is gone */
};

#define EMU_GONE 46u /* what waits return when the broker is gone: CUDA_ERROR_DEVICE_UNAVAILABLE */

/* emu_now is the model time. A clock read costs 30 to 60 ns. */
static inline uint64_t emu_now(const struct emu_clock *c)
{
    if (c->mode == EMU_CLOCK_VIRTUAL)
        return atomic_load_explicit(&c->now, memory_order_acquire);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t real = (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec - c->base;
    if (c->scale_num == c->scale_den)
        return real;
    return (uint64_t)((unsigned __int128)real * c->scale_num / c->scale_den);
}

/* emu_ring_bell wakes the broker where it sleeps. What it is to see must have been stored before. */
static inline void emu_ring_bell(const struct emu_client *c)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&c->clock->sleeping, memory_order_relaxed))
        return;
    uint64_t one = 1;
    ssize_t n;
    do
        n = write(c->bell, &one, sizeof one);
    while (n < 0 && errno == EINTR);
}

/* emu_room is how many entries may be pushed. The caller holds the stream's lock. */
static inline uint64_t emu_room(const struct emu_ring *r)
{
    return EMU_RING_ENTRIES - (atomic_load_explicit(&r->head, memory_order_relaxed) -
                               atomic_load_explicit(&r->done, memory_order_acquire));
}

/* emu_push appends an entry and returns its number. The caller holds the stream's lock, and there is room. */
static inline uint64_t emu_push(const struct emu_client *c, struct emu_ring *r, const struct emu_entry *e)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    r->entries[head % EMU_RING_ENTRIES] = *e;
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    if ((head + 1) % (EMU_RING_ENTRIES / 2) == 0)
        emu_ring_bell(c);
    return head + 1;
}

/* emu_slot finds the audit slot of this process; NULL while the agent has made none. */
static inline const struct emu_audit_slot *emu_slot(const struct emu_client *c)
{
    uint32_t pid = c->process->pid, at = (pid * EMU_AUDIT_HASH) >> 20;
    for (uint32_t i = 0; i < EMU_AUDIT_PROBES; i++) {
        const struct emu_audit_slot *s = &c->audit->slots[(at + i) % EMU_AUDIT_SLOTS];
        uint32_t owner = atomic_load_explicit(&s->pid, memory_order_acquire);
        if (owner == pid)
            return s;
        if (owner == 0)
            return NULL;
    }
    return NULL;
}

/* emu_stamp is the epoch of an audited entry for a physical GPU. *slot caches emu_slot, and starts as NULL. */
static inline uint64_t emu_stamp(const struct emu_client *c, const struct emu_audit_slot **slot, uint32_t gpu)
{
    bool own = *slot && atomic_load_explicit(&(*slot)->pid, memory_order_relaxed) == c->process->pid;
    if (!own && (*slot = emu_slot(c)) == NULL) /* audits end, and others begin */
        return EMU_EPOCH_UNMANAGED;
    return atomic_load_explicit(&(*slot)->epoch[gpu % EMU_MAX_GPUS], memory_order_acquire);
}

/* emu_thread_enter takes a slot for this thread, and emu_thread_leave gives it back. NULL: all are in use; such a
 * thread waits by polling. */
static inline struct emu_thread *emu_thread_enter(struct emu_client *c)
{
    for (uint32_t i = 0; i < EMU_THREADS; i++) {
        uint32_t expected = EMU_FREE;
        if (!atomic_compare_exchange_strong(&c->process->slots[i].state, &expected, EMU_RUNNING))
            continue;
        uint32_t used = atomic_load(&c->process->threads);
        while (used < i + 1 && !atomic_compare_exchange_weak(&c->process->threads, &used, i + 1))
            ;
        return &c->process->slots[i];
    }
    return NULL;
}

static inline void emu_thread_leave(const struct emu_client *c, struct emu_thread *t)
{
    atomic_store(&t->state, EMU_FREE);
    emu_ring_bell(c);
}

/* emu_block hands a slot to the broker in a state. True when the broker gave it back, false when the broker is gone,
 * which is looked at once a second. */
static inline bool emu_block(const struct emu_client *c, struct emu_thread *t, uint32_t state)
{
    const struct timespec second = {1, 0};
    atomic_store(&t->state, state);
    emu_ring_bell(c);
    while (atomic_load_explicit(&t->state, memory_order_acquire) != EMU_RUNNING) {
        char byte;
        if (syscall(SYS_futex, &t->state, FUTEX_WAIT, state, &second, NULL, 0) == 0 || errno != ETIMEDOUT)
            continue;
        if (recv(c->control, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
            atomic_store(&t->state, EMU_RUNNING);
            return false;
        }
    }
    return true;
}

/* emu_wait returns when entry n of a ring ended: 0, or the context's error, or EMU_GONE. */
static inline uint32_t emu_wait(const struct emu_client *c, struct emu_thread *t, struct emu_context *x, uint32_t ring,
                                uint64_t n)
{
    for (;;) {
        uint32_t error = atomic_load_explicit(&x->error, memory_order_acquire);
        if (error != 0 || atomic_load_explicit(&x->rings[ring].done, memory_order_acquire) >= n)
            return error;
        t->context = x->id;
        t->ring = ring;
        t->until = n;
        if (!emu_block(c, t, EMU_WAITING))
            return EMU_GONE;
    }
}

/* emu_sleep waits for model time to pass: in real mode precisely for its real length. */
static inline void emu_sleep(const struct emu_client *c, struct emu_thread *t, uint64_t ns)
{
    t->until = emu_now(c->clock) + ns;
    emu_block(c, t, EMU_SLEEPING);
}

/* emu_poll says whether entry n ended. In real mode only the first poll for an entry touches the bell. */
static inline bool emu_poll(const struct emu_client *c, struct emu_thread *t, struct emu_ring *r, uint64_t n)
{
    if (atomic_load_explicit(&r->done, memory_order_acquire) >= n)
        return true;
    if (c->clock->mode == EMU_CLOCK_VIRTUAL) {
        emu_sleep(c, t, EMU_POLL_NS);
    } else if (atomic_load_explicit(&r->want, memory_order_relaxed) != n) {
        atomic_store_explicit(&r->want, n, memory_order_relaxed);
        emu_ring_bell(c);
    }
    return atomic_load_explicit(&r->done, memory_order_acquire) >= n;
}

_Static_assert(sizeof(struct emu_clock) == 192, "emu_clock");
_Static_assert(offsetof(struct emu_clock, now) == 64, "emu_clock.now");
_Static_assert(offsetof(struct emu_clock, sleeping) == 128, "emu_clock.sleeping");
_Static_assert(sizeof(struct emu_entry) == 32, "emu_entry");
_Static_assert(offsetof(struct emu_ring, entries) == 4096, "emu_ring.entries");
_Static_assert(sizeof(struct emu_ring) == 4096 + 32 * EMU_RING_ENTRIES, "emu_ring");
_Static_assert(offsetof(struct emu_context, error) == 64, "emu_context.error");
_Static_assert(offsetof(struct emu_context, events) == 4096, "emu_context.events");
_Static_assert(offsetof(struct emu_context, rings) == 4096 + 16 * EMU_EVENTS, "emu_context.rings");
_Static_assert(sizeof(struct emu_thread) == 64, "emu_thread");
_Static_assert(offsetof(struct emu_process, slots) == 64, "emu_process.slots");
_Static_assert(sizeof(struct emu_audit_slot) == 64 + 8 * EMU_MAX_GPUS, "emu_audit_slot");
_Static_assert(offsetof(struct emu_audit, slots) == 64, "emu_audit.slots");
_Static_assert(sizeof(struct emu_request) == 104, "emu_request");
_Static_assert(sizeof(struct emu_reply) == 496, "emu_reply");
_Static_assert(sizeof(struct emu_device) <= EMU_PAYLOAD_BYTES, "emu_device");
_Static_assert(sizeof(struct emu_usage) == 32, "emu_usage");

#endif
