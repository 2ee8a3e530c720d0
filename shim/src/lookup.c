/* Built without sanitisers: their runtimes look up their own functions through here before they are ready. For the same
 * reason nothing here allocates, locks, or calls a string function. */
#include "lookup.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "elf.h"
#include "weft_cuda.h"
#include "token.h"

#define HOOK(family, name) void weft_hook_##name(void);
#define CALL(family, name, reason)
#define EXEMPT(family, name, reason)
#define FOREIGN(prefix, reason)
#include "manifest.def"
#undef HOOK
#undef CALL

static const struct {
    const char *name;
    void (*hook)(void); /* NULL: only called */
} symbols[WEFT_SYMBOLS] = {
#define HOOK(family, symbol) {#symbol, weft_hook_##symbol},
#define CALL(family, symbol, reason) {#symbol, NULL},
#include "manifest.def"
#undef HOOK
#undef CALL
#undef EXEMPT
#undef FOREIGN
};

_Atomic(void *) weft_reals[WEFT_SYMBOLS];
struct weft_driver weft_driver;

/* The definitions of dlsym and its like that come after ours: the next interposer's, or the C library's. */
static struct {
    _Atomic(void *) dlsym, dlvsym, dlopen;
    _Atomic uintptr_t cuda, nvml; /* where the libraries were loaded when the table was filled */
} beneath;

static void *next(_Atomic(void *) *known, const char *symbol) {
    void *found = atomic_load_explicit(known, memory_order_acquire);
    if (!found) {
        found = weft_elf_first(_DYNAMIC, symbol);
        atomic_store_explicit(known, found, memory_order_release);
    }
    return found;
}

static CUresult missing(void) {
    return CUDA_ERROR_NOT_FOUND;
}

static nvmlReturn_t missing_nvml(void) {
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static bool of_nvml(size_t i) {
    return symbols[i].name[0] == 'n';
}

static bool absent(const void *real) {
    return !real || real == (void *)missing || real == (void *)missing_nvml;
}

static void *or_null(enum weft_symbol symbol) {
    void *real = atomic_load_explicit(&weft_reals[symbol], memory_order_relaxed);
    return absent(real) ? NULL : real;
}

/* What the session calls. Threads that race here store the same values. */
static void fill_driver(void) {
#define FILL(member, symbol) __atomic_store_n((void **)&weft_driver.member, or_null(WEFT_SYMBOL_##symbol), __ATOMIC_RELAXED)
    FILL(event_create, cuEventCreate);
    FILL(event_destroy, cuEventDestroy_v2);
    FILL(event_record, cuEventRecord);
    FILL(event_query, cuEventQuery);
    FILL(event_synchronize, cuEventSynchronize);
    FILL(event_elapsed, cuEventElapsedTime);
    FILL(context_get, cuCtxGetCurrent);
    FILL(context_push, cuCtxPushCurrent_v2);
    FILL(context_pop, cuCtxPopCurrent_v2);
    FILL(stream_is_capturing, cuStreamIsCapturing);
    FILL(stream_context, cuStreamGetCtx);
    FILL(capture_mode, cuThreadExchangeStreamCaptureMode);
#undef FILL
}

/* Fills the part of the table that a library serves, if it is loaded and was not there when the table was last filled. */
static void fill(bool nvml) {
    struct weft_object object;
    _Atomic uintptr_t *known = nvml ? &beneath.nvml : &beneath.cuda;
    if (!weft_object_named(nvml ? "libnvidia-ml.so.1" : "libcuda.so.1", &object))
        return;
    if (atomic_load_explicit(known, memory_order_acquire) == object.base)
        return;
    for (size_t i = 0; i < WEFT_SYMBOLS; i++) {
        if (of_nvml(i) != nvml)
            continue;
        void *real = weft_object_find(&object, symbols[i].name);
        if (!real)
            real = nvml ? (void *)missing_nvml : (void *)missing;
        atomic_store_explicit(&weft_reals[i], real, memory_order_release);
    }
    if (!nvml)
        fill_driver();
    atomic_store_explicit(known, object.base, memory_order_release);
}

void *weft_resolve(enum weft_symbol symbol) {
    fill(of_nvml(symbol));
    void *real = atomic_load_explicit(&weft_reals[symbol], memory_order_acquire);
    if (real)
        return real;
    return of_nvml(symbol) ? (void *)missing_nvml : (void *)missing;
}

bool weft_has(enum weft_symbol symbol) {
    return !absent(weft_real(symbol));
}

void weft_pin(void) {
    void *(*open)(const char *, int);
    *(void **)&open = next(&beneath.dlopen, "dlopen");
    if (open)
        open("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static bool without(const char *name) {
#ifdef WEFT_MUTANT
    /* The mutant of the tests: forgets one hook. */
    const char *forgotten = getenv("WEFT_WITHOUT");
    return forgotten && weft_same(forgotten, name);
#else
    (void)name;
    return false;
#endif
}

/* The place of a hooked symbol in the table, or -1. */
static int hooked(const char *name) {
    if (!name || !((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v')))
        return -1;
    for (int i = 0; i < WEFT_SYMBOLS; i++)
        if (weft_same(symbols[i].name, name))
            return symbols[i].hook && !without(name) ? i : -1;
    return -1;
}

void *weft_swap(void *address) {
    for (int i = 0; i < WEFT_SYMBOLS; i++)
        if (symbols[i].hook && atomic_load_explicit(&weft_reals[i], memory_order_acquire) == address &&
            !absent(address) && !without(symbols[i].name))
            return (void *)symbols[i].hook;
    return address;
}

/* What a look-up returns, or where it jumps. */
struct answer {
    void *address, *jump;
};

/* The answer where the driver is not loaded, and all that there is of a symbol is our own export. */
static void *nowhere(int i) {
    void *(*look)(void *, const char *);
    *(void **)&look = next(&beneath.dlsym, "dlsym");
    return look(RTLD_NEXT, symbols[i].name);
}

/* Judges what the next dlsym found for a symbol of the table. */
static void *judge(int i, void *found) {
    if (!found)
        return NULL;
    fill(of_nvml(i));
    void *real = or_null(i), *hook = (void *)symbols[i].hook;
    if (found == real)
        return hook;
    return found != hook || real ? found : nowhere(i);
}

/* RTLD_NEXT for a symbol of the table, asked by code at caller. Where a third library's definition comes after the caller,
 * the next dlsym finds that by itself. Else the driver's is meant, wherever it was loaded. */
static struct answer judge_next(int i, const void *caller, struct answer pass) {
    struct weft_object object;
    void *found = weft_elf_next(caller, symbols[i].name, &object);
    fill(of_nvml(i));
    void *real = or_null(i), *hook = (void *)symbols[i].hook;
    if (found && found != real && found != hook)
        return pass;
    if (real)
        return (struct answer){hook, NULL};
    return found ? (struct answer){nowhere(i), NULL} : pass;
}

struct answer weft_lookup(void *handle, const char *name, const void *caller) {
    struct answer pass = {NULL, next(&beneath.dlsym, "dlsym")};
    int i = hooked(name);
    if (i < 0 || !pass.jump)
        return pass;
    if (handle == RTLD_NEXT)
        return judge_next(i, caller, pass);
    void *(*look)(void *, const char *);
    *(void **)&look = pass.jump;
    return (struct answer){judge(i, look(handle, name)), NULL};
}

struct answer weft_lookup_version(void *handle, const char *name, const char *version, const void *caller) {
    (void)caller;
    struct answer pass = {NULL, next(&beneath.dlvsym, "dlvsym")};
    int i = hooked(name);
    if (i < 0 || !pass.jump || handle == RTLD_NEXT)
        return pass;
    void *(*look)(void *, const char *, const char *);
    *(void **)&look = pass.jump;
    return (struct answer){judge(i, look(handle, name, version)), NULL};
}
