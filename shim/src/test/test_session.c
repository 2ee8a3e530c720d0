/* The session through agents that are absent, stale, hostile, restarted. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "gate.h"
#include "program.h"
#include "session.h"
#include "weft.h"

/* ---- No agent */

static void no_socket(void) {
    int before = descriptors();
    setenv("WEFT_SOCKET", "/tmp/weft-test-none/agent.sock", 1);
    catch_stderr();
    gpu_start();
    for (int i = 0; i < 2; i++)
        CHECK(!weft_session_begin(), "terms from nowhere");
    weft_context_made(0);
    launch((void *)10);
    SAID("weft: no agent at /tmp/weft-test-none/agent.sock: runs unshared; weft exec starts it as a job\n");
    CHECK(!strchr(strchr(stderr_text(), '\n') + 1, '\n'), "said twice");
    CHECK(threads() == 0 && descriptors() == before, "%d threads, %d descriptors", threads(), descriptors());
    uint64_t handle = 1, total, used;
    CHECK(weft_memory_charge(0, WEFT_FAMILY_DEVICE, 1 << 20, &handle) == CUDA_SUCCESS && !handle, "charge");
    CHECK(!weft_memory_view(0, &total, &used) && weft_processes(0, NULL, 0) == -1, "views");
    CHECK(!weft_observer_terms(), "terms");
    script_listen(&agent); /* an agent that comes later is found by the next cuInit */
    setenv("WEFT_SOCKET", agent.path, 1);
    script_begin(&agent, WEFT_GUARANTEED);
    granted_once(1);
    CHECK(threads() == 1, "%d threads", threads());
}

static void *answer_late(void *unused) {
    union said said;
    weft_sleep(150 * WEFT_MS);
    script_listen(&agent);
    script_accept(&agent, &said);
    script_welcome(&agent, WEFT_BURSTABLE, 0);
    return unused;
}

/* A socket that nobody listens on: an agent that restarts is waited for, one that does not come is not. */
static void stale_socket(void) {
    pthread_t thread;
    catch_stderr();
    script_listen(&agent);
    script_stop(&agent);
    pthread_create(&thread, NULL, answer_late, NULL);
    const struct weft_welcome *terms = weft_session_begin();
    IN_TIME(terms, "no agent came while it was waited for");
    CHECK(terms->class == WEFT_BURSTABLE && terms->count == 2, "terms");
    pthread_join(thread, NULL);
    SAID("does not answer: reconnecting\n");
}

static void stale_for_ever(void) {
    catch_stderr();
    script_listen(&agent);
    script_stop(&agent);
    int64_t before = weft_now();
    CHECK(!weft_session_begin(), "terms");
    int64_t took = weft_now() - before;
    IN_TIME(took < 3 * WEFT_S, "%ld ms", (long)(took / WEFT_MS));
    SAID("does not answer: reconnecting\n");
    SAID(": runs unshared; weft exec starts it as a job\n");
}

static void *silent(void *unused) {
    union said said;
    script_accept(&agent, &said); /* no answer */
    script_accept(&agent, &said);
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    return unused;
}

static void silent_agent(void) {
    pthread_t thread;
    catch_stderr();
    script_listen(&agent);
    pthread_create(&thread, NULL, silent, NULL);
    IN_TIME(weft_session_begin(), "no terms in the second try");
    pthread_join(thread, NULL);
    SAID("does not answer: reconnecting\n");
}

static struct weft_refused refusal;

static void *refuse(void *unused) {
    union said said;
    script_accept(&agent, &said);
    refusal.header = (struct weft_header){WEFT_WIRE_MAGIC, (uint16_t)refusal.version, WEFT_REFUSED, sizeof refusal, 1};
    script_raw(&agent, &refusal, sizeof refusal);
    return unused;
}

static void refused(uint32_t reason, uint32_t version, const char *text) {
    pthread_t thread;
    catch_stderr();
    gpu_start();
    refusal.reason = reason;
    refusal.version = version;
    script_listen(&agent);
    pthread_create(&thread, NULL, refuse, NULL);
    int64_t before = weft_now();
    CHECK(!weft_session_begin(), "terms");
    IN_TIME(weft_now() - before < 400 * WEFT_MS, "the refusal comes too late");
    pthread_join(thread, NULL);
    launch((void *)1);
    SAID(text);
}

static void refused_version(void) {
    refused(WEFT_REFUSED_VERSION, 3, "speaks protocol 3, this libweft.so 1: runs unshared; restart the job with the agent's libweft.so\n");
}
static void refused_user(void) { refused(WEFT_REFUSED_USER, 1, "serves another user: runs unshared; weft exec starts it as a job\n"); }
static void refused_full(void) { refused(WEFT_REFUSED_FULL, 1, "too many processes: runs unshared; end some of them\n"); }
static void refused_closed(void) { refused(WEFT_REFUSED_CLOSED, 1, "has ended: runs unshared; weft exec starts it as a job\n"); }

/* The application's signals are handled in its own threads. */
static void signals(void) {
    char line[256];
    unsigned long long blocked = 0;
    start(WEFT_GUARANTEED);
    granted_once(1);
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(line, sizeof line, "/proc/self/task/%.20s/status", e->d_name);
        FILE *f = fopen(line, "r");
        for (bool shim = false; f && fgets(line, sizeof line, f);) {
            shim |= !strcmp(line, "Name:\tweft\n");
            if (shim && !strncmp(line, "SigBlk:", 7))
                blocked = strtoull(line + 7, NULL, 16);
        }
        if (f)
            fclose(f);
    }
    closedir(d);
    for (int signal = 1; signal < 32; signal++)
        CHECK(signal == SIGKILL || signal == SIGSTOP || blocked >> (signal - 1) & 1, "signal %d is not blocked", signal);
}

/* ---- Hostile agents */

static void must_reconnect(uint64_t epoch, int64_t since) {
    union said said;
    ssize_t n;
    while ((n = recv(agent.fd, &said, sizeof said, 0)) > 0)
        ;
    CHECK(n == 0 || errno == ECONNRESET, "still connected");
    script_hang_up(&agent);
    script_accept(&agent, &said);
    back_since(since);
    CHECK(said.hello.session == 7 && said.hello.epoch == epoch && said.hello.gpus == 1, "HELLO %lu %lu %x",
          (unsigned long)said.hello.session, (unsigned long)said.hello.epoch, said.hello.gpus);
    script_welcome(&agent, WEFT_GUARANTEED, 1);
    back_since(since);
}

/* Each fault costs that connection; the token and the program go on. */
static void faults(void) {
    struct weft_grant grant = {.epoch = 9};
    struct weft_drop drop = {.epoch = 5};
    uint8_t huge[4000] = {0};
    start(WEFT_GUARANTEED);
    catch_stderr();
    granted_once(5);
    for (int fault = 0; fault < 13; fault++) {
        struct weft_header h = {WEFT_WIRE_MAGIC, WEFT_WIRE_VERSION, WEFT_GRANT, sizeof grant, agent.sent + 1};
        uint32_t size = sizeof grant;
        switch (fault) {
        case 0: h.magic++; break;
        case 1: h.version++; break;
        case 2: h.type = 77; break;
        case 3: h.type = WEFT_REQUEST; break; /* of the other direction */
        case 4: h.length--; break;
        case 5: size = h.length = sizeof grant - 8; break;
        case 6: size = h.length = sizeof grant + 8; break;
        case 7: h.number++; break; /* one is missing */
        case 8: h.number--; break; /* replayed */
        case 9: size = 7; break;
        case 10: size = h.length = sizeof huge; break;
        case 11: grant.epoch = 5; break; /* granted before */
        case 12: h.type = WEFT_WELCOME; size = h.length = sizeof(struct weft_welcome); break; /* twice */
        }
        grant.header = h;
        memcpy(huge, &grant, sizeof grant);
        int64_t since = weft_now();
        script_raw(&agent, huge, size);
        must_reconnect(5, since);
        pthread_t thread = launching(3);
        launched(thread);
        grant.epoch = 9;
    }
    CHECK(weft_counters()->faults >= 11, "%lu faults", (unsigned long)weft_counters()->faults);
    script_send(&agent, WEFT_DROP, &drop, sizeof drop);
    script_find(&agent, WEFT_RELEASED, NULL);
}

/* Sizes and durations at their limits do no harm. */
static void extremes(void) {
    union said said;
    struct weft_grant grant = {.epoch = 5, .lasts_ns = UINT64_MAX, .window_ns = UINT64_MAX};
    struct weft_wanted wanted = {.gpu = UINT32_MAX, .wanted = 1};
    struct weft_memory memory = {.handle = UINT64_MAX, .gpu = UINT32_MAX};
    struct weft_list list = {.handle = 12, .count = 0};
    start(WEFT_GUARANTEED);
    pthread_t thread = launching(1);
    script_expect(&agent, WEFT_REQUEST, NULL);
    script_send(&agent, WEFT_GRANT, &grant, sizeof grant);
    launched(thread);
    script_send(&agent, WEFT_WANTED, &wanted, sizeof wanted);
    script_send(&agent, WEFT_MEMORY, &memory, sizeof memory);
    script_send(&agent, WEFT_LIST, &list, sizeof list);
    script_send(&agent, WEFT_PING, &(struct weft_plain){0}, sizeof(struct weft_plain));
    script_find(&agent, WEFT_PONG, &said);
    CHECK(!weft_waiting(), "waiting for GPU 4294967295");
    wanted = (struct weft_wanted){.gpu = 1, .wanted = 1};
    script_send(&agent, WEFT_WANTED, &wanted, sizeof wanted);
    while (!weft_waiting())
        weft_sleep(WEFT_MS);
    wanted.wanted = 0;
    script_send(&agent, WEFT_WANTED, &wanted, sizeof wanted);
    while (weft_waiting())
        weft_sleep(WEFT_MS);
}

/* A message of random content: mostly sound ones, of any type. */
static uint32_t random_message(uint8_t bytes[1100], unsigned *seed) {
    static const struct {
        uint8_t type;
        uint16_t size;
    } kinds[] = {{32, 552}, {33, 24}, {34, 40}, {34, 40}, {35, 40}, {36, 24}, {37, 32},
                 {38, 56},  {39, 48}, {40, 24}, {41, 16}, {0, 16},  {1, 40},  {255, 1025}};
    unsigned kind = (unsigned)rand_r(seed) % 14, size = kinds[kind].size;
    for (uint32_t k = 0; k < size; k++)
        bytes[k] = rand_r(seed) % 4 ? (uint8_t)(rand_r(seed) % 3) * (k % 8 == 0) : (uint8_t)rand_r(seed);
    struct weft_header h = {WEFT_WIRE_MAGIC, WEFT_WIRE_VERSION, kinds[kind].type, size, ++agent.sent};
    if (rand_r(seed) % 20)
        memcpy(bytes, &h, sizeof h);
    return rand_r(seed) % 20 ? size : size / 2;
}

/* Whether the shim hung up, within a time in which it usually has read what was sent. */
static bool hung_up(void) {
    union said said;
    for (struct timespec t = {.tv_nsec = 150000};; t.tv_nsec = 0) {
        struct pollfd p = {.fd = agent.fd, .events = POLLIN};
        if (ppoll(&p, 1, &t, NULL) <= 0)
            return false;
        if (recv(agent.fd, &said, sizeof said, MSG_DONTWAIT) <= 0)
            return true;
    }
}

/* Whatever comes, the program goes on and the shim finds its way back to a sound agent. */
static void fuzz(void) {
    unsigned seed = 7;
    union said said;
    int connections = 0;
    start(WEFT_BURSTABLE);
    catch_stderr();
    pthread_t thread = launching(2000);
    for (int i = 0; i < 4000; i++) {
        uint8_t bytes[1100];
        uint32_t size = random_message(bytes, &seed);
        if (bytes[6] == WEFT_REFUSED)
            continue; /* after which it would wait for a second */
        send(agent.fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (hung_up()) {
            script_hang_up(&agent);
            script_accept(&agent, &said);
            script_welcome(&agent, WEFT_BURSTABLE, (uint32_t)rand_r(&seed) % 2);
            connections++;
        }
    }
    script_hang_up(&agent);
    script_accept(&agent, &said);
    script_welcome(&agent, WEFT_BURSTABLE, 0);
    for (uint64_t epoch = 1; pthread_tryjoin_np(thread, NULL); epoch++) {
        script_grant(&agent, epoch, 0, 0);
        weft_sleep(WEFT_MS);
    }
    printf("fuzz: %d connections, %lu faults, %lu messages\n", connections, (unsigned long)weft_counters()->faults,
           (unsigned long)weft_counters()->received);
}

/* An agent that reads nothing does not stall the program for long, and is left. */
static void deaf(void) {
    uint64_t handle;
    start(WEFT_GUARANTEED);
    catch_stderr();
    int64_t before = weft_now();
    for (int i = 0; i < 3000; i++)
        weft_memory_charge(0, WEFT_FAMILY_HOST, 4096, &handle);
    IN_TIME(weft_now() - before < 2 * WEFT_S, "stalled");
    script_hang_up(&agent);
    union said said;
    script_accept(&agent, &said);
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    for (int i = 0; i < 3000; i++) {
        script_find(&agent, WEFT_ALLOC, &said);
        CHECK(said.alloc.flags == WEFT_ALLOC_HELD, "replayed as new");
    }
}

/* ---- Agents that restart */

/* The token survives a restart where the agent says so; where not, the gate closes, drains and asks anew. */
static void token_held(void) {
    union said said;
    start(WEFT_GUARANTEED);
    granted_once(5);
    restart(WEFT_GUARANTEED, 1, &said);
    CHECK(said.hello.session == 7 && said.hello.epoch == 5 && said.hello.gpus == 1, "HELLO");
    launched(launching(10));
    script_quiet(&agent, WEFT_REQUEST, 10 * WEFT_MS);
    restart(WEFT_GUARANTEED, 0, &said);
    CHECK(said.hello.epoch == 5, "HELLO");
    while (weft_gate.word & WEFT_GATE_OPEN)
        weft_sleep(WEFT_MS / 10);
    pthread_t thread = launching(1);
    script_expect(&agent, WEFT_REQUEST, NULL); /* and no RELEASED of an epoch that nobody knows */
    script_grant(&agent, 2, 0, 0); /* epochs may start again with another agent */
    launched(thread);
}

/* A thread that waits for a grant is asked for again. */
static void request_again(void) {
    union said said;
    start(WEFT_GUARANTEED);
    pthread_t thread = launching(1);
    script_expect(&agent, WEFT_REQUEST, NULL);
    restart(WEFT_GUARANTEED, 0, &said);
    CHECK(said.hello.epoch == 0, "HELLO");
    script_expect(&agent, WEFT_REQUEST, NULL);
    script_grant(&agent, 1, 0, 0);
    launched(thread);
}

/* Released while the next agent was looking at HELLO: told once it says that it knows the token. */
static void released_meanwhile(void) {
    union said said;
    start(WEFT_GUARANTEED);
    pthread_t thread = launching(1);
    script_find(&agent, WEFT_REQUEST, NULL);
    int64_t granted = weft_now();
    script_grant(&agent, 5, 30 * WEFT_MS, 0);
    int64_t lost = weft_now();
    script_hang_up(&agent);
    script_accept(&agent, &said);
    IN_TIME(weft_now() - granted < 30 * WEFT_MS, "the deadline passed before");
    launched(thread);
    CHECK(said.hello.epoch == 5, "HELLO");
    while (weft_gate.word & WEFT_GATE_OPEN) { /* until the deadline */
        back_since(lost);
        weft_sleep(WEFT_MS / 10);
    }
    script_welcome(&agent, WEFT_GUARANTEED, 1);
    back_since(lost);
    script_find(&agent, WEFT_RELEASED, &said);
    CHECK(said.released.epoch == 5, "epoch");
}

/* Without an agent for 100 ms: on with the gate open. When one is back: closed, and asked. */
static void alone_guaranteed(void) {
    union said said;
    start(WEFT_GUARANTEED);
    catch_stderr();
    int64_t before = weft_now();
    script_hang_up(&agent);
    script_stop(&agent);
    launched(launching(1));
    int64_t took = weft_now() - before;
    CHECK(took >= 95 * WEFT_MS, "alone after %ld ms", (long)(took / WEFT_MS));
    IN_TIME(took < 400 * WEFT_MS, "alone after %ld ms", (long)(took / WEFT_MS));
    launched(launching(1000));
    SAID("does not answer: reconnecting\n");
    script_listen(&agent);
    script_accept(&agent, &said);
    CHECK(said.hello.epoch == 0 && said.hello.session == 7, "HELLO");
    script_welcome(&agent, WEFT_GUARANTEED, 0);
    while (weft_gate.word & WEFT_GATE_OPEN)
        weft_sleep(WEFT_MS / 10);
    granted_once(1);
    printf("alone: went on after %.0f ms\n", (double)took / WEFT_MS);
}

/* A besteffort process alone takes about a fifth of the time, also where it held a token. */
static void alone_besteffort(void) {
    start(WEFT_BESTEFFORT);
    catch_stderr();
    granted_once(5);
    script_hang_up(&agent);
    script_stop(&agent);
    weft_sleep(200 * WEFT_MS);
    int open = 0, looks = 0;
    for (int64_t until = weft_now() + 500 * WEFT_MS; weft_now() < until; looks++) {
        open += weft_gate.word & WEFT_GATE_OPEN ? 1 : 0;
        weft_sleep(200 * WEFT_US);
    }
    double share = 100.0 * open / looks;
    IN_TIME(share > 5 && share < 40, "open for %.0f %% of the time", share);
    launched(launching(3));
    printf("alone, besteffort: open for %.0f %% of the time\n", share);
}

int main(void) {
    int bad = RUN(no_socket) + RUN(stale_socket) + RUN(stale_for_ever) + RUN(silent_agent) +
              RUN(refused_version) + RUN(refused_user) + RUN(refused_full) + RUN(refused_closed) +
              RUN(signals) + RUN(faults) + RUN(extremes) + RUN(fuzz) + RUN(deaf) +
              RUN(token_held) + RUN(request_again) + RUN(released_meanwhile) + RUN(alone_guaranteed) +
              RUN(alone_besteffort);
    return bad > 0;
}
