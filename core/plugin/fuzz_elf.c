/* fuzz_elf.c: libFuzzer target over all that reads a plugin's bytes before any of its code runs: ELF header, segments,
 * dynamic section, relocations, notes, claims, imports. It begins with a small plugin that is accepted, which the
 * mutator gives back where an input is no ELF file any more. */
#include <elf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/vet.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t cap);

enum { SEGMENTS = 5, TAGS = 9, PAGE = 4096 };

/* A file whose second segment follows the first at once, and lies a page further in memory. */
static struct small {
    Elf64_Ehdr header;
    Elf64_Phdr segment[SEGMENTS];
    struct {
        struct wk_note head;
        char claims[16];
    } note;
    char strings[32];
    Elf64_Sym symbols[2];
    Elf64_Rela relocation;
    struct { /* writable */
        Elf64_Dyn dynamic[TAGS];
        uint64_t data;
    } writable;
} small;

static Elf64_Phdr segment(uint32_t type, uint32_t flags, size_t offset, size_t bytes, uint64_t further)
{
    return (Elf64_Phdr){ .p_type = type,
                         .p_flags = flags,
                         .p_offset = offset,
                         .p_vaddr = offset + further,
                         .p_filesz = bytes,
                         .p_memsz = bytes,
                         .p_align = type == PT_LOAD ? PAGE : 8 };
}

static void make_small(void)
{
    const size_t writable = offsetof(struct small, writable);
    struct small *s = &small;
    memcpy(s->header.e_ident, ELFMAG, SELFMAG);
    s->header.e_ident[EI_CLASS] = ELFCLASS64;
    s->header.e_ident[EI_DATA] = ELFDATA2LSB;
    s->header.e_ident[EI_VERSION] = EV_CURRENT;
    s->header.e_type = ET_DYN;
#if defined(__x86_64__)
    s->header.e_machine = EM_X86_64;
    s->relocation.r_info = ELF64_R_INFO(1, R_X86_64_64);
#else
    s->header.e_machine = EM_AARCH64;
    s->relocation.r_info = ELF64_R_INFO(1, R_AARCH64_ABS64);
#endif
    s->header.e_version = EV_CURRENT;
    s->header.e_phoff = offsetof(struct small, segment);
    s->header.e_phentsize = sizeof(Elf64_Phdr);
    s->header.e_phnum = SEGMENTS;
    s->segment[0] = segment(PT_LOAD, PF_R, 0, writable, 0);
    s->segment[1] = segment(PT_LOAD, PF_R | PF_W, writable, sizeof s->writable, PAGE);
    s->segment[2] = segment(PT_DYNAMIC, PF_R | PF_W, writable, sizeof s->writable.dynamic, PAGE);
    s->segment[3] = segment(PT_NOTE, PF_R, offsetof(struct small, note), sizeof s->note, 0);
    s->segment[3].p_align = 4;
    s->segment[4] = segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 0);
    const uint32_t bytes = sizeof(struct wk_note_desc) + sizeof s->note.claims;
    s->note.head = (struct wk_note){ sizeof WK_NOTE_NAME, bytes, WK_NOTE_TYPE, WK_NOTE_NAME, { .desc_size = bytes } };
    s->note.head.desc.kind = WK_KIND_QUANT;
    s->note.head.desc.abi_major = WK_ABI_MAJOR;
    s->note.head.desc.abi_minor_built = WK_ABI_MINOR;
    s->note.head.desc.claims_at = sizeof(struct wk_note_desc);
    memcpy(s->note.head.desc.id, "org.example.fuzz", sizeof "org.example.fuzz");
    memcpy(s->note.claims, "ggml:200,201", sizeof "ggml:200,201");
    memcpy(s->strings, "\0libc.so.6\0free", sizeof "\0libc.so.6\0free");
    s->symbols[1].st_name = sizeof "\0libc.so.6" - 1 + 1;
    s->symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    s->relocation.r_offset = offsetof(struct small, writable.data) + PAGE;
    const Elf64_Dyn dynamic[TAGS] = { { DT_NEEDED, { 1 } },
                                      { DT_STRTAB, { offsetof(struct small, strings) } },
                                      { DT_STRSZ, { sizeof s->strings } },
                                      { DT_SYMTAB, { offsetof(struct small, symbols) } },
                                      { DT_SYMENT, { sizeof(Elf64_Sym) } },
                                      { DT_RELA, { offsetof(struct small, relocation) } },
                                      { DT_RELASZ, { sizeof(Elf64_Rela) } },
                                      { DT_RELAENT, { sizeof(Elf64_Rela) } },
                                      { DT_NULL, { 0 } } };
    memcpy(s->writable.dynamic, dynamic, sizeof dynamic);
}

/* In an allocation of just n bytes, so that a read past the end is seen. */
static wk_status vet(const uint8_t *data, size_t n)
{
    struct vetted v = { .memfd = -1 };
    struct claims claims;
    char text[512] = "";
    uint8_t *exact = malloc(n ? n : 1);
    if (!exact) abort();
    if (n) memcpy(exact, data, n);
    const wk_status status = vet_bytes(exact, n, &v, &(struct wk_err){ text, sizeof text });
    free(exact);
    if ((status == WK_OK) != (text[0] == '\0')) abort(); /* a refusal has a reason */
    if (status != WK_OK) return status;
    if (v.foreign || !v.note.id[0] || strlen(v.note.id) >= sizeof v.note.id) abort();
    if (claims_parse(v.note.kind, v.claims, &claims, NULL) != WK_OK || claims.n == 0) abort();
    return WK_OK;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    make_small();
    if (vet((const uint8_t *)&small, sizeof small) != WK_OK) abort(); /* else the target would try headers alone */
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    (void)vet(data, n);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t cap, unsigned seed)
{
    if (cap >= sizeof small && (n < sizeof small || seed % 64 == 0 || memcmp(data, ELFMAG, SELFMAG) != 0)) {
        memcpy(data, &small, sizeof small);
        n = sizeof small;
    }
    return LLVMFuzzerMutate(data, n, cap);
}
