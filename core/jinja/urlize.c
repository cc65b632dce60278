/* urlize.c: the filter urlize: addresses in a text as links, by jinja2's own rules of what an address is. A text is cut
 * at white space; what stands around a word (brackets, a full stop) stays outside of its link. */
#include "filters.h"

enum { NONE = UINT32_MAX, DECIMAL = 1 << 1 };

/* A piece of the escaped text. */
struct span {
    const struct str *s;
    uint32_t begin, end;
};

struct linking {
    struct vm *m;
    struct buf b;
    const struct str *rel, *target; /* attributes as written; NULL: none */
    const struct list *schemes;     /* NULL: none */
    val limit;                      /* V_NONE: none */
};

static bool at_text(const struct span *w, uint32_t at, const char *text)
{
    const size_t n = strlen(text);
    return w->end - at >= n && memcmp(w->s->data + at, text, n) == 0;
}

/* The same whatever the case of ASCII's letters; text is in lower case. */
static bool at_word(const struct span *w, uint32_t at, const char *text)
{
    const size_t n = strlen(text);
    if (w->end - at < n) return false;
    for (size_t i = 0; i < n; i++) {
        const char c = w->s->data[at + i];
        if ((c >= 'A' && c <= 'Z' ? c | 32 : c) != text[i]) return false;
    }
    return true;
}

/* ---- what is an address -------------------------------------------------------------------------------- */

/* A label of a host's name from `at` on, [\w%-]*: its end and how many characters it has. */
static uint32_t label_end(const struct span *w, uint32_t at, uint32_t *chars)
{
    uint32_t len;
    for (*chars = 0; at < w->end; at += len, ++*chars) {
        const uint32_t c = jn_char_at(w->s, at, &len);
        if (!jn_char_is_word(c) && c != '%' && c != '-') break;
    }
    return at;
}

/* ":80", "/path?query": nothing, or to the end. */
static bool ends_address(const struct span *w, uint32_t at)
{
    uint32_t len;
    if (at < w->end && w->s->data[at] == ':') {
        uint32_t digits = 0;
        for (at++; digits < 5 && at < w->end && jn_char_flags(jn_char_at(w->s, at, &len)) & DECIMAL; at += len)
            digits++;
        if (!digits) return false;
    }
    return at == w->end || strchr("/?#", w->s->data[at]);
}

static bool is_top_label(const struct span *w, uint32_t begin, uint32_t end, uint32_t chars)
{
    bool letters = chars >= 2 && chars <= 63;
    for (uint32_t i = begin; letters && i < end; i++) {
        const char c = (char)(w->s->data[i] | 32);
        letters = c >= 'a' && c <= 'z';
    }
    if (letters) return true;
    return at_word(w, begin, "xn--") && chars >= 6 && chars <= 63 &&
           !memchr(w->s->data + begin + 4, '-', end - begin - 4);
}

/* With a scheme or www.: any labels, and one that may be the last. Without: labels of two characters and more, and one
 * of the old top domains. */
static bool is_host(const struct span *w, uint32_t at, bool scheme)
{
    static const char *const top[] = { "com", "net", "int", "edu", "gov", "org", "info", "mil" };
    for (uint32_t n = 0;; n++) {
        uint32_t chars;
        const uint32_t end = label_end(w, at, &chars);
        if (end < w->end && w->s->data[end] == '.') {
            if (!chars || (!scheme && (chars < 2 || chars > 63))) return false;
            at = end + 1;
            continue;
        }
        if (!ends_address(w, end)) return false;
        if (scheme) return is_top_label(w, at, end, chars);
        for (size_t i = 0; n && i < sizeof top / sizeof *top; i++)
            if (end - at == strlen(top[i]) && at_word(w, at, top[i])) return true;
        return false;
    }
}

static bool is_ipv4(const struct span *w, uint32_t at)
{
    for (int part = 0; part < 4; part++) {
        uint32_t len, digits = 0;
        if (part && (at >= w->end || w->s->data[at++] != '.')) return false;
        for (; digits < 3 && at < w->end && jn_char_flags(jn_char_at(w->s, at, &len)) & DECIMAL; at += len) digits++;
        if (!digits) return false;
    }
    return ends_address(w, at);
}

/* Up to four hexadecimal digits. */
static uint32_t group_end(const struct span *w, uint32_t at)
{
    uint32_t len;
    for (int n = 0; n < 4 && at < w->end; n++, at += len) {
        const uint32_t c = jn_char_at(w->s, at, &len);
        if (!(jn_char_flags(c) & DECIMAL) && !((c | 32) >= 'a' && (c | 32) <= 'f')) break;
    }
    return at;
}

static bool is_ipv6(const struct span *w, uint32_t at)
{
    if (at >= w->end || w->s->data[at++] != '[') return false;
    for (int n = 0; n < 8 && at < w->end && w->s->data[at] != ']'; n++) {
        at = group_end(w, at);
        const bool colon = at < w->end && w->s->data[at] == ':';
        if (!colon && n < 2) return false;
        at += colon;
        if (n >= 1 && at < w->end && w->s->data[at] == ']') return ends_address(w, at + 1);
    }
    return false;
}

static bool is_url(const struct span *w)
{
    const uint32_t scheme = at_word(w, w->begin, "https://") ? 8 : at_word(w, w->begin, "http://") ? 7 : 0;
    if (scheme) {
        const uint32_t at = w->begin + scheme;
        return is_host(w, at, true) || is_ipv4(w, at) || is_ipv6(w, at);
    }
    return (at_word(w, w->begin, "www.") && is_host(w, w->begin + 4, true)) || is_host(w, w->begin, false);
}

static bool is_email(const struct span *w)
{
    uint32_t at = w->end, dot = NONE, len;
    while (at > w->begin && w->s->data[at - 1] != '@') at--;
    if (at < w->begin + 2 || at >= w->end) return false;
    for (uint32_t i = at; i < w->end; i += len) {
        const uint32_t c = jn_char_at(w->s, i, &len);
        if (c == '.' && i > at) dot = i;
        if (!jn_char_is_word(c) && (i == at || (c != '.' && c != '-'))) return false;
    }
    for (uint32_t i = dot; i < w->end; i++)
        if (w->s->data[i] == '-') return false;
    return dot != NONE && dot + 1 < w->end;
}

/* ---- links --------------------------------------------------------------------------------------------- */

static void add_span(struct linking *l, const struct span *w) { jn_buf_slice(&l->b, w->s, w->begin, w->end); }

static void add_text(struct linking *l, const char *text) { jn_buf_text(&l->b, text, JINJA_TEMPLATE); }

static void add_link(struct linking *l, const char *before, const struct span *to, const struct span *shown, bool plain,
                     val limit)
{
    add_text(l, "<a href=\"");
    add_text(l, before);
    add_span(l, to);
    add_text(l, "\"");
    if (!plain && l->rel) jn_buf_str(&l->b, l->rel);
    if (!plain && l->target) jn_buf_str(&l->b, l->target);
    add_text(l, ">");
    const val text = jn_str_slice(l->m, shown->s, shown->begin, shown->end, false);
    if (limit.kind != V_NONE && jn_compare(l->m, CMP_GT, jn_v_int(jn_str_chars(text.u.s)), limit)) {
        const val parts[] = { jn_v_none(), limit, jn_v_none() };
        jn_buf_str(&l->b, jn_get_item(l->m, text, (val){ .kind = V_SLICE, .u.slice = parts }).u.s);
        add_text(l, "...");
    } else {
        jn_buf_str(&l->b, text.u.s);
    }
    add_text(l, "</a>");
}

/* Words with a scheme of the caller's. A link may begin as another scheme does: each is looked for in what the one
 * before it has made. */
static void add_schemes(struct linking *l, const struct span *w)
{
    struct span now = *w;
    for (uint32_t i = 0; l->schemes && i < l->schemes->n; i++) {
        const struct str *scheme = l->schemes->items[i].u.s;
        jn_spend(l->m, scheme->n);
        if (now.end - now.begin <= scheme->n || memcmp(now.s->data + now.begin, scheme->data, scheme->n) != 0) continue;
        struct linking inner = { .m = l->m, .rel = l->rel, .target = l->target };
        jn_buf_open(&inner.b, l->m);
        add_link(&inner, "", &now, &now, false, jn_v_none());
        const struct str *made = jn_buf_value(&inner.b, false).u.s;
        now = (struct span){ made, 0, made->n };
    }
    add_span(l, &now);
}

static void add_word(struct linking *l, const struct span *w)
{
    const uint32_t at = w->begin;
    const bool url = at_text(w, at, "https://") || at_text(w, at, "http://");
    const struct span address = { w->s, at + 7 < w->end ? at + 7 : w->end, w->end };
    if (is_url(w))
        add_link(l, url ? "" : "https://", w, w, false, l->limit);
    else if (at_text(w, at, "mailto:") && is_email(&address))
        add_link(l, "", w, &address, true, jn_v_none());
    else if (memchr(w->s->data + at, '@', w->end - at) && !at_text(w, at, "www.") && w->s->data[at] != '@' &&
             !memchr(w->s->data + at, ':', w->end - at) && is_email(w))
        add_link(l, "mailto:", w, w, true, jn_v_none());
    else
        add_schemes(l, w);
}

/* ---- what stands around a word ------------------------------------------------------------------------- */

static uint32_t count(const struct span *w, const char *text)
{
    uint32_t n = 0;
    for (uint32_t i = w->begin; i < w->end;) {
        const bool here = at_text(w, i, text);
        n += here;
        i += here ? (uint32_t)strlen(text) : 1;
    }
    return n;
}

/* Closing brackets behind a word belong to it where it opens more than it closes. */
static void balance(struct span *word, struct span *tail)
{
    static const char *const brackets[3][2] = { { "(", ")" }, { "<", ">" }, { "&lt;", "&gt;" } };
    for (int i = 0; i < 3; i++) {
        const char *const close = brackets[i][1];
        const uint32_t opened = count(word, brackets[i][0]), there = count(tail, close);
        if (opened <= count(word, close)) continue;
        for (uint32_t n = opened < there ? opened : there; n > 0; n--) {
            while (!at_text(tail, tail->begin, close)) tail->begin++;
            tail->begin += (uint32_t)strlen(close);
            word->end = tail->begin;
        }
    }
}

static void add_around(struct linking *l, const struct str *s, uint32_t begin, uint32_t end)
{
    struct span word = { s, begin, end };
    jn_spend_chars(l->m, 8 * (size_t)(end - begin));
    for (;;) {
        if (word.begin < end && (s->data[word.begin] == '(' || s->data[word.begin] == '<'))
            word.begin++;
        else if (at_text(&word, word.begin, "&lt;"))
            word.begin += 4;
        else
            break;
    }
    for (;;) {
        if (word.end > word.begin && strchr(")>.,", s->data[word.end - 1]) && s->data[word.end - 1])
            word.end--;
        else if (word.end - word.begin >= 4 && memcmp(s->data + word.end - 4, "&gt;", 4) == 0)
            word.end -= 4;
        else
            break;
    }
    struct span tail = { s, word.end, end };
    balance(&word, &tail);
    jn_buf_slice(&l->b, s, begin, word.begin);
    if (word.begin < word.end) add_word(l, &word);
    add_span(l, &tail);
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

static bool is_scheme(const struct str *s)
{
    uint32_t end = s->n, len, chars = 0;
    for (int n = 0; n < 2 && end && s->data[end - 1] == '/'; n++) end--;
    if (!end || s->data[end - 1] != ':') return false;
    for (uint32_t i = 0; i < end - 1; i += len, chars++) {
        const uint32_t c = jn_char_at(s, i, &len);
        if (!jn_char_is_word(c) && c != '.' && c != '+' && c != '-') return false;
    }
    return chars >= 2;
}

static const struct str *attribute(struct vm *m, const char *name, const struct str *value)
{
    struct buf b;
    jn_buf_open(&b, m);
    jn_buf_text(&b, name, JINJA_TEMPLATE);
    jn_buf_text(&b, "=\"", JINJA_TEMPLATE);
    jn_buf_str(&b, value->markup ? value : jn_str_escape(m, value).u.s);
    jn_buf_text(&b, "\"", JINJA_TEMPLATE);
    return jn_buf_value(&b, false).u.s;
}

static int word_order(void *context, uint32_t a, uint32_t b)
{
    const struct list *l = context;
    return jn_str_order(l->items[a].u.s, l->items[b].u.s);
}

/* The words of rel, noopener and perhaps nofollow among them, each once and in order. */
static const struct str *rel_of(struct vm *m, val given, bool nofollow)
{
    struct buf b;
    jn_buf_open(&b, m);
    if (given.kind != V_MISSING && jn_truth(m, given)) jn_buf_str(&b, jn_need_str(m, given, "urlize"));
    jn_buf_text(&b, nofollow ? " nofollow noopener" : " noopener", JINJA_TEMPLATE);
    const val all = jn_buf_value(&b, false);
    const struct str split = { .data = "split", .n = 5 };
    const struct method method = { all, &split, (uint16_t)jn_str_method_find(&split) };
    const struct list *words = jn_method_call(m, &method, &(struct args){ 0 }).u.list;
    uint32_t *places = jn_heap_array(m, words->n, sizeof *places);
    for (uint32_t i = 0; i < words->n; i++) places[i] = i;
    jn_sort_places(m, places, words->n, word_order, (void *)(uintptr_t)words);
    jn_buf_open(&b, m);
    for (uint32_t i = 0; i < words->n; i++) {
        const struct str *word = words->items[places[i]].u.s;
        if (i && jn_str_same(word, words->items[places[i - 1]].u.s)) continue;
        if (i) jn_buf_text(&b, " ", JINJA_TEMPLATE);
        jn_buf_str(&b, word);
    }
    return attribute(m, " rel", jn_buf_value(&b, false).u.s);
}

val jn_f_urlize(struct vm *m, val v, const struct args *a)
{
    val p[5];
    jn_bind(m, "urlize", a, "trim_url_limit nofollow target rel extra_schemes", 0, p);
    struct linking l = { .m = m, .limit = p[0].kind == V_MISSING ? jn_v_none() : p[0] };
    l.rel = rel_of(m, p[3], p[1].kind != V_MISSING && jn_truth(m, p[1]));
    if (p[2].kind != V_MISSING && jn_truth(m, p[2])) l.target = attribute(m, " target", jn_to_str(m, p[2]));
    if (p[4].kind != V_MISSING && p[4].kind != V_NONE) {
        l.schemes = jn_to_list(m, p[4]);
        for (uint32_t i = 0; i < l.schemes->n; i++)
            if (!is_scheme(jn_need_str(m, l.schemes->items[i], "urlize")))
                jn_fail(m, "urlize: '%.*s' is not a valid URI scheme prefix",
                        (int)(l.schemes->items[i].u.s->n < 99 ? l.schemes->items[i].u.s->n : 99),
                        l.schemes->items[i].u.s->data);
    }
    const struct str *text = jn_to_str(m, v);
    if (!text->markup) text = jn_str_escape(m, text).u.s;
    jn_buf_open(&l.b, m);
    uint32_t len;
    for (uint32_t i = 0, end; i < text->n; i = end) {
        const bool space = jn_char_is_space(jn_char_at(text, i, &len));
        for (end = i; end < text->n && jn_char_is_space(jn_char_at(text, end, &len)) == space;) end += len;
        if (space)
            jn_buf_slice(&l.b, text, i, end);
        else
            add_around(&l, text, i, end);
    }
    return jn_buf_value(&l.b, false);
}
