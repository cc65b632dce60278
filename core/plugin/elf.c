/* elf.c: see elf.h. Two ways into the bytes, both bounds-checked: at() by file offset, mapped() by address. */
#include "plugin/elf.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/checked.h"

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#define HOST_MACHINE_NAME "x86-64"
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#define HOST_MACHINE_NAME "AArch64"
#else
#error "plugins are read as 64-bit little-endian ELF files with RELA relocations"
#endif

enum { PAGE = 4096 };
#define SPAN_LIMIT (UINT64_C(1) << 40) /* addresses of a shared object start near 0; sums below cannot overflow */

static const uint8_t *at(const struct elf_view *v, uint64_t offset, uint64_t n)
{
    return offset <= v->size && n <= v->size - offset ? v->bytes + offset : NULL;
}

/* The n bytes that will be at vaddr once the file is mapped; NULL unless all come from one segment's
 * part of the file. */
static const uint8_t *mapped(const struct elf_view *v, uint64_t vaddr, uint64_t n)
{
    for (uint32_t i = 0; i < v->n_segments; i++) {
        const Elf64_Phdr *s = &v->segment[i];
        if (s->p_type != PT_LOAD || vaddr < s->p_vaddr || vaddr - s->p_vaddr > s->p_filesz) continue;
        uint64_t into = vaddr - s->p_vaddr;
        if (n <= s->p_filesz - into) return at(v, s->p_offset + into, n);
    }
    return NULL;
}

/* Are the n bytes at vaddr in one segment's memory (its part beyond the file included) that has all of `flags`? */
static bool in_memory(const struct elf_view *v, uint64_t vaddr, uint64_t n, uint32_t flags)
{
    for (uint32_t i = 0; i < v->n_segments; i++) {
        const Elf64_Phdr *s = &v->segment[i];
        if (s->p_type != PT_LOAD || (s->p_flags & flags) != flags || vaddr < s->p_vaddr ||
            vaddr - s->p_vaddr > s->p_memsz)
            continue;
        if (n <= s->p_memsz - (vaddr - s->p_vaddr)) return true;
    }
    return false;
}

static wk_status check_header(struct elf_view *v, const struct wk_err *err)
{
    Elf64_Ehdr h;
    const uint8_t *p = at(v, 0, sizeof h);
    if (!p || memcmp(p, ELFMAG, SELFMAG) != 0)
        return wk_fail(err, WK_INVALID, "not an ELF file (%" PRIu64 " bytes); a plugin is a shared object", v->size);
    memcpy(&h, p, sizeof h);
    if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_ident[EI_VERSION] != EV_CURRENT ||
        h.e_version != EV_CURRENT)
        return wk_fail(err, WK_INVALID, "not a 64-bit little-endian ELF file; build the plugin for " HOST_MACHINE_NAME);
    if (h.e_machine != HOST_MACHINE)
        return wk_fail(err, WK_INVALID,
                       "built for ELF machine %u, this worker runs on " HOST_MACHINE_NAME " (%u); rebuild it",
                       h.e_machine, HOST_MACHINE);
    if (h.e_type != ET_DYN)
        return wk_fail(err, WK_INVALID, "ELF type %u, not a shared object (%u); link it with -shared", h.e_type,
                       ET_DYN);
    if (h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > ELF_MAX_SEGMENTS || h.e_phoff % 8 != 0)
        return wk_fail(err, WK_INVALID, "damaged ELF header: %u program headers of %u bytes (1..%d of %zu expected)",
                       h.e_phnum, h.e_phentsize, ELF_MAX_SEGMENTS, sizeof(Elf64_Phdr));
    p = at(v, h.e_phoff, h.e_phnum * sizeof(Elf64_Phdr));
    if (!p)
        return wk_fail(err, WK_INVALID,
                       "truncated: the program headers end past the file's %" PRIu64 " bytes; copy the plugin again",
                       v->size);
    v->n_segments = h.e_phnum;
    memcpy(v->segment, p, h.e_phnum * sizeof(Elf64_Phdr));
    return WK_OK;
}

/* One PT_LOAD, given where the previous one ended. The loader maps whole pages and zeroes the rest of the last one, so
 * even a segment without bytes of its own must not start on a page past the end of the file. */
static wk_status check_load(struct elf_view *v, const Elf64_Phdr *s, uint64_t *end, const struct wk_err *err)
{
    if (s->p_vaddr > SPAN_LIMIT || s->p_memsz > SPAN_LIMIT || s->p_filesz > s->p_memsz)
        return wk_fail(err, WK_INVALID, "damaged segment: %" PRIu64 " bytes of the file in %" PRIu64 " bytes of memory",
                       (uint64_t)s->p_filesz, (uint64_t)s->p_memsz);
    if (!at(v, s->p_offset, s->p_filesz) || (s->p_offset & ~(uint64_t)(PAGE - 1)) >= v->size)
        return wk_fail(err, WK_INVALID,
                       "truncated: a segment ends at byte %" PRIu64 ", the file has %" PRIu64 "; copy the plugin again",
                       (uint64_t)(s->p_offset + s->p_filesz), v->size);
    if (s->p_align < PAGE || (s->p_align & (s->p_align - 1)) != 0 || (s->p_vaddr - s->p_offset) % s->p_align != 0)
        return wk_fail(err, WK_INVALID, "damaged segment: alignment %" PRIu64 " does not fit address and offset",
                       (uint64_t)s->p_align);
    if ((s->p_vaddr & ~(uint64_t)(PAGE - 1)) < *end)
        return wk_fail(err, WK_INVALID, "damaged segments: they overlap or are out of order");
    if ((s->p_flags & PF_W) && (s->p_flags & PF_X)) {
        v->rule = "static.code";
        return wk_fail(err, WK_INVALID,
                       "has a segment that is both writable and executable; link it without -N or --omagic");
    }
    *end = (s->p_vaddr + s->p_memsz + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    return WK_OK;
}

/* Segments other than PT_LOAD that the loader follows to memory. */
static wk_status check_other(const struct elf_view *v, const Elf64_Phdr *s, uint64_t end, const struct wk_err *err)
{
    bool ok = true;
    switch (s->p_type) {
    case PT_NOTE:
    case PT_GNU_PROPERTY: /* read at its address, so the address must show the same bytes as the offset */
    case PT_DYNAMIC: {
        const uint8_t *bytes = at(v, s->p_offset, s->p_filesz);
        ok = bytes && s->p_filesz == s->p_memsz && mapped(v, s->p_vaddr, s->p_filesz) == bytes;
        break;
    }
    case PT_TLS:
        ok = s->p_align <= PAGE && (s->p_align & (s->p_align - 1)) == 0 && s->p_filesz <= s->p_memsz &&
             s->p_memsz <= 64 * 1024 && (s->p_filesz == 0 || mapped(v, s->p_vaddr, s->p_filesz));
        break;
    case PT_GNU_RELRO: ok = s->p_vaddr <= end && s->p_memsz <= end - s->p_vaddr; break;
    case PT_PHDR:
        ok = at(v, s->p_offset, s->p_filesz) &&
             mapped(v, s->p_vaddr, v->n_segments * sizeof *s) == at(v, s->p_offset, s->p_filesz);
        break;
    default: break;
    }
    return ok ? WK_OK
              : wk_fail(err, WK_INVALID, "damaged segment of type 0x%x: it does not lie within what is mapped",
                        s->p_type);
}

static wk_status check_segments(struct elf_view *v, const struct wk_err *err)
{
    uint64_t end = 0;
    const Elf64_Phdr *stack = NULL;
    wk_status status;
    for (uint32_t i = 0; i < v->n_segments; i++)
        if (v->segment[i].p_type == PT_LOAD && (status = check_load(v, &v->segment[i], &end, err)) != WK_OK)
            return status;
    if (end == 0) return wk_fail(err, WK_INVALID, "has no loadable segment; a plugin is a linked shared object");
    for (uint32_t i = 0; i < v->n_segments; i++) {
        const Elf64_Phdr *s = &v->segment[i];
        if (s->p_type != PT_LOAD && (status = check_other(v, s, end, err)) != WK_OK) return status;
        if (s->p_type == PT_DYNAMIC) {
            if (v->dynamic.bytes) return wk_fail(err, WK_INVALID, "has more than one dynamic section");
            v->dynamic = (struct elf_table){ s->p_vaddr, s->p_filesz };
        }
        if (s->p_type == PT_GNU_STACK) stack = s;
    }
    if (v->dynamic.bytes == 0) return wk_fail(err, WK_INVALID, "has no dynamic section; link it with -shared");
    /* No PT_GNU_STACK means an executable stack to the loader. */
    v->rule = "static.stack";
    if (!stack || (stack->p_flags & PF_X))
        return wk_fail(err, WK_INVALID, "asks for an executable stack; link it with -z noexecstack");
    v->rule = "static.elf";
    return WK_OK;
}

/* ---- dynamic section ----------------------------------------------------------------------------------- */

static Elf64_Dyn dynamic_entry(const struct elf_view *v, uint64_t i)
{
    Elf64_Dyn d;
    memcpy(&d, mapped(v, v->dynamic.vaddr, v->dynamic.bytes) + i * sizeof d, sizeof d);
    return d;
}
static uint64_t dynamic_capacity(const struct elf_view *v) { return v->dynamic.bytes / sizeof(Elf64_Dyn); }

/* Facts of the dynamic section in which the loader trusts the file, down to asserting them. */
static wk_status read_dynamic(struct elf_view *v, const struct wk_err *err)
{
    struct elf_table init = { 0, 0 }, fini = { 0, 0 }, relr = { 0, 0 };
    bool ended = false;
    for (uint64_t i = 0; i < dynamic_capacity(v) && !ended; i++) {
        const Elf64_Dyn d = dynamic_entry(v, i);
        const uint64_t value = d.d_un.d_val;
        bool ok = true;
        switch (d.d_tag) {
        case DT_NULL: ended = true; break;
        case DT_STRTAB: v->strings.vaddr = value; break;
        case DT_STRSZ: v->strings.bytes = value; break;
        case DT_SYMTAB: v->symbols = value; break;
        case DT_SYMENT: ok = value == sizeof(Elf64_Sym); break;
        case DT_RELA: v->rela.vaddr = value; break;
        case DT_RELASZ: v->rela.bytes = value; break;
        case DT_RELAENT: ok = value == sizeof(Elf64_Rela); break;
        case DT_JMPREL: v->jmprel.vaddr = value; break;
        case DT_PLTRELSZ: v->jmprel.bytes = value; break;
        case DT_PLTREL: ok = value == DT_RELA; break;
        case DT_RELR: relr.vaddr = value; break;
        case DT_RELRSZ: relr.bytes = value; break;
        case DT_RELRENT: ok = value == sizeof(Elf64_Relr); break;
        case DT_INIT_ARRAY: init.vaddr = value; break;
        case DT_INIT_ARRAYSZ: init.bytes = value; break;
        case DT_FINI_ARRAY: fini.vaddr = value; break;
        case DT_FINI_ARRAYSZ: fini.bytes = value; break;
        case DT_INIT:
        case DT_FINI: ok = in_memory(v, value, 1, PF_X); break;
        case DT_REL: ok = false; break;
        case DT_TEXTREL:
            v->rule = "static.code";
            return wk_fail(err, WK_INVALID, "has relocations in its code (DT_TEXTREL); compile it with -fPIC");
        case DT_FLAGS:
            v->bound_now = v->bound_now || (value & DF_BIND_NOW);
            v->rule = "static.code";
            if (value & DF_TEXTREL)
                return wk_fail(err, WK_INVALID, "has relocations in its code (DF_TEXTREL); compile it with -fPIC");
            v->rule = "static.elf";
            break;
        case DT_FLAGS_1: v->bound_now = v->bound_now || (value & DF_1_NOW); break;
        case DT_BIND_NOW: v->bound_now = true; break;
        case DT_GNU_HASH: v->gnu_hash = value; break;
        case DT_RPATH:
        case DT_RUNPATH:
            v->rule = "static.paths";
            return wk_fail(err, WK_INVALID,
                           "says where its libraries are looked for (%s), which is the host's to say; link it without "
                           "-rpath, or remove the entry with patchelf --remove-rpath",
                           d.d_tag == DT_RPATH ? "DT_RPATH" : "DT_RUNPATH");
        case DT_AUXILIARY:
        case DT_FILTER:
        case DT_AUDIT:
        case DT_DEPAUDIT:
            v->rule = "static.paths";
            return wk_fail(err, WK_INVALID,
                           "brings in other libraries by dynamic tag 0x%" PRIx64 "; link it without -f, -F, --audit",
                           (uint64_t)d.d_tag);
        default: break;
        }
        if (!ok)
            return wk_fail(err, WK_INVALID, "damaged dynamic section: tag 0x%" PRIx64 " has value 0x%" PRIx64,
                           (uint64_t)d.d_tag, value);
    }
    const uint8_t *strings = mapped(v, v->strings.vaddr, v->strings.bytes);
    if (!ended || v->strings.bytes == 0 || !strings || strings[v->strings.bytes - 1] != 0)
        return wk_fail(err, WK_INVALID, "damaged dynamic section: it or its string table has no end");
    if ((init.bytes && !mapped(v, init.vaddr, init.bytes)) || (fini.bytes && !mapped(v, fini.vaddr, fini.bytes)) ||
        (relr.bytes && !mapped(v, relr.vaddr, relr.bytes)) || init.bytes % 8 || fini.bytes % 8 || relr.bytes % 8)
        return wk_fail(err, WK_INVALID, "damaged dynamic section: a table lies outside of the file's segments");
    return WK_OK;
}

/* Name of symbol `index` if it comes from elsewhere, "" if not; NULL: the index leads out of the tables. */
static const char *import_name(const struct elf_view *v, uint64_t index)
{
    Elf64_Sym s;
    uint64_t vaddr;
    if (!checked_add_u64(v->symbols, index * sizeof s, &vaddr)) return NULL; /* index has 32 bits */
    const uint8_t *p = mapped(v, vaddr, sizeof s);
    if (!p) return NULL;
    memcpy(&s, p, sizeof s);
    if (s.st_name >= v->strings.bytes) return NULL;
    return s.st_shndx == SHN_UNDEF ? (const char *)mapped(v, v->strings.vaddr, v->strings.bytes) + s.st_name : "";
}

static uint64_t patched_bytes(uint64_t type)
{
#if defined(__x86_64__)
    return type == R_X86_64_NONE ? 0 : type == R_X86_64_TLSDESC ? 16 : 8;
#else
    return type == R_AARCH64_NONE ? 0 : type == R_AARCH64_TLSDESC ? 16 : 8;
#endif
}

static Elf64_Rela relocation(const uint8_t *table, uint64_t i)
{
    Elf64_Rela r;
    memcpy(&r, table + i * sizeof r, sizeof r);
    return r;
}

static wk_status check_relocations(const struct elf_view *v, const struct elf_table *t, const struct wk_err *err)
{
    const uint8_t *table = mapped(v, t->vaddr, t->bytes);
    if (t->bytes && (!table || t->bytes % sizeof(Elf64_Rela) != 0))
        return wk_fail(err, WK_INVALID, "damaged: its relocations lie outside of the file's segments");
    for (uint64_t i = 0; i < t->bytes / sizeof(Elf64_Rela); i++) {
        const Elf64_Rela r = relocation(table, i);
        const uint64_t n = patched_bytes(ELF64_R_TYPE(r.r_info));
        if (n && !in_memory(v, r.r_offset, n, PF_W))
            return wk_fail(err, WK_INVALID, "damaged: relocation %" PRIu64 " writes outside of the plugin's data", i);
        if (ELF64_R_SYM(r.r_info) && !import_name(v, ELF64_R_SYM(r.r_info)))
            return wk_fail(err, WK_INVALID,
                           "damaged: relocation %" PRIu64 " names a symbol outside of the symbol table", i);
    }
    return WK_OK;
}

/* ---- what the header declares -------------------------------------------------------------------------- */

wk_status elf_check(const uint8_t *bytes, uint64_t size, struct elf_view *out, const struct wk_err *err)
{
    memset(out, 0, sizeof *out);
    out->bytes = bytes;
    out->size = size;
    out->rule = "static.elf";
    wk_status status = check_header(out, err);
    if (status == WK_OK) status = check_segments(out, err);
    if (status == WK_OK) status = read_dynamic(out, err);
    if (status == WK_OK) status = check_relocations(out, &out->rela, err);
    if (status == WK_OK) status = check_relocations(out, &out->jmprel, err);
    return status;
}

/* Offset behind a field of n bytes at `offset`, padded to `align`; false: past `end`. The last field's padding may be
 * missing. */
static bool note_skip(uint64_t *offset, uint64_t n, uint64_t align, uint64_t end)
{
    if (n > end - *offset) return false;
    const uint64_t next = (*offset + n + align - 1) & ~(align - 1);
    *offset = next < end ? next : end;
    return true;
}

wk_status elf_find_note(const struct elf_view *v, const char *name, uint32_t type, const uint8_t **desc,
                        uint32_t *desc_bytes, uint32_t *count, const struct wk_err *err)
{
    const size_t name_bytes = strlen(name) + 1;
    *count = 0;
    for (uint32_t i = 0; i < v->n_segments; i++) {
        const Elf64_Phdr *s = &v->segment[i];
        if (s->p_type != PT_NOTE && s->p_type != PT_GNU_PROPERTY) continue;
        const uint8_t *p = at(v, s->p_offset, s->p_filesz);
        const uint64_t align = s->p_align == 8 ? 8 : 4;
        for (uint64_t o = 0; o < s->p_filesz;) {
            Elf64_Nhdr n;
            if (s->p_filesz - o < sizeof n)
                return wk_fail(err, WK_INVALID, "damaged: a note segment ends within a note");
            memcpy(&n, p + o, sizeof n);
            o += sizeof n;
            const uint64_t name_at = o;
            if (!note_skip(&o, n.n_namesz, align, s->p_filesz))
                return wk_fail(err, WK_INVALID, "damaged: a note's name of %u bytes ends past its segment", n.n_namesz);
            const uint64_t desc_at = o;
            if (!note_skip(&o, n.n_descsz, align, s->p_filesz))
                return wk_fail(err, WK_INVALID, "damaged: a note of %u bytes ends past its segment", n.n_descsz);
            if (s->p_type != PT_NOTE || n.n_type != type || n.n_namesz != name_bytes ||
                memcmp(p + name_at, name, name_bytes) != 0)
                continue;
            if ((*count)++ == 0) {
                *desc = p + desc_at;
                *desc_bytes = n.n_descsz;
            }
        }
    }
    return WK_OK;
}

wk_status elf_each_needed(const struct elf_view *v, elf_name_fn fn, void *user)
{
    const char *strings = (const char *)mapped(v, v->strings.vaddr, v->strings.bytes);
    for (uint64_t i = 0; i < dynamic_capacity(v); i++) {
        const Elf64_Dyn d = dynamic_entry(v, i);
        if (d.d_tag == DT_NULL) break;
        if (d.d_tag != DT_NEEDED) continue;
        wk_status status = fn(user, d.d_un.d_val < v->strings.bytes ? strings + d.d_un.d_val : "");
        if (status != WK_OK) return status;
    }
    return WK_OK;
}

wk_status elf_each_import(const struct elf_view *v, elf_name_fn fn, void *user)
{
    const struct elf_table *const tables[] = { &v->rela, &v->jmprel };
    for (uint32_t t = 0; t < 2; t++) {
        const uint8_t *table = mapped(v, tables[t]->vaddr, tables[t]->bytes);
        for (uint64_t i = 0; i < tables[t]->bytes / sizeof(Elf64_Rela); i++) {
            const uint64_t symbol = ELF64_R_SYM(relocation(table, i).r_info);
            const char *name = symbol ? import_name(v, symbol) : "";
            wk_status status = *name ? fn(user, name) : WK_OK;
            if (status != WK_OK) return status;
        }
    }
    return WK_OK;
}

/* What is at the address, n bytes of it; NULL: outside of the file's part of the segments, or no such address. */
static const uint8_t *table_at(const struct elf_view *v, uint64_t base, uint64_t offset, uint64_t n)
{
    uint64_t vaddr;
    return checked_add_u64(base, offset, &vaddr) ? mapped(v, vaddr, n) : NULL;
}

static bool word_at(const struct elf_view *v, uint64_t base, uint64_t index, uint32_t *out)
{
    const uint8_t *p = table_at(v, base, index * sizeof *out, sizeof *out);
    if (p) memcpy(out, p, sizeof *out);
    return p != NULL;
}

/* The name of symbol `index` if it is one that others can see. NULL: the index leads out of the tables. */
static const char *export_name(const struct elf_view *v, uint64_t index)
{
    Elf64_Sym s;
    const uint8_t *p = table_at(v, v->symbols, index * sizeof s, sizeof s);
    if (!p) return NULL;
    memcpy(&s, p, sizeof s);
    if (s.st_name >= v->strings.bytes) return NULL;
    const bool seen = s.st_shndx != SHN_UNDEF && ELF64_ST_BIND(s.st_info) != STB_LOCAL && s.st_shndx != SHN_ABS;
    return seen ? (const char *)mapped(v, v->strings.vaddr, v->strings.bytes) + s.st_name : "";
}

/* The table by which symbols are found (glibc's format): a head of four words, a Bloom filter of 64-bit words, a word
 * for each bucket with its first symbol, and from `first` on a word for each symbol, odd for the last of a bucket. */
wk_status elf_each_export(const struct elf_view *v, elf_name_fn fn, void *user, const struct wk_err *err)
{
    enum { MOST = 1 << 20 }; /* symbols looked at: of a damaged table every bucket may lead to all of them */
    uint32_t buckets, first, bloom, symbol, hash, seen = 0;
    bool ok = v->gnu_hash && word_at(v, v->gnu_hash, 0, &buckets) && word_at(v, v->gnu_hash, 1, &first) &&
              word_at(v, v->gnu_hash, 2, &bloom);
    const uint64_t bucket_at = 4 + 2 * (uint64_t)(ok ? bloom : 0), chain_at = bucket_at + (ok ? buckets : 0);
    for (uint64_t i = 0; ok && i < buckets; i++) {
        ok = word_at(v, v->gnu_hash, bucket_at + i, &symbol);
        if (!ok || symbol == 0) continue;
        ok = symbol >= first;
        for (uint64_t s = symbol; ok; s++) {
            const char *name = export_name(v, s);
            ok = name && seen++ < MOST && word_at(v, v->gnu_hash, chain_at + (s - first), &hash);
            if (!ok) break;
            const wk_status status = *name ? fn(user, name) : WK_OK;
            if (status != WK_OK) return status;
            if (hash & 1) break;
        }
    }
    return ok ? WK_OK : wk_fail(err, WK_INVALID, "has no whole DT_GNU_HASH table; link it with --hash-style=gnu");
}
