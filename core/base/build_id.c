/* build_id.c: walks the mapped objects and their notes. */
#include "base/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/sha256.h"

enum { ID_TEXT = 65 /* an id of up to 32 bytes, as hexadecimal digits */ };

struct found {
    char (*ids)[ID_TEXT];
    size_t n, cap;
    bool no_memory, own; /* own: the program's is among them */
};

/* The build id among the notes of [at, end), which the linker has laid out; NULL: none. */
static const uint8_t *id_among(const uint8_t *at, const uint8_t *end, size_t *n)
{
    while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof note);
        const size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3, desc = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if ((size_t)(end - at) - sizeof note < name + desc) return NULL;
        const uint8_t *const value = at + sizeof note + name;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof note, "GNU", 4) == 0) {
            *n = note.n_descsz;
            return value;
        }
        at = value + desc;
    }
    return NULL;
}

static void keep(struct found *f, const uint8_t *id, size_t n)
{
    if (f->n == f->cap) {
        const size_t cap = f->cap ? 2 * f->cap : 32;
        void *more = realloc(f->ids, cap * sizeof *f->ids);
        if (!more) {
            f->no_memory = true;
            return;
        }
        f->ids = more;
        f->cap = cap;
    }
    char *text = f->ids[f->n++];
    text[0] = '\0';
    for (size_t i = 0; i < n && 2 * i + 2 < ID_TEXT; i++) (void)snprintf(text + 2 * i, 3, "%02x", id[i]);
}

static int visit(struct dl_phdr_info *info, size_t size, void *user)
{
    struct found *f = user;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        size_t n = 0;
        if (h->p_type != PT_NOTE) continue;
        const uintptr_t at = info->dlpi_addr + h->p_vaddr;
        const uint8_t *notes = (const uint8_t *)at, *id = id_among(notes, notes + h->p_memsz, &n);
        if (!id) continue;
        keep(f, id, n);
        f->own = f->own || info->dlpi_name[0] == '\0';
        break;
    }
    return 0;
}

/* The kernel maps an object of its own, which is another on another machine. */
static int visit_files(struct dl_phdr_info *info, size_t size, void *user)
{
    const uintptr_t kernel = getauxval(AT_SYSINFO_EHDR);
    return kernel && info->dlpi_addr == kernel ? 0 : visit(info, size, user);
}

static int in_order(const void *a, const void *b) { return strcmp(a, b); }

bool build_identity(char hex[65])
{
    struct found f = { 0 };
    (void)dl_iterate_phdr(visit_files, &f);
    struct sha256 *s = f.no_memory || !f.own ? NULL : sha256_begin();
    hex[0] = '\0';
    if (s) {
        qsort(f.ids, f.n, sizeof *f.ids, in_order);
        for (size_t i = 0; i < f.n; i++) sha256_update(s, f.ids[i], strlen(f.ids[i]));
    }
    free(f.ids);
    return s && sha256_end(s, hex);
}
