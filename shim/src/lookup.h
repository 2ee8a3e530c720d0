/* The table of the driver's real functions and of the hooks that take their place.
 *
 * A real function is the definition in libcuda.so.1 or libnvidia-ml.so.1 itself, found by reading that object: what other
 * preloaded libraries export does not matter. An application is handed a hook only in place of exactly that address.
 */
#ifndef WEFT_LOOKUP_TABLE_H
#define WEFT_LOOKUP_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>

/* Every symbol that is hooked or called: its place in the table. */
enum weft_symbol {
#define HOOK(family, name) WEFT_SYMBOL_##name,
#define CALL(family, name, reason) WEFT_SYMBOL_##name,
#define EXEMPT(family, name, reason)
#define FOREIGN(prefix, reason)
#include "manifest.def"
#undef HOOK
#undef CALL
#undef EXEMPT
#undef FOREIGN
    WEFT_SYMBOLS
};

extern _Atomic(void *) weft_reals[WEFT_SYMBOLS];

/* Fills the table if the symbol's library is loaded. The real function, or one that returns CUDA_ERROR_NOT_FOUND or
 * NVML_ERROR_FUNCTION_NOT_FOUND where the library lacks it or is not loaded. */
void *weft_resolve(enum weft_symbol symbol);

static inline void *weft_real(enum weft_symbol symbol) {
    void *real = atomic_load_explicit(&weft_reals[symbol], memory_order_acquire);
    return real ? real : weft_resolve(symbol);
}

/* Whether the loaded library has the symbol. */
bool weft_has(enum weft_symbol symbol);

/* The hook that stands for a real function, or the address itself: for answers of the driver's own look-ups. */
void *weft_swap(void *address);

/* Keeps libcuda.so.1 loaded for good, so that the table stays true. */
void weft_pin(void);

#endif
