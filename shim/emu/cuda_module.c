// Modules, libraries and their kernels. The image is text that names its kernels and what they cost, in lines of the form
//
//     // weft-emu: kernel NAME cost_ns=N        N ns
//     // weft-emu: kernel NAME cost=param0_ns   as many ns as the first parameter, a 64-bit number, says
//     // weft-emu: kernel NAME cost=grid_ns:N   N ns for each block, over the processors of the GPU
//
// PTX that holds such comments runs on a real driver too. A library is a module that is not bound to a context, and its kernels are
// launched as functions are.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_state.h"

#define MARK "// weft-emu: kernel "

struct CUmod_st {
    struct object object;
    CUcontext context; // NULL: a library
    CUfunction *functions;
    unsigned count;
};

static struct shelf module_shelf = SHELF(struct CUmod_st, MODULE), function_shelf = SHELF(struct CUfunc_st, FUNCTION);

// ---- Reading an image

static CUresult read_line(const char *line, CUfunction f)
{
    char cost[64];
    unsigned long long n;
    if (sscanf(line, MARK "%127s %63s", f->name, cost) != 2)
        return CUDA_ERROR_INVALID_PTX;
    if (sscanf(cost, "cost_ns=%llu", &n) == 1) {
        f->cost = COST_FIXED;
    } else if (strcmp(cost, "cost=param0_ns") == 0) {
        f->cost = COST_PARAMETER;
        n = 0;
    } else if (sscanf(cost, "cost=grid_ns:%llu", &n) == 1) {
        f->cost = COST_GRID;
    } else {
        return CUDA_ERROR_INVALID_PTX;
    }
    f->ns = n;
    return CUDA_SUCCESS;
}

static CUresult add_function(CUmodule m, const char *line, CUcontext context)
{
    CUfunction *more = realloc(m->functions, (m->count + 1) * sizeof *more);
    CUfunction f = more == NULL ? NULL : object_new(&function_shelf);
    if (more != NULL)
        m->functions = more;
    if (f == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->functions[m->count++] = f;
    f->module = m;
    f->context_id = context != NULL ? context->id : 0;
    f->id = (uint32_t)++driver.last_id;
    f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    f->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    f->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 64;
    f->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 80;
    f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 48 * 1024;
    f->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    for (int i = 0; i < 3; i++)
        f->block[i] = 1;
    return read_line(line, f);
}

// image_check tells text from what a compiler made for a real GPU.
static CUresult image_check(const unsigned char *image)
{
    uint32_t magic = 0;
    if (image[0] == 0 || image[1] == 0 || image[2] == 0 || image[3] == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&magic, image, sizeof magic);
    if (magic == 0x464c457f || magic == 0x466243b1 || magic == 0xba55ed50) // ELF, a wrapped and a bare fat binary
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (strstr((const char *)image, MARK) != NULL)
        return CUDA_SUCCESS;
    return strstr((const char *)image, ".version") != NULL ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
}

static void module_retire(CUmodule m)
{
    for (unsigned i = 0; i < m->count; i++)
        object_retire(&function_shelf, m->functions[i]);
    free(m->functions);
    object_retire(&module_shelf, m);
}

static CUresult load(CUmodule *out, const void *image, CUcontext context)
{
    NEED(out != NULL && image != NULL);
    TRY(image_check(image));
    driver_lock();
    CUmodule m = object_new(&module_shelf);
    CUresult result = m != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (const char *at = image; result == CUDA_SUCCESS && (at = strstr(at, MARK)) != NULL; at += sizeof MARK - 1)
        result = add_function(m, at, context);
    if (result == CUDA_SUCCESS) {
        m->context = context;
        *out = m;
    } else if (m != NULL) {
        module_retire(m);
    }
    driver_unlock();
    return result;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t length = 0, n = 0;
    if (f == NULL)
        return NULL;
    do {
        char *more = realloc(text, length + 65536 + 4);
        if (more == NULL)
            break;
        text = more;
        n = fread(text + length, 1, 65536, f);
        length += n;
        memset(text + length, 0, 4);
    } while (n > 0);
    fclose(f);
    return text;
}

static CUresult load_file(CUmodule *out, const char *path, CUcontext context)
{
    NEED(path != NULL);
    char *text = read_file(path);
    if (text == NULL)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = load(out, text, context);
    free(text);
    return result;
}

// ---- Modules

EMU_API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    CUcontext c;
    TRY(context_current(&c));
    TRY(capture_unsafe());
    return load(out, image, c);
}

EMU_API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, CUjit_option *options, void **values)
{
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(out, image);
}

EMU_API CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image)
{
    return cuModuleLoadData(out, image);
}

EMU_API CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    CUcontext c;
    TRY(context_current(&c));
    return load_file(out, path, c);
}

static CUresult module_enter(CUmodule module)
{
    struct thread *t;
    TRY(driver_enter(&t));
    return object_is(module, MODULE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EMU_API CUresult cuModuleUnload(CUmodule module)
{
    CUcontext c;
    TRY(context_current(&c));
    TRY(module_enter(module));
    TRY(context_wait(c));
    driver_lock();
    module_retire(module);
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    NEED(out != NULL && name != NULL);
    TRY(module_enter(module));
    for (unsigned i = 0; i < module->count; i++)
        if (strcmp(module->functions[i]->name, name) == 0) {
            *out = module->functions[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

EMU_API CUresult cuModuleGetFunctionCount(unsigned *out, CUmodule module)
{
    NEED(out != NULL);
    TRY(module_enter(module));
    *out = module->count;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned count, CUmodule module)
{
    NEED(out != NULL);
    TRY(module_enter(module));
    for (unsigned i = 0; i < count && i < module->count; i++)
        out[i] = module->functions[i];
    return CUDA_SUCCESS;
}

// A text has no variables.
EMU_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    NEED((address != NULL || bytes != NULL) && name != NULL);
    TRY(module_enter(module));
    return CUDA_ERROR_NOT_FOUND;
}

EMU_API CUresult cuModuleGetLoadingMode(int *out)
{
    struct thread *t;
    NEED(out != NULL);
    TRY(driver_enter(&t));
    *out = 2; // lazy
    return CUDA_SUCCESS;
}

// ---- Libraries

EMU_API CUresult cuLibraryLoadData(CUlibrary *out, const void *image, CUjit_option *jit, void **jit_values, unsigned jit_count,
                                   CUlibraryOption *options, void **values, unsigned count)
{
    struct thread *t;
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    TRY(driver_enter(&t));
    return load((CUmodule *)out, image, NULL);
}

EMU_API CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *jit, void **jit_values, unsigned jit_count,
                                       CUlibraryOption *options, void **values, unsigned count)
{
    struct thread *t;
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    TRY(driver_enter(&t));
    return load_file((CUmodule *)out, path, NULL);
}

EMU_API CUresult cuLibraryUnload(CUlibrary library)
{
    TRY(module_enter((CUmodule)library));
    driver_lock();
    module_retire((CUmodule)library);
    driver_unlock();
    return CUDA_SUCCESS;
}

EMU_API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name)
{
    return cuModuleGetFunction((CUfunction *)out, (CUmodule)library, name);
}

EMU_API CUresult cuLibraryGetKernelCount(unsigned *out, CUlibrary library)
{
    return cuModuleGetFunctionCount(out, (CUmodule)library);
}

EMU_API CUresult cuLibraryEnumerateKernels(CUkernel *out, unsigned count, CUlibrary library)
{
    return cuModuleEnumerateFunctions((CUfunction *)out, count, (CUmodule)library);
}

EMU_API CUresult cuLibraryGetModule(CUmodule *out, CUlibrary library)
{
    CUcontext c;
    NEED(out != NULL);
    TRY(context_current(&c));
    TRY(module_enter((CUmodule)library));
    *out = (CUmodule)library;
    return CUDA_SUCCESS;
}

EMU_API CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    return cuModuleGetGlobal_v2(address, bytes, (CUmodule)library, name);
}

EMU_API CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name)
{
    return cuModuleGetGlobal_v2(address, bytes, (CUmodule)library, name);
}
