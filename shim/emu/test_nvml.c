// NVML: devices, memory and processes as the broker has them, structures of every version, events.
#include "test.h"

nvmlReturn_t nvmlInit_v2(void);
nvmlReturn_t nvmlShutdown(void);
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned);
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char *, unsigned);
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t, unsigned *);
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t, nvmlPciInfo_t *);
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *);
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned *, nvmlProcessInfo_v3_t *);
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned *, void *);
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t, nvmlProcessDetailList_v1_t *);
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t *);
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *, unsigned long long);
nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t, nvmlProcessesUtilizationInfo_v1_t *);
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t, unsigned *, unsigned *);
nvmlReturn_t nvmlSystemGetProcessName(unsigned, char *, unsigned);
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *);
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t);
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t, unsigned long long, nvmlEventSet_t);
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t, nvmlEventData_t *, unsigned);
const char *nvmlErrorString(nvmlReturn_t);

static nvmlDevice_t device(unsigned index)
{
    nvmlDevice_t d;
    OK(nvmlDeviceGetHandleByIndex_v2(index, &d));
    return d;
}

static void identity(void)
{
    unsigned n;
    nvmlDevice_t d;
    nvmlPciInfo_t pci;
    char text[96];
    EXPECT(nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
    OK(nvmlInit_v2());
    OK(nvmlInit_v2());
    OK(nvmlShutdown());
    OK(nvmlDeviceGetCount_v2(&n)); // counted
    EXPECT(n, 3);
    EXPECT(nvmlDeviceGetHandleByIndex_v2(3, &d), NVML_ERROR_INVALID_ARGUMENT);
    OK(nvmlDeviceGetName(device(0), text, sizeof text));
    HOLDS(strstr(text, "T4") != NULL); // the order of the bus, not of speed
    EXPECT(nvmlDeviceGetName(device(0), text, 3), NVML_ERROR_INSUFFICIENT_SIZE);
    OK(nvmlDeviceGetUUID(device(1), text, sizeof text));
    OK(nvmlDeviceGetHandleByUUID(text, &d));
    HOLDS(d == device(1));
    EXPECT(nvmlDeviceGetHandleByUUID("GPU-nothing", &d), NVML_ERROR_NOT_FOUND);
    OK(nvmlDeviceGetPciInfo_v3(device(2), &pci));
    OK(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &d));
    HOLDS(d == device(2));
    OK(nvmlDeviceGetHandleByPciBusId_v2(pci.busIdLegacy, &d));
    HOLDS(d == device(2));
    OK(nvmlDeviceGetIndex(d, &n));
    EXPECT(n, 2);
    EXPECT(nvmlDeviceGetName((nvmlDevice_t)text, text, sizeof text), NVML_ERROR_INVALID_ARGUMENT);
    EXPECT(nvmlDeviceGetMigMode(d, &n, &n), NVML_ERROR_NOT_SUPPORTED);
    EXPECT(strcmp(nvmlErrorString(NVML_ERROR_NOT_SUPPORTED), "Not Supported"), 0);
}

// The same bytes by every form; CUDA's first device, the H100, is the second here.
static void memory(void)
{
    nvmlMemory_t v1;
    nvmlMemory_v2_t v2 = {.version = 1};
    CUdeviceptr p;
    test_context();
    EXPECT(nvmlDeviceGetMemoryInfo_v2(device(1), &v2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    v2.version = WEFT_NVML_VERSION(nvmlMemory_v2_t, 2);
    EXPECT(v2.version, 0x2000028);
    OK(cuMemAlloc_v2(&p, 100 * MIB));
    OK(nvmlDeviceGetMemoryInfo(device(1), &v1));
    OK(nvmlDeviceGetMemoryInfo_v2(device(1), &v2));
    EXPECT(v1.total, 8192 * MIB);
    EXPECT(v1.free, test_free());
    EXPECT(v1.used + v1.free, v1.total);
    EXPECT(v2.total, v1.total);
    EXPECT(v2.free, v1.free);
    EXPECT(v2.used, 356 * MIB);
    EXPECT(v2.reserved + v2.used + v2.free, v2.total);
    OK(cuMemFree_v2(p));
    OK(nvmlDeviceGetMemoryInfo(device(0), &v1));
    EXPECT(v1.free, 7168 * MIB);
}

static void processes(void)
{
    unsigned n = 0;
    char name[256];
    nvmlProcessInfo_v1_t v1[4];
    nvmlProcessInfo_v3_t v3[4];
    nvmlProcessDetail_v1_t detail[4];
    nvmlProcessDetailList_v1_t list = {.version = WEFT_NVML_VERSION(nvmlProcessDetailList_v1_t, 1), .numProcArrayEntries = 4,
                                       .procArray = detail};
    EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(device(1), &n, NULL), NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT(n, 1);
    n = 4;
    OK(nvmlDeviceGetComputeRunningProcesses_v3(device(1), &n, v3));
    EXPECT(n, 1);
    EXPECT(v3[0].pid, getpid());
    EXPECT(v3[0].usedGpuMemory, 256 * MIB);
    EXPECT(v3[0].gpuInstanceId, NVML_NO_INSTANCE);
    memset(v1, 7, sizeof v1);
    n = 4;
    OK(nvmlDeviceGetComputeRunningProcesses(device(1), &n, v1));
    EXPECT(v1[0].pid, getpid());
    EXPECT(v1[0].usedGpuMemory, 256 * MIB);
    EXPECT(v1[1].pid, 0x07070707); // nothing is written past the smaller structure
    OK(nvmlDeviceGetRunningProcessDetailList(device(1), &list));
    EXPECT(list.numProcArrayEntries, 1);
    EXPECT(detail[0].pid, getpid());
    n = 4;
    OK(nvmlDeviceGetComputeRunningProcesses_v3(device(0), &n, v3));
    EXPECT(n, 0);
    n = 4;
    OK(nvmlDeviceGetGraphicsRunningProcesses_v3(device(1), &n, v3));
    EXPECT(n, 0);
    OK(nvmlSystemGetProcessName((unsigned)getpid(), name, sizeof name));
    HOLDS(strstr(name, "test_nvml") != NULL);
    EXPECT(nvmlSystemGetProcessName(0x7fffffff, name, sizeof name), NVML_ERROR_NOT_FOUND);
}

static void utilisation(void)
{
    nvmlUtilization_t u;
    for (int i = 0; i < 20; i++) {
        OK(test_spin(NULL, 50000000));
        OK(cuCtxSynchronize());
    }
    OK(nvmlDeviceGetUtilizationRates(device(1), &u));
    HOLDS(u.gpu > 50 && u.gpu <= 100);
    OK(nvmlDeviceGetUtilizationRates(device(2), &u));
    EXPECT(u.gpu, 0);
}

static void utilisation_of_processes(void)
{
    nvmlProcessUtilizationSample_t sample[4];
    nvmlProcessUtilizationInfo_v1_t detail[4];
    nvmlProcessesUtilizationInfo_v1_t info = {.version = 1, .processSamplesCount = 4, .procUtilArray = detail};
    unsigned n = 0;
    EXPECT(nvmlDeviceGetProcessUtilization(device(1), NULL, &n, 0), NVML_ERROR_INSUFFICIENT_SIZE);
    EXPECT(n, 1);
    OK(nvmlDeviceGetProcessUtilization(device(1), sample, &n, 0));
    EXPECT(sample[0].pid, getpid());
    OK(test_spin(NULL, 100000000));
    OK(cuCtxSynchronize());
    OK(nvmlDeviceGetProcessUtilization(device(1), sample, &n, 0));
    HOLDS(sample[0].smUtil > 50 && sample[0].smUtil <= 100);
    n = 4;
    EXPECT(nvmlDeviceGetProcessUtilization(device(2), sample, &n, 0), NVML_ERROR_NOT_FOUND);
    EXPECT(nvmlDeviceGetProcessesUtilizationInfo(device(1), &info), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    info.version = WEFT_NVML_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1);
    OK(nvmlDeviceGetProcessesUtilizationInfo(device(1), &info));
    EXPECT(info.processSamplesCount, 1);
    EXPECT(detail[0].pid, getpid());
}

// A child of fork may go on with it.
static void forked(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        nvmlMemory_t m;
        OK(nvmlDeviceGetMemoryInfo(device(1), &m));
        EXPECT(m.total, 8192 * MIB);
        exit(0);
    }
    test_child(pid);
    nvmlMemory_t m;
    OK(nvmlDeviceGetMemoryInfo(device(1), &m));
}

// WEFT names the program that makes faults.
static void fault(const char *kind)
{
    char command[512];
    snprintf(command, sizeof command, "%s -q emugpu fault --socket %s %s >/dev/null", getenv("WEFT"), getenv("WEFT_EMU_SOCKET"), kind);
    weftEmuBlock();
    EXPECT(system(command), 0);
    weftEmuUnblock();
}

static void events(void)
{
    nvmlEventSet_t set;
    nvmlEventData_t e;
    nvmlMemory_t m;
    char text[96];
    OK(nvmlEventSetCreate(&set));
    fault("--gpu 2 xid 31"); // before anyone listened
    EXPECT(nvmlDeviceRegisterEvents(device(2), 1, set), NVML_ERROR_NOT_SUPPORTED);
    OK(nvmlDeviceRegisterEvents(device(2), nvmlEventTypeXidCriticalError, set));
    EXPECT(nvmlEventSetWait_v2(set, &e, 50), NVML_ERROR_TIMEOUT);
    fault("--gpu 0 xid 13"); // of a device that is not registered
    fault("--gpu 2 xid 31");
    OK(nvmlEventSetWait_v2(set, &e, 1000));
    HOLDS(e.device == device(2) && e.eventType == nvmlEventTypeXidCriticalError && e.eventData == 31);
    fault("--gpu 2 lost");
    OK(nvmlEventSetWait_v2(set, &e, 1000));
    EXPECT(e.eventData, 79);
    EXPECT(nvmlDeviceGetMemoryInfo(device(2), &m), NVML_ERROR_GPU_IS_LOST);
    OK(nvmlDeviceGetUUID(device(2), text, sizeof text)); // still known by name
    OK(nvmlEventSetFree(set));
}

int main(void)
{
    identity();
    memory();
    processes();
    utilisation();
    utilisation_of_processes();
    forked();
    events();
    OK(nvmlShutdown());
    EXPECT(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
    test_done("nvml");
}
