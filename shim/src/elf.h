/* Symbols of the objects that are loaded, read from their dynamic sections: no call into the loader's own look-up, no
 * allocation, no error state. What it finds is the object's own definition, whoever interposes it.
 */
#ifndef WEFT_ELF_H
#define WEFT_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* What a dynamic section says of its object's symbols. */
struct weft_object {
    uintptr_t base;
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu;  /* DT_GNU_HASH, or NULL */
    const uint32_t *sysv; /* DT_HASH, or NULL */
    const char *soname;   /* "" where it has none */
};

/* Equality without a call that a sanitiser intercepts: look-ups happen before its runtime is ready. */
bool weft_same(const char *a, const char *b);

/* False where the section names no symbols. */
bool weft_object_read(struct weft_object *object, uintptr_t base, const ElfW(Dyn) *dynamic);

/* The object's definition of a function or variable, or NULL. */
void *weft_object_find(const struct weft_object *object, const char *symbol);

/* Finds the loaded object of this soname. */
bool weft_object_named(const char *soname, struct weft_object *object);

/* The definition of a symbol in the loaded object of this soname, or NULL. */
void *weft_elf_find(const char *soname, const char *symbol);

/* The first definition of a symbol in load order after the object that holds this address; *object says whose. */
void *weft_elf_next(const void *address, const char *symbol, struct weft_object *object);

/* The same from the head of the loader's list, without its lock: for the process's very first look-ups, which a
 * sanitiser makes before its own dl_iterate_phdr can be called. After is the dynamic section of the object to pass. */
void *weft_elf_first(const ElfW(Dyn) *after, const char *symbol);

#endif
