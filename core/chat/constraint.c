/* constraint.c: see constraint.h. */
#include "chat/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "chat/think.h"

enum { MOST_BLANKS = 2 /* ids of blanks between a closing mark and the answer: models were trained with some */ };

/* Where the output stands. */
enum phase {
    IN_HEADER, /* harmony's headers and reasoning */
    AT_START,  /* the answer, or the mark that opens reasoning */
    INSIDE,    /* reasoning */
    BEHIND,    /* the closing mark was read: blanks, or the answer */
    IN_ANSWER
};

/* What an answer may be. Matches are opened by the first call of the thread that follows them. */
struct way {
    struct grammar *g;
    struct grammar_match *match;
    bool over; /* the answer is not of this grammar: another way took what it does not */
};

struct constraint {
    struct way way[2];
    uint32_t n_ways;
    struct grammar *header; /* before the first way */
    struct grammar_match *leading;
    const struct grammar_index *index;
    uint32_t words, n_vocab; /* of a mask */
    enum phase phase;
    struct think think;
    const struct tokenizer *tokenizer;
    uint32_t open_id;   /* the mark that opens reasoning; TOKEN_NONE: it is no token, so none is opened */
    uint32_t blanks[2]; /* two line ends, one: TOKEN_NONE where there is no such token */
    uint32_t n_blanks;
    bool broken; /* the token that ended the reasoning went on with what no answer begins with */
};

/* ---- masks --------------------------------------------------------------------------------------------- */

static void set(uint64_t *bits, uint32_t id) { bits[id / 64] |= UINT64_C(1) << id % 64; }
static void clear(uint64_t *bits, uint32_t id) { bits[id / 64] &= ~(UINT64_C(1) << id % 64); }

static wk_status open_matches(struct constraint *c, const struct wk_err *err)
{
    wk_status status = WK_OK;
    for (uint32_t i = 0; !status && i < c->n_ways; i++)
        if (!c->way[i].match) status = grammar_match_open(c->way[i].g, c->index, &c->way[i].match, err);
    if (!status && c->header && !c->leading) status = grammar_match_open(c->header, c->index, &c->leading, err);
    return status;
}

/* Where a way stands; NULL: it is over. */
static struct grammar_match *match_of(const struct constraint *c, uint32_t i)
{
    return c->way[i].over ? NULL : !i && c->phase == IN_HEADER ? c->leading : c->way[i].match;
}

/* What any way allows. One that comes to a dead end leaves the answer to the other. */
static wk_status join_masks(struct constraint *c, uint64_t *bits, const struct wk_err *err)
{
    wk_status status = WK_INVALID;
    bool any = false;
    memset(bits, 0, c->words * sizeof *bits);
    for (uint32_t i = 0; i < c->n_ways; i++) {
        struct grammar_match *m = match_of(c, i);
        struct grammar_mask mask;
        if (!m) continue;
        status = grammar_match_mask(m, &mask, err);
        if (status && status != WK_INVALID) return status;
        for (uint32_t k = 0; !status && k < c->words; k++) bits[k] |= mask.bits[k];
        any = any || !status;
    }
    return any ? WK_OK : status;
}

/* Everything but the end: an answer follows. */
static void free_mask(const struct constraint *c, uint64_t *bits)
{
    size_t n;
    const uint32_t *ends = tokenizer_end_ids(c->tokenizer, &n);
    memset(bits, 0xff, c->words * sizeof *bits);
    for (size_t i = 0; i < n; i++)
        if (ends[i] < c->n_vocab) clear(bits, ends[i]);
}

static wk_status make_mask(void *user, uint64_t *bits, const struct wk_err *err)
{
    struct constraint *c = user;
    wk_status status = open_matches(c, err);
    if (status) return status;
    if (c->broken)
        return wk_fail(err, WK_INVALID,
                       "the token that ended the reasoning goes on with what the grammar does not begin with");
    if (c->phase == INSIDE) {
        free_mask(c, bits);
        return WK_OK;
    }
    status = join_masks(c, bits, err);
    if (status) return status;
    if (c->phase == AT_START && c->open_id != TOKEN_NONE) set(bits, c->open_id);
    for (int i = 0; i < 2 && c->phase == BEHIND && c->n_blanks < MOST_BLANKS; i++)
        if (c->blanks[i] != TOKEN_NONE) set(bits, c->blanks[i]);
    return WK_OK;
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

/* Of the token that ended the reasoning: what stands behind the mark belongs to the answer. */
static void take_rest(void *user, bool reasoning, const char *bytes, size_t n)
{
    struct constraint *c = user;
    if (reasoning || c->broken) return;
    c->broken = true;
    for (uint32_t i = 0; i < c->n_ways; i++) {
        c->way[i].over = c->way[i].over || grammar_match_push(c->way[i].match, bytes, n, NULL, NULL) != WK_OK;
        c->broken = c->broken && c->way[i].over;
    }
}

static wk_status accept_inside(struct constraint *c, uint32_t id)
{
    (void)think_push(&c->think, id, take_rest, c);
    c->phase = c->think.state == THINK_INSIDE ? INSIDE : c->think.state == THINK_BEHIND ? BEHIND : IN_ANSWER;
    return WK_OK;
}

static bool is_blank(const struct constraint *c, uint32_t id)
{
    return id != TOKEN_NONE && (id == c->blanks[0] || id == c->blanks[1]);
}

/* The ways that take the id go on, if there are any. */
static wk_status accept_ways(struct constraint *c, uint32_t id, const struct wk_err *err)
{
    bool took[2] = { false, false };
    wk_status status = WK_INVALID;
    for (uint32_t i = 0; i < c->n_ways; i++) {
        struct grammar_match *m = match_of(c, i);
        if (!m) continue;
        status = grammar_match_accept(m, id, err);
        if (status && status != WK_INVALID) return status;
        took[i] = !status;
    }
    if (!took[0] && !took[1]) return status;
    for (uint32_t i = 0; i < c->n_ways; i++) c->way[i].over = !took[i];
    return WK_OK;
}

static wk_status accept_answer(struct constraint *c, uint32_t id, const struct wk_err *err)
{
    const wk_status status = accept_ways(c, id, err);
    if (!status) {
        c->phase = IN_ANSWER;
        return WK_OK;
    }
    if (status != WK_INVALID) return status;
    if (c->phase == AT_START && id == c->open_id) return accept_inside(c, id);
    if (c->phase != BEHIND || !is_blank(c, id)) return status;
    c->n_blanks++;
    return WK_OK;
}

static wk_status accept_header(struct constraint *c, uint32_t id, const struct wk_err *err)
{
    const wk_status status = accept_ways(c, id, err);
    if (!status && (c->way[0].over || grammar_match_complete(c->leading))) c->phase = IN_ANSWER;
    return status;
}

static wk_status accept(void *user, uint32_t id, const struct wk_err *err)
{
    struct constraint *c = user;
    const wk_status status = open_matches(c, err);
    if (status) return status;
    switch (c->phase) {
    case IN_HEADER: return accept_header(c, id, err);
    case INSIDE: return accept_inside(c, id);
    default: return accept_answer(c, id, err);
    }
}

/* ---- making one ---------------------------------------------------------------------------------------- */

static void close_constraint(void *user)
{
    struct constraint *c = user;
    for (uint32_t i = 0; i < c->n_ways; i++) {
        grammar_match_close(c->way[i].match);
        grammar_close(c->way[i].g);
    }
    grammar_match_close(c->leading);
    grammar_close(c->header);
    free(c);
}

/* The token that is the text, and nothing else. */
static uint32_t token_of(const struct tokenizer *t, const char *text)
{
    struct tokens ids = { 0 };
    uint32_t id = TOKEN_NONE;
    if (!tokenizer_encode(t, text, strlen(text), true, false, &ids, NULL) && ids.n == 1) id = ids.ids[0];
    tokens_free(&ids);
    return id;
}

static void set_marks(struct constraint *c, const struct tokenizer *t, const struct chat_marks *marks)
{
    static const char *const blanks[] = { "\n\n", "\n" };
    think_begin(&c->think, t, marks);
    c->phase = marks->opened ? INSIDE : AT_START;
    c->open_id = token_of(t, marks->open);
    if (c->open_id != TOKEN_NONE && c->open_id >= c->n_vocab) c->open_id = TOKEN_NONE;
    for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++) {
        const size_t n = strlen(blanks[i]);
        const uint32_t id = grammar_index_longest(c->index, blanks[i], n);
        if (id != TOKEN_NONE && grammar_index_bytes(c->index, id).len == n) c->blanks[i] = id;
    }
}

wk_status constraint_open(struct grammar *g, const struct grammar_index *x, const struct tokenizer *t, uint32_t n_vocab,
                          const struct constraint_lead *lead, struct sampler_constraint *out, const struct wk_err *err)
{
    struct constraint *c = calloc(1, sizeof *c);
    *out = (struct sampler_constraint){ 0 };
    if (!c) return wk_fail(err, WK_NO_MEMORY, "no memory for a constraint");
    *c = (struct constraint){ .way = { { .g = grammar_keep(g) } },
                              .n_ways = 1,
                              .index = x,
                              .tokenizer = t,
                              .n_vocab = n_vocab,
                              .words = (n_vocab + 63) / 64,
                              .phase = IN_ANSWER,
                              .open_id = TOKEN_NONE,
                              .blanks = { TOKEN_NONE, TOKEN_NONE } };
    if (lead && lead->other) c->way[c->n_ways++].g = grammar_keep(lead->other);
    if (lead && lead->header) {
        c->header = grammar_keep(lead->header);
        c->phase = IN_HEADER;
    } else if (lead && lead->marks) {
        set_marks(c, t, lead->marks);
    }
    *out = (struct sampler_constraint){ c, make_mask, accept, close_constraint };
    return WK_OK;
}

void constraint_close(struct sampler_constraint *c)
{
    if (c->close) c->close(c->user);
    *c = (struct sampler_constraint){ 0 };
}

wk_status constraint_harmony(const struct tokenizer *t, struct grammar **out, const struct wk_err *err)
{
    static const char header[] = "root ::= thought? <|channel|> \"final\" <|message|>\n"
                                 "thought ::= <|channel|> \"analysis\" <|message|> [^\\x00]* <|end|> <|start|> "
                                 "\"assistant\"\n";
    return grammar_from_gbnf(header, sizeof header - 1, t, NULL, out, err);
}
