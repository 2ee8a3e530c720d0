/* What look-ups find in a process with libweft.so preloaded.
 *
 *   lookups absent            no driver is loaded
 *   lookups present           a driver is, the one that does nothing, and wrapper.c is preloaded after libweft.so
 *   lookups limit             allocates through the driver, beyond the limit, in each way that a program finds it
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_cuda.h"

static bool good = true;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: not %s\n", __LINE__, #condition);                                                \
            good = false;                                                                                              \
        }                                                                                                              \
    } while (0)

/* Of the program, before those of the wrapper and of the C library. */
__attribute__((visibility("default"))) int getpagesize(void) { return -1; }

static const char *home(const void *address) {
    Dl_info info;
    if (!address || !dladdr(address, &info))
        return "nowhere";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static bool from(const void *address, const char *library) {
    return strstr(home(address), library) != NULL;
}

static void plain(void) {
    dlerror();
    EXPECT(dlsym(RTLD_DEFAULT, "no_such_symbol") == NULL);
    const char *error = dlerror();
    EXPECT(error && strstr(error, "undefined symbol: no_such_symbol") && !strstr(error, "libweft"));
    EXPECT(from(dlsym(RTLD_DEFAULT, "malloc"), "libc.so"));
    EXPECT(from(dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5"), "libc.so"));
    EXPECT(dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_9.9") == NULL);
    error = dlerror();
    EXPECT(error && strstr(error, "malloc"));
    void *math = dlopen("libm.so.6", RTLD_NOW);
    EXPECT(from(dlsym(math, "cos"), "libm.so"));
    EXPECT(from(dlsym(RTLD_DEFAULT, "weft_iteration"), "libweft"));
}

static void absent(void) {
    static const char *names[] = {"cuLaunchKernel", "cuMemAlloc_v2", "cuInit", "nvmlDeviceGetCount_v2"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        EXPECT(dlsym(RTLD_DEFAULT, names[i]) == NULL);
        const char *error = dlerror();
        EXPECT(error && strstr(error, "undefined symbol") && strstr(error, names[i]));
        void *program = dlopen(NULL, RTLD_NOW);
        EXPECT(dlsym(program, names[i]) == NULL);
        EXPECT(dlsym(RTLD_NEXT, names[i]) == NULL);
    }
    EXPECT(dlopen("libcuda.so.1", RTLD_NOW) == NULL);
}

/* A symbol of the driver whose name no line of the manifest has, and one that is exempted. */
static void present(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    EXPECT(cuda && nvml);
    void *hook = dlsym(cuda, "cuMemAlloc_v2");
    EXPECT(from(hook, "libweft"));
    EXPECT(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == hook); /* though the driver is loaded locally: as a linked program's */
    EXPECT(from(dlsym(cuda, "cuEventQuery"), "libcuda"));
    EXPECT(from(dlsym(cuda, "fake"), "libcuda"));
    EXPECT(from(dlsym(cuda, "cuGetExportTable"), "libcuda"));
    EXPECT(dlsym(cuda, "cuMemAlloc_v9") == NULL);
    const char *error = dlerror();
    EXPECT(error && strstr(error, "libcuda.so.1: undefined symbol: cuMemAlloc_v9"));
    EXPECT(dlsym(cuda, "cudnnCreate") == NULL && dlsym(cuda, "cu") == NULL && dlsym(cuda, "") == NULL);
    EXPECT(from(dlsym(nvml, "nvmlDeviceGetCount_v2"), "libweft"));
    EXPECT(from(dlsym(nvml, "nvmlDeviceGetUUID"), "libnvidia-ml"));

    /* The wrapper comes after libweft.so: were that the caller, the wrapper's next would be the wrapper. */
    int (*(*next)(const char *))(void);
    *(void **)&next = dlsym(RTLD_DEFAULT, "wrapper_next");
    EXPECT(next && from((void *)next("getpagesize"), "libc.so"));
    EXPECT(from(dlsym(RTLD_NEXT, "getpagesize"), "libwrapper"));
}

/* Ways of a program to the driver's allocation; how many are refused beyond the limit of 1 GiB. */
static void limit(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *none = NULL;
    CUresult (*init)(unsigned), (*retain)(CUcontext *, CUdevice), (*current)(CUcontext);
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    *(void **)&current = dlsym(cuda, "cuCtxSetCurrent");
    CUcontext context;
    EXPECT(init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS && current(context) == CUDA_SUCCESS);
    weft_get_proc_address_v2 look;
    *(void **)&look = dlsym(cuda, "cuGetProcAddress_v2");
    void *ways[] = {dlsym(cuda, "cuMemAlloc_v2"), dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), dlsym(RTLD_NEXT, "cuMemAlloc_v2"), NULL};
    EXPECT(look("cuMemAlloc", &ways[3], 12000, 0, (void *)&none) == CUDA_SUCCESS);
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        CUresult (*alloc)(CUdeviceptr *, size_t);
        CUdeviceptr address;
        *(void **)&alloc = ways[i];
        EXPECT(alloc != NULL);
        CUresult small = alloc ? alloc(&address, 1 << 20) : CUDA_ERROR_UNKNOWN;
        CUresult large = alloc ? alloc(&address, (size_t)2 << 30) : CUDA_ERROR_UNKNOWN;
        if (small != CUDA_SUCCESS || large != CUDA_ERROR_OUT_OF_MEMORY) {
            fprintf(stderr, "way %u, by %s: 1 MiB gives %d, 2 GiB gives %d\n", i, home(ways[i]), small, large);
            good = false;
        }
    }
    unsigned *calls = dlsym(RTLD_DEFAULT, "neighbour_calls");
    printf("%u", calls ? *calls : 0);
}

int main(int count, char **arguments) {
    plain();
    if (count > 1 && !strcmp(arguments[1], "absent"))
        absent();
    else if (count > 1 && !strcmp(arguments[1], "present"))
        present();
    else if (count > 1 && !strcmp(arguments[1], "limit"))
        limit();
    fflush(NULL);
    return !good;
}
