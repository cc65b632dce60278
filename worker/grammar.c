/* grammar.c: `worker grammar`: compiles a JSON Schema, a grammar or a regular expression, says what it holds, and
 * whether a text fits it. With a model the text is followed token by token, and every mask is asked for on the way:
 * what is said here is what generation does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "commands.h"
#include "errors.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "setup.h"
#include "text.h"
#include "tokenizer/tokenizer.h"

static double microseconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* What the options name, compiled. */
static int compile(const struct options *o, const struct tokenizer *t, struct grammar **out)
{
    const char *schema = option_text(o, OPT_SCHEMA), *grammar = option_text(o, OPT_GRAMMAR);
    const char *regex = option_text(o, OPT_REGEX);
    struct text text = { NULL, 0 };
    ERROR_TEXT(err);
    if (!schema + !grammar + !regex != 2)
        return fail_usage("grammar", "expected one of --schema FILE, --grammar FILE and --regex REGEX");
    int result = text_read(regex, schema ? schema : grammar, &text);
    if (result) return result;
    const wk_status status = schema    ? grammar_from_schema(text.bytes, text.len, NULL, NULL, out, &err)
                             : grammar ? grammar_from_gbnf(text.bytes, text.len, t, NULL, out, &err)
                                       : grammar_from_regex(text.bytes, text.len, NULL, out, &err);
    text_free(&text);
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

/* ---- does a text fit? --------------------------------------------------------------------------------------- */

struct verdict {
    bool accepted;
    size_t at; /* bytes that were taken */
};

static int follow_bytes(struct grammar_match *m, const struct text *text, struct verdict *v)
{
    ERROR_TEXT(err);
    const wk_status status = grammar_match_push(m, text->bytes, text->len, &v->at, &err);
    if (status && status != WK_INVALID) return fail_status(STAGE_TOKENS, status, &err);
    v->accepted = !status && grammar_match_complete(m);
    return EXIT_DONE;
}

/* One token, by the mask and by the match, which must agree. *fits: it can follow. */
static int follow_token(struct grammar_match *m, uint32_t id, bool *fits)
{
    struct grammar_mask mask;
    ERROR_TEXT(err);
    wk_status status = grammar_match_mask(m, &mask, &err);
    if (status && status != WK_INVALID) return fail_status(STAGE_TOKENS, status, &err);
    const bool allowed = !status && mask.bits[id / 64] >> id % 64 & 1;
    status = grammar_match_accept(m, id, &err);
    if (status && status != WK_INVALID) return fail_status(STAGE_TOKENS, status, &err);
    *fits = !status;
    if (allowed != *fits) return fail(CODE_INTERNAL, "token %u: its mask and the grammar do not agree", id);
    return EXIT_DONE;
}

/* Do the ids' own bytes make the text, so that generating them would write it? A tokenizer that puts a space first does
 * not give such ids. */
static bool spells(const struct grammar_index *x, const struct tokens *ids, const struct text *text)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        const struct token_bytes b = grammar_index_bytes(x, ids->ids[i]);
        if (!b.len || b.len > text->len - at || memcmp(b.data, text->bytes + at, b.len) != 0) return false;
        at += b.len;
    }
    return at == text->len;
}

/* Follows ids, or (ids NULL) the longest token at each place. */
static int follow_tokens(struct grammar_match *m, const struct grammar_index *x, const struct tokens *ids,
                         const struct text *text, struct verdict *v)
{
    ERROR_TEXT(err);
    size_t at = 0;
    bool fits = true;
    for (size_t i = 0; at < text->len; i++) {
        const uint32_t id = ids ? ids->ids[i] : grammar_index_longest(x, text->bytes + at, text->len - at);
        const size_t len = id == TOKEN_NONE ? 0 : grammar_index_bytes(x, id).len;
        if (len) {
            const int result = follow_token(m, id, &fits);
            if (result) return result;
        }
        if (!len || !fits) { /* how far into it */
            const size_t rest = len ? len : text->len - at;
            const wk_status status = grammar_match_push(m, text->bytes + at, rest, &v->at, &err);
            if (status && status != WK_INVALID) return fail_status(STAGE_TOKENS, status, &err);
            v->at += at;
            return EXIT_DONE;
        }
        at += len;
    }
    v->at = at;
    v->accepted = grammar_match_complete(m);
    return EXIT_DONE;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* The value in a JSON text, without the white space around it: a file ends with a newline, which no model need write.
 */
static struct text value_in(const struct text *json)
{
    struct text value = *json;
    while (value.len && is_blank(value.bytes[value.len - 1])) value.len--;
    for (; value.len && is_blank(*value.bytes); value.len--) value.bytes++;
    return value;
}

static void say(const struct verdict *v, const struct text *file, bool json)
{
    (void)printf("{\"accepted\": %s, \"at\": %zu}\n", v->accepted ? "true" : "false", v->at);
    if (!json && !v->accepted && file->len && v->at == file->len - 1 && file->bytes[v->at] == '\n')
        (void)fprintf(stderr, "worker: what does not fit is the newline at the file's end; printf writes none\n");
}

static int follow_text(struct grammar *g, const struct tokenizer *t, const struct grammar_index *x, const char *path,
                       bool json)
{
    struct text file;
    struct tokens ids = { 0 };
    struct grammar_match *m = NULL;
    struct verdict v = { false, 0 };
    ERROR_TEXT(err);
    int result = text_read_bytes(path, &file);
    if (result) return result;
    const struct text text = json ? value_in(&file) : file;
    wk_status status = grammar_match_open(g, x, &m, &err);
    if (!status && t) status = tokenizer_encode(t, text.bytes, text.len, false, false, &ids, &err);
    if (status)
        result = fail_status(STAGE_TOKENS, status, &err);
    else if (!t)
        result = follow_bytes(m, &text, &v);
    else
        result = follow_tokens(m, x, spells(x, &ids, &text) ? &ids : NULL, &text, &v);
    v.at = v.accepted ? file.len : v.at + (size_t)(text.bytes - file.bytes);
    if (!result) say(&v, &file, json);
    tokens_free(&ids);
    grammar_match_close(m);
    text_free(&file);
    return result;
}

/* ---- what it holds --------------------------------------------------------------------------------------------- */

static int describe(struct grammar *g, const struct grammar_index *x, double compiled)
{
    struct grammar_figures f;
    struct grammar_match *m;
    struct grammar_mask mask;
    ERROR_TEXT(err);
    wk_status status = grammar_match_open(g, x, &m, &err);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    const double begin = microseconds();
    if (x) status = grammar_match_mask(m, &mask, &err);
    const double first = microseconds() - begin;
    const uint32_t allowed = x && !status ? mask.n_allowed : 0;
    grammar_match_close(m);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    grammar_figures(g, &f);
    (void)printf("%u nodes, %u states, %" PRIu64 " bytes, compiled in %.1f us", f.nodes, f.states, f.bytes, compiled);
    if (x) (void)printf("; first mask in %.1f us, %u tokens allowed", first, allowed);
    (void)putchar('\n');
    return EXIT_DONE;
}

int command_grammar(const struct options *o)
{
    struct tokenizer *t = NULL;
    struct grammar_index *x = NULL;
    struct grammar *g = NULL;
    const char *path = option_text(o, OPT_ACCEPTS);
    ERROR_TEXT(err);
    int result = EXIT_DONE;
    if (option_text(o, OPT_MODEL) || option_text(o, OPT_TOKENIZER)) result = open_tokenizer(o, &t);
    const double begin = microseconds();
    if (!result) result = compile(o, t, &g);
    const double compiled = microseconds() - begin;
    if (!result && t) {
        const wk_status status = grammar_index_open(t, tokenizer_size(t), &x, &err);
        if (status) result = fail_status(STAGE_MODEL, status, &err);
    }
    if (!result) result = path ? follow_text(g, t, x, path, option_text(o, OPT_SCHEMA)) : describe(g, x, compiled);
    grammar_close(g);
    grammar_index_close(x);
    tokenizer_close(t);
    return result;
}
