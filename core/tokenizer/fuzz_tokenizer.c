/* fuzz_tokenizer.c: libFuzzer target. The first byte chooses a built-in vocabulary, the second where trusted text ends;
 * the rest is encoded and must decode to itself (byte-level BPE, control tokens shown). Build with -DWORKER_FUZZ=ON and
 * clang. */
#include "base/utf8.h"
#include "vocab_builder.h"

static const char *const pres[] = { "gpt-2",    "llama-bpe", "qwen2",        "gpt-4o",         "default",
                                    "falcon",   "bloom",     "deepseek-llm", "deepseek-coder", "deepseek-v3",
                                    "superbpe", "kimi-k2",   "tiny_aya",     "youtu",          NULL,
                                    "bert",     "t5" };
enum { KINDS = sizeof pres / sizeof *pres };
static struct tokenizer *tokenizers[KINDS];

static bool is_kind(size_t i, const char *name) { return pres[i] && strcmp(pres[i], name) == 0; }

static void open_all(void)
{
    static struct builder b;
    for (size_t i = 0; i < KINDS; i++) {
        if (is_kind(i, "bert"))
            builder_wordpiece(&b);
        else if (is_kind(i, "t5"))
            builder_unigram(&b);
        else if (pres[i])
            builder_bpe(&b, pres[i]);
        else
            builder_spm(&b);
        builder_token(&b, "<x>", TOKEN_CONTROL, 0);
        builder_token(&b, "<x><y>", TOKEN_USER_DEFINED, 0);
        builder_token(&b, "><", TOKEN_CONTROL, 0);
        if (builder_open(&b, &tokenizers[i], NULL)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!tokenizers[0]) open_all();
    if (size < 2) return 0;
    const size_t kind = data[0] % KINDS, n = size - 2, cut = data[1] < n ? data[1] : n;
    const struct tokenizer_part parts[] = { { data + 2, cut, true }, { data + 2 + cut, n - cut, false } };
    struct tokens ids = { 0 };
    char *text;
    size_t len;
    if (tokenizer_encode_parts(tokenizers[kind], parts, 2, false, &ids, NULL)) abort();
    if (tokenizer_fewest(tokenizers[kind], parts, 2) > ids.n) abort();
    if (tokenizer_decode(tokenizers[kind], ids.ids, ids.n, true, &text, &len, NULL)) abort();
    if (pres[kind] && !is_kind(kind, "bert") && !is_kind(kind, "t5") && (len != n || memcmp(text, data + 2, n)))
        abort();
    struct utf8_stream stream = { 0 };
    char *out = malloc(UTF8_STREAM_ROOM(n) + 3);
    if (!out) abort();
    size_t m = utf8_stream_push(&stream, data + 2, n, out);
    m += utf8_stream_flush(&stream, out + m);
    for (size_t i = 0; i < m;) {
        const size_t sequence = utf8_sequence((unsigned char *)out + i, m - i);
        if (!sequence) abort();
        i += sequence;
    }
    free(out);
    free(text);
    tokens_free(&ids);
    return 0;
}
