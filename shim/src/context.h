/* The contexts of this process. */
#ifndef WEFT_CONTEXT_H
#define WEFT_CONTEXT_H

/* In a forked child: makes the lock usable. */
void weft_contexts_forked(void);

#endif
