/* Memory: charges, views, imports; the same to the next agent, and without one; the limit that a user lowers. */
#include <sys/socket.h>

#include "limit.h"
#include "program.h"
#include "session.h"

struct charge {
    CUresult result;
    uint64_t handle;
    size_t bytes;
    pthread_t thread;
};

static void *charge(void *argument) {
    struct charge *c = argument;
    c->result = weft_memory_charge(0, WEFT_FAMILY_DEVICE, c->bytes, &c->handle);
    return NULL;
}

static void ask(struct charge *c) { pthread_create(&c->thread, NULL, charge, c); }
static void asked(struct charge *c) { pthread_join(c->thread, NULL); }

static void answer(const union said *said, enum weft_outcome outcome, uint64_t used) {
    struct weft_memory m = {.handle = said->alloc.handle, .outcome = outcome, .total = SCRIPT_LIMIT, .used = used};
    m.gpu = said->header.type == WEFT_ALLOC ? said->alloc.gpu : said->handle.gpu;
    script_send(&agent, WEFT_MEMORY, &m, sizeof m);
}

static void memory(void) {
    union said a, b, said;
    struct charge c = {.bytes = 1 << 20}, d = {.bytes = 2 << 20};
    start(WEFT_GUARANTEED);
    ask(&c);
    script_expect(&agent, WEFT_ALLOC, &a);
    ask(&d);
    script_expect(&agent, WEFT_ALLOC, &b);
    CHECK(a.alloc.bytes == 1 << 20 && a.alloc.flags == 0 && a.alloc.family == WEFT_FAMILY_DEVICE, "ALLOC");
    answer(&b, WEFT_OUT_OF_MEMORY, 5 << 20); /* in another order */
    asked(&d);
    CHECK(d.result == CUDA_ERROR_OUT_OF_MEMORY && d.handle == 0, "refused");
    answer(&a, WEFT_OK, 6 << 20);
    asked(&c);
    CHECK(c.result == CUDA_SUCCESS && c.handle == a.alloc.handle, "granted");
    weft_memory_release(0, d.handle);
    weft_memory_release(0, c.handle);
    weft_memory_release(0, c.handle); /* twice */
    script_expect(&agent, WEFT_FREE, &said);
    CHECK(said.handle.handle == a.alloc.handle, "handle");
    script_quiet(&agent, WEFT_FREE, 10 * WEFT_MS);
    ask(&c);
    script_expect(&agent, WEFT_ALLOC, &said);
    CHECK(said.alloc.handle != a.alloc.handle && said.alloc.handle != b.alloc.handle, "a handle is used again");
    answer(&said, WEFT_OK, 0);
    asked(&c);
}

static void *view(void *out) {
    uint64_t *total = out;
    return weft_memory_view(1, &total[0], &total[1]) ? out : NULL;
}

static void *list(void *out) {
    return (void *)(intptr_t)weft_processes(0, out, 3);
}

static void views(void) {
    uint64_t seen[2];
    struct weft_process processes[3];
    union said said;
    pthread_t thread;
    void *result;
    start(WEFT_GUARANTEED);
    pthread_create(&thread, NULL, view, seen);
    script_expect(&agent, WEFT_VIEW, &said);
    CHECK(said.handle.gpu == 1, "gpu");
    answer(&said, WEFT_OK, 3 << 20);
    pthread_join(thread, &result);
    CHECK(result && seen[0] == SCRIPT_LIMIT && seen[1] == 3 << 20, "view");
    pthread_create(&thread, NULL, list, processes);
    script_expect(&agent, WEFT_PROCESSES_OF, &said);
    struct {
        struct weft_list list;
        struct weft_process p[5];
    } m = {.list = {.handle = said.handle.handle, .count = 5}};
    for (int i = 0; i < 5; i++)
        m.p[i] = (struct weft_process){.bytes = (uint64_t)i, .pid = 100 + i};
    script_send(&agent, WEFT_LIST, &m, sizeof m);
    pthread_join(thread, &result);
    CHECK((intptr_t)result == 5 && processes[2].pid == 102, "list");
}

/* What is held is replayed to the next agent, what is asked is asked again, what was freed is gone. */
static void replay(void) {
    union said said;
    struct charge c[4], waiting = {.bytes = 77};
    uint8_t key[WEFT_KEY] = "exported";
    start(WEFT_GUARANTEED);
    for (int i = 0; i < 4; i++) {
        c[i] = (struct charge){.bytes = 1000 + (size_t)i};
        ask(&c[i]);
        script_expect(&agent, WEFT_ALLOC, &said);
        answer(&said, WEFT_OK, 0);
        asked(&c[i]);
    }
    weft_memory_export(0, c[1].handle, key);
    script_expect(&agent, WEFT_EXPORT, &said);
    weft_memory_release(0, c[0].handle);
    script_expect(&agent, WEFT_FREE, NULL);
    ask(&waiting);
    script_expect(&agent, WEFT_ALLOC, &said);
    uint64_t asked_for = said.alloc.handle;
    int64_t lost = weft_now();
    script_hang_up(&agent);
    script_accept(&agent, &said);
    weft_memory_release(0, c[2].handle); /* while nobody hears it */
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    back_since(lost);
    int held = 0, fresh = 0, exports = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(recv(agent.fd, &said, sizeof said, 0) > 0, "closed");
        agent.heard++;
        exports += said.header.type == WEFT_EXPORT && said.shared.handle == c[1].handle && !memcmp(said.shared.key, key, 8);
        held += said.header.type == WEFT_ALLOC && said.alloc.flags == WEFT_ALLOC_HELD &&
                (said.alloc.handle == c[1].handle || said.alloc.handle == c[3].handle);
        fresh += said.header.type == WEFT_ALLOC && said.alloc.flags == 0 && said.alloc.handle == asked_for;
    }
    CHECK(held == 2 && fresh == 1 && exports == 1, "%d held, %d asked, %d exported", held, fresh, exports);
    struct weft_memory m = {.handle = asked_for, .outcome = WEFT_OK};
    script_send(&agent, WEFT_MEMORY, &m, sizeof m);
    asked(&waiting);
    CHECK(waiting.result == CUDA_SUCCESS, "asked again");
    script_quiet(&agent, WEFT_ALLOC, 20 * WEFT_MS);
}

/* Alone, memory is granted as far as the limit goes, booked, and told later. */
static void memory_alone(void) {
    union said said;
    struct charge first = {.bytes = SCRIPT_LIMIT / 2}, waiting = {.bytes = SCRIPT_LIMIT / 4}, more = waiting, last = {.bytes = 1};
    start(WEFT_GUARANTEED);
    catch_stderr();
    ask(&first);
    script_expect(&agent, WEFT_ALLOC, &said);
    answer(&said, WEFT_OK, SCRIPT_LIMIT / 2);
    asked(&first);
    ask(&waiting);
    script_expect(&agent, WEFT_ALLOC, &said);
    script_hang_up(&agent);
    script_stop(&agent);
    asked(&waiting);
    CHECK(waiting.result == CUDA_SUCCESS, "within the limit");
    charge(&more);
    CHECK(more.result == CUDA_SUCCESS, "within the limit");
    charge(&last);
    CHECK(last.result == CUDA_ERROR_OUT_OF_MEMORY, "beyond the limit");
    uint64_t total, used;
    CHECK(weft_memory_view(0, &total, &used) && total == SCRIPT_LIMIT && used == SCRIPT_LIMIT, "view");
    weft_memory_release(0, more.handle);
    charge(&last);
    CHECK(last.result == CUDA_SUCCESS, "within the limit again");
    script_listen(&agent);
    script_accept(&agent, &said);
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    for (int i = 0; i < 3; i++) {
        script_expect(&agent, WEFT_ALLOC, &said);
        CHECK(said.alloc.flags == WEFT_ALLOC_HELD, "replay");
    }
}

static void *import(void *key) {
    struct charge *c = calloc(1, sizeof *c);
    c->result = weft_memory_import(0, key, &c->handle);
    return c;
}

static void imports(void) {
    uint8_t key[WEFT_KEY] = "somebody's";
    union said said;
    pthread_t thread;
    void *result;
    start(WEFT_GUARANTEED);
    for (enum weft_outcome outcome = WEFT_OK; outcome <= WEFT_UNKNOWN; outcome += 2) {
        pthread_create(&thread, NULL, import, key);
        script_expect(&agent, WEFT_IMPORT, &said);
        CHECK(!memcmp(said.shared.key, key, WEFT_KEY), "key");
        struct weft_memory m = {.handle = said.shared.handle, .outcome = outcome};
        script_send(&agent, WEFT_MEMORY, &m, sizeof m);
        pthread_join(thread, &result);
        struct charge *c = result;
        CHECK(c->result == CUDA_SUCCESS && (c->handle != 0) == (outcome == WEFT_OK), "import");
        free(c);
    }
    restart(WEFT_GUARANTEED, 0, &said);
    script_expect(&agent, WEFT_IMPORT, &said);
    CHECK(!memcmp(said.shared.key, key, WEFT_KEY), "replay");
}

/* Memory before the first context: no thread serves the socket yet, the caller does. */
static void *early(void *argument) {
    CHECK(weft_session_begin(), "terms");
    CHECK(threads() == 0, "%d threads", threads());
    charge(argument);
    return NULL;
}

static void without_thread(void) {
    struct charge c = {.bytes = 123}, d = {.bytes = 321};
    union said said;
    pthread_t thread;
    gpu_start();
    script_listen(&agent);
    pthread_create(&thread, NULL, early, &c);
    script_accept(&agent, &said);
    pthread_t second;
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    script_expect(&agent, WEFT_ALLOC, &said);
    pthread_create(&second, NULL, charge, &d);
    union said other;
    script_expect(&agent, WEFT_ALLOC, &other);
    answer(&other, WEFT_OK, 0);
    pthread_join(second, NULL);
    answer(&said, WEFT_OK, 0);
    pthread_join(thread, NULL);
    CHECK(c.result == CUDA_SUCCESS && c.handle && d.handle && d.handle != c.handle, "charges");
}

static void *observe(void *unused) {
    union said said;
    for (int i = 0; i < 2; i++) {
        script_accept(&agent, &said);
        CHECK(said.hello.flags == WEFT_HELLO_OBSERVER, "flags");
        script_welcome(&agent, WEFT_GUARANTEED, 0);
        if (i == 1) {
            script_expect(&agent, WEFT_VIEW, &said);
            answer(&said, WEFT_OK, 4096);
        }
        CHECK(recv(agent.fd, &said, sizeof said, 0) == 0, "not closed");
        script_hang_up(&agent);
    }
    return unused;
}

static void observer(void) {
    uint64_t total, used;
    pthread_t thread;
    int before = descriptors();
    script_listen(&agent);
    pthread_create(&thread, NULL, observe, NULL);
    const struct weft_welcome *terms = weft_observer_terms();
    CHECK(terms && terms->count == 2 && weft_observer_terms() == terms, "terms");
    CHECK(weft_memory_view(1, &total, &used) && total == SCRIPT_LIMIT && used == 4096, "view");
    pthread_join(thread, NULL);
    CHECK(!weft_session_terms() && threads() == 0 && descriptors() == before + 1, "something stayed");
}

/* ---- WEFT_MEMORY */

static void lowered(void) {
    static const struct {
        const char *text;
        uint64_t limit;
        const char *says;
    } cases[] = {
        {"4GiB", 4ull << 30, NULL},
        {"512MiB", 512ull << 20, NULL},
        {"1.5GiB", 3ull << 29, NULL},
        {"8GiB", 8ull << 30, NULL},
        {"0MiB", 8ull << 30, "min 256 MiB"},
        {"40GiB", 8ull << 30, "weft: WEFT_MEMORY=40GiB may only lower the job's limit of 8 GiB: ignored; weft exec --peak asks for more\n"},
        {"4", 8ull << 30, "is not a size"},
        {"-1GiB", 8ull << 30, "is not a size"},
        {"4GB", 8ull << 30, "is not a size"},
        {"4GiB ", 8ull << 30, "is not a size"},
        {"1.GiB", 8ull << 30, "is not a size"},
        {"99999999999999999999GiB", 8ull << 30, "is not a size"},
        {"GiB", 8ull << 30, "is not a size"},
        {"", 8ull << 30, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weft_welcome w = {.count = 1, .gpus[0].limit = 8ull << 30, .gpus[0].reserved = 6ull << 30};
        weft_limit_lower(&w, cases[i].text);
        CHECK(w.gpus[0].limit == cases[i].limit, "%s: %lu", cases[i].text, (unsigned long)w.gpus[0].limit);
        CHECK(w.gpus[0].reserved <= w.gpus[0].limit, "%s: reserved", cases[i].text);
    }
    catch_stderr();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weft_welcome w = {.count = 1, .gpus[0].limit = 8ull << 30};
        weft_limit_lower(&w, cases[i].text);
    }
    CHECK(!*stderr_text(), "said twice: %s", said_text);
}

static void lowered_says(void) {
    struct weft_welcome w = {.count = 1, .gpus[0].limit = (22ull << 30) + (1ull << 29)};
    catch_stderr();
    weft_limit_lower(&w, "40GiB");
    SAID("weft: WEFT_MEMORY=40GiB may only lower the job's limit of 22.5 GiB: ignored; weft exec --peak asks for more\n");
    weft_limit_lower(&w, "0MiB");
    SAID("min 256 MiB");
}

static void lowered_enforced(void) {
    struct charge c = {.bytes = 700 << 20}, d = c;
    union said said;
    setenv("WEFT_MEMORY", "1GiB", 1);
    start(WEFT_GUARANTEED);
    CHECK(weft_session_terms()->gpus[0].limit == 1ull << 30, "reported");
    ask(&c);
    script_expect(&agent, WEFT_ALLOC, &said);
    answer(&said, WEFT_OK, 700 << 20);
    asked(&c);
    charge(&d);
    CHECK(d.result == CUDA_ERROR_OUT_OF_MEMORY, "not enforced");
    script_quiet(&agent, WEFT_ALLOC, 5 * WEFT_MS);
    weft_memory_release(0, c.handle);
    ask(&d);
    script_find(&agent, WEFT_ALLOC, &said);
    answer(&said, WEFT_OK, 0);
    asked(&d);
}

int main(void) {
    int bad = RUN(memory) + RUN(views) + RUN(replay) + RUN(memory_alone) +
              RUN(imports) + RUN(without_thread) + RUN(observer) + RUN(lowered) +
              RUN(lowered_says) + RUN(lowered_enforced);
    return bad > 0;
}
