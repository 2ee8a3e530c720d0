/* The process's memory as the agent's ledger has it: what is charged, what is asked, and the same again for an agent that was
 * restarted. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "futex.h"
#include "session.h"

#define INDEX_BITS 24u /* of a handle: its place in the table; the rest is a number that rises */
#define BATCH 64u      /* charges replayed before messages are read again: an agent that answers each must not be drowned */

/* A question that waits for its answer, on the stack of the thread that asks. */
struct asker {
    _Atomic uint32_t done;
    struct weft_memory answer;
    struct weft_list *list; /* room for the longest one, or NULL */
};

struct entry {
    uint64_t handle; /* 0: free */
    uint64_t bytes;
    uint8_t *key;    /* of exported or imported memory, or NULL */
    struct asker *asker; /* NULL: it is charged */
    uint32_t connection; /* on which the agent was told last */
    uint32_t next;       /* free entry */
    uint32_t gpu;
    uint16_t type; /* WEFT_ALLOC, WEFT_IMPORT, WEFT_VIEW, WEFT_PROCESSES_OF */
    uint16_t family;
};

struct account {
    uint64_t own;  /* charged by this process, bytes */
    uint64_t used; /* by all processes of the allocation, as last known, bytes */
};

static struct {
    pthread_mutex_t lock;
    struct entry *entries; /* from 1 on */
    uint32_t count, room;
    uint32_t free; /* the first free entry, or 0 */
    uint64_t number;
    uint32_t replay, pass; /* the next entry to replay; pass 0: none left, 1: allocations, 2: imports */
    struct account accounts[WEFT_GPUS];
    _Atomic uint32_t wanted; /* bit i: others wait for the pool of GPU i */
    atomic_bool changed;     /* since it was last asked for */
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER, .count = 1};

static void lock(void) { pthread_mutex_lock(&memory.lock); }
static void unlock(void) { pthread_mutex_unlock(&memory.lock); }

/* ---- The table */

static struct entry *find(uint64_t handle) {
    uint32_t i = handle & ((1u << INDEX_BITS) - 1);
    return i > 0 && i < memory.count && memory.entries[i].handle == handle ? &memory.entries[i] : NULL;
}

/* A free place in the table, or 0. */
static uint32_t place(void) {
    uint32_t i = memory.free;
    if (i) {
        memory.free = memory.entries[i].next;
        return i;
    }
    if (memory.count >= memory.room) {
        uint32_t room = memory.room ? 2 * memory.room : 256;
        struct entry *more = room <= 1u << INDEX_BITS ? realloc(memory.entries, room * sizeof *more) : NULL;
        if (!more)
            return 0;
        memory.entries = more;
        memory.room = room;
    }
    return memory.count++;
}

static struct entry *add(enum weft_type type, unsigned gpu, struct asker *asker) {
    uint32_t i = place();
    if (!i)
        return NULL;
    struct entry *e = &memory.entries[i];
    *e = (struct entry){.type = type, .gpu = gpu, .asker = asker, .handle = ++memory.number << INDEX_BITS | i};
    return e;
}

static void drop(struct entry *e) {
    free(e->key);
    *e = (struct entry){.next = memory.free};
    memory.free = (uint32_t)(e - memory.entries);
}

/* Imported memory is its exporter's, host memory nobody's. */
static bool counts(const struct entry *e) { return e->type == WEFT_ALLOC && e->family != WEFT_FAMILY_HOST; }

static void book(struct entry *e) {
    e->asker = NULL;
    if (counts(e))
        memory.accounts[e->gpu].own += e->bytes;
    memory.changed = true;
}

/* ---- Messages */

static uint32_t tell_key(const struct entry *e, enum weft_type type) {
    struct weft_shared m = {.handle = e->handle, .gpu = e->gpu};
    memcpy(m.key, e->key, WEFT_KEY);
    return weft_send(type, &m, sizeof m);
}

/* Tells the agent of an entry that it does not know yet; where there is none, the next one is told. */
static void tell(struct entry *e) {
    if (e->type == WEFT_IMPORT) {
        e->connection = tell_key(e, WEFT_IMPORT);
    } else if (e->type == WEFT_ALLOC) {
        struct weft_alloc m = {.handle = e->handle, .bytes = e->bytes, .gpu = e->gpu, .family = e->family};
        m.flags = e->asker ? 0 : WEFT_ALLOC_HELD;
        e->connection = weft_send(WEFT_ALLOC, &m, sizeof m);
        if (e->key)
            tell_key(e, WEFT_EXPORT);
    } else {
        struct weft_handle m = {.handle = e->handle, .gpu = e->gpu};
        e->connection = weft_send(e->type, &m, sizeof m);
    }
}

/* Whether the agent that is there now knows of the entry. */
static bool told(const struct entry *e) { return e->connection && e->connection == weft_agent_connection(); }

static void answer(struct entry *e, const struct weft_memory *m) {
    struct asker *asker = e->asker;
    if (m->outcome == WEFT_OK && (e->type == WEFT_ALLOC || e->type == WEFT_IMPORT))
        book(e);
    else
        drop(e);
    asker->answer = *m;
    atomic_store(&asker->done, 1);
    weft_futex_wake(&asker->done);
}

void weft_memory_answered(const struct weft_memory *m) {
    lock();
    struct entry *e = find(m->handle);
    if (e && e->gpu == m->gpu) {
        memory.accounts[e->gpu].used = m->used;
        if (e->asker && e->type != WEFT_PROCESSES_OF)
            answer(e, m);
    }
    unlock();
}

void weft_memory_listed(const struct weft_list *list) {
    lock();
    struct entry *e = find(list->handle);
    if (e && e->asker && e->asker->list) {
        memcpy(e->asker->list, list, list->header.length);
        answer(e, &(struct weft_memory){.outcome = WEFT_OK});
    }
    unlock();
}

void weft_memory_wanted(const struct weft_wanted *m) {
    uint32_t bit = m->gpu < WEFT_GPUS ? 1u << m->gpu : 0;
    if (m->wanted)
        atomic_fetch_or(&memory.wanted, bit);
    else
        atomic_fetch_and(&memory.wanted, ~bit);
}

bool weft_memory_changed(void) {
    return atomic_load_explicit(&memory.changed, memory_order_relaxed) && atomic_exchange(&memory.changed, false);
}

bool weft_memory_anyone_waits(void) { return atomic_load_explicit(&memory.wanted, memory_order_relaxed) != 0; }

/* ---- An agent that was away */

void weft_memory_welcomed(void) {
    lock();
    memory.replay = memory.pass = 1;
    atomic_store(&memory.wanted, 0);
    unlock();
}

static void replay(void) {
    for (uint32_t sent = 0; memory.pass && sent < BATCH;) {
        if (memory.replay >= memory.count) {
            memory.pass = (memory.pass + 1) % 3;
            memory.replay = 1;
            continue;
        }
        struct entry *e = &memory.entries[memory.replay++];
        bool import = e->type == WEFT_IMPORT;
        if (e->handle && import == (memory.pass == 2) && !told(e)) {
            tell(e);
            sent++;
        }
    }
}

/* What an agent would answer, as far as this process can tell. */
static void answer_alone(struct entry *e) {
    struct account *a = &memory.accounts[e->gpu];
    uint64_t limit = weft_session_terms()->gpus[e->gpu].limit;
    struct weft_memory m = {.handle = e->handle, .gpu = e->gpu, .total = limit};
    if (e->asker->list) {
        e->asker->list->count = 1;
        e->asker->list->processes[0] = (struct weft_process){.bytes = a->own, .pid = getpid()};
    }
    if (counts(e)) {
        bool fits = e->bytes <= limit && a->used <= limit - e->bytes;
        m.outcome = fits ? WEFT_OK : WEFT_OUT_OF_MEMORY;
        a->used += fits ? e->bytes : 0;
    }
    m.used = a->used;
    answer(e, &m);
}

void weft_memory_step(int64_t now) {
    lock();
    if (memory.pass && weft_agent_connection())
        replay();
    if (weft_agent_gone(now))
        for (uint32_t i = 1; i < memory.count; i++)
            if (memory.entries[i].handle && memory.entries[i].asker)
                answer_alone(&memory.entries[i]);
    unlock();
}

int64_t weft_memory_next(void) {
    lock();
    bool more = memory.pass && weft_agent_connection();
    unlock();
    return more ? 0 : WEFT_NEVER;
}

/* ---- What hooks call */

/* Asks, and waits for the answer. The handle is 0 where nothing is charged in the end. */
static enum weft_outcome ask(struct entry like, struct asker *asker, uint64_t *handle) {
    lock();
    struct entry *e = add(like.type, like.gpu, asker);
    if (!e) {
        unlock();
        free(like.key);
        return WEFT_OUT_OF_MEMORY;
    }
    e->bytes = like.bytes;
    e->family = like.family;
    e->key = like.key;
    *handle = e->handle;
    if (weft_agent_gone(weft_now()))
        answer_alone(e);
    else
        tell(e);
    unlock();
    weft_session_wait(&asker->done);
    if (asker->answer.outcome != WEFT_OK)
        *handle = 0;
    return asker->answer.outcome;
}

static bool within_lowered(unsigned gpu, size_t bytes) {
    lock();
    uint64_t own = memory.accounts[gpu].own, limit = weft_session_lowered();
    unlock();
    return bytes <= limit && own <= limit - bytes;
}

/* Booked and not limited, so nobody needs to wait for the answer. */
static void charge_host(unsigned gpu, size_t bytes, uint64_t *handle) {
    lock();
    struct entry *e = add(WEFT_ALLOC, gpu, NULL);
    if (e) {
        e->bytes = bytes;
        e->family = WEFT_FAMILY_HOST;
        *handle = e->handle;
        memory.changed = true;
        tell(e);
    }
    unlock();
}

static bool shares(unsigned gpu) {
    const struct weft_welcome *terms = weft_session_terms();
    return terms && gpu < terms->count;
}

CUresult weft_memory_charge(unsigned gpu, enum weft_family family, size_t bytes, uint64_t *handle) {
    int saved = errno;
    CUresult result = CUDA_SUCCESS;
    *handle = 0;
    if (!shares(gpu) || !bytes)
        return result;
    if (family == WEFT_FAMILY_HOST) {
        charge_host(gpu, bytes, handle);
    } else {
        struct asker asker = {0};
        struct entry like = {.type = WEFT_ALLOC, .gpu = gpu, .bytes = bytes, .family = family};
        if (!within_lowered(gpu, bytes) || ask(like, &asker, handle) != WEFT_OK)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    errno = saved;
    return result;
}

void weft_memory_release(unsigned gpu, uint64_t handle) {
    int saved = errno;
    (void)gpu;
    lock();
    struct entry *e = find(handle);
    if (e && !e->asker) {
        struct account *a = &memory.accounts[e->gpu];
        if (counts(e)) {
            a->own -= e->bytes;
            a->used -= a->used < e->bytes ? a->used : e->bytes;
        }
        struct weft_handle m = {.handle = handle, .gpu = e->gpu};
        if (told(e))
            weft_send(WEFT_FREE, &m, sizeof m);
        drop(e);
        memory.changed = true;
    }
    unlock();
    errno = saved;
}

static uint8_t *copy_of(const uint8_t key[WEFT_KEY]) {
    uint8_t *copy = malloc(WEFT_KEY);
    return copy ? memcpy(copy, key, WEFT_KEY) : NULL;
}

void weft_memory_export(unsigned gpu, uint64_t handle, const uint8_t key[WEFT_KEY]) {
    (void)gpu;
    lock();
    struct entry *e = find(handle);
    uint8_t *copy = e && !e->asker ? copy_of(key) : NULL;
    if (copy) {
        free(e->key);
        e->key = copy;
        if (told(e))
            tell_key(e, WEFT_EXPORT);
    }
    unlock();
}

CUresult weft_memory_import(unsigned gpu, const uint8_t key[WEFT_KEY], uint64_t *handle) {
    int saved = errno;
    struct asker asker = {0};
    *handle = 0;
    uint8_t *copy = shares(gpu) ? copy_of(key) : NULL;
    if (!copy)
        return CUDA_SUCCESS;
    enum weft_outcome outcome = ask((struct entry){.type = WEFT_IMPORT, .gpu = gpu, .key = copy}, &asker, handle);
    errno = saved;
    return outcome == WEFT_OUT_OF_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* ---- Views */

/* Asks the session's agent, or as an observer where there is no session. */
static bool question(enum weft_type type, unsigned gpu, struct asker *asker, union weft_message *m) {
    uint64_t handle;
    int saved = errno;
    bool known;
    if (weft_session_terms()) {
        known = shares(gpu) && ask((struct entry){.type = type, .gpu = gpu}, asker, &handle) == WEFT_OK;
    } else {
        known = weft_observe(type, gpu, m);
        asker->answer = m->memory;
    }
    errno = saved;
    return known;
}

bool weft_memory_view(unsigned gpu, uint64_t *total, uint64_t *used) {
    union weft_message m;
    struct asker asker = {0};
    if (!question(WEFT_VIEW, gpu, &asker, &m))
        return false;
    const struct weft_welcome *terms = weft_observer_terms();
    uint64_t limit = terms ? terms->gpus[gpu].limit : UINT64_MAX;
    *total = asker.answer.total < limit ? asker.answer.total : limit;
    *used = asker.answer.used < *total ? asker.answer.used : *total;
    return true;
}

int weft_processes(unsigned gpu, struct weft_process *list, int most) {
    union weft_message m;
    struct asker asker = {.list = &m.list};
    if (!question(WEFT_PROCESSES_OF, gpu, &asker, &m))
        return -1;
    for (int i = 0; i < most && i < (int)m.list.count; i++)
        list[i] = m.list.processes[i];
    return (int)m.list.count;
}

void weft_memory_forked(void) {
    memory.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memory.count = 1; /* the charges are the parent's, as the memory is */
    memory.free = memory.replay = memory.pass = 0;
    memset(memory.accounts, 0, sizeof memory.accounts);
    memory.wanted = 0;
}
