/* grammars.c: see grammars.h. */
#include "grammars.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "chat/constraint.h"
#include "grammar/schema.h"

struct kept {
    struct grammar *g; /* NULL: free */
    char digest[65];
    uint64_t used; /* when, by x->clock */
};

struct grammars {
    const struct tokenizer *tokenizer;
    uint32_t n_vocab;
    bool refused; /* it cannot be constrained, and why; both as grammars_open found */
    char why[256];
    pthread_mutex_t index_lock; /* held while the index is made: who wants it waits for it */
    struct grammar_index *index;
    pthread_mutex_t lock; /* of what follows; nothing is compiled under it */
    struct kept kept[GRAMMARS_MOST];
    uint64_t clock;
};

wk_status grammars_open(const struct tokenizer *t, uint32_t n_vocab, struct grammars **out, const struct wk_err *err)
{
    struct grammars *x = calloc(1, sizeof *x);
    *out = x;
    if (!x) return wk_fail(err, WK_NO_MEMORY, "no memory for grammars");
    x->tokenizer = t;
    x->n_vocab = n_vocab;
    (void)pthread_mutex_init(&x->index_lock, NULL);
    (void)pthread_mutex_init(&x->lock, NULL);
    x->refused = grammar_index_possible(t, n_vocab, &(struct wk_err){ x->why, sizeof x->why }) == WK_UNSUPPORTED;
    return WK_OK;
}

bool grammars_possible(const struct grammars *x) { return !x->refused; }

void grammars_close(struct grammars *x)
{
    if (!x) return;
    for (size_t i = 0; i < GRAMMARS_MOST; i++) grammar_close(x->kept[i].g);
    grammar_index_close(x->index);
    (void)pthread_mutex_destroy(&x->index_lock);
    (void)pthread_mutex_destroy(&x->lock);
    free(x);
}

wk_status grammars_index(struct grammars *x, const struct grammar_index **out, const struct wk_err *err)
{
    wk_status status = WK_OK;
    *out = NULL;
    if (x->refused) return wk_fail(err, WK_UNSUPPORTED, "%s", x->why);
    (void)pthread_mutex_lock(&x->index_lock);
    if (!x->index) status = grammar_index_open(x->tokenizer, x->n_vocab, &x->index, err);
    *out = x->index;
    (void)pthread_mutex_unlock(&x->index_lock);
    return status;
}

/* ---- what is kept -------------------------------------------------------------------------------------- */

/* Kind, options and text, so that no text of one kind is taken for one of another. */
bool grammars_digest(const struct grammar_source *from, char hex[65])
{
    char head[64];
    struct sha256 *s = sha256_begin();
    if (!s) return false;
    (void)snprintf(head, sizeof head, "%d %d %zu ", (int)from->kind, from->strict, from->n_choices);
    sha256_update(s, head, strlen(head));
    for (size_t i = 0; i < from->n_choices; i++) {
        (void)snprintf(head, sizeof head, "%zu ", from->choices[i].len);
        sha256_update(s, head, strlen(head));
        sha256_update(s, from->choices[i].text, from->choices[i].len);
    }
    if (from->text.len) sha256_update(s, from->text.data, from->text.len);
    return sha256_end(s, hex);
}

struct grammar *grammars_find(struct grammars *x, const char digest[65])
{
    struct grammar *g = NULL;
    (void)pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < GRAMMARS_MOST && !g; i++) {
        struct kept *k = &x->kept[i];
        if (!k->g || strcmp(k->digest, digest) != 0 || grammar_failed(k->g)) continue;
        k->used = ++x->clock;
        g = grammar_keep(k->g);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return g;
}

/* The one to go first; NULL: none is kept. */
static struct kept *oldest(struct grammars *x)
{
    struct kept *found = NULL;
    for (size_t i = 0; i < GRAMMARS_MOST; i++)
        if (x->kept[i].g && (!found || x->kept[i].used < found->used)) found = &x->kept[i];
    return found;
}

static uint64_t held(const struct grammars *x)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < GRAMMARS_MOST; i++)
        if (x->kept[i].g) bytes += grammar_held(x->kept[i].g);
    return bytes;
}

static void forget(struct kept *k)
{
    grammar_close(k->g); /* jobs that follow it have it still */
    *k = (struct kept){ 0 };
}

void grammars_keep(struct grammars *x, struct grammar *g, const char digest[65])
{
    struct kept *free_place = NULL;
    (void)pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < GRAMMARS_MOST; i++) {
        struct kept *k = &x->kept[i];
        /* Failed ones, and what another request has kept under this digest meanwhile. */
        if (k->g && (grammar_failed(k->g) || strcmp(k->digest, digest) == 0)) forget(k);
        if (!k->g) free_place = k;
    }
    if (!free_place) {
        free_place = oldest(x);
        forget(free_place);
    }
    *free_place = (struct kept){ .g = grammar_keep(g), .used = ++x->clock };
    memcpy(free_place->digest, digest, sizeof free_place->digest);
    for (struct kept *k; held(x) > GRAMMARS_BYTES && (k = oldest(x));) forget(k);
    (void)pthread_mutex_unlock(&x->lock);
}

/* ---- compiling ----------------------------------------------------------------------------------------- */

static wk_status compile(const struct grammars *x, const struct grammar_source *from, const struct lang_watch *watch,
                         struct grammar **out, const struct wk_err *err)
{
    const struct schema_options options = { .strict = from->strict };
    switch (from->kind) {
    case GRAMMAR_SCHEMA: return grammar_from_schema(from->text.data, from->text.len, &options, watch, out, err);
    case GRAMMAR_OBJECT: return grammar_from_json_object(out, err);
    case GRAMMAR_REGEX: return grammar_from_regex(from->text.data, from->text.len, watch, out, err);
    case GRAMMAR_CHOICE: return grammar_from_choice(from->choices, from->n_choices, watch, out, err);
    case GRAMMAR_GBNF: return grammar_from_gbnf(from->text.data, from->text.len, x->tokenizer, watch, out, err);
    case GRAMMAR_NONE: break;
    }
    return wk_fail(err, WK_INTERNAL, "no grammar was asked for");
}

struct grammar *grammars_kept(struct grammars *x, const struct grammar_source *from)
{
    char digest[65];
    return grammars_digest(from, digest) ? grammars_find(x, digest) : NULL;
}

wk_status grammars_get(struct grammars *x, const struct grammar_source *from, const struct lang_watch *watch,
                       struct grammar **out, const struct wk_err *err)
{
    char digest[65];
    *out = NULL;
    if (!grammars_digest(from, digest)) return wk_fail(err, WK_INTERNAL, "no digest of the grammar can be made");
    *out = grammars_find(x, digest);
    if (*out) return WK_OK;
    const wk_status status = compile(x, from, watch, out, err);
    if (!status) grammars_keep(x, *out, digest);
    return status;
}

wk_status grammars_harmony(struct grammars *x, struct grammar **out, const struct wk_err *err)
{
    static const char name[65] = "harmony"; /* no digest */
    *out = grammars_find(x, name);
    if (*out) return WK_OK;
    const wk_status status = constraint_harmony(x->tokenizer, out, err);
    if (!status) grammars_keep(x, *out, name);
    return status;
}
