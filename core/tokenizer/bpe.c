/* bpe.c: byte-level BPE (Radford et al. 2019): pre-tokenised words, bytes as the first symbols, merges by rank. */
#include "tokenizer/model.h"

#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

static struct bpe_merge *find_merge(const struct bpe_merges *m, const struct vocab *v, uint32_t left, uint32_t right)
{
    uint32_t at = (uint32_t)hash_mix((uint64_t)left << 32 | right, v->seed) & m->mask;
    for (;; at = (at + 1) & m->mask) {
        struct bpe_merge *slot = &m->slot[at];
        if (slot->left == TOKEN_NONE || (slot->left == left && slot->right == right)) return slot;
    }
}

/* All three tokens must be ones that text may become: a merge that builds a control token would let
 * any user forge it. */
wk_status bpe_add_merge(struct bpe_merges *m, const struct vocab *v, struct token_bytes left, struct token_bytes right,
                        bool *twice, const struct wk_err *why)
{
    const struct token_bytes parts[2] = { left, right };
    uint32_t ids[3];
    *twice = false;
    for (int i = 0; i < 3; i++) {
        if (i == 2 && left.len + right.len > v->longest)
            ids[i] = TOKEN_NONE;
        else if (i == 2) {
            memcpy(m->joined, left.data, left.len);
            memcpy(m->joined + left.len, right.data, right.len);
            ids[i] = vocab_find(v, m->joined, left.len + right.len);
        } else
            ids[i] = vocab_find(v, parts[i].data, parts[i].len);
        if (ids[i] == TOKEN_NONE || !vocab_is_text(v, ids[i]))
            return wk_fail(why, WK_INVALID, "the %s of '%.*s' and '%.*s' is not a normal token of the vocabulary",
                           i == 0   ? "left part"
                           : i == 1 ? "right part"
                                    : "result",
                           (int)(left.len < 64 ? left.len : 64), left.data, (int)(right.len < 64 ? right.len : 64),
                           right.data);
    }
    struct bpe_merge *slot = find_merge(m, v, ids[0], ids[1]);
    *twice = slot->left != TOKEN_NONE;
    if (!*twice) *slot = (struct bpe_merge){ ids[0], ids[1], m->n++, ids[2] };
    return WK_OK;
}

wk_status bpe_begin(struct bpe_merges *m, const struct vocab *v, uint64_t n, const char *where,
                    const struct wk_err *err)
{
    if (n > 4u * TOKENIZER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "%s: %llu merges; at most %u are supported", where, (unsigned long long)n,
                       4u * TOKENIZER_MAX_VOCAB);
    uint32_t slots = 16;
    while (slots < n + n / 2) slots *= 2;
    m->slot = malloc(slots * sizeof *m->slot);
    m->joined = malloc(v->longest + 1);
    if (!m->slot || !m->joined) return wk_fail(err, WK_NO_MEMORY, "no memory for %llu merges", (unsigned long long)n);
    memset(m->slot, 0xFF, slots * sizeof *m->slot);
    m->mask = slots - 1;
    return WK_OK;
}

/* "left right", split at the first space from index 1 on (a symbol may itself be a space). */
bool bpe_split(const char *s, size_t len, struct token_bytes *left, struct token_bytes *right)
{
    const char *space = len > 1 ? memchr(s + 1, ' ', len - 1) : NULL;
    if (!space) return false;
    *left = (struct token_bytes){ s, (size_t)(space - s) };
    *right = (struct token_bytes){ space + 1, len - left->len - 1 };
    return true;
}

wk_status bpe_open(struct bpe_merges *m, const struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    static const char key[] = "tokenizer.ggml.merges";
    const struct gguf_kv *kv = gguf_find(file, key);
    struct gguf_strings it;
    struct gguf_str s;
    if (!kv) return wk_fail(err, WK_INVALID, "%s is absent; byte-level BPE needs it", key);
    if (gguf_strings_begin(file, kv, &it, err)) return WK_INVALID;
    wk_status status = bpe_begin(m, v, kv->count, key, err);
    for (uint32_t i = 0; !status && gguf_strings_next(&it, &s); i++) {
        struct token_bytes left, right;
        char text[256];
        const struct wk_err why = { text, sizeof text };
        bool twice; /* of two equal ones the first counts */
        if (!bpe_split(s.data, (size_t)s.len, &left, &right))
            return wk_fail(err, WK_INVALID, "%s[%u]: expected two tokens separated by a space, found '%.*s'", key, i,
                           (int)(s.len < 64 ? s.len : 64), s.data);
        status = bpe_add_merge(m, v, left, right, &twice, &why);
        if (status) (void)wk_fail(err, status, "%s[%u]: %s", key, i, text);
    }
    return status;
}

void bpe_close(struct bpe_merges *m)
{
    free(m->slot);
    free(m->joined);
}

struct bpe_model {
    const struct vocab *vocab;
    const struct bpe_merges *merges;
};

static bool bpe_rule(const void *model, const char *text, const struct symbol *l, const struct symbol *r,
                     uint32_t *priority, uint32_t *id)
{
    const struct bpe_model *bpe = model;
    (void)text; /* ids say it all */
    const struct bpe_merge *merge = find_merge(bpe->merges, bpe->vocab, l->id, r->id);
    if (merge->left == TOKEN_NONE) return false;
    *priority = merge->rank;
    *id = merge->id;
    return true;
}

bool bpe_merge_symbols(const struct vocab *v, const struct bpe_merges *m, struct encoder *e, const char *text,
                       struct tokens *out)
{
    const struct bpe_model bpe = { v, m };
    if (!merger_run(&e->merger, bpe_rule, &bpe, text)) return false;
    for (uint32_t i = 0; i != SYMBOL_END; i = e->merger.symbol[i].next)
        if (!tokens_add(out, e->merger.symbol[i].id)) return false;
    return true;
}

/* The token that the whole word is, or TOKEN_NONE. */
static uint32_t whole_word(const struct vocab *v, char *buffer, const char *word, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (len + 2 > v->longest + 1) return TOKEN_NONE; /* already longer than any token, or will be */
        len += vocab_put_symbol((unsigned char)word[i], buffer + len);
    }
    const uint32_t id = vocab_find(v, buffer, len);
    return id != TOKEN_NONE && vocab_is_text(v, id) ? id : TOKEN_NONE;
}

static bool encode_word(const struct bpe_model *bpe, bool ignore_merges, struct encoder *e, const char *word,
                        uint32_t n, struct tokens *out)
{
    if (n == 1) return tokens_add(out, bpe->vocab->byte_id[(unsigned char)word[0]]);
    if (ignore_merges) {
        const uint32_t id = whole_word(bpe->vocab, e->buffer, word, n);
        if (id != TOKEN_NONE) return tokens_add(out, id);
    }
    merger_clear(&e->merger);
    for (uint32_t i = 0; i < n; i++)
        if (!merger_add(&e->merger, i, 1, bpe->vocab->byte_id[(unsigned char)word[i]])) return false;
    return bpe_merge_symbols(bpe->vocab, bpe->merges, e, word, out);
}

static wk_status check_bytes(const struct vocab *v, const char *text, size_t n, const struct wk_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (v->byte_id[(unsigned char)text[i]] == TOKEN_NONE)
            return wk_fail(err, WK_INVALID,
                           "the text has a byte 0x%02X, for which this vocabulary has neither a token nor an unknown "
                           "token: leave it out",
                           (unsigned)(unsigned char)text[i]);
    return WK_OK;
}

wk_status bpe_encode(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *p, struct encoder *e,
                     const char *text, size_t n, struct tokens *out, const struct wk_err *err)
{
    const struct bpe_model bpe = { v, m };
    wk_status status = check_bytes(v, text, n, err);
    if (!status) status = pretokenizer_split(p, &e->words, text, n, err);
    if (status) return status;
    bool ok = array_reserve((void **)&e->buffer, &e->buffer_cap, v->longest + 2, 1);
    for (size_t i = 0; ok && i < e->words.n; i++)
        ok = merger_goes_on(&e->merger) &&
             encode_word(&bpe, p->ignore_merges, e, text + e->words.piece[i].at, e->words.piece[i].len, out);
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to encode %zu bytes of text", n);
}
