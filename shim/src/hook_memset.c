/* Memsets, of one and two dimensions, for elements of 8, 16 and 32 bits. */
#include "gated.h"

#define MEMSET(name, parameters, given, bytes, arguments)                                                              \
    GATED(name, parameters, given, WEFT_WORK_COPY, (uintptr_t)(bytes), arguments)

#define LINE(bits, type)                                                                                               \
    MEMSET(cuMemsetD##bits, (CUdeviceptr_v1 at, type value, unsigned count), NULL, count * sizeof(type),               \
           (at, value, count))                                                                                         \
    MEMSET(cuMemsetD##bits##_v2, (CUdeviceptr at, type value, size_t count), NULL, count * sizeof(type),               \
           (at, value, count))                                                                                         \
    MEMSET(cuMemsetD##bits##_v2_ptds, (CUdeviceptr at, type value, size_t count), CU_STREAM_PER_THREAD,                \
           count * sizeof(type), (at, value, count))                                                                   \
    MEMSET(cuMemsetD##bits##Async, (CUdeviceptr at, type value, size_t count, CUstream stream), stream,                \
           count * sizeof(type), (at, value, count, stream))                                                           \
    MEMSET(cuMemsetD##bits##Async_ptsz, (CUdeviceptr at, type value, size_t count, CUstream stream),                   \
           weft_own(stream), count * sizeof(type), (at, value, count, stream))

#define PLANE(bits, type)                                                                                              \
    MEMSET(cuMemsetD2D##bits, (CUdeviceptr_v1 at, unsigned pitch, type value, unsigned width, unsigned height), NULL,  \
           (size_t)width * height * sizeof(type), (at, pitch, value, width, height))                                   \
    MEMSET(cuMemsetD2D##bits##_v2, (CUdeviceptr at, size_t pitch, type value, size_t width, size_t height), NULL,      \
           width * height * sizeof(type), (at, pitch, value, width, height))                                           \
    MEMSET(cuMemsetD2D##bits##_v2_ptds, (CUdeviceptr at, size_t pitch, type value, size_t width, size_t height),       \
           CU_STREAM_PER_THREAD, width * height * sizeof(type), (at, pitch, value, width, height))                     \
    MEMSET(cuMemsetD2D##bits##Async,                                                                                   \
           (CUdeviceptr at, size_t pitch, type value, size_t width, size_t height, CUstream stream), stream,           \
           width * height * sizeof(type), (at, pitch, value, width, height, stream))                                   \
    MEMSET(cuMemsetD2D##bits##Async_ptsz,                                                                              \
           (CUdeviceptr at, size_t pitch, type value, size_t width, size_t height, CUstream stream), weft_own(stream), \
           width * height * sizeof(type), (at, pitch, value, width, height, stream))

LINE(8, unsigned char)
LINE(16, unsigned short)
LINE(32, unsigned)
PLANE(8, unsigned char)
PLANE(16, unsigned short)
PLANE(32, unsigned)
