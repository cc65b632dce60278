/* hf_encode.c: a text through the pipeline that a tokenizer.json describes: added tokens cut out of the raw text, the
 * rest normalised, added tokens cut out of that, then pieces and merges. The pieces and merges of byte-level files are
 * those of GGUF's byte-level BPE. */
#include "tokenizer/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

static bool append(struct byte_buffer *b, const char *data, size_t n)
{
    if (!array_reserve((void **)&b->data, &b->cap, b->n + n, 1)) return false;
    if (n) memcpy(b->data + b->n, data, n);
    b->n += n;
    return true;
}

static bool replace(const char *text, size_t n, const char *from, size_t from_len, const char *to, size_t to_len,
                    struct byte_buffer *out)
{
    for (size_t i = 0; i < n;) {
        const char *found = memmem(text + i, n - i, from, from_len);
        const size_t end = found ? (size_t)(found - text) : n;
        if (!append(out, text + i, end - i) || (found && !append(out, to, to_len))) return false;
        i = end + (found ? from_len : 0);
    }
    return true;
}

static bool apply(const struct hf_step *s, const char *text, size_t n, struct byte_buffer *out)
{
    switch (s->kind) {
    case HF_NFC: return unicode_plain(text, n) ? append(out, text, n) : unicode_nfc(text, n, out);
    case HF_PREPEND:
        return !n || (append(out, s->to, s->to_len) && append(out, text, n)); /* an empty text stays empty */
    default: return replace(text, n, s->from, s->from_len, s->to, s->to_len, out);
    }
}

static void swap(struct byte_buffer *a, struct byte_buffer *b)
{
    const struct byte_buffer c = *a;
    *a = *b;
    *b = c;
}

wk_status hf_normalize(const struct hf_pipeline *p, const char *text, size_t n, struct byte_buffer *out,
                       struct byte_buffer *spare, const struct wk_err *err)
{
    out->n = 0;
    bool ok = append(out, text, n);
    for (uint32_t i = 0; ok && i < p->n_steps; i++) {
        spare->n = 0;
        ok = apply(&p->step[i], out->data, out->n, spare);
        swap(out, spare);
        if (out->n > HF_MAX_TEXT)
            return wk_fail(err, WK_INVALID, "the text grows beyond %d bytes when it is normalised", HF_MAX_TEXT);
    }
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to normalise %zu bytes of text", n);
}

/* ---- byte fallback ------------------------------------------------------------------------------------- */

/* Characters that are tokens, else the byte tokens of what they consist of. */
static bool add_symbols(const struct vocab *v, struct merger *m, const char *text, uint32_t n)
{
    const unsigned char *bytes = (const unsigned char *)text;
    merger_clear(m);
    for (uint32_t i = 0; i < n;) {
        const uint32_t sequence = (uint32_t)utf8_sequence(bytes + i, n - i), len = sequence ? sequence : 1;
        const uint32_t id = sequence ? spm_find_text(v, text + i, len) : TOKEN_NONE;
        if (id != TOKEN_NONE && !merger_add(m, i, len, id)) return false;
        for (uint32_t k = 0; id == TOKEN_NONE && k < len; k++)
            if (!merger_add(m, i + k, 1, v->byte_id[bytes[i + k]])) return false;
        i += len;
    }
    return true;
}

static bool encode_piece(const struct vocab *v, const struct bpe_merges *m, bool ignore_merges, struct encoder *e,
                         const char *text, uint32_t n, struct tokens *out)
{
    const uint32_t id = ignore_merges ? spm_find_text(v, text, n) : TOKEN_NONE;
    if (id != TOKEN_NONE) return tokens_add(out, id);
    return add_symbols(v, &e->merger, text, n) && bpe_merge_symbols(v, m, e, text, out);
}

/* Metaspace: every space a mark, and one before the text where it has none. */
static bool mark_spaces(const struct hf_pipeline *p, const char *text, uint32_t n, bool first, struct byte_buffer *out)
{
    const bool wanted = p->prepend == HF_ALWAYS || (p->prepend == HF_FIRST && first);
    const bool has = n && (text[0] == ' ' || (n >= 3 && !memcmp(text, SPACE_MARK, 3)));
    out->n = 0;
    return (!wanted || has || append(out, SPACE_MARK, 3)) && replace(text, n, " ", 1, SPACE_MARK, 3, out);
}

static wk_status encode_characters(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *words,
                                   const struct hf_pipeline *p, struct encoder *e, const char *text, uint32_t n,
                                   bool first, struct tokens *out, const struct wk_err *err)
{
    bool ok = true;
    if (p->metaspace) {
        ok = mark_spaces(p, text, n, first, &e->spare);
        text = e->spare.data;
        n = (uint32_t)e->spare.n;
    }
    if (ok && !words->n_steps)
        ok = encode_piece(v, m, words->ignore_merges, e, text, n, out);
    else if (ok) {
        const wk_status status = pretokenizer_split(words, &e->words, text, n, err);
        if (status) return status;
        for (size_t i = 0; ok && i < e->words.n; i++)
            ok = merger_goes_on(&e->merger) &&
                 encode_piece(v, m, words->ignore_merges, e, text + e->words.piece[i].at, e->words.piece[i].len, out);
    }
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to encode %u bytes of text", n);
}

/* ---- the whole way ------------------------------------------------------------------------------------- */

/* One text that holds no added token. */
static wk_status encode_text(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *words,
                             const struct hf_pipeline *p, struct encoder *e, const char *text, uint32_t n, bool first,
                             struct tokens *out, const struct wk_err *err)
{
    if (!p->byte_level) return encode_characters(v, m, words, p, e, text, n, first, out, err);
    if (p->prefix_space && text[0] != ' ') {
        e->spare.n = 0;
        if (!append(&e->spare, " ", 1) || !append(&e->spare, text, n))
            return wk_fail(err, WK_NO_MEMORY, "no memory to encode %u bytes of text", n);
        text = e->spare.data;
        n++;
    }
    return bpe_encode(v, m, words, e, text, n, out, err);
}

/* The spans of a stretch [at, at + len) of the text, as of a text of their own; returns how many. All before spans[0]
 * ended before the stretch. */
static size_t cut_spans(const struct trust_span *spans, uint32_t at, uint32_t len, struct trust_span *out)
{
    size_t n = 0;
    for (size_t i = 0;; i++) {
        const uint32_t end = spans[i].end < at + len ? spans[i].end - at : len;
        out[n++] = (struct trust_span){ end, spans[i].control };
        if (end == len) return n;
    }
}

/* A stretch between added tokens of the raw text. Where the normalizer changes a text, it is not known any more which
 * byte came from whom: control tokens are then found in it only if all of it may hold them. */
static wk_status encode_stretch(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *words,
                                const struct hf_pipeline *p, struct encoder *e, const char *text, struct fragment f,
                                struct trust_span *spans, size_t n_spans, struct tokens *out, const struct wk_err *err)
{
    wk_status status = hf_normalize(p, text + f.at, f.len, &e->normal, &e->spare, err);
    const uint32_t n = (uint32_t)e->normal.n;
    if (status || !n) return status;
    if (n != f.len || memcmp(e->normal.data, text + f.at, n) != 0) {
        bool all = true;
        for (size_t i = 0; i < n_spans; i++) all = all && spans[i].control;
        spans[0] = (struct trust_span){ n, all };
        n_spans = 1;
    }
    e->inner.n = 0;
    status = specials_split_leftmost(&p->normalized, e->normal.data, n, spans, n_spans, &e->inner, err);
    for (size_t i = 0; !status && i < e->inner.n; i++) {
        const struct fragment inner = e->inner.list[i];
        if (inner.id == TOKEN_NONE)
            status =
                encode_text(v, m, words, p, e, e->normal.data + inner.at, inner.len, f.at == 0 && i == 0, out, err);
        else if (!tokens_add(out, inner.id))
            status = wk_fail(err, WK_NO_MEMORY, "no memory for the ids");
    }
    return status;
}

wk_status hf_encode(const struct vocab *v, const struct bpe_merges *m, const struct pretokenizer *words,
                    const struct hf_pipeline *p, struct encoder *e, const char *text, uint32_t n,
                    const struct trust_span *spans, size_t n_spans, struct tokens *out, const struct wk_err *err)
{
    struct trust_span *cut = malloc(n_spans * sizeof *cut);
    if (!cut) return wk_fail(err, WK_NO_MEMORY, "no memory to encode %u bytes of text", n);
    wk_status status = specials_split_leftmost(&p->raw, text, n, spans, n_spans, &e->fragments, err);
    for (size_t i = 0, span = 0; !status && i < e->fragments.n; i++) {
        const struct fragment f = e->fragments.list[i];
        while (spans[span].end <= f.at) span++;
        if (f.id == TOKEN_NONE)
            status =
                encode_stretch(v, m, words, p, e, text, f, cut, cut_spans(spans + span, f.at, f.len, cut), out, err);
        else if (!tokens_add(out, f.id))
            status = wk_fail(err, WK_NO_MEMORY, "no memory for the ids");
    }
    free(cut);
    return status;
}

void hf_pipeline_close(struct hf_pipeline *p)
{
    for (uint32_t i = 0; i < p->n_steps; i++) {
        free(p->step[i].from);
        free(p->step[i].to);
    }
    specials_close(&p->raw);
    specials_close(&p->normalized);
}
