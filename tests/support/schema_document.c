/* schema_document.c: see schema_document.h. What fails to be allocated counts as not accepted. */
#include "schema_document.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/schema_internal.h"

static bool push(struct grammar_match *m, const char *text, size_t n)
{
    return grammar_match_push(m, text, n, NULL, NULL) == WK_OK;
}

static bool push_string(struct grammar_match *m, struct json_text t)
{
    bool ok = push(m, "\"", 1);
    for (size_t i = 0; ok && i < t.len;) {
        const unsigned char c = (unsigned char)t.data[i];
        char escape[8];
        size_t plain = i;
        while (plain < t.len && (unsigned char)t.data[plain] >= 0x20 && t.data[plain] != '"' && t.data[plain] != '\\')
            plain++;
        if (plain > i) {
            ok = push(m, t.data + i, plain - i);
            i = plain;
            continue;
        }
        if (c == '"' || c == '\\')
            (void)snprintf(escape, sizeof escape, "\\%c", c);
        else
            (void)snprintf(escape, sizeof escape, "\\u%04x", c);
        ok = push(m, escape, strlen(escape));
        i++;
    }
    return ok && push(m, "\"", 1);
}

enum { MAX_TRIES = 2000 /* values that are written for one document */ };

struct search {
    uint32_t tries;
};

static bool push_value(struct search *s, struct grammar_match **m, const struct js_value *v);

/* The match behind a member's name, or behind the member; NULL: it may not come. */
static struct grammar_match *after_key(const struct grammar_match *m, bool first, struct json_text key)
{
    struct grammar_match *copy = NULL;
    if (grammar_match_clone(m, &copy, NULL)) return NULL;
    if ((first || push(copy, ",", 1)) && push_string(copy, key) && push(copy, ":", 1)) return copy;
    grammar_match_close(copy);
    return NULL;
}

static struct grammar_match *after_member(struct search *s, const struct grammar_match *m, bool first,
                                          const struct js_member *member)
{
    struct grammar_match *copy = after_key(m, first, member->key);
    if (copy && s->tries++ < MAX_TRIES && push_value(s, &copy, &member->value)) return copy;
    grammar_match_close(copy);
    return NULL;
}

/* How many of the members that may come now still may behind this one. */
static uint32_t still_possible(const struct grammar_match *behind, bool first, const struct js_value *v,
                               const bool *asked, bool *may)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        struct grammar_match *copy = asked[i] ? after_key(behind, first, v->member[i].key) : NULL;
        if (may) may[i] = copy != NULL;
        n += copy != NULL;
        grammar_match_close(copy);
    }
    return n;
}

/* Of the members that may come the best one that has not been tried: one behind which all others may come is taken at
 * once. behind: the match behind it. */
static uint32_t best_member(struct search *s, const struct grammar_match *m, bool first, const struct js_value *v,
                            const bool *tried, struct grammar_match **behind)
{
    bool *may = calloc(v->n, sizeof *may);
    uint32_t best = v->n, best_rank = 0;
    const uint32_t possible = may ? still_possible(m, first, v, tried + v->n, may) : 0;
    for (uint32_t i = 0; i < v->n && best_rank < possible; i++) {
        struct grammar_match *copy = may && may[i] && !tried[i] ? after_member(s, m, first, &v->member[i]) : NULL;
        if (!copy) continue;
        may[i] = false;
        const uint32_t rank = 1 + still_possible(copy, false, v, may, NULL);
        may[i] = true;
        if (rank > best_rank) {
            grammar_match_close(*behind);
            *behind = copy;
            best = i;
            best_rank = rank;
        } else
            grammar_match_close(copy);
    }
    free(may);
    return best;
}

/* Writes the members that are left in some order, and the closing brace. left: [n] behind it whether a member is. */
static bool push_members(struct search *s, struct grammar_match **m, const struct js_value *v, const bool *left,
                         uint32_t n)
{
    if (!n) return push(*m, "}", 1);
    bool *tried = calloc(2 * (size_t)v->n, sizeof *tried), done = false; /* then who is left */
    if (tried) memcpy(tried + v->n, left, v->n * sizeof *left);
    while (tried && !done && s->tries < MAX_TRIES) {
        struct grammar_match *behind = NULL;
        const uint32_t i = best_member(s, *m, n == v->n, v, tried, &behind);
        if (i == v->n) break;
        tried[i] = true;
        tried[v->n + i] = false;
        done = push_members(s, &behind, v, tried + v->n, n - 1);
        tried[v->n + i] = true;
        grammar_match_close(done ? *m : behind);
        if (done) *m = behind;
    }
    free(tried);
    return done;
}

static bool push_value(struct search *s, struct grammar_match **m, const struct js_value *v)
{
    bool ok = true, *left;
    switch (v->kind) {
    case JR_OBJECT:
        left = malloc(v->n + 1u);
        if (left) memset(left, true, v->n + 1u);
        ok = left && push(*m, "{", 1) && push_members(s, m, v, left, v->n);
        free(left);
        return ok;
    case JR_ARRAY:
        ok = push(*m, "[", 1);
        for (uint32_t i = 0; ok && i < v->n; i++) ok = (!i || push(*m, ",", 1)) && push_value(s, m, &v->item[i]);
        return ok && push(*m, "]", 1);
    case JR_STRING: return push_string(*m, v->text);
    case JR_NUMBER: return push(*m, v->text.data, v->text.len);
    case JR_BOOL: return v->truth ? push(*m, "true", 4) : push(*m, "false", 5);
    default: return push(*m, "null", 4);
    }
}

bool document_accepted(struct grammar *g, const struct js_value *document)
{
    struct grammar_match *m = NULL;
    struct search s = { 0 };
    if (grammar_match_open(g, NULL, &m, NULL)) return false;
    const bool ok = push_value(&s, &m, document) && grammar_match_complete(m);
    grammar_match_close(m);
    return ok;
}

bool text_accepted(struct grammar *g, const char *text, size_t n, size_t *at)
{
    struct grammar_match *m = NULL;
    size_t taken = 0;
    if (at) *at = 0;
    if (grammar_match_open(g, NULL, &m, NULL)) return false;
    const bool ok = grammar_match_push(m, text, n, &taken, NULL) == WK_OK && grammar_match_complete(m);
    if (at) *at = taken;
    grammar_match_close(m);
    return ok;
}
