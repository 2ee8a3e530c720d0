/* The protocol between libweft.so and the node agent.
 *
 * Transport: a SOCK_SEQPACKET unix socket, one per allocation. One packet is one message: a header and the body of its
 * type, nothing else. Integers are in host byte order, both ends being on one machine. A packet that is too short, too
 * long, of another magic or version, of a type that its receiver does not take, or out of sequence is a fault of the
 * sender: the receiver answers REFUSED where it still can, and closes that connection and no other.
 *
 * Durations and not instants cross the socket, since a time namespace may move a container's clock.
 *
 * A change of any layout or meaning changes WEFT_WIRE_VERSION. internal/wire holds the same layouts in Go, and its test
 * compares both offset by offset.
 */
#ifndef WEFT_WIRE_H
#define WEFT_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define WEFT_WIRE_MAGIC 0x54464557u /* "WEFT" */
#define WEFT_WIRE_VERSION 1u
#define WEFT_WIRE_MAX 1024u /* bytes of the longest message */
#define WEFT_GPUS 16u       /* most GPUs of an allocation */
#define WEFT_PROCESSES 48u  /* most processes in one list */
#define WEFT_KEY 64u        /* bytes that name exported memory */

enum weft_type {
	/* shim to agent */
	WEFT_HELLO = 1,      /* first message of a connection; answered by WELCOME or REFUSED */
	WEFT_USE = 2,        /* the process has a context on these GPUs, and no others, from now on */
	WEFT_REQUEST = 3,    /* it wants to launch and its gate is closed */
	WEFT_RELEASED = 4,   /* gate closed, nothing outstanding */
	WEFT_IDLE = 5,       /* gate open, nothing outstanding for the idle grace */
	WEFT_ALLOC = 6,      /* charge memory; answered by MEMORY, perhaps after a wait */
	WEFT_FREE = 7,       /* take memory off the books; not answered */
	WEFT_EXPORT = 8,     /* others may import this memory by its key; not answered */
	WEFT_IMPORT = 9,     /* memory that another process exported; answered by MEMORY */
	WEFT_ITERATION = 10, /* iterations ended: unused ephemeral memory goes back; not answered */
	WEFT_VIEW = 11,      /* how much memory the allocation has and uses; answered by MEMORY */
	WEFT_PROCESSES_OF = 12, /* which processes of the allocation use a GPU; answered by LIST */
	WEFT_PONG = 13,      /* answer to PING */

	/* agent to shim */
	WEFT_WELCOME = 32,
	WEFT_REFUSED = 33, /* and the connection is closed */
	WEFT_GRANT = 34,   /* open the gate */
	WEFT_NARROW = 35,  /* keep less outstanding from now on */
	WEFT_YIELD = 36,   /* others wait: release as soon as nothing is outstanding, in a gap that lasts */
	WEFT_DROP = 37,    /* close the gate, drain, release */
	WEFT_MEMORY = 38,  /* answer to ALLOC, IMPORT, VIEW */
	WEFT_LIST = 39,    /* answer to PROCESSES_OF */
	WEFT_WANTED = 40,  /* another job waits for this GPU's pool: give caches back at the next boundary */
	WEFT_PING = 41,
};

enum weft_class { WEFT_GUARANTEED = 0, WEFT_BURSTABLE = 1, WEFT_BESTEFFORT = 2 };

/* Families of calls that memory came from, as internal/ledger names them. */
enum weft_family {
	WEFT_FAMILY_DEVICE = 0,
	WEFT_FAMILY_MANAGED = 1,
	WEFT_FAMILY_ASYNC = 2,
	WEFT_FAMILY_VIRTUAL = 3,
	WEFT_FAMILY_ARRAY = 4,
	WEFT_FAMILY_GRAPH = 5,
	WEFT_FAMILY_CONTEXT = 6,
	WEFT_FAMILY_HOST = 7,
};

enum weft_outcome {
	WEFT_OK = 0,
	WEFT_OUT_OF_MEMORY = 1, /* beyond the allocation's own limit */
	WEFT_UNKNOWN = 2,       /* no such key, or not this allocation's GPU */
};

enum weft_refusal {
	WEFT_REFUSED_VERSION = 1, /* another protocol; version says which the agent speaks */
	WEFT_REFUSED_USER = 2,    /* the peer's user is not the allocation's */
	WEFT_REFUSED_PROTOCOL = 3, /* a malformed, unexpected or replayed message */
	WEFT_REFUSED_CLOSED = 4,  /* the allocation has ended */
	WEFT_REFUSED_FULL = 5,    /* too many processes in the allocation */
};

enum weft_hello_flags {
	WEFT_HELLO_OBSERVER = 1u << 0, /* asks VIEW and PROCESSES_OF only, and never takes a token */
};

enum weft_alloc_flags {
	WEFT_ALLOC_HELD = 1u << 0, /* exists since before the agent restarted: charged without a wait, whatever the room */
};

struct weft_header {
	uint32_t magic;
	uint16_t version;
	uint16_t type;
	uint32_t length; /* of the packet, header included, in bytes */
	uint32_t number; /* rises by one with each message of a sender on a connection, from 1 */
};

struct weft_hello {
	struct weft_header header;
	uint64_t session; /* that the last WELCOME gave this process; 0 at first */
	uint64_t epoch;   /* of the token that it holds; 0 for none */
	uint32_t gpus;    /* bit i: it has a context on GPU i of the allocation */
	uint32_t flags;
};

struct weft_gpu {
	uint8_t uuid[16];
	uint64_t limit;    /* bytes that the allocation may use: reserved and ephemeral part together */
	uint64_t reserved; /* bytes that are always its own */
};

struct weft_welcome {
	struct weft_header header;
	uint64_t session;
	uint32_t count; /* of gpus */
	uint32_t class; /* enum weft_class */
	uint32_t grace_us;  /* nothing outstanding for so long is idle */
	uint32_t held; /* 1: the epoch of HELLO is valid still, the gate may stay open */
	struct weft_gpu gpus[WEFT_GPUS];
};

struct weft_refused {
	struct weft_header header;
	uint32_t reason;  /* enum weft_refusal */
	uint32_t version; /* that the agent speaks */
};

struct weft_use {
	struct weft_header header;
	uint32_t gpus; /* bit i: GPU i of the allocation */
	uint32_t zero;
};

/* REQUEST, PING, PONG have no body. */
struct weft_plain {
	struct weft_header header;
};

struct weft_released {
	struct weft_header header;
	uint64_t epoch;
	uint64_t used_ns;    /* GPU time of the work launched under this epoch, by the shim's own estimate */
	uint64_t overrun_ns; /* how far beyond drop or deadline, plus the window, its work ran */
	uint64_t launches;   /* under this epoch */
	uint64_t rested_ns;  /* of a grant ahead: until the first launch under it; 0 where there was none */
};

/* IDLE */
struct weft_epoch {
	struct weft_header header;
	uint64_t epoch;
};

struct weft_grant {
	struct weft_header header;
	uint64_t epoch;
	uint64_t lasts_ns;  /* the gate closes by itself after this; 0: it stays open until DROP or YIELD */
	uint64_t window_ns; /* most estimated GPU time outstanding; 0: no bound. Also the body of NARROW (the rest unused) */
	uint64_t ahead;     /* 1: not asked for; the process is expected back from a gap, and YIELD before that takes it back */
};

struct weft_yield {
	struct weft_header header;
	uint64_t epoch;
	uint64_t spare_ns; /* not in gaps until they have lasted so long, but where the program itself says that it pauses; 0: in any */
};

struct weft_drop {
	struct weft_header header;
	uint64_t epoch;
	uint32_t reason; /* arbiter.Reason */
	uint32_t zero;
};

struct weft_alloc {
	struct weft_header header;
	uint64_t handle; /* the process's own number of this piece of memory, never used again by it */
	uint64_t bytes;
	uint32_t gpu;
	uint16_t family; /* enum weft_family */
	uint16_t flags;
};

/* FREE; VIEW and PROCESSES_OF, where handle is a number that the answer repeats */
struct weft_handle {
	struct weft_header header;
	uint64_t handle;
	uint32_t gpu;
	uint32_t zero;
};

/* EXPORT, IMPORT */
struct weft_shared {
	struct weft_header header;
	uint64_t handle;
	uint32_t gpu;
	uint32_t zero;
	uint8_t key[WEFT_KEY]; /* the IPC handle, or device and inode of the exported descriptor and zeros */
};

struct weft_iteration {
	struct weft_header header;
	uint64_t count; /* iterations since the last such message */
};

struct weft_memory {
	struct weft_header header;
	uint64_t handle; /* of the question */
	uint32_t outcome; /* enum weft_outcome */
	uint32_t gpu;
	uint64_t total; /* the allocation's limit, bytes */
	uint64_t used;  /* by all its processes */
	uint64_t waited_ns; /* for the pool */
};

struct weft_wanted {
	struct weft_header header;
	uint32_t gpu;
	uint32_t wanted; /* 1: somebody waits; 0: no longer */
};

struct weft_process {
	uint64_t bytes;
	int32_t pid; /* in the asking process's own pid namespace */
	uint32_t zero;
};

struct weft_list {
	struct weft_header header;
	uint64_t handle;
	uint32_t gpu;
	uint32_t count;
	struct weft_process processes[];
};

static_assert(sizeof(struct weft_header) == 16, "header");
static_assert(sizeof(struct weft_hello) == 40, "hello");
static_assert(sizeof(struct weft_gpu) == 32, "gpu");
static_assert(sizeof(struct weft_welcome) == 40 + 32 * WEFT_GPUS, "welcome");
static_assert(sizeof(struct weft_refused) == 24, "refused");
static_assert(sizeof(struct weft_use) == 24, "use");
static_assert(sizeof(struct weft_released) == 56, "released");
static_assert(sizeof(struct weft_epoch) == 24, "epoch");
static_assert(sizeof(struct weft_grant) == 48, "grant");
static_assert(sizeof(struct weft_yield) == 32, "yield");
static_assert(sizeof(struct weft_drop) == 32, "drop");
static_assert(sizeof(struct weft_alloc) == 40, "alloc");
static_assert(sizeof(struct weft_handle) == 32, "handle");
static_assert(sizeof(struct weft_shared) == 32 + WEFT_KEY, "shared");
static_assert(sizeof(struct weft_iteration) == 24, "iteration");
static_assert(sizeof(struct weft_memory) == 56, "memory");
static_assert(sizeof(struct weft_wanted) == 24, "wanted");
static_assert(sizeof(struct weft_process) == 16, "process");
static_assert(sizeof(struct weft_list) == 32, "list");
static_assert(offsetof(struct weft_welcome, gpus) == 40, "welcome.gpus");
static_assert(sizeof(struct weft_list) + WEFT_PROCESSES * sizeof(struct weft_process) <= WEFT_WIRE_MAX, "longest list");
static_assert(sizeof(struct weft_welcome) <= WEFT_WIRE_MAX, "longest welcome");

#endif
