#include "elf.h"

#include <stddef.h>
#include <sys/auxv.h>

bool weft_same(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

/* Most loaders relocate the section's addresses in place; where one did not, they are below the base. */
static const void *at(uintptr_t base, ElfW(Addr) value) {
    return (const void *)(value < base ? base + value : value);
}

bool weft_object_read(struct weft_object *object, uintptr_t base, const ElfW(Dyn) *dynamic) {
    size_t soname = 0;
    *object = (struct weft_object){.base = base, .soname = ""};
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            object->symbols = at(base, d->d_un.d_ptr);
        else if (d->d_tag == DT_STRTAB)
            object->strings = at(base, d->d_un.d_ptr);
        else if (d->d_tag == DT_GNU_HASH)
            object->gnu = at(base, d->d_un.d_ptr);
        else if (d->d_tag == DT_HASH)
            object->sysv = at(base, d->d_un.d_ptr);
        else if (d->d_tag == DT_SONAME)
            soname = d->d_un.d_val;
    }
    if (!object->symbols || !object->strings || (!object->gnu && !object->sysv))
        return false;
    if (soname)
        object->soname = object->strings + soname;
    return true;
}

/* The symbol's address if entry i of the table defines it, else NULL. */
static void *defined(const struct weft_object *object, uint32_t i, const char *symbol) {
    const ElfW(Sym) *s = &object->symbols[i];
    unsigned type = s->st_info & 0xf, bind = s->st_info >> 4;
    if (s->st_shndx == SHN_UNDEF || !s->st_value || bind == STB_LOCAL || (type != STT_FUNC && type != STT_OBJECT))
        return NULL;
    return weft_same(object->strings + s->st_name, symbol) ? (void *)(object->base + s->st_value) : NULL;
}

/* Layout: buckets, first hashed symbol, words of the filter, its shift; the filter; the buckets; a chain of hashes whose
 * lowest bit ends it. */
static void *find_gnu(const struct weft_object *object, const char *symbol) {
    const uint32_t *table = object->gnu;
    uint32_t buckets = table[0], first = table[1], hash = 5381;
    const uint32_t *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table);
    const uint32_t *chain = bucket + buckets;
    for (const char *c = symbol; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    uint32_t i = buckets ? bucket[hash % buckets] : 0;
    if (i < first)
        return NULL;
    for (;; i++) {
        void *found = (chain[i - first] | 1) == (hash | 1) ? defined(object, i, symbol) : NULL;
        if (found || (chain[i - first] & 1))
            return found;
    }
}

/* Layout: buckets, symbols; the buckets; a chain per symbol. */
static void *find_sysv(const struct weft_object *object, const char *symbol) {
    const uint32_t *table = object->sysv, *bucket = table + 2, *chain = bucket + table[0];
    uint32_t hash = 0;
    for (const char *c = symbol; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash ^= (hash >> 24) & 0xf0;
        hash &= 0xfffffff;
    }
    for (uint32_t i = table[0] ? bucket[hash % table[0]] : 0; i; i = chain[i]) {
        void *found = defined(object, i, symbol);
        if (found)
            return found;
    }
    return NULL;
}

void *weft_object_find(const struct weft_object *object, const char *symbol) {
    return object->gnu ? find_gnu(object, symbol) : find_sysv(object, symbol);
}

static const ElfW(Dyn) *dynamic_of(const struct dl_phdr_info *info) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

static bool holds(const struct dl_phdr_info *info, uintptr_t address) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && address - (info->dlpi_addr + p->p_vaddr) < p->p_memsz)
            return true;
    }
    return false;
}

/* One walk over the loaded objects: by name, or for a symbol after a place. */
struct walk {
    const char *soname, *symbol;
    uintptr_t after;
    bool passed;
    struct weft_object object;
    void *found;
};

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct walk *walk = data;
    if (!walk->soname && !walk->passed) {
        walk->passed = holds(info, walk->after);
        return 0;
    }
    const ElfW(Dyn) *dynamic = dynamic_of(info);
    if (!dynamic || !weft_object_read(&walk->object, info->dlpi_addr, dynamic))
        return 0;
    if (walk->soname)
        return weft_same(walk->object.soname, walk->soname);
    walk->found = weft_object_find(&walk->object, walk->symbol);
    return walk->found != NULL;
}

bool weft_object_named(const char *soname, struct weft_object *object) {
    struct walk walk = {.soname = soname};
    if (!dl_iterate_phdr(visit, &walk))
        return false;
    *object = walk.object;
    return true;
}

void *weft_elf_find(const char *soname, const char *symbol) {
    struct weft_object object;
    return weft_object_named(soname, &object) ? weft_object_find(&object, symbol) : NULL;
}

void *weft_elf_next(const void *address, const char *symbol, struct weft_object *object) {
    struct walk walk = {.symbol = symbol, .after = (uintptr_t)address};
    if (!dl_iterate_phdr(visit, &walk))
        return NULL;
    *object = walk.object;
    return walk.found;
}

/* The loader's list of objects, which it hands to debuggers through the program's dynamic section. */
static const struct link_map *loaded(void) {
    const ElfW(Phdr) *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR), *dynamic = NULL;
    uintptr_t base = 0;
    for (unsigned long i = 0; headers && i < getauxval(AT_PHNUM); i++) {
        if (headers[i].p_type == PT_PHDR)
            base = (uintptr_t)headers - headers[i].p_vaddr;
        if (headers[i].p_type == PT_DYNAMIC)
            dynamic = &headers[i];
    }
    if (!dynamic)
        return NULL;
    for (const ElfW(Dyn) *d = (const ElfW(Dyn) *)(base + dynamic->p_vaddr); d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_DEBUG && d->d_un.d_ptr)
            return ((const struct r_debug *)d->d_un.d_ptr)->r_map;
    return NULL;
}

void *weft_elf_first(const ElfW(Dyn) *after, const char *symbol) {
    const struct link_map *map = loaded();
    while (map && map->l_ld != after)
        map = map->l_next;
    for (map = map ? map->l_next : NULL; map; map = map->l_next) {
        struct weft_object object;
        void *found = weft_object_read(&object, map->l_addr, map->l_ld) ? weft_object_find(&object, symbol) : NULL;
        if (found)
            return found;
    }
    return NULL;
}
