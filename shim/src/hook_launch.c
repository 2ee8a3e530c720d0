/* Kernels. */
#include "gated.h"

GATED_BOTH(cuLaunchKernel,
           (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
            unsigned block_z, unsigned shared, CUstream stream, void **parameters, void **extra),
           stream, WEFT_WORK_KERNEL, function,
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra))

GATED_BOTH(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
           config ? config->hStream : NULL, WEFT_WORK_KERNEL, function, (config, function, parameters, extra))

GATED_BOTH(cuLaunchCooperativeKernel,
           (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
            unsigned block_z, unsigned shared, CUstream stream, void **parameters),
           stream, WEFT_WORK_KERNEL, function,
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters))

GATED(cuLaunch, (CUfunction function), NULL, WEFT_WORK_KERNEL, function, (function))
GATED(cuLaunchGrid, (CUfunction function, int width, int height), NULL, WEFT_WORK_KERNEL, function,
      (function, width, height))
GATED(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream), stream, WEFT_WORK_KERNEL,
      function, (function, width, height, stream))

/* One kernel on each of several devices; none of their streams can be capturing. */
HOOK(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags) {
    unsigned counted = launches ? count : 0;
    for (unsigned i = 0; i < counted; i++)
        weft_launch_begin(launches[i].hStream, WEFT_WORK_KERNEL, launches[i].function);
    CUresult result = REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
    for (unsigned i = counted; i-- > 0;)
        weft_launch_end(launches[i].hStream, WEFT_WORK_KERNEL, launches[i].function, result == CUDA_SUCCESS);
    return result;
}
