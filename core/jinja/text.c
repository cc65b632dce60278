/* text.c: strings that know where each of their bytes comes from. */
#include "internal.h"

#include "base/utf8.h"

enum { UNKNOWN = UINT32_MAX };

void jn_buf_open(struct buf *b, struct vm *m) { *b = (struct buf){ .m = m }; }

/* The last `n` bytes of the buffer have this origin. */
static void mark(struct buf *b, uint32_t end, unsigned origin)
{
    struct run *last = b->n_runs ? &b->runs[b->n_runs - 1] : NULL;
    if (last && last->origin == origin) {
        last->end = end;
        return;
    }
    b->runs = jn_heap_grow(b->m, b->runs, b->n_runs, &b->cap_runs, (size_t)b->n_runs + 1, sizeof *b->runs);
    b->runs[b->n_runs++] = (struct run){ end, origin };
}

void jn_buf_add(struct buf *b, const char *text, size_t n, unsigned origin)
{
    if (!n) return;
    if (n > JINJA_MAX_MEMORY - b->n) jn_fail_limit(b->m, "values take more than %d bytes", JINJA_MAX_MEMORY);
    b->data = jn_heap_grow(b->m, b->data, b->n, &b->cap, b->n + n, 1);
    memcpy(b->data + b->n, text, n);
    b->n += (uint32_t)n;
    mark(b, b->n, origin);
}

void jn_buf_char(struct buf *b, uint32_t c, unsigned origin)
{
    char text[4];
    jn_buf_add(b, text, utf8_encode(c, text), origin);
}

/* The run that the byte `at` is in. */
static uint32_t run_of(const struct str *s, uint32_t at)
{
    uint32_t low = 0, high = s->n_runs - 1;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (s->runs[mid].end > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

unsigned jn_str_origin(const struct str *s, uint32_t at)
{
    if (!s->n) return JINJA_TEMPLATE;
    return s->runs ? s->runs[run_of(s, at)].origin : s->origin;
}

uint32_t jn_str_run_end(const struct str *s, uint32_t at) { return s->runs[run_of(s, at)].end; }

void jn_buf_slice(struct buf *b, const struct str *s, uint32_t begin, uint32_t end)
{
    if (begin >= end) return;
    if (!s->runs) {
        jn_buf_add(b, s->data + begin, end - begin, s->origin);
        return;
    }
    for (uint32_t i = run_of(s, begin); begin < end; i++) {
        const uint32_t stop = s->runs[i].end < end ? s->runs[i].end : end;
        jn_buf_add(b, s->data + begin, stop - begin, s->runs[i].origin);
        begin = stop;
    }
}

void jn_buf_fill(struct buf *b, const struct str *s, int64_t n)
{
    if (n <= 0 || !s->n) return;
    if (n > (int64_t)(JINJA_MAX_MEMORY / s->n)) jn_fail_limit(b->m, "values take more than %d bytes", JINJA_MAX_MEMORY);
    jn_spend(b->m, (size_t)n * s->n);
    if (s->runs) jn_spend_items(b->m, (size_t)n * s->n_runs);
    if (s->runs || n == 1) {
        for (int64_t i = 0; i < n; i++) jn_buf_str(b, s);
        return;
    }
    const size_t whole = (size_t)n * s->n;
    if (whole > JINJA_MAX_MEMORY - b->n) jn_fail_limit(b->m, "values take more than %d bytes", JINJA_MAX_MEMORY);
    b->data = jn_heap_grow(b->m, b->data, b->n, &b->cap, b->n + whole, 1);
    char *const begin = b->data + b->n;
    memcpy(begin, s->data, s->n);
    for (size_t done = s->n; done < whole; done *= 2) /* what is there, once more */
        memcpy(begin + done, begin, done < whole - done ? done : whole - done);
    b->n += (uint32_t)whole;
    mark(b, b->n, s->origin);
}

static val string_value(struct vm *m, const struct str *s)
{
    struct str *copy = jn_heap_take(m, sizeof *copy);
    *copy = *s;
    /* What many threads will read is counted now (jn_str_chars). */
    if (!m->machine && copy->chars == UNKNOWN) copy->chars = (uint32_t)utf8_count(copy->data, copy->n);
    if (!copy->n) copy->data = ""; /* never NULL */
    return (val){ .kind = V_STRING, .u.s = copy };
}

val jn_buf_value(struct buf *b, bool markup)
{
    struct str s = { .data = b->data, .n = b->n, .chars = UNKNOWN, .markup = markup };
    if (b->n_runs == 1) s.origin = (uint8_t)b->runs[0].origin;
    if (b->n_runs > 1) {
        s.runs = b->runs;
        s.n_runs = b->n_runs;
    }
    return string_value(b->m, &s);
}

val jn_str_constant(struct vm *m, const char *text, size_t n, unsigned origin)
{
    return string_value(m,
                        &(struct str){ .data = text, .n = (uint32_t)n, .chars = UNKNOWN, .origin = (uint8_t)origin });
}

val jn_str_new(struct vm *m, const char *text, size_t n, unsigned origin)
{
    char *copy = jn_heap_take(m, n);
    if (n) memcpy(copy, text, n);
    return jn_str_constant(m, copy, n, origin);
}

val jn_v_text(struct vm *m, const char *text) { return jn_str_constant(m, text, strlen(text), JINJA_TEMPLATE); }

/* Templates for content in parts go through a text character by character. */
static val ascii(struct vm *m, const char *c, unsigned origin)
{
    const struct str **kept = &m->ascii[origin][(unsigned char)*c];
    if (!*kept) *kept = string_value(m, &(struct str){ .data = c, .n = 1, .chars = 1, .origin = (uint8_t)origin }).u.s;
    return (val){ .kind = V_STRING, .u.s = *kept };
}

val jn_str_slice(struct vm *m, const struct str *s, uint32_t begin, uint32_t end, bool markup)
{
    if (end == begin + 1 && !s->runs && !markup && (unsigned char)s->data[begin] < 0x80)
        return ascii(m, s->data + begin, s->origin);
    struct str out = {
        .data = s->data + begin, .n = end - begin, .chars = UNKNOWN, .origin = s->origin, .markup = markup
    };
    if (begin >= end) {
        out = (struct str){ .data = "", .chars = 0, .markup = markup };
    } else if (s->runs) {
        const uint32_t first = run_of(s, begin), last = run_of(s, end - 1);
        out.origin = (uint8_t)s->runs[first].origin;
        if (first != last) {
            out.n_runs = last - first + 1;
            jn_spend_items(m, out.n_runs / 16);
            struct run *runs = jn_heap_array(m, out.n_runs, sizeof *runs);
            for (uint32_t i = first; i <= last; i++) {
                const uint32_t stop = s->runs[i].end < end ? s->runs[i].end : end;
                runs[i - first] = (struct run){ stop - begin, s->runs[i].origin };
            }
            out.runs = runs;
        }
    }
    return string_value(m, &out);
}

val jn_str_marked(struct vm *m, const struct str *s, bool markup)
{
    struct str copy = *s;
    copy.markup = markup;
    return string_value(m, &copy);
}

val jn_str_repeat(struct vm *m, const struct str *s, int64_t n)
{
    struct buf b;
    jn_buf_open(&b, m);
    jn_buf_fill(&b, s, n);
    return jn_buf_value(&b, s->markup);
}

/* Adds s's runs, moved by `by`, to the tail's. A string that shares the runs may see its last one grow past its own
 * end, which all readers allow. */
static void append_runs(struct vm *m, const struct str *s, uint32_t by)
{
    struct tail *t = &m->tail;
    const struct run whole = { s->n, s->origin };
    const struct run *runs = s->runs ? s->runs : &whole;
    const uint32_t n = s->runs ? s->n_runs : 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t end = (runs[i].end < s->n ? runs[i].end : s->n) + by;
        if (t->n_runs && t->runs[t->n_runs - 1].origin == runs[i].origin) {
            t->runs[t->n_runs - 1].end = end;
            continue;
        }
        t->runs = jn_heap_grow(m, t->runs, t->n_runs, &t->cap_runs, (size_t)t->n_runs + 1, sizeof *t->runs);
        t->runs[t->n_runs++] = (struct run){ end, runs[i].origin };
    }
}

/* The bytes of both, one behind the other. A text that is built piece by piece is not copied each time: a second
 * concatenation leaves room for more. */
val jn_str_concat(struct vm *m, const struct str *a, const struct str *b, bool markup)
{
    struct tail *t = &m->tail;
    if (!a->n) return jn_str_marked(m, b, markup);
    if (!b->n) return jn_str_marked(m, a, markup);
    const size_t want = (size_t)a->n + b->n;
    if (want > JINJA_MAX_MEMORY) jn_fail_limit(m, "values take more than %d bytes", JINJA_MAX_MEMORY);
    const bool grows = a->data + a->n == t->end;
    if (!grows || (size_t)(t->limit - t->end) < b->n) {
        const size_t room = grows ? 2 * want : want;
        char *data = jn_heap_take(m, room);
        jn_spend(m, a->n);
        memcpy(data, a->data, a->n);
        *t = (struct tail){ .end = data + a->n, .limit = data + room };
    }
    jn_spend(m, b->n);
    char *const data = t->end - a->n;
    memcpy(t->end, b->data, b->n);
    t->end += b->n;
    const bool shared = t->n_runs && a->runs == t->runs && a->n_runs == t->n_runs;
    struct str out = { .data = data, .n = (uint32_t)want, .chars = UNKNOWN, .origin = a->origin, .markup = markup };
    if (a->runs || b->runs || a->origin != b->origin) {
        if (!shared) {
            t->runs = NULL;
            t->n_runs = t->cap_runs = 0;
            append_runs(m, a, 0);
        }
        append_runs(m, b, a->n);
        out.runs = t->runs;
        out.n_runs = t->n_runs;
    }
    return string_value(m, &out);
}

uint32_t jn_char_at(const struct str *s, uint32_t byte, uint32_t *len)
{
    const unsigned char *p = (const unsigned char *)s->data + byte;
    if (*p < 0x80) {
        *len = 1;
        return *p;
    }
    const size_t n = utf8_sequence(p, s->n - byte);
    *len = n ? (uint32_t)n : 1;
    return n ? utf8_decode(p, n) : 0xFFFD;
}

uint32_t jn_str_chars(const struct str *s)
{
    /* One that is not known is of a render, which has it for itself, and keeps the answer. */
    if (s->chars == UNKNOWN) ((struct str *)(uintptr_t)s)->chars = (uint32_t)utf8_count(s->data, s->n);
    return s->chars;
}

uint32_t jn_str_byte(const struct str *s, uint32_t character)
{
    uint32_t at = 0;
    while (character-- && at < s->n) {
        at++;
        while (at < s->n && ((unsigned char)s->data[at] & 0xC0) == 0x80) at++;
    }
    return at;
}

bool jn_str_is(const struct str *s, const char *text)
{
    return s->n == strlen(text) && memcmp(s->data, text, s->n) == 0;
}

bool jn_str_same(const struct str *a, const struct str *b)
{
    return a->n == b->n && memcmp(a->data, b->data, a->n) == 0;
}

int jn_str_order(const struct str *a, const struct str *b) /* UTF-8 sorts as its code points do */
{
    const uint32_t n = a->n < b->n ? a->n : b->n;
    const int order = n ? memcmp(a->data, b->data, n) : 0;
    return order ? (order > 0) - (order < 0) : (a->n > b->n) - (a->n < b->n);
}

uint32_t jn_str_find(const struct str *s, const struct str *part, uint32_t from, uint32_t to)
{
    if (to > s->n) to = s->n;
    if (from > to || part->n > to - from) return UNKNOWN;
    if (!part->n) return from;
    const char *p = memmem(s->data + from, to - from, part->data, part->n);
    return p ? (uint32_t)(p - s->data) : UNKNOWN;
}

uint32_t jn_str_rfind(struct vm *m, const struct str *s, const struct str *part, uint32_t from, uint32_t to)
{
    if (to > s->n) to = s->n;
    if (from > to || part->n > to - from) return UNKNOWN;
    if (!part->n) return to;
    const char first = part->data[0], last = part->data[part->n - 1];
    jn_spend(m, to - from);
    for (uint32_t at = to - part->n + 1; at-- > from;) {
        if (s->data[at] != first || s->data[at + part->n - 1] != last) continue;
        jn_spend(m, part->n);
        if (memcmp(s->data + at, part->data, part->n) == 0) return at;
    }
    return UNKNOWN;
}

val jn_str_escape(struct vm *m, const struct str *s)
{
    struct buf b;
    jn_buf_open(&b, m);
    jn_spend(m, s->n);
    uint32_t begin = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const char c = s->data[i];
        const char *as = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '\'' ? "&#39;"
                         : c == '"'  ? "&#34;"
                                     : NULL;
        if (!as) continue;
        jn_buf_slice(&b, s, begin, i);
        jn_buf_text(&b, as, jn_str_origin(s, i));
        begin = i + 1;
    }
    jn_buf_slice(&b, s, begin, s->n);
    return jn_buf_value(&b, true);
}
