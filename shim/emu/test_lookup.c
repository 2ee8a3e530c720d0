// Looking up entry points: versions, per-thread default streams, what is not found; and the devices that a program may see.
#include <dlfcn.h>

#include "test.h"

static void *found(const char *name, int version, uint64_t flags)
{
    void *p = (void *)1;
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
    OK(cuGetProcAddress_v2(name, &p, version, flags, &status));
    EXPECT(status, CU_GET_PROC_ADDRESS_SUCCESS);
    return p;
}

static void versions(void)
{
    static const struct {
        const char *name;
        int version;
        uint64_t flags;
        const char *symbol;
    } cases[] = {
        {"cuMemAlloc", 13000, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 3010, 0, "cuMemAlloc"},
        {"cuMemAlloc", 12000, 2, "cuMemAlloc_v2"}, // has no per-thread form
        {"cuCtxCreate", 11000, 0, "cuCtxCreate_v2"},
        {"cuCtxCreate", 11040, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
        {"cuLaunchKernel", 12000, 0, "cuLaunchKernel"},
        {"cuLaunchKernel", 12000, 1, "cuLaunchKernel"},
        {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"},
        {"cuLaunchKernel", 5000, 2, "cuLaunchKernel"}, // the per-thread form is younger
        {"cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"},
        {"cuMemcpyHtoDAsync", 12000, 2, "cuMemcpyHtoDAsync_v2_ptsz"},
        {"cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"},
        {"cuStreamBeginCapture", 12000, 2, "cuStreamBeginCapture_v2_ptsz"},
        {"cuStreamGetCaptureInfo", 11000, 0, "cuStreamGetCaptureInfo"},
        {"cuStreamGetCaptureInfo", 12000, 0, "cuStreamGetCaptureInfo_v2"},
        {"cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2"},
        {"cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags"},
        {"cuGetProcAddress", 11030, 0, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
        {"cuMemPrefetchAsync", 12020, 2, "cuMemPrefetchAsync_v2_ptsz"},
        {"cuInit", 2000, 0, "cuInit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *wanted = dlsym(RTLD_DEFAULT, cases[i].symbol), *got = found(cases[i].name, cases[i].version, cases[i].flags);
        if (wanted == NULL || got != wanted) {
            fprintf(stderr, "%s of %d, flags %d: not %s\n", cases[i].name, cases[i].version, (int)cases[i].flags, cases[i].symbol);
            exit(1);
        }
    }
}

static void not_found(void)
{
    void *p = (void *)1;
    CUdriverProcAddressQueryResult status;
    OK(cuGetProcAddress_v2("cuNothing", &p, 13000, 0, &status));
    HOLDS(p == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    OK(cuGetProcAddress_v2("cuLaunchKernelEx", &p, 11000, 0, &status));
    HOLDS(p == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(cuGetProcAddress_v2("cuMemAlloc_v2", &p, 13000, 0, NULL)); // names have no suffix
    HOLDS(p == NULL);
    p = (void *)1;
    EXPECT(cuGetProcAddress("cuNothing", &p, 12000, 0), CUDA_ERROR_NOT_FOUND);
    HOLDS(p == NULL);
    EXPECT(cuGetProcAddress("cuLaunchKernelEx", &p, 11000, 0), CUDA_ERROR_NOT_FOUND);
    OK(cuGetProcAddress("cuMemAlloc", &p, 12000, 0));
    HOLDS(p == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    EXPECT(cuGetProcAddress_v2(NULL, &p, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuGetProcAddress_v2("cuInit", &p, 12000, 7, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuGetExportTable((const void **)&p, &(CUuuid){{1}}), CUDA_ERROR_NOT_FOUND);
}

// ---- Visible devices, each case in a process of its own

struct view {
    CUresult result;
    int count;
    CUuuid uuids[16];
};

static struct view look(const char *visible, const char *order)
{
    struct view v = {0};
    int pipes[2];
    EXPECT(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        visible != NULL ? setenv("CUDA_VISIBLE_DEVICES", visible, 1) : unsetenv("CUDA_VISIBLE_DEVICES");
        order != NULL ? setenv("CUDA_DEVICE_ORDER", order, 1) : unsetenv("CUDA_DEVICE_ORDER");
        v.result = cuInit(0);
        for (v.count = 0; v.result == CUDA_SUCCESS && cuDeviceGetUuid_v2(&v.uuids[v.count], v.count) == CUDA_SUCCESS;)
            v.count++;
        _exit(write(pipes[1], &v, sizeof v) != sizeof v);
    }
    test_child(pid);
    EXPECT(read(pipes[0], &v, sizeof v), sizeof v);
    close(pipes[0]);
    close(pipes[1]);
    return v;
}

static void sees(const char *visible, const struct view *all, const char *wanted)
{
    struct view v = look(visible, NULL);
    EXPECT(v.result, *wanted == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS);
    EXPECT(v.count, strlen(wanted));
    for (int i = 0; i < v.count; i++)
        EXPECT(memcmp(&v.uuids[i], &all->uuids[wanted[i] - '0'], sizeof(CUuuid)), 0);
}

static void visible_devices(void)
{
    struct view all = look(NULL, NULL), bus = look(NULL, "PCI_BUS_ID");
    char uuid[80] = "GPU-";
    EXPECT(all.count, 3);
    // The broker was given t4, h100, a10: on the bus in this order, by speed h100, a10, t4.
    EXPECT(memcmp(&bus.uuids[0], &all.uuids[2], sizeof(CUuuid)), 0);
    EXPECT(memcmp(&bus.uuids[1], &all.uuids[0], sizeof(CUuuid)), 0);
    sees("2", &all, "2");
    sees("2,0", &all, "20");
    sees(" 1 , 2", &all, "12");
    sees("0,1,2", &all, "012");
    sees("", &all, "");
    sees("-1", &all, "");
    sees("1,-1,0", &all, "1"); // the first word that names none ends the list
    sees("0,7,1", &all, "0");
    sees("0,0", &all, "");
    sees("nonsense", &all, "");
    for (int i = 0, at = 4; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            uuid[at++] = '-';
        at += sprintf(uuid + at, "%02x", (unsigned char)all.uuids[1].bytes[i]);
    }
    sees(uuid, &all, "1");
    uuid[12] = 0; // a prefix will do
    sees(uuid, &all, "1");
    sees("GPU-", &all, "");
    sees("GPU-00000000", &all, "");
}

int main(void)
{
    versions();
    not_found();
    visible_devices();
    test_done("lookup");
}
