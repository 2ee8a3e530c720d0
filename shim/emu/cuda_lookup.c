// Looking up entry points by name.
#include <string.h>

#include "cuda_state.h"

// The functions are declared without their parameters: only their addresses matter here.
#define BOTH(name, symbol, version) extern void symbol##_() __asm__(#symbol);
#define OWNED BOTH
#include "cuda_symbols.inc"
#undef BOTH
#undef OWNED

static const struct entry {
    const char *name;
    void (*address)();
    int version;
    bool owned; // works on the per-thread default stream
} entries[] = {
#define BOTH(name, symbol, version) {#name, symbol##_, version, false},
#define OWNED(name, symbol, version) {#name, symbol##_, version, true},
#include "cuda_symbols.inc"
};

static CUdriverProcAddressQueryResult find(const char *name, int version, bool owned, void **out)
{
    const struct entry *best = NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const struct entry *e = &entries[i];
        if (strcmp(e->name, name) != 0)
            continue;
        known = true;
        if (e->version > version || (e->owned && !owned))
            continue;
        if (best == NULL || e->owned > best->owned || (e->owned == best->owned && e->version > best->version))
            best = e;
    }
    *out = best == NULL ? NULL : (void *)best->address;
    return best != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                        : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

EMU_API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, CUdriverProcAddressQueryResult *status)
{
    NEED(name != NULL && out != NULL && flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    CUdriverProcAddressQueryResult found = find(name, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, out);
    if (status != NULL)
        *status = found;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    TRY(cuGetProcAddress_v2(name, out, version, flags, NULL));
    return *out != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// The tables behind this call are no part of the public interface; the emulated driver has none.
EMU_API CUresult cuGetExportTable(const void **out, const CUuuid *id)
{
    NEED(out != NULL && id != NULL);
    *out = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

EMU_API CUresult cuProfilerStart(void)
{
    CUcontext c;
    return context_current(&c);
}

EMU_API CUresult cuProfilerStop(void)
{
    return cuProfilerStart();
}
