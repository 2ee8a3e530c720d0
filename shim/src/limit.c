#include "limit.h"

#include <stddef.h>
#include <string.h>

#include "say.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define LEAST (256 * MIB) /* a context and its libraries do not fit into less */

static bool digit(char c) { return c >= '0' && c <= '9'; }

bool weft_limit_parse(const char *text, uint64_t *bytes) {
    uint64_t whole = 0, part = 0, scale = 1;
    if (!digit(*text))
        return false;
    for (; digit(*text); text++)
        if ((whole = whole * 10 + (uint64_t)(*text - '0')) >= 1u << 30)
            return false;
    if (*text == '.' && !digit(*++text))
        return false;
    for (; digit(*text) && scale < 1000000; text++) {
        part = part * 10 + (uint64_t)(*text - '0');
        scale *= 10;
    }
    uint64_t unit = !strcmp(text, "MiB") ? MIB : !strcmp(text, "GiB") ? GIB : 0;
    *bytes = whole * unit + part * unit / scale;
    return unit > 0;
}

static double gib(uint64_t bytes) { return (double)bytes / (double)GIB; }

uint64_t weft_limit_lower(struct weft_welcome *terms, const char *text) {
    uint64_t bytes;
    if (!text || !*text)
        return UINT64_MAX;
    if (!weft_limit_parse(text, &bytes)) {
        weft_say("WEFT_MEMORY=%.32s is not a size such as 512MiB or 10GiB: ignored", text);
        return UINT64_MAX;
    }
    if (bytes < LEAST) {
        weft_say("WEFT_MEMORY=%.32s: min 256 MiB: ignored", text);
        return UINT64_MAX;
    }
    for (uint32_t i = 0; i < terms->count; i++)
        if (bytes > terms->gpus[i].limit) {
            weft_say("WEFT_MEMORY=%.32s may only lower the job's limit of %.4g GiB: ignored; weft exec --peak asks for more", text,
                     gib(terms->gpus[i].limit));
            return UINT64_MAX;
        }
    for (uint32_t i = 0; i < terms->count; i++) {
        terms->gpus[i].limit = bytes;
        if (terms->gpus[i].reserved > bytes)
            terms->gpus[i].reserved = bytes;
    }
    return bytes;
}
