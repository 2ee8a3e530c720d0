/* The memory limit that a user may lower for a process. */
#ifndef WEFT_LIMIT_H
#define WEFT_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "weft_wire.h"

/* Reads "512MiB", "1.5GiB", "20GiB"; bytes. False for anything else. */
bool weft_limit_parse(const char *text, uint64_t *bytes);

/* Lowers the limits of the terms as the text says, and returns the limit; UINT64_MAX where the text is NULL, does not say one
 * or is above a GPU's: then one line on stderr says so, and nothing changes. */
uint64_t weft_limit_lower(struct weft_welcome *terms, const char *text);

#endif
