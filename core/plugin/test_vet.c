/* test_vet.c: what the host makes of a plugin's bytes before any of its code runs. */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/elf.h"
#include "plugin/plugin.h"
#include "plugin/vet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* last: it takes words like "fail" for itself */

struct bytes {
    uint8_t *data;
    size_t size;
};

static struct bytes read_zoo(const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s.so", ZOO_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    struct bytes b = { NULL, (size_t)ftell(f) };
    rewind(f);
    b.data = malloc(b.size);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.size, f), b.size);
    (void)fclose(f);
    return b;
}

/* In an allocation of just `size` bytes, so that a read past the end is seen by the sanitizer. */
static wk_status vet_prefix(const struct bytes *b, size_t size, char text[512])
{
    struct vetted v = { .memfd = -1 };
    uint8_t *exact = malloc(size ? size : 1);
    assert_non_null(exact);
    memcpy(exact, b->data, size);
    text[0] = '\0';
    wk_status status = vet_bytes(exact, size, &v, &(struct wk_err){ text, 512 });
    free(exact);
    assert_true((status == WK_OK) == (text[0] == '\0')); /* a refusal has a reason */
    return status;
}

static void expect_refusal(const struct bytes *b, const char *words)
{
    char text[512];
    assert_int_not_equal(vet_prefix(b, b->size, text), WK_OK);
    if (!strstr(text, words)) fail_msg("expected \"%s\" in: %s", words, text);
}

/* ---- damaged headers: one field of a good file changed, then restored ---------------------------------- */

static Elf64_Phdr *segment(struct bytes *b, uint32_t type)
{
    Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)b->data;
    Elf64_Phdr *p = (Elf64_Phdr *)(void *)(b->data + h->e_phoff);
    for (uint32_t i = 0; i < h->e_phnum; i++)
        if (p[i].p_type == type) return &p[i];
    fail_msg("no segment of type %u", type);
    return NULL;
}
static Elf64_Dyn *dynamic(struct bytes *b, int64_t tag)
{
    Elf64_Dyn *d = (Elf64_Dyn *)(void *)(b->data + segment(b, PT_DYNAMIC)->p_offset);
    while (d->d_tag != tag && d->d_tag != DT_NULL) d++;
    assert_int_equal(d->d_tag, tag);
    return d;
}
#define WITH(field, value, words)          \
    do {                                   \
        __typeof__(field) *at = &(field);  \
        const __typeof__(field) old = *at; \
        *at = (__typeof__(field))(value);  \
        expect_refusal(&b, words);         \
        *at = old;                         \
    } while (0)

static void test_damaged_headers(void **state)
{
    (void)state;
    struct bytes b = read_zoo("good");
    char text[512];
    assert_int_equal(vet_prefix(&b, b.size, text), WK_OK);
    Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)b.data;
    WITH(h->e_ident[0], 0, "not an ELF file");
    WITH(h->e_ident[EI_CLASS], ELFCLASS32, "not a 64-bit");
    WITH(h->e_ident[EI_DATA], ELFDATA2MSB, "not a 64-bit");
    WITH(h->e_machine, EM_S390, "rebuild it");
    WITH(h->e_type, ET_EXEC, "-shared");
    WITH(h->e_type, ET_REL, "-shared");
    WITH(h->e_phnum, 0, "damaged ELF header");
    WITH(h->e_phnum, 60000, "damaged ELF header");
    WITH(h->e_phentsize, 32, "damaged ELF header");
    WITH(h->e_phoff, UINT64_MAX - 7, "truncated");
    WITH(h->e_phoff, 1, "damaged ELF header");

    Elf64_Phdr *load = segment(&b, PT_LOAD);
    WITH(load->p_offset, b.size, "truncated");
    WITH(load->p_offset, UINT64_MAX - 4095, "truncated");
    WITH(load->p_filesz, UINT64_MAX, "damaged segment");
    WITH(load->p_align, 3, "alignment");
    WITH(load->p_align, 0, "alignment");
    WITH(load->p_vaddr, UINT64_MAX - 4095, "damaged segment");
    WITH(load->p_flags, PF_R | PF_W | PF_X, "both writable and executable");
    WITH(load->p_memsz, load->p_memsz + 65536, "overlap");
    WITH(segment(&b, PT_GNU_STACK)->p_flags, PF_R | PF_W | PF_X, "executable stack");
    WITH(segment(&b, PT_GNU_STACK)->p_type, PT_NULL, "executable stack");
    WITH(segment(&b, PT_DYNAMIC)->p_vaddr, 8, "does not lie within");
    WITH(segment(&b, PT_DYNAMIC)->p_type, PT_NULL, "no dynamic section");
    WITH(segment(&b, PT_GNU_STACK)->p_type, PT_DYNAMIC, "more than one dynamic section");
    WITH(segment(&b, PT_NOTE)->p_filesz, UINT64_MAX, "does not lie within");
    WITH(segment(&b, PT_GNU_RELRO)->p_memsz, UINT64_MAX, "does not lie within");
    free(b.data);
}

static void test_damaged_dynamic_section(void **state)
{
    (void)state;
    struct bytes b = read_zoo("good");
    WITH(dynamic(&b, DT_FLAGS)->d_un.d_val, DF_TEXTREL, "DF_TEXTREL");
    WITH(dynamic(&b, DT_FLAGS)->d_tag, DT_TEXTREL, "DT_TEXTREL");
    WITH(dynamic(&b, DT_FLAGS)->d_tag, DT_FILTER, "other libraries");
    WITH(dynamic(&b, DT_FLAGS)->d_tag, DT_RPATH, "DT_RPATH");
    WITH(dynamic(&b, DT_FLAGS)->d_tag, DT_RUNPATH, "DT_RUNPATH");
    WITH(dynamic(&b, DT_FLAGS)->d_tag, DT_REL, "damaged dynamic section");
    WITH(dynamic(&b, DT_STRTAB)->d_un.d_val, UINT64_MAX, "string table");
    WITH(dynamic(&b, DT_STRSZ)->d_un.d_val, UINT64_MAX, "string table");
    WITH(dynamic(&b, DT_STRSZ)->d_un.d_val, 2, "string table");
    WITH(dynamic(&b, DT_SYMENT)->d_un.d_val, 16, "damaged dynamic section");
    WITH(dynamic(&b, DT_SYMTAB)->d_un.d_val, UINT64_MAX - 20, "symbol");
    WITH(dynamic(&b, DT_RELA)->d_un.d_val, UINT64_MAX - 24, "relocations lie outside");
    WITH(dynamic(&b, DT_RELASZ)->d_un.d_val, 25, "relocations lie outside");
    WITH(dynamic(&b, DT_RELAENT)->d_un.d_val, 8, "damaged dynamic section");
    WITH(dynamic(&b, DT_INIT)->d_un.d_val, 0, "damaged dynamic section");
    WITH(dynamic(&b, DT_INIT_ARRAY)->d_un.d_val, UINT64_MAX, "lies outside");
    WITH(dynamic(&b, DT_INIT_ARRAYSZ)->d_un.d_val, 12, "lies outside");

    Elf64_Rela *r =
        (Elf64_Rela *)(void *)(b.data + dynamic(&b, DT_RELA)->d_un.d_val); /* first segment: address = offset */
    WITH(r->r_offset, 0, "writes outside");
    WITH(r->r_offset, UINT64_MAX - 3, "writes outside");
    WITH(r->r_info, ELF64_R_INFO(UINT64_C(0xffffffff), R_X86_64_64), "outside of the symbol table");
    free(b.data);
}

/* ---- damage at random ---------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *s) /* xorshift64 */
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}

static void test_every_truncation(void **state)
{
    (void)state;
    struct bytes b = read_zoo("good");
    char text[512];
    const Elf64_Phdr *last = segment(&b, PT_DYNAMIC);
    const size_t needed = last->p_offset + last->p_filesz;
    for (size_t n = 0; n < b.size; n += n < 8192 ? 7 : 61) {
        const wk_status status = vet_prefix(&b, n, text);
        if (n < needed) assert_int_not_equal(status, WK_OK);
    }
    free(b.data);
}

/* Four fifths of the flips hit what the host reads: headers, notes, dynamic section. */
static void test_bit_flips(void **state)
{
    (void)state;
    struct bytes b = read_zoo("good");
    char text[512];
    uint64_t seed = 0x9e3779b97f4a7c15u;
    uint32_t refused = 0;
    for (int i = 0; i < 2500; i++) {
        const Elf64_Phdr *d = segment(&b, PT_DYNAMIC);
        const uint64_t r = next_random(&seed),
                       span = i % 5 == 0   ? b.size
                              : i % 5 == 1 ? d->p_filesz
                                           : 1024,
                       start = i % 5 == 1 ? d->p_offset : 0;
        uint8_t *byte = &b.data[start + (r >> 8) % span];
        const uint8_t mask = (uint8_t)(1u << (r & 7));
        *byte ^= mask;
        refused += vet_prefix(&b, b.size, text) != WK_OK;
        *byte ^= mask;
    }
    assert_in_range(refused, 500, 2499); /* flips in padding and code pass; flips in tables must not all pass */
    free(b.data);
}

/* No bit of the note may change but those that only inform. */
static void test_flips_in_the_note(void **state)
{
    (void)state;
    struct bytes b = read_zoo("good");
    char text[512];
    struct {
        char id[64], claims[9];
    } want = { "org.example.zoo", "ggml:200" };
    uint8_t *note = NULL;
    for (size_t i = 0; i + offsetof(struct wk_note_desc, id) + sizeof want <= b.size && !note; i++)
        if (memcmp(b.data + i + offsetof(struct wk_note_desc, id), &want, sizeof want) == 0) note = b.data + i;
    assert_non_null(note);
    for (size_t bit = 0; bit < 8 * offsetof(struct wk_note_desc, id); bit++) {
        if (bit / 8 >= offsetof(struct wk_note_desc, abi_minor_min) && bit / 8 < offsetof(struct wk_note_desc, flags))
            continue; /* the oldest host it runs in, and a remark */
        if (bit / 8 >= offsetof(struct wk_note_desc, layout) && bit / 8 < offsetof(struct wk_note_desc, claims_at))
            continue; /* a remark */
        note[bit / 8] = (uint8_t)(note[bit / 8] ^ 1u << bit % 8);
        assert_int_not_equal(vet_prefix(&b, b.size, text), WK_OK);
        note[bit / 8] = (uint8_t)(note[bit / 8] ^ 1u << bit % 8);
    }
    free(b.data);
}

/* ---- claims -------------------------------------------------------------------------------------------- */

static void test_claims(void **state)
{
    (void)state;
    static const struct {
        uint16_t kind;
        const char *text;
        uint32_t n;
    } rows[] = {
        { WK_KIND_QUANT, "ggml:0", 1 },
        { WK_KIND_QUANT, "ggml:0,1,30,65535", 4 },
        { WK_KIND_ARCH, "arch:gpt-oss", 1 },
        { WK_KIND_ARCH, "arch:llama,qwen2", 2 },
        { WK_KIND_QUANT, "", 0 },
        { WK_KIND_QUANT, "ggml:", 0 },
        { WK_KIND_QUANT, "ggml:1,", 0 },
        { WK_KIND_QUANT, "ggml:,1", 0 },
        { WK_KIND_QUANT, "ggml:01", 0 },
        { WK_KIND_QUANT, "ggml:65536", 0 },
        { WK_KIND_QUANT, "ggml:-1", 0 },
        { WK_KIND_QUANT, "ggml:1 ,2", 0 },
        { WK_KIND_QUANT, "ggml:4294967297", 0 },
        { WK_KIND_QUANT, "ggml:3,3", 0 },
        { WK_KIND_QUANT, "arch:llama", 0 },
        { WK_KIND_ARCH, "ggml:1", 0 },
        { WK_KIND_ARCH, "arch:a b", 0 },
        { WK_KIND_ARCH, "arch:llama,llama", 0 },
        { WK_KIND_ARCH, "arch:\xff", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct claims c;
        char text[256] = "";
        const wk_status status = claims_parse(rows[i].kind, rows[i].text, &c, &(struct wk_err){ text, sizeof text });
        if ((status == WK_OK) != (rows[i].n > 0) || (status == WK_OK && c.n != rows[i].n))
            fail_msg("\"%s\": status %d, %u claims, %s", rows[i].text, status, c.n, text);
        assert_true((status == WK_OK) == (text[0] == '\0'));
    }
}

/* The descriptor of the file's one note; *bytes: its size. */
static struct wk_note_desc *descriptor(struct bytes *b, uint32_t *bytes)
{
    const struct wk_note head = { .namesz = sizeof WK_NOTE_NAME, .type = WK_NOTE_TYPE, .name = WK_NOTE_NAME };
    for (size_t i = 0; i + sizeof head <= b->size; i += 4) {
        const struct wk_note *n = (const struct wk_note *)(void *)(b->data + i);
        if (n->namesz != head.namesz || n->type != head.type || memcmp(n->name, head.name, sizeof head.name) != 0)
            continue;
        *bytes = n->descsz;
        return (struct wk_note_desc *)(void *)(b->data + i + offsetof(struct wk_note, desc));
    }
    fail_msg("no note");
    return NULL;
}

/* The most things, and the longest text, that a note may claim; one more of each is refused. */
static void test_most_claims(void **state)
{
    (void)state;
    static const struct {
        const char *zoo;
        size_t length; /* of the text; 0: any */
        const char *refused;
    } rows[] = {
        { "most_claims", 0, NULL },
        { "claim_more", 0, "claims more than 256 things" },
        { "longest_claims", 8191, NULL },
        { "longer_claims", 8192, "its claims are not a terminated text of at most 8191 bytes" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bytes b = read_zoo(rows[i].zoo);
        char text[512];
        uint32_t bytes;
        const char *claims = (const char *)(descriptor(&b, &bytes) + 1);
        if (rows[i].length) assert_int_equal(strlen(claims), rows[i].length);
        if (rows[i].refused)
            expect_refusal(&b, rows[i].refused);
        else if (vet_prefix(&b, b.size, text))
            fail_msg("%s: %s", rows[i].zoo, text);
        free(b.data);
    }
}

/* A descriptor whose parts do not lie as they say: every place of the claims, every size, every byte of them. */
static void test_hostile_claims(void **state)
{
    (void)state;
    struct bytes b = read_zoo("longest_claims");
    char text[512];
    uint32_t bytes;
    struct wk_note_desc *n = descriptor(&b, &bytes);
    char *claims = (char *)(n + 1);
    assert_int_equal(n->claims_at, sizeof *n);
    WITH(n->desc_size, bytes - 4, "damaged note");
    WITH(n->desc_size, bytes + 4, "damaged note");
    WITH(n->desc_size, UINT32_MAX, "damaged note");
    WITH(n->claims_at, 0, "damaged note");
    WITH(n->claims_at, sizeof *n - 1, "damaged note");
    WITH(n->claims_at, bytes, "damaged note");
    WITH(n->claims_at, UINT32_MAX, "damaged note");
    for (uint32_t at = sizeof *n + 1; at < bytes; at++) { /* what stands before them is unknown, and set */
        n->claims_at = at;
        if (vet_prefix(&b, b.size, text) == WK_OK) fail_msg("claims at %u are taken", at);
    }
    n->claims_at = sizeof *n;
    WITH(n->reserved, 1, "its note's field reserved is 1, must be 0");
    WITH(n->flags, 1u << 31, "its note has flag 0x80000000");
    const size_t length = strlen(claims), room = bytes - sizeof *n;
    for (size_t i = 0; i < room; i++) {
        const char old = claims[i];
        claims[i] = '\n';
        expect_refusal(&b, i < length    ? "its claims are not a line of plain text"
                           : i == length ? "its claims are not"
                                         : "of its note is set");
        claims[i] = old;
    }
    memset(claims, 'x', room); /* no terminator */
    expect_refusal(&b, "its claims are not a terminated text");
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_headers),   cmocka_unit_test(test_damaged_dynamic_section),
        cmocka_unit_test(test_every_truncation),  cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_flips_in_the_note), cmocka_unit_test(test_claims),
        cmocka_unit_test(test_most_claims),       cmocka_unit_test(test_hostile_claims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
