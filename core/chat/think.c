/* think.c: see think.h. */
#include "chat/think.h"

#include <string.h>

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The control tokens of a mark: their pieces show nothing, so they are asked for by name. */
static size_t find_ids(const struct tokenizer *tokenizer, const char *mark, uint32_t out[THINK_IDS])
{
    struct tokens ids = { 0 };
    size_t n = 0;
    const wk_status status = tokenizer_encode(tokenizer, mark, strlen(mark), true, false, &ids, NULL);
    for (size_t i = 0; !status && i < ids.n && n < THINK_IDS; i++)
        if (tokenizer_type(tokenizer, ids.ids[i]) == TOKEN_CONTROL) out[n++] = ids.ids[i];
    tokens_free(&ids);
    return n;
}

void think_begin(struct think *t, const struct tokenizer *tokenizer, const struct chat_marks *marks)
{
    *t = (struct think){ .tokenizer = tokenizer,
                         .open = marks->open,
                         .close = marks->close,
                         .state = marks->opened ? THINK_INSIDE : THINK_BEFORE,
                         .fresh = true };
    t->n_ids[0] = find_ids(tokenizer, marks->open, t->ids[0]);
    t->n_ids[1] = find_ids(tokenizer, marks->close, t->ids[1]);
}

/* What the id says here: a control token shows itself only where a mark may be. */
static struct token_bytes piece_of(const struct think *t, uint32_t id)
{
    bool shown = false;
    if (t->state == THINK_BEFORE || t->state == THINK_INSIDE) {
        const int k = t->state == THINK_INSIDE;
        for (size_t i = 0; i < t->n_ids[k]; i++) shown = shown || t->ids[k][i] == id;
    }
    return tokenizer_piece(t->tokenizer, id, shown);
}

static void give(struct think *t, size_t n, think_sink *sink, void *user)
{
    if (!n) return;
    sink(user, t->state == THINK_INSIDE, t->held, n);
    t->n -= n;
    memmove(t->held, t->held + n, t->n);
}

/* Do the held bytes from `at` on begin a mark? */
static bool begins(const struct think *t, size_t at, const char *mark, bool *whole)
{
    const size_t n = t->n - at, len = strlen(mark);
    *whole = n == len;
    return n <= len && memcmp(t->held + at, mark, n) == 0;
}

static size_t blanks(const struct think *t, size_t from)
{
    size_t n = from;
    while (n < t->n && is_blank(t->held[n])) n++;
    return n;
}

/* Before the first text: blanks, then perhaps the opening mark. */
static void look_for_open(struct think *t, think_sink *sink, void *user)
{
    bool whole;
    if (begins(t, blanks(t, 0), t->open, &whole) && t->n < THINK_HELD) {
        if (!whole) return;
        t->n = 0;
        t->state = THINK_INSIDE;
        return;
    }
    t->state = THINK_TEXT;
    give(t, t->n, sink, user);
}

/* Inside: what cannot be blanks before the closing mark, or a part of it, is reasoning. */
static void look_for_close(struct think *t, think_sink *sink, void *user)
{
    bool whole = false;
    size_t sure = 0;
    if (t->fresh) {
        const size_t n = blanks(t, 0);
        t->n -= n;
        memmove(t->held, t->held + n, t->n);
        if (!t->n) return;
    }
    while (sure < t->n && !begins(t, blanks(t, sure), t->close, &whole)) sure++;
    if (sure == t->n) whole = false;
    if (!sure && !whole && t->n == THINK_HELD) sure = 1;
    t->fresh = t->fresh && !sure;
    give(t, sure, sink, user);
    if (!whole) return;
    t->n = 0;
    t->state = THINK_BEHIND;
}

static void take(struct think *t, char c, think_sink *sink, void *user)
{
    if (t->state == THINK_BEHIND) {
        if (is_blank(c)) return;
        t->state = THINK_TEXT;
    }
    t->held[t->n++] = c;
    if (t->state == THINK_BEFORE)
        look_for_open(t, sink, user);
    else if (t->state == THINK_INSIDE)
        look_for_close(t, sink, user);
    else
        give(t, t->n, sink, user);
}

bool think_push(struct think *t, uint32_t id, think_sink *sink, void *user)
{
    const struct token_bytes piece = piece_of(t, id);
    const bool was = t->state == THINK_INSIDE;
    for (size_t i = 0; i < piece.len;) {
        size_t n = 0;
        /* Words that no mark can begin in go in one stride. */
        if (!t->n && t->state == THINK_TEXT) n = piece.len - i;
        if (!t->n && t->state == THINK_INSIDE && !t->fresh)
            while (i + n < piece.len && !is_blank(piece.data[i + n]) && piece.data[i + n] != t->close[0]) n++;
        if (n)
            sink(user, t->state == THINK_INSIDE, piece.data + i, n);
        else
            take(t, piece.data[i], sink, user);
        i += n ? n : 1;
    }
    return was || t->state == THINK_INSIDE;
}

bool think_holds(const struct think *t) { return t->n > 0; }

void think_finish(struct think *t, think_sink *sink, void *user)
{
    if (t->state == THINK_BEFORE) t->state = THINK_TEXT;
    if (t->state == THINK_TEXT || blanks(t, 0) < t->n) give(t, t->n, sink, user);
    t->n = 0;
}
