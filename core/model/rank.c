/* rank.c: see rank.h. */
#include "model/rank.h"

#include <string.h>

static const char key[] = "tokenizer.chat_template.rerank";
static const char *const places[2] = { "{query}", "{document}" };

/* Where the place begins in the template from `from` on; its length: nowhere. */
static size_t find_place(struct token_bytes t, size_t from, const char *place)
{
    const char *at = t.len > from ? memmem(t.data + from, t.len - from, place, strlen(place)) : NULL;
    return at ? (size_t)(at - t.data) : t.len;
}

static wk_status check_template(struct token_bytes t, const struct wk_err *err)
{
    for (int i = 0; i < 2; i++) {
        const size_t at = find_place(t, 0, places[i]);
        if (at == t.len) return wk_fail(err, WK_INVALID, "%s: %s is missing", key, places[i]);
        if (find_place(t, at + 1, places[i]) != t.len)
            return wk_fail(err, WK_INVALID, "%s: %s is there twice, once is served", key, places[i]);
    }
    return WK_OK;
}

wk_status rank_form_open(const struct gguf *file, struct rank_form *out, const struct wk_err *err)
{
    const struct gguf_kv *template = gguf_find(file, key);
    struct gguf_str text;
    *out = (struct rank_form){ { NULL, 0 } };
    if (!template) return WK_OK;
    if (gguf_str(file, template, &text, err)) return WK_INVALID;
    out->template = (struct token_bytes){ text.data, (size_t)text.len };
    return check_template(out->template, err);
}

size_t rank_form_parts(const struct rank_form *form, struct token_bytes query, struct token_bytes document,
                       struct tokenizer_part out[RANK_PARTS])
{
    const struct token_bytes t = form->template, values[2] = { query, document };
    size_t n = 0, from = 0;
    if (!t.data) return 0;
    for (int i = 0; i < 2; i++) {
        const size_t at[2] = { find_place(t, from, places[0]), find_place(t, from, places[1]) };
        const int next = at[1] < at[0];
        out[n++] = (struct tokenizer_part){ t.data + from, at[next] - from, true };
        out[n++] = (struct tokenizer_part){ values[next].data, values[next].len, false };
        from = at[next] + strlen(places[next]);
    }
    out[n++] = (struct tokenizer_part){ t.data + from, t.len - from, true };
    return n;
}
