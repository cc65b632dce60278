/* elf.h: reads a shared object as bytes, trusting nothing, so that the loader is only ever given files that it can map.
 *
 * dlopen believes what it reads: a truncated file is a SIGBUS, a wrong table an abort. Everything that it reads without
 * a test of its own is tested here first: segments lie within the file, tables within segments, relocations within
 * writable memory. What cannot be seen from outside is code. Specification: System V ABI, chapters 4 and 5, and its
 * x86-64 supplement. [any thread]; no allocation. */
#ifndef CORE_PLUGIN_ELF_H
#define CORE_PLUGIN_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

#include <worker/abi.h>

enum { ELF_MAX_SEGMENTS = 64 };

struct elf_table {
    uint64_t vaddr, bytes;
}; /* bytes 0: the file has no such table */

/* Made by elf_check; refers to the caller's bytes. */
struct elf_view {
    const uint8_t *bytes;
    uint64_t size;
    Elf64_Phdr segment[ELF_MAX_SEGMENTS];
    uint32_t n_segments;
    struct elf_table dynamic, strings, rela, jmprel;
    uint64_t symbols, gnu_hash; /* addresses of the dynamic symbol table and its hash table; 0: none */
    bool bound_now;             /* DF_BIND_NOW: nothing is left to be resolved at a first call */
    const char *rule;           /* after a failure of elf_check: the rule of sdk/rules.md that is broken, static */
};

/* Header, program headers, dynamic section and relocations. WK_INVALID with what is wrong. */
wk_status elf_check(const uint8_t *bytes, uint64_t size, struct elf_view *out, const struct wk_err *err);

/* Finds the note {name, type}: *count says how many there are; desc and desc_bytes: the first one's descriptor (any
 * alignment). Fails if a note segment is not a sequence of whole notes. */
wk_status elf_find_note(const struct elf_view *v, const char *name, uint32_t type, const uint8_t **desc,
                        uint32_t *desc_bytes, uint32_t *count, const struct wk_err *err);

/* Calls fn for every library that the file asks for, and for every symbol that its relocations take from elsewhere
 * (more than once when used more than once). Stops when fn returns a status other than WK_OK, and returns it. */
typedef wk_status (*elf_name_fn)(void *user, const char *name);
wk_status elf_each_needed(const struct elf_view *v, elf_name_fn fn, void *user);
wk_status elf_each_import(const struct elf_view *v, elf_name_fn fn, void *user);
/* The same for every symbol that the file exports. WK_INVALID: it has no DT_GNU_HASH table, or a damaged one. */
wk_status elf_each_export(const struct elf_view *v, elf_name_fn fn, void *user, const struct wk_err *err);

#endif
