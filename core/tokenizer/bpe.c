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

/* "left right", split at the first space from index 1 on (a symbol may itself be a space). All three tokens must be ones that text may
 * become: a merge that builds a control token would let any user forge it. */
static wk_status add_merge(struct bpe_merges *m, const struct vocab *v, char *joined, struct gguf_str s, uint32_t rank, const struct wk_err *err)
{
    const char *space = s.len > 1 ? memchr(s.data + 1, ' ', (size_t)s.len - 1) : NULL;
    if (!space || s.len - 1 > v->longest)
        return wk_fail(err, WK_INVALID, "tokenizer.ggml.merges[%u]: expected two tokens separated by a space, found '%.*s'", rank,
                       (int)(s.len < 64 ? s.len : 64), s.data);
    const size_t left_len = (size_t)(space - s.data), right_len = (size_t)s.len - left_len - 1;
    memcpy(joined, s.data, left_len);
    memcpy(joined + left_len, space + 1, right_len);
    const uint32_t ids[3] = { vocab_find(v, s.data, left_len), vocab_find(v, space + 1, right_len), vocab_find(v, joined, left_len + right_len) };
    for (int i = 0; i < 3; i++)
        if (ids[i] == TOKEN_NONE || !vocab_is_text(v, ids[i]))
            return wk_fail(err, WK_INVALID, "tokenizer.ggml.merges[%u]: the %s of '%.*s' is not a normal token of the vocabulary", rank,
                           i == 0 ? "left part" : i == 1 ? "right part" : "result", (int)(s.len < 64 ? s.len : 64), s.data);
    struct bpe_merge *slot = find_merge(m, v, ids[0], ids[1]);
    if (slot->left == TOKEN_NONE) *slot = (struct bpe_merge){ ids[0], ids[1], rank, ids[2] }; /* of two equal ones the first counts */
    return WK_OK;
}

wk_status bpe_open(struct bpe_merges *m, const struct vocab *v, const struct gguf *file, const struct wk_err *err)
{
    const struct gguf_kv *kv = gguf_find(file, "tokenizer.ggml.merges");
    struct gguf_strings it;
    struct gguf_str s;
    wk_status status = WK_OK;
    if (!kv) return wk_fail(err, WK_INVALID, "tokenizer.ggml.merges is absent; byte-level BPE needs it");
    if (gguf_strings_begin(file, kv, &it, err)) return WK_INVALID;
    if (kv->count > 4u * TOKENIZER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "tokenizer.ggml.merges: %llu merges; at most %u are supported", (unsigned long long)kv->count,
                       4u * TOKENIZER_MAX_VOCAB);
    uint32_t slots = 16;
    while (slots < kv->count + kv->count / 2) slots *= 2;
    m->slot = malloc(slots * sizeof *m->slot);
    char *joined = malloc(v->longest + 1);
    if (!m->slot || !joined) {
        free(joined);
        return wk_fail(err, WK_NO_MEMORY, "no memory for %llu merges", (unsigned long long)kv->count);
    }
    memset(m->slot, 0xFF, slots * sizeof *m->slot);
    m->mask = slots - 1;
    for (uint32_t rank = 0; !status && gguf_strings_next(&it, &s); rank++) status = add_merge(m, v, joined, s, rank, err);
    free(joined);
    return status;
}

void bpe_close(struct bpe_merges *m)
{
    free(m->slot);
}

struct bpe_model { const struct vocab *vocab; const struct bpe_merges *merges; };

static bool bpe_rule(const void *model, const char *text, const struct symbol *l, const struct symbol *r, uint32_t *priority, uint32_t *id)
{
    const struct bpe_model *bpe = model;
    (void)text; /* ids say it all */
    const struct bpe_merge *merge = find_merge(bpe->merges, bpe->vocab, l->id, r->id);
    if (merge->left == TOKEN_NONE) return false;
    *priority = merge->rank;
    *id = merge->id;
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

static bool encode_word(const struct bpe_model *bpe, bool ignore_merges, struct encoder *e, const char *word, uint32_t n, struct tokens *out)
{
    if (n == 1) return tokens_add(out, bpe->vocab->byte_id[(unsigned char)word[0]]);
    if (ignore_merges) {
        const uint32_t id = whole_word(bpe->vocab, e->buffer, word, n);
        if (id != TOKEN_NONE) return tokens_add(out, id);
    }
    merger_clear(&e->merger);
    for (uint32_t i = 0; i < n; i++)
        if (!merger_add(&e->merger, i, 1, bpe->vocab->byte_id[(unsigned char)word[i]])) return false;
    if (!merger_run(&e->merger, bpe_rule, bpe, word)) return false;
    for (uint32_t i = 0; i != SYMBOL_END; i = e->merger.symbol[i].next)
        if (!tokens_add(out, e->merger.symbol[i].id)) return false;
    return true;
}

wk_status bpe_encode(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *p, struct encoder *e, const char *text,
                     size_t n, struct tokens *out, const struct wk_err *err)
{
    const struct bpe_model bpe = { v, m };
    const wk_status status = pretokenizer_split(p, &e->words, text, n, err);
    if (status) return status;
    bool ok = array_reserve((void **)&e->buffer, &e->buffer_cap, v->longest + 2, 1);
    for (size_t i = 0; ok && i < e->words.n; i++)
        ok = encode_word(&bpe, p->ignore_merges, e, text + e->words.piece[i].at, e->words.piece[i].len, out);
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to encode %zu bytes of text", n);
}
