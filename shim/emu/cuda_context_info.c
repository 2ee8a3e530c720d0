// What a program may ask of a context, and set.
#include "cuda_state.h"

EMU_API CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext context)
{
    CUcontext c = context;
    NEED(out != NULL);
    if (c == NULL)
        TRY(context_current(&c));
    else
        TRY(context_check(c));
    *out = (CUdevice)(c->device - driver.devices);
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetDevice(CUdevice *out)
{
    return cuCtxGetDevice_v2(out, NULL);
}

EMU_API CUresult cuCtxGetFlags(unsigned *out)
{
    CUcontext c;
    NEED(out != NULL);
    TRY(context_current(&c));
    *out = c->flags;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSetFlags(unsigned flags)
{
    CUcontext c;
    NEED((flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0);
    TRY(context_current(&c));
    c->flags = flags;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetId(CUcontext context, unsigned long long *out)
{
    CUcontext c = context;
    NEED(out != NULL);
    if (c == NULL)
        TRY(context_current(&c));
    else
        TRY(context_check(c));
    *out = c->id;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetApiVersion(CUcontext context, unsigned *out)
{
    CUcontext c = context;
    NEED(out != NULL);
    if (c == NULL)
        TRY(context_current(&c));
    else
        TRY(context_check(c));
    *out = c->api;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetLimit(size_t *out, CUlimit limit)
{
    CUcontext c;
    NEED(out != NULL);
    TRY(context_current(&c));
    if (limit < 0 || limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *out = c->limits[limit];
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUcontext c;
    TRY(context_current(&c));
    if (limit < 0 || limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    c->limits[limit] = value;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetCacheConfig(CUfunc_cache *out)
{
    CUcontext c;
    NEED(out != NULL);
    TRY(context_current(&c));
    *out = c->cache;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    CUcontext c;
    TRY(context_current(&c));
    c->cache = config;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetSharedMemConfig(CUsharedconfig *out)
{
    CUcontext c;
    NEED(out != NULL);
    TRY(context_current(&c));
    *out = c->banks;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    CUcontext c;
    TRY(context_current(&c));
    c->banks = config;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxResetPersistingL2Cache(void)
{
    CUcontext c;
    return context_current(&c);
}

EMU_API CUresult cuCtxGetExecAffinity(CUexecAffinityParam *out, CUexecAffinityType type)
{
    CUcontext c;
    NEED(out != NULL);
    TRY(context_current(&c));
    if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    out->type = type;
    out->param.smCount.val = c->device->info.processors;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUcontext c;
    TRY(context_current(&c));
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return CUDA_SUCCESS;
}

// ---- Peers: every emulated GPU reaches every other over PCIe

EMU_API CUresult cuDeviceCanAccessPeer(int *out, CUdevice device, CUdevice peer)
{
    struct device *a, *b;
    NEED(out != NULL);
    TRY(driver_device(device, &a));
    TRY(driver_device(peer, &b));
    *out = a != b;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuDeviceGetP2PAttribute(int *out, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    struct device *a, *b;
    NEED(out != NULL && attribute >= CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK);
    TRY(driver_device(device, &a));
    TRY(driver_device(peer, &b));
    if (a == b)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || attribute == CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult peer_set(CUcontext peer, bool wanted)
{
    CUcontext c;
    TRY(context_current(&c));
    if (!object_is(peer, CONTEXT) || peer->device == c->device)
        return CUDA_ERROR_INVALID_CONTEXT;
    bool *has = &c->peers[peer->device - driver.devices];
    if (*has == wanted)
        return wanted ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    *has = wanted;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    NEED(flags == 0);
    return peer_set(peer, true);
}

EMU_API CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    return peer_set(peer, false);
}
