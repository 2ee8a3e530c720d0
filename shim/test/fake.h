/* What the driver that does nothing remembers. Exported as `fake`. */
#ifndef WEFT_TEST_FAKE_H
#define WEFT_TEST_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft_wire.h"

#define FAKE_INVALID 0xdeadbeef000ull            /* an address that no call takes */
#define FAKE_GRAPH_BYTES ((size_t)5 << 20)       /* allocated by each graph */

struct fake {
    char visible[256]; /* CUDA_VISIBLE_DEVICES at cuInit */
    size_t used, reserved, graphs;
    bool capturing;
    bool done; /* events of the session are; else only a synchronisation tells so */
    uint64_t retained;
    _Atomic unsigned asked; /* whether a stream is capturing */
};

#endif
