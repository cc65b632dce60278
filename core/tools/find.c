/* find.c: which row of the table is a model's: the one that writes what the model's own template writes. */
#include <string.h>

#include "tools/internal.h"

#define BYTES(text) { text, sizeof text - 1 }
const struct tools_written tools_probes[TOOLS_PROBES] = {
    { BYTES("probe_one"), BYTES("{\"text\": \"a b\", \"total\": 3}"), BYTES("probe0001") },
    { BYTES("probe_two"), BYTES("{\"line\": \"c d\"}"), BYTES("probe0002") },
};

static bool holds(struct token_bytes text, const char *part, size_t n)
{
    for (size_t at = 0; n && at + n <= text.len; at++)
        if (memcmp(text.data + at, part, n) == 0) return true;
    return !n;
}

static bool has_marks(const struct tools_format *f, struct token_bytes template)
{
    for (size_t i = 0; i < sizeof f->marks / sizeof *f->marks; i++)
        if (f->marks[i] && !holds(template, f->marks[i], strlen(f->marks[i]))) return false;
    return true;
}

/* ---- what a row writes -------------------------------------------------------------------------------------- */

/* Without white space, if the row's template writes more of it into JSON than the row does. */
static void squeeze(struct byte_buffer *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        if (!unit_is_space((unsigned char)b->data[i])) b->data[n++] = b->data[i];
    b->n = n;
}

/* The row's mark as its template misspells it. */
static bool misspell(const struct tools_format *f, struct byte_buffer *text)
{
    struct byte_buffer out = { 0 };
    const size_t n = strlen(f->misspelt[0]);
    bool ok = true;
    for (size_t at = 0; ok && at < text->n;) {
        const bool here = text->n - at >= n && memcmp(text->data + at, f->misspelt[0], n) == 0;
        ok = here ? tools_put(&out, f->misspelt[1], strlen(f->misspelt[1])) : tools_put(&out, text->data + at, 1);
        at += here ? n : 1;
    }
    free(text->data);
    *text = out;
    return ok;
}

/* Where the row's text of the first n probes, with ids as given or by the row's rule, stands in what the template
 * rendered; its length: nowhere. */
static wk_status find_text(const struct tools_format *f, size_t n, bool ids_by_rule, struct token_bytes rendered,
                           size_t *at, const struct wk_err *err)
{
    struct tools_written calls[TOOLS_PROBES];
    char ids[TOOLS_PROBES][TOOLS_ID];
    struct byte_buffer text = { 0 }, whole = { 0 };
    for (size_t i = 0; i < n; i++) {
        calls[i] = tools_probes[i];
        if (ids_by_rule) calls[i].id = tools_kimi_id(calls[i].name, (uint32_t)i, ids[i]);
    }
    wk_status status = tools_write(f, calls, n, &text, err);
    if (!status && ((f->misspelt[0] && !misspell(f, &text)) || !tools_put(&whole, rendered.data, rendered.len)))
        status = wk_fail(err, WK_NO_MEMORY, "no memory to try a call format");
    if (!status && f->spaced) {
        squeeze(&text);
        squeeze(&whole);
    }
    const char *found = status ? NULL : memmem(whole.data, whole.n, text.data, text.n);
    *at = found ? (size_t)(found - whole.data) : rendered.len;
    free(text.data);
    free(whole.data);
    return status;
}

/* A call without marks is known by its place alone: it begins where an answer does. */
static bool begins_answer(struct token_bytes rendered, size_t at, struct token_bytes prompt)
{
    size_t same = 0;
    if (!prompt.data) return true;
    while (same < prompt.len && same < rendered.len && rendered.data[same] == prompt.data[same]) same++;
    while (same < at && unit_is_space((unsigned char)rendered.data[same])) same++;
    return same == at;
}

static wk_status writes(const struct tools_format *f, size_t n, struct token_bytes rendered, struct token_bytes prompt,
                        bool *out, const struct wk_err *err)
{
    wk_status status = WK_OK;
    *out = false;
    for (int by_rule = 0; by_rule <= (f->ids == TOOLS_ID_KIMI) && !*out && !status; by_rule++) {
        size_t at;
        status = find_text(f, n, by_rule, rendered, &at, err);
        *out = !status && at < rendered.len && (!format_is_bare(f) || begins_answer(rendered, at, prompt));
    }
    return status;
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

/* What templates of one family write between calls differs in white space alone, so there the row is the template's. */
static const char *const spaces[] = { "", "\n", "\n\n", " " };
enum { SPACES = sizeof spaces / sizeof *spaces };

static bool is_space(const char *text)
{
    while (*text && unit_is_space((unsigned char)*text)) text++;
    return !*text;
}

/* Is the row what the template writes? Its `between` becomes the template's. */
static wk_status try_row(struct tools_format *f, const struct tools_rendered *r, bool *out, const struct wk_err *err)
{
    struct tools_format row = *f, open = *f;
    wk_status status;
    if (f->shown) row.object = open.object = f->shown;
    status = writes(&row, 1, r->one, r->prompt, out, err);
    if (!status && !*out && f->end && r->two.data) { /* some forget the section's end behind one call */
        open.end = NULL;
        status = writes(&open, 1, r->one, r->prompt, out, err);
    }
    if (status || !*out || !r->two.data || f->single) return status;
    status = writes(&row, TOOLS_PROBES, r->two, r->prompt, out, err);
    if (row.between && !is_space(row.between)) return status;
    for (size_t i = 0; i < SPACES && !status && !*out; i++) {
        row.between = f->between = spaces[i];
        status = writes(&row, TOOLS_PROBES, r->two, r->prompt, out, err);
    }
    return status;
}

wk_status tools_find(const struct tools_rendered *r, struct tools_format *out, bool *single, const struct wk_err *err)
{
    const char *nearest = NULL;
    size_t n;
    const struct tools_format *rows = tools_formats(&n);
    *single = false;
    if (!r->one.data)
        return wk_fail(err, WK_UNSUPPORTED,
                       "the model's template does not render a call of a function: its form of "
                       "calls is not known, tools cannot be served");
    for (size_t i = 0; i < n; i++) {
        bool same;
        if (!has_marks(&rows[i], r->template)) continue;
        *out = rows[i];
        const wk_status status = try_row(out, r, &same, err);
        if (status) return status;
        if (same) {
            *single = out->single || !r->two.data;
            return WK_OK;
        }
        if (!nearest && rows[i].marks[0]) nearest = rows[i].name;
    }
    if (nearest)
        return wk_fail(err, WK_UNSUPPORTED,
                       "the model's template has marks of the call format \"%s\", but writes a "
                       "call in another way: tools cannot be served",
                       nearest);
    return wk_fail(err, WK_UNSUPPORTED, "no known call format in the model's template: tools cannot be served");
}
