/* fuzz_hf_json.c: libFuzzer target. The input is a tokenizer.json, then a 0, then a text; what opens must encode the
 * text and decode the ids. To get far beyond the syntax, an input that begins with '#' is one of two small good files
 * with a part of it replaced: '#', which file and which part, the part. Build with -DWORKER_FUZZ=ON and clang. */
#include "hf_builder.h"

static struct builder builder;

static struct hf_text make(const uint8_t *data, size_t size)
{
    const unsigned which = size ? data[0] : 0;
    char *part = malloc(size + 1);
    struct hf_parts parts = { 0 };
    if (!part) abort();
    if (size) memcpy(part, data + 1, size - 1);
    part[size ? size - 1 : 0] = '\0';
    const char **slots[] = { &parts.normalizer, &parts.pre_tokenizer, &parts.post_processor,
                             &parts.decoder,    &parts.added,         &parts.model };
    *slots[(which >> 1) % 6] = part;
    struct hf_text text =
        which & 1 ? hf_byte_level(&builder, &parts, which >> 7) : hf_byte_fallback(&builder, &parts, which >> 7);
    free(part);
    return text;
}

static void use(const struct tokenizer *t, const uint8_t *text, size_t n)
{
    const struct tokenizer_part parts[] = { { text, n / 2, true }, { text + n / 2, n - n / 2, false } };
    struct tokens ids = { 0 };
    char *back;
    size_t len;
    /* Only a normalizer that lets texts grow without bound may refuse. */
    if (tokenizer_encode_parts(t, parts, 2, true, &ids, NULL) == WK_OK) {
        if (tokenizer_fewest(t, parts, 2) > ids.n) abort();
        for (size_t i = 0; i < ids.n; i++)
            if (ids.ids[i] >= tokenizer_size(t)) abort();
        if (tokenizer_decode(t, ids.ids, ids.n, true, &back, &len, NULL)) abort();
        free(back);
    }
    tokens_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t probe[] = "the <x> a\xCC\x81 123\xFF.. \xE2\x96\x81";
    char message[1024];
    const struct wk_err err = { message, sizeof message };
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    const size_t n = zero ? (size_t)(zero - data) : size;
    struct tokenizer *t;
    struct hf_text made = { 0 };
    if (n && data[0] == '#') made = make(data + 1, n - 1);
    if (tokenizer_open_json_text(made.data ? made.data : (const char *)data, made.data ? made.n : n, "fuzz", NULL, 0,
                                 &t, &err) == WK_OK) {
        use(t, probe, sizeof probe - 1);
        if (zero) use(t, zero + 1, size - n - 1);
        tokenizer_close(t);
    }
    free(made.data);
    return 0;
}
