/* Which of the allocation's GPUs a device of the driver is: by UUID, since the two number them apart. */
#ifndef WEFT_DEVICES_H
#define WEFT_DEVICES_H

#include "weft_cuda.h"
#include "weft_wire.h"

#define WEFT_NO_GPU (~0u) /* not of the allocation, or the process runs unshared */
#define WEFT_UUID_TEXT 41u /* bytes of "GPU-" and a UUID, with the end */

void weft_uuid_text(const uint8_t uuid[16], char text[WEFT_UUID_TEXT]);

/* The allocation's GPU of this UUID, or WEFT_NO_GPU. */
unsigned weft_uuid_gpu(const struct weft_welcome *terms, const uint8_t uuid[16]);

unsigned weft_device_gpu(CUdevice device);

/* The GPU of the calling thread's context, and that context where it is wanted. WEFT_NO_GPU without one. */
unsigned weft_current_gpu(CUcontext *context);

#endif
