/* spm.c: SentencePiece BPE (Kudo and Richardson 2018): no pre-tokenisation, merges by score, bytes for what no token
 * spells. */
#include "tokenizer/model.h"

#include <string.h>

#include "base/utf8.h"

/* A float as an integer of the same order, reversed: the highest score is merged first. */
static uint32_t score_priority(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are one score */
    memcpy(&bits, &score, sizeof bits);
    return ~(bits >> 31 ? ~bits : bits | 0x80000000u);
}

uint32_t spm_find_text(const struct vocab *v, const char *text, size_t len)
{
    const uint32_t id = vocab_find(v, text, len);
    return id != TOKEN_NONE && vocab_is_text(v, id) ? id : TOKEN_NONE;
}

static bool spm_rule(const void *model, const char *text, const struct symbol *l, const struct symbol *r,
                     uint32_t *priority, uint32_t *id)
{
    const struct vocab *v = model;
    *id = spm_find_text(v, text + l->at, (size_t)l->len + r->len);
    if (*id == TOKEN_NONE) return false;
    *priority = score_priority(v->score[*id]);
    return true;
}

/* Spaces are U+2581, three bytes, inside the model. Returns the length written to e->buffer, 0: no memory. */
static size_t escape(struct encoder *e, const char *text, size_t n, bool space)
{
    size_t spaces = space;
    for (size_t i = 0; i < n; i++) spaces += text[i] == ' ';
    if (!array_reserve((void **)&e->buffer, &e->buffer_cap, n + 1 + 2 * spaces, 1)) return 0;
    char *out = e->buffer;
    if (space) out = (char *)memcpy(out, "\xE2\x96\x81", 3) + 3;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == ' ')
            out = (char *)memcpy(out, "\xE2\x96\x81", 3) + 3;
        else
            *out++ = text[i];
    }
    return (size_t)(out - e->buffer);
}

static bool put_bytes(const struct vocab *v, const char *text, size_t n, struct tokens *out)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = v->byte_id[(unsigned char)text[i]];
        if (!tokens_add(out, id != TOKEN_NONE ? id : v->unk)) return false;
    }
    return true;
}

enum { SPACE = 3 };
static bool is_space(const char *at) { return memcmp(at, "\xE2\x96\x81", SPACE) == 0; }

/* Where in text [at, len) a space stands first behind something else; len: nowhere. */
static size_t word_end(const char *text, size_t at, size_t len)
{
    for (size_t i = at + 1; i + SPACE <= len; i++)
        if (is_space(text + i) && (i < at + SPACE || !is_space(text + i - SPACE))) return i;
    return len;
}

bool spm_words_part(const struct vocab *v)
{
    for (uint32_t id = 0; id < v->n; id++) {
        const struct token_bytes t = vocab_text(v, id);
        if (vocab_is_text(v, id) && word_end(t.data, 0, t.len) != t.len) return false;
    }
    return true;
}

/* Symbols of [at, end): merged, and their ids appended. */
static bool encode_part(const struct vocab *v, struct encoder *e, size_t at, size_t end, struct tokens *out)
{
    bool ok = true;
    merger_clear(&e->merger);
    while (ok && at < end) {
        const size_t sequence = utf8_sequence((const unsigned char *)e->buffer + at, end - at),
                     take = sequence ? sequence : 1;
        ok = merger_add(&e->merger, (uint32_t)at, (uint32_t)take, spm_find_text(v, e->buffer + at, take));
        at += take;
    }
    ok = ok && merger_run(&e->merger, spm_rule, v, e->buffer);
    for (uint32_t i = 0; ok && i != SYMBOL_END; i = e->merger.symbol[i].next) {
        const struct symbol *s = &e->merger.symbol[i];
        ok = s->id != TOKEN_NONE ? tokens_add(out, s->id) : put_bytes(v, e->buffer + s->at, s->len, out);
    }
    return ok;
}

wk_status spm_encode(const struct vocab *v, struct encoder *e, const char *text, size_t n, bool space,
                     struct tokens *out, const struct wk_err *err)
{
    const size_t len = escape(e, text, n, space);
    bool ok = len > 0;
    for (size_t at = 0, end; ok && at < len; at = end) {
        end = v->words_part ? word_end(e->buffer, at, len) : len;
        ok = merger_goes_on(&e->merger) && encode_part(v, e, at, end, out);
    }
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to encode %zu bytes of text", n);
}
