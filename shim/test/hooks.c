/* Each hook, seen at work: on a driver that does nothing, under an agent that grants and counts.
 *
 *   hooks             names the symbols that have a scenario
 *   hooks SYMBOL...   runs their scenarios; exits with 1 if a hook did not do what it is for
 *
 * Arguments are passed as words, which is how the driver's own arguments travel.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"
#include "token.h"
#include "weft_cuda.h"

typedef int driver_call(long, long, long, long, long, long, long, long, long, long, long);

enum kind {
    GATED,    /* counts as a launch; not while its stream is captured */
    CHARGED,  /* the allocation uses so many bytes more */
    RETURNED, /* after `before` gave something, gives all of it back */
    SPECIAL,  /* a function of its own */
};

/* Words that stand for something. */
#define OUT (-1001)    /* where the call puts what it gives */
#define OUT2 (-1002)   /* a second such place */
#define STREAM (-1003) /* a stream */
#define GIVEN (-1004)  /* what `before` gave */
#define KEY (-1005)    /* 64 bytes */
#define CONFIG (-1006) /* of a launch, a copy, an array, physical memory: see arranged() */

struct scenario {
    const char *symbol;
    enum kind kind;
    long arguments[11];
    size_t bytes;
    const char *before;
    bool (*special)(const struct scenario *);
};

static struct {
    void *cuda, *nvml;
    struct fake *fake;
    const struct weft_counters *(*counters)(void);
    int (*waiting)(void);
    uint64_t out[32], out2[32];
    uint64_t given;
    uint64_t config[64];
} test;

static const struct scenario *scenario_of(const char *symbol);

static driver_call *function(const char *symbol) {
    driver_call *call;
    *(void **)&call = dlsym(symbol[0] == 'c' ? test.cuda : test.nvml, symbol);
    if (!call) {
        fprintf(stderr, "%s: the driver lacks it\n", symbol);
        exit(2);
    }
    return call;
}

static long word(long argument) {
    switch (argument) {
    case OUT:
        return (long)test.out;
    case OUT2:
        return (long)test.out2;
    case STREAM:
        return 0x5000;
    case GIVEN:
        return (long)test.given;
    case KEY:
        return (long)test.out2;
    case CONFIG:
        return (long)test.config;
    default:
        return argument;
    }
}

static int call(const char *symbol, const long *a) {
    return function(symbol)(word(a[0]), word(a[1]), word(a[2]), word(a[3]), word(a[4]), word(a[5]), word(a[6]), word(a[7]),
                            word(a[8]), word(a[9]), word(a[10]));
}

#define CALL(symbol, ...) call(symbol, (const long[11]){__VA_ARGS__})

static size_t used(void) {
    size_t available = 0, total = 0;
    CALL("cuMemGetInfo_v2", (long)&available, (long)&total);
    return total - available;
}

/* Structures that calls of a symbol read: zeros but for what makes them mean something on a device. */
#define ARRANGE(name, ...)                                                                                             \
    if (!strcmp(symbol, name))                                                                                         \
    memcpy(test.config, &(__VA_ARGS__), sizeof(__VA_ARGS__))

static void arranged(const char *symbol) {
    memset(test.config, 0, sizeof test.config);
    ARRANGE("cuArrayCreate", (CUDA_ARRAY_DESCRIPTOR_v1){1024, 1024, CU_AD_FORMAT_HALF, 2});
    ARRANGE("cuArrayCreate_v2", (CUDA_ARRAY_DESCRIPTOR){1024, 1024, CU_AD_FORMAT_HALF, 2});
    ARRANGE("cuArray3DCreate", (CUDA_ARRAY3D_DESCRIPTOR_v1){1024, 1024, 2, CU_AD_FORMAT_FLOAT, 4, 0});
    ARRANGE("cuArray3DCreate_v2", (CUDA_ARRAY3D_DESCRIPTOR){1024, 1024, 2, CU_AD_FORMAT_FLOAT, 4, 0});
    ARRANGE("cuMipmappedArrayCreate", (CUDA_ARRAY3D_DESCRIPTOR){1024, 1024, 2, CU_AD_FORMAT_FLOAT, 4, 0});
    ARRANGE("cuMemCreate", (CUmemAllocationProp){.location.type = CU_MEM_LOCATION_TYPE_DEVICE});
    ARRANGE("cuMemPoolCreate", (CUmemPoolProps){.location.type = CU_MEM_LOCATION_TYPE_DEVICE});
    ARRANGE("cuMemPoolCreate on the host", (CUmemPoolProps){.location.type = CU_MEM_LOCATION_TYPE_HOST});
    ARRANGE("cuLaunchCooperativeKernelMultiDevice", (CUDA_LAUNCH_PARAMS){.hStream = (CUstream)0x5000});
}

/* The first 32 bits that a call gave. */
static unsigned first(void) {
    unsigned value;
    memcpy(&value, test.out, sizeof value);
    return value;
}

static int run(const struct scenario *s) {
    arranged(s->symbol);
    return call(s->symbol, s->arguments);
}

static bool expect(const struct scenario *s, const char *what, long long got, long long wanted) {
    if (got == wanted)
        return true;
    fprintf(stderr, "%s: %s is %lld and not %lld\n", s->symbol, what, got, wanted);
    return false;
}

static unsigned long long launches(void) {
    return test.counters()->launches;
}

static bool gated(const struct scenario *s) {
    unsigned long long before = launches();
    bool good = expect(s, "result", run(s), 0) & expect(s, "launches", (long long)(launches() - before), 1);
    if (!strcmp(s->symbol, "cuLaunchCooperativeKernelMultiDevice"))
        return good; /* refuses streams that are captured */
    CALL("cuStreamBeginCapture_v2", STREAM, 0);
    before = launches();
    good &= expect(s, "result in capture", run(s), 0);
    good &= expect(s, "launches in capture", (long long)(launches() - before), 0);
    CALL("cuStreamEndCapture", STREAM, (long)test.out2);
    return good;
}

static bool charged(const struct scenario *s) {
    size_t before = used();
    return expect(s, "result", run(s), 0) & expect(s, "bytes charged", (long long)(used() - before), (long long)s->bytes);
}

static bool returned(const struct scenario *s) {
    size_t before = used();
    const struct scenario *giver = scenario_of(s->before);
    bool good = charged(giver);
    test.given = test.out[0];
    good &= expect(s, "result", run(s), 0);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

/* ---- Hooks that none of these kinds covers */

/* Waits until the agent has asked for the token. */
static void asked_back(void) {
    for (int i = 0; i < 20000 && !test.waiting(); i++)
        usleep(1000);
}

/* How long a release may take, ms. In the mutant it does not come. */
static int patience(void) { return getenv("WEFT_WITHOUT") ? 100 : 20000; }

/* Work is outstanding and others wait: the token goes when the call says that the work is done. */
static bool synced(const struct scenario *s) {
    bool own = strstr(s->symbol, "_pt") != NULL;
    CALL(own ? "cuLaunchKernel_ptsz" : "cuLaunchKernel", 7, 1, 1, 1, 1, 1, 1, 0, s->arguments[0] == STREAM ? STREAM : 0, 0, 0);
    asked_back();
    unsigned long long before = test.counters()->releases;
    bool good = expect(s, "result", run(s), 0);
    for (int i = patience(); i > 0 && test.counters()->releases == before; i--)
        usleep(1000);
    return good & expect(s, "releases", (long long)(test.counters()->releases - before), 1);
}

/* The thread's own stream may be the legacy one to others, so the session asks its events: at once, in the call. */
static bool synced_own(const struct scenario *s) {
    CALL("cuLaunchKernel_ptsz", 7, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    asked_back();
    unsigned long long before = test.counters()->releases;
    test.fake->done = true;
    bool good = expect(s, "result", run(s), 0);
    return good & expect(s, "releases", (long long)(test.counters()->releases - before), 1);
}

static bool started(const struct scenario *s) {
    return expect(s, "CUDA_VISIBLE_DEVICES is the placed GPU",
                  strcmp(test.fake->visible, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"), 0);
}

static bool within_shim(const void *address) {
    Dl_info info;
    return dladdr(address, &info) && strstr(info.dli_fname, "libweft") != NULL;
}

static bool looked_up(const struct scenario *s) {
    void *hook = NULL, *plain = NULL;
    bool good = expect(s, "result", CALL(s->symbol, (long)"cuMemFree", (long)&hook, 12000, 0, 0), 0);
    CALL(s->symbol, (long)"cuEventQuery", (long)&plain, 12000, 0, 0);
    good &= expect(s, "the function is the hook", within_shim(hook) && hook == dlsym(test.cuda, "cuMemFree_v2"), 1);
    return good & expect(s, "another function is the driver's", plain && !within_shim(plain), 1);
}

static bool begins(const struct scenario *s) {
    unsigned long long before = launches();
    bool good = expect(s, "result", run(s), 0);
    CALL("cuLaunchKernel", 7, 1, 1, 1, 1, 1, 1, 0, STREAM, 0, 0);
    return good & expect(s, "launches in capture", (long long)(launches() - before), 0);
}

/* After the last capture a launch asks the driver for nothing. */
static bool ends(const struct scenario *s) {
    CALL("cuStreamBeginCapture_v2", STREAM, 0);
    bool good = expect(s, "result", run(s), 0);
    unsigned before = test.fake->asked;
    CALL("cuLaunchKernel", 7, 1, 1, 1, 1, 1, 1, 0, STREAM, 0, 0);
    return good & expect(s, "questions about captures", test.fake->asked - before, 0);
}

static bool informed(const struct scenario *s) {
    CALL("cuMemAlloc_v2", OUT, 64 << 20);
    memset(test.out, 0, sizeof test.out);
    bool good = expect(s, "result", run(s), 0);
    long long limit = 1024ll << 20;
    bool nvml = s->symbol[0] == 'n', second = strstr(s->symbol, "_v2") != NULL;
    long long total = strstr(s->symbol, "DeviceTotalMem") ? (long long)test.out[0]
                      : !nvml                             ? (long long)test.out2[0]
                                                          : (long long)test.out[second];
    return good & expect(s, "total", total, limit);
}

static bool trimmed(const struct scenario *s) {
    size_t before = used();
    CALL("cuMemAllocAsync", OUT, 40 << 20, STREAM);
    bool good = expect(s, "reserve charged", (long long)(used() - before), 64 << 20);
    CALL("cuMemFreeAsync", (long)test.out[0], STREAM);
    good &= expect(s, "result", run(s), 0);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

static bool pool_freed(const struct scenario *s) {
    size_t before = used();
    CALL("cuMemAllocAsync", OUT, 40 << 20, STREAM);
    test.given = test.out[0];
    bool good = expect(s, "result", run(s), 0);
    CALL("cuStreamSynchronize", STREAM);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

/* A pool of host memory is not charged, and what is imported is its exporter's. */
static bool pool_free_of_charge(const struct scenario *s) {
    size_t before = used();
    bool good = expect(s, "result", run(s), 0);
    if (!strcmp(s->symbol, "cuMemPoolCreate")) {
        arranged("cuMemPoolCreate on the host");
        good &= expect(s, "result", call(s->symbol, s->arguments), 0);
    }
    CALL("cuMemAllocFromPoolAsync", OUT2, 40 << 20, (long)test.out[0], STREAM);
    return good & expect(s, "bytes charged", (long long)(used() - before), 0);
}

static bool pool_destroyed(const struct scenario *s) {
    size_t before = used();
    arranged("cuMemPoolCreate");
    CALL("cuMemPoolCreate", OUT, CONFIG);
    test.given = test.out[0];
    CALL("cuMemAllocFromPoolAsync", OUT2, 40 << 20, GIVEN, STREAM);
    test.fake->used = test.fake->reserved = 0;
    bool good = expect(s, "result", run(s), 0);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

static uint64_t physical(void) {
    arranged("cuMemCreate");
    CALL("cuMemCreate", OUT, 2 << 20, CONFIG, 0);
    return test.out[0];
}

/* Physical memory lives as long as a mapping does. */
static bool mapped(const struct scenario *s) {
    size_t before = used();
    uint64_t handle = physical();
    CALL("cuMemMap", 0x10000, 2 << 20, 0, (long)handle, 0);
    CALL("cuMemRelease", (long)handle);
    bool good = expect(s, "bytes charged while mapped", (long long)(used() - before), 2 << 20);
    CALL("cuMemUnmap", 0x10000, 2 << 20);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

static bool retained(const struct scenario *s) {
    size_t before = used();
    test.fake->retained = physical();
    CALL("cuMemMap", 0x20000, 2 << 20, 0, (long)test.fake->retained, 0);
    CALL("cuMemRetainAllocationHandle", OUT2, 0x20800);
    CALL("cuMemRelease", (long)test.fake->retained);
    CALL("cuMemUnmap", 0x20000, 2 << 20);
    bool good = expect(s, "bytes charged while retained", (long long)(used() - before), 2 << 20);
    CALL("cuMemRelease", (long)test.fake->retained);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

/* What is exported stays charged, once, until the last handle of it is closed. */
static bool shared_physical(const struct scenario *s) {
    size_t before = used();
    uint64_t handle = physical();
    CALL("cuMemExportToShareableHandle", KEY, (long)handle, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    CALL("cuMemImportFromShareableHandle", OUT, KEY, CU_MEM_HANDLE_TYPE_FABRIC);
    bool good = expect(s, "bytes charged", (long long)(used() - before), 2 << 20);
    CALL("cuMemRelease", (long)handle);
    good &= expect(s, "bytes charged while imported", (long long)(used() - before), 2 << 20);
    CALL("cuMemRelease", (long)test.out[0]);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

static bool shared_address(const struct scenario *s) {
    size_t before = used();
    typedef int open_call(uint64_t *, CUipcMemHandle, unsigned);
    open_call *open = (open_call *)(void *)function(strcmp(s->symbol, "cuIpcOpenMemHandle") ? "cuIpcOpenMemHandle_v2" : s->symbol);
    CUipcMemHandle handle;
    CALL("cuMemAlloc_v2", OUT, 2 << 20);
    uint64_t address = test.out[0], opened;
    CALL("cuIpcGetMemHandle", KEY, (long)address);
    memcpy(&handle, test.out2, sizeof handle);
    open(&opened, handle, 0);
    CALL("cuMemFree_v2", (long)address);
    bool good = expect(s, "bytes charged while open", (long long)(used() - before), 2 << 20);
    CALL("cuIpcCloseMemHandle", (long)opened);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

/* A graph's own memory is charged when it runs, and given back by a trim. */
static bool graph_charged(const struct scenario *s) {
    size_t before = used();
    const char *instantiate = strstr(s->symbol, "Instantiate") ? s->symbol : "cuGraphInstantiateWithFlags";
    const char *use = strstr(s->symbol, "Upload") || strstr(s->symbol, "GraphLaunch") ? s->symbol : "cuGraphLaunch";
    CALL(instantiate, OUT, 0x6000, (long)test.out2, (long)test.out2, 0);
    test.given = test.out[0];
    bool good = expect(s, "result", CALL(use, GIVEN, STREAM), 0);
    good &= expect(s, "bytes charged", (long long)(used() - before), FAKE_GRAPH_BYTES);
    CALL("cuGraphExecDestroy", GIVEN);
    CALL("cuDeviceGraphMemTrim", 0);
    return good & expect(s, "bytes still charged", (long long)(used() - before), 0);
}

static bool graph_launched(const struct scenario *s) {
    return graph_charged(s) & gated(s);
}

/* A destroyed graph is forgotten: another that gets its handle is not charged for it. */
static bool graph_destroyed(const struct scenario *s) {
    CALL("cuGraphInstantiateWithFlags", OUT, 0x6000, 0);
    test.given = test.out[0];
    bool good = expect(s, "result", run(s), 0);
    size_t before = used();
    test.fake->graphs = 0;
    CALL("cuGraphLaunch", GIVEN, STREAM);
    CALL("cuGraphUpload", GIVEN, STREAM);
    return good & expect(s, "bytes charged", (long long)(used() - before), 0);
}

/* With the context goes what was allocated in it, and its own memory. */
static bool context_ended(const struct scenario *s) {
    bool primary = strstr(s->symbol, "Primary") != NULL;
    size_t before = used();
    if (!primary)
        CALL("cuCtxCreate_v2", OUT, 0, 0);
    else if (strstr(s->symbol, "Reset"))
        CALL("cuMemAlloc_v2", OUT, 2 << 20); /* in the current context, which is the primary one */
    test.given = test.out[0];
    bool good = expect(s, "result", run(s), 0);
    long long change = (long long)(used() - before);
    return good & expect(s, "bytes still charged", change, strstr(s->symbol, "Release") ? -(256ll << 20) : 0);
}

static bool context_attached(const struct scenario *s) {
    size_t before = used();
    CALL("cuCtxAttach", OUT, 0);
    test.given = test.out[0];
    CALL("cuCtxDetach", GIVEN);
    bool good = expect(s, "bytes freed by the first detach", (long long)(before - used()), 0);
    CALL("cuCtxDetach", GIVEN);
    return good & expect(s, "bytes freed by the last detach", (long long)(before - used()), 256 << 20);
}

static bool green_ended(const struct scenario *s) {
    size_t before = used();
    CALL("cuDevicePrimaryCtxRelease_v2", 0);
    CALL("cuGreenCtxCreate", OUT, 0x7000, 0, 1);
    test.given = test.out[0];
    bool good = expect(s, "bytes charged", (long long)(used() - before), 0);
    CALL("cuGreenCtxDestroy", GIVEN);
    return good & expect(s, "bytes freed", (long long)(before - used()), 256 << 20);
}

static bool listed_gpus(const struct scenario *s) {
    bool good = expect(s, "result", run(s), 0);
    return good & expect(s, "devices", first(), 1);
}

static bool indexed(const struct scenario *s) {
    bool good = expect(s, "result", run(s), 0);
    good &= expect(s, "the device of index 0", (long long)test.out[0], 1);
    return good & expect(s, "result for index 1", CALL(s->symbol, 1, OUT), NVML_ERROR_INVALID_ARGUMENT);
}

static bool hidden(const struct scenario *s) {
    return expect(s, "result for a neighbour's GPU", CALL(s->symbol, (long)"GPU-other", OUT), NVML_ERROR_NOT_FOUND);
}

static bool numbered(const struct scenario *s) {
    return expect(s, "result", run(s), 0) & expect(s, "index", first(), 0);
}

static bool listed_processes(const struct scenario *s) {
    unsigned count = 8;
    bool compute = strstr(s->symbol, "GetCompute") != NULL;
    bool good = expect(s, "result", CALL(s->symbol, 1, (long)&count, (long)test.out), 0);
    good &= expect(s, "processes", count, compute);
    if (!compute)
        return good;
    good &= expect(s, "pid", first(), getpid());
    count = 0;
    return good & expect(s, "result without room", CALL(s->symbol, 1, (long)&count, 0), NVML_ERROR_INSUFFICIENT_SIZE);
}

static bool detailed(const struct scenario *s) {
    nvmlProcessDetailList_v1_t list = {.numProcArrayEntries = 2, .procArray = (nvmlProcessDetail_v1_t *)test.out};
    bool good = expect(s, "result", CALL(s->symbol, 1, (long)&list), 0);
    return good & expect(s, "processes", list.numProcArrayEntries, 1) & expect(s, "pid", first(), getpid());
}

static bool refused(const struct scenario *s) {
    return expect(s, "result", CALL(s->symbol, 1, OUT, OUT2, 0), NVML_ERROR_NOT_SUPPORTED);
}

static const struct scenario scenarios[] = {
#include "scenarios.def"
};

#define SCENARIOS (sizeof scenarios / sizeof *scenarios)

static const struct scenario *scenario_of(const char *symbol) {
    for (size_t i = 0; i < SCENARIOS; i++)
        if (!strcmp(scenarios[i].symbol, symbol))
            return &scenarios[i];
    fprintf(stderr, "%s: no scenario\n", symbol);
    exit(2);
}

static bool begin(void) {
    *(void **)&test.counters = dlsym(RTLD_DEFAULT, "weft_counters");
    *(void **)&test.waiting = dlsym(RTLD_DEFAULT, "weft_waiting");
    test.cuda = dlopen("libcuda.so.1", RTLD_NOW);
    test.nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!test.counters || !test.waiting || !test.cuda || !test.nvml)
        return false;
    test.fake = dlsym(test.cuda, "fake");
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    return !CALL("cuInit", 0) && !CALL("cuDevicePrimaryCtxRetain", OUT, 0);
}

int main(int count, char **symbols) {
    bool good = true;
    if (count < 2)
        for (size_t i = 0; i < SCENARIOS; i++)
            puts(scenarios[i].symbol);
    else if (!begin())
        return fprintf(stderr, "no shim or no driver: %s\n", dlerror()), 2;
    for (int i = 1; i < count; i++) {
        const struct scenario *s = scenario_of(symbols[i]);
        good &= s->kind == GATED     ? gated(s)
                : s->kind == CHARGED ? charged(s)
                : s->kind == RETURNED ? returned(s)
                                      : s->special(s);
    }
    fflush(NULL);
    _exit(!good);
}
