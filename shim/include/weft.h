/*
 * weft.h: what a program may tell weft, and ask of it, about itself. All of it is optional: a program that calls nothing
 * here is scheduled and limited all the same; one that marks its iterations gets more out of a shared GPU.
 *
 * libweft.so is preloaded by the environment (/etc/ld.so.preload or LD_PRELOAD), never linked. Two ways to call it:
 *
 *   1. weft_lookup.h: the same names with the prefix `weft_try_`, looked up once in the running process. Nothing to link,
 *      nothing to check, correct with any linker. Prefer it.
 *   2. The weak declarations below, for code that is compiled with -fPIC or loaded as a library. Check the address
 *      before the call, for it is null without libweft.so:
 *          if (weft_iteration) weft_iteration();
 *
 * All functions may be called from any thread, at any time, before or after cuInit, and in a forked child. None
 * fails, none sets errno, none calls a function of the driver, none prints. In a process that weft does not manage each
 * costs a few nanoseconds and returns 0. A call may wait only where it says so.
 */
#ifndef WEFT_H
#define WEFT_H

#if defined(WEFT_IMPLEMENTATION)
#define WEFT_API __attribute__((visibility("default")))
#elif defined(__GNUC__)
#define WEFT_API __attribute__((weak))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Marks the end of one iteration and the beginning of the next: the point of a training step where the least memory is
 * in use, usually after the optimizer step, with the memory that is no longer needed freed.
 *
 * Returns first the ephemeral memory that is reserved but no longer in use to the GPU's pool, then counts one iteration
 * for the observed rate, then gives the token back if somebody waits for it. It does not wait for a token: the next launch
 * does. A token cannot leave before the work in flight is done, so call it after the iteration's own synchronisation, or
 * the call waits for that work, and only if somebody waits for the token.
 *
 * Call it once per iteration; once per process of a gang. Returns 1 if this process is managed and the iteration was
 * counted, else 0.
 */
WEFT_API int weft_iteration(void);

/*
 * Gives the token back now if somebody waits for it, as weft_iteration does, but counts no iteration and returns no
 * memory: for long pauses on the host (evaluation, data loading, a checkpoint). Returns 1 if the token was given back,
 * else 0: nobody waits, this process does not hold it, or it is not managed.
 */
WEFT_API int weft_yield(void);

/* Returns 1 if this process runs under weft: it has an allocation and the shim is active in it, else 0. */
WEFT_API int weft_managed(void);

/*
 * Returns 1 if somebody waits, at this moment, for the token or for memory that this process holds, else 0. It asks
 * nobody: it reads what the agent said last, so it is free to call in a loop. Use it before the boundary to decide whether
 * memory that is cached in the program is worth freeing (freeing is what makes it return).
 */
WEFT_API int weft_waiting(void);

#ifdef __cplusplus
}
#endif

#endif
