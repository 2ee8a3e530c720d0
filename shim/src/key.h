/* The names under which processes share memory. */
#ifndef WEFT_KEY_H
#define WEFT_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "weft_wire.h"

/* The key of an exported descriptor (its file's device and number, then zeros), or of a handle of 64 bytes (itself), which
 * ever is given. False where neither tells one piece of memory from another: a driver that exports its one device file. */
bool weft_key_of(int descriptor, const void *handle, uint8_t key[WEFT_KEY]);

#endif
