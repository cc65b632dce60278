/* fuzz_grammar.c: libFuzzer target. The first byte chooses GBNF or a regular expression; its text ends at a zero byte,
 * and what follows is read by it. Whatever compiles must read bytes the same way however they are cut, and its masks
 * must be what trying each token says. Build with -DWORKER_FUZZ=ON and clang. */
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "vocab_builder.h"

enum { MAX_READ = 24, N_VOCAB = 256 + 12 + 1 /* bytes, the builder's merges, the end */, WORDS = (N_VOCAB + 63) / 64 };

static struct grammar_index *vocabulary(void)
{
    static struct grammar_index *index;
    static struct tokenizer *t; /* the index points into it */
    static struct builder builder;
    if (index) return index;
    builder_bpe(&builder, "gpt-2");
    builder_int(&builder, "tokenizer.ggml.eos_token_id", builder_token(&builder, "<|endoftext|>", TOKEN_CONTROL, 0));
    if (builder_open(&builder, &t, NULL) || grammar_index_open(t, N_VOCAB, &index, NULL)) abort();
    return index;
}

/* Is each token allowed exactly if it can be accepted? A limit may be met by either alone. */
static void check_mask(struct grammar_match *m)
{
    struct grammar_mask mask;
    uint64_t bits[WORDS];
    const wk_status made = grammar_match_mask(m, &mask, NULL);
    if (made != WK_OK && made != WK_INVALID) return;
    if (made == WK_OK) memcpy(bits, mask.bits, sizeof bits);
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        struct grammar_match *clone;
        const bool allowed = made == WK_OK && bits[id / 64] >> id % 64 & 1;
        if (grammar_match_clone(m, &clone, NULL)) abort();
        const wk_status status = grammar_match_accept(clone, id, NULL);
        grammar_match_close(clone);
        if (status != WK_OK && status != WK_INVALID) return;
        if (allowed != (status == WK_OK)) abort();
    }
}

static void read_text(struct grammar *g, const char *bytes, size_t n)
{
    struct grammar_match *whole, *cut;
    size_t taken, apart = 0;
    const struct grammar_index *x = vocabulary();
    if (grammar_match_open(g, x, &whole, NULL) || grammar_match_open(g, x, &cut, NULL)) abort();
    wk_status status = grammar_match_push(whole, bytes, n, &taken, NULL);
    wk_status each = WK_OK;
    while (apart < n && !(each = grammar_match_push(cut, bytes + apart, 1, NULL, NULL))) apart++;
    if (status <= WK_INVALID && each <= WK_INVALID) {
        if (taken != apart || grammar_match_complete(whole) != grammar_match_complete(cut)) abort();
        check_mask(cut);
        check_mask(cut); /* as it was kept */
    }
    grammar_match_close(whole);
    grammar_match_close(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar *g;
    if (!size) return 0;
    const char *text = (const char *)data + 1;
    const char *end = memchr(text, 0, size - 1);
    const size_t n = end ? (size_t)(end - text) : size - 1, behind = end ? size - 2 - n : 0;
    const wk_status status =
        data[0] & 1 ? grammar_from_gbnf(text, n, NULL, NULL, &g, NULL) : grammar_from_regex(text, n, NULL, &g, NULL);
    if (!status) read_text(g, end ? end + 1 : text, behind < MAX_READ ? behind : MAX_READ);
    grammar_close(g);
    return 0;
}
