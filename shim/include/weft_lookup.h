/*
 * weft_lookup.h: weft.h for programs that link nothing. Each weft_try_X() calls weft_X() if libweft.so is in this process
 * and returns 0 if it is not. The lookup is done once per function and source file: a preloaded library is there from the
 * start, or never. Needs -ldl on glibc below 2.34.
 */
#ifndef WEFT_LOOKUP_H
#define WEFT_LOOKUP_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before the first include: RTLD_DEFAULT needs it"
#endif
#include <dlfcn.h>

typedef int (*weft_try_function)(void);

/* Takes the place of a function that libweft.so would have. */
static inline int weft_try_absent(void) { return 0; }

/* Calls the function called name, or the absent one; *known keeps the answer. Threads that race find the same one. */
static inline int weft_try(weft_try_function *known, const char *name) {
	weft_try_function function = __atomic_load_n(known, __ATOMIC_RELAXED);
	if (!function) {
		void *symbol = dlsym(RTLD_DEFAULT, name);
		__builtin_memcpy(&function, &symbol, sizeof function);
		if (!symbol)
			function = weft_try_absent;
		__atomic_store_n(known, function, __ATOMIC_RELAXED);
	}
	return function();
}

#define WEFT_TRY_(name) \
	static inline int weft_try_##name(void) { \
		static weft_try_function known; \
		return weft_try(&known, "weft_" #name); \
	}

WEFT_TRY_(iteration)
WEFT_TRY_(yield)
WEFT_TRY_(managed)
WEFT_TRY_(waiting)
#undef WEFT_TRY_

#endif
