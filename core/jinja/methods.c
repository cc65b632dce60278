/* methods.c: the methods of strings. What they return keeps the origin of each byte. */
#include "internal.h"

#include "base/utf8.h"

enum { NONE = UINT32_MAX };
enum id {
    S_CAPITALIZE,
    S_CASEFOLD,
    S_CENTER,
    S_COUNT,
    S_ENCODE,
    S_ENDSWITH,
    S_EXPANDTABS,
    S_FIND,
    S_FORMAT,
    S_FORMAT_MAP,
    S_INDEX,
    S_ISALNUM,
    S_ISALPHA,
    S_ISASCII,
    S_ISDECIMAL,
    S_ISDIGIT,
    S_ISIDENTIFIER,
    S_ISLOWER,
    S_ISNUMERIC,
    S_ISPRINTABLE,
    S_ISSPACE,
    S_ISTITLE,
    S_ISUPPER,
    S_JOIN,
    S_LJUST,
    S_LOWER,
    S_LSTRIP,
    S_MAKETRANS,
    S_PARTITION,
    S_REMOVEPREFIX,
    S_REMOVESUFFIX,
    S_REPLACE,
    S_RFIND,
    S_RINDEX,
    S_RJUST,
    S_RPARTITION,
    S_RSPLIT,
    S_RSTRIP,
    S_SPLIT,
    S_SPLITLINES,
    S_STARTSWITH,
    S_STRIP,
    S_SWAPCASE,
    S_TITLE,
    S_TRANSLATE,
    S_UPPER,
    S_ZFILL
};

static const char *const method_names[] = {
    "capitalize",   "casefold",   "center",    "count",       "encode",    "endswith",     "expandtabs",   "find",
    "format",       "format_map", "index",     "isalnum",     "isalpha",   "isascii",      "isdecimal",    "isdigit",
    "isidentifier", "islower",    "isnumeric", "isprintable", "isspace",   "istitle",      "isupper",      "join",
    "ljust",        "lower",      "lstrip",    "maketrans",   "partition", "removeprefix", "removesuffix", "replace",
    "rfind",        "rindex",     "rjust",     "rpartition",  "rsplit",    "rstrip",       "split",        "splitlines",
    "startswith",   "strip",      "swapcase",  "title",       "translate", "upper",        "zfill"
};

int jn_str_method_find(const struct str *name)
{
    uint32_t low = 0, high = sizeof method_names / sizeof method_names[0];
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        const char *const known = method_names[mid];
        uint32_t k = 0; /* most differ in their first character */
        while (known[k] && k < name->n && known[k] == name->data[k]) k++;
        if (!known[k] && k == name->n) return (int)mid;
        if (!known[k] || (k < name->n && (unsigned char)known[k] < (unsigned char)name->data[k]))
            low = mid + 1;
        else
            high = mid;
    }
    return -1;
}

static val part(struct vm *m, const struct str *s, uint32_t begin, uint32_t end)
{
    return jn_str_slice(m, s, begin, end, s->markup);
}

static val changed_case(struct vm *m, const struct str *s, enum char_case how)
{
    struct buf b;
    jn_buf_open(&b, m);
    jn_buf_case(&b, s, 0, s->n, how);
    return jn_buf_value(&b, s->markup);
}

val jn_str_capitalize(struct vm *m, const struct str *s)
{
    struct buf b, rest;
    jn_buf_open(&b, m);
    jn_buf_open(&rest, m);
    if (s->n) {
        /* All of it in lower case, since a sigma looks back at the first letter, too; then without that letter. */
        uint32_t len, lower;
        const uint32_t c = jn_char_at(s, 0, &len);
        struct buf first;
        jn_buf_open(&first, m);
        jn_buf_case(&first, s, 0, len, CASE_LOWER);
        lower = first.n;
        jn_buf_case(&rest, s, 0, s->n, CASE_LOWER);
        jn_buf_title_char(&b, c, jn_str_origin(s, 0));
        const val all = jn_buf_value(&rest, false);
        jn_buf_slice(&b, all.u.s, lower, all.u.s->n);
    }
    return jn_buf_value(&b, s->markup);
}

/* --- Places --- */

/* A place of Python's s[start:end] as a byte. */
static uint32_t byte_of(struct vm *m, const struct str *s, val v, uint32_t otherwise)
{
    int64_t at;
    if (v.kind == V_MISSING || v.kind == V_NONE) return otherwise;
    if (!jn_is_integer(v)) jn_fail(m, "slice indices must be integers or None or have an __index__ method");
    jn_spend(m, s->n);
    const uint32_t chars = jn_str_chars(s);
    if (!jn_number_int64(v, &at)) at = jn_number_negative(v) ? -(int64_t)chars : (int64_t)chars + 1;
    if (at < 0) at += chars;
    if (at < 0) at = 0;
    if (at > chars) return NONE;
    if (chars == s->n) return (uint32_t)at;
    jn_spend_chars(m, (size_t)at);
    return jn_str_byte(s, (uint32_t)at);
}

static val find(struct vm *m, const char *name, const struct str *s, const struct args *a, bool last, bool need)
{
    val v[3];
    jn_bind(m, name, a, "/sub start end", 1, v);
    const struct str *sub = jn_need_str(m, v[0], name);
    const uint32_t from = byte_of(m, s, v[1], 0);
    uint32_t to = byte_of(m, s, v[2], s->n);
    if (to == NONE) to = s->n;
    jn_spend(m, s->n);
    const uint32_t at = from == NONE ? NONE : last ? jn_str_rfind(m, s, sub, from, to) : jn_str_find(s, sub, from, to);
    if (at == NONE && need) jn_fail(m, "substring not found");
    return jn_v_int(at == NONE ? -1 : (int64_t)utf8_count(s->data, at));
}

static val count(struct vm *m, const struct str *s, const struct args *a)
{
    val v[3];
    jn_bind(m, "count", a, "/sub start end", 1, v);
    const struct str *sub = jn_need_str(m, v[0], "count()");
    uint32_t from = byte_of(m, s, v[1], 0), to = byte_of(m, s, v[2], s->n);
    if (to == NONE) to = s->n;
    jn_spend(m, s->n);
    if (from == NONE || from > to) return jn_v_int(0);
    if (!sub->n) return jn_v_int((int64_t)utf8_count(s->data + from, to - from) + 1);
    int64_t n = 0;
    for (uint32_t at; (at = jn_str_find(s, sub, from, to)) != NONE; from = at + sub->n) {
        jn_spend(m, 0);
        n++;
    }
    return jn_v_int(n);
}

static bool meets(struct vm *m, const struct str *s, const struct str *affix, uint32_t from, uint32_t to, bool end)
{
    jn_spend(m, affix->n);
    if (from > to || affix->n > to - from) return false;
    jn_spend(m, affix->n);
    return memcmp(s->data + (end ? to - affix->n : from), affix->data, affix->n) == 0;
}

static val affix(struct vm *m, const struct str *s, const struct args *a, bool end)
{
    val v[3];
    const char *name = end ? "endswith" : "startswith";
    jn_bind(m, name, a, "/affix start end", 1, v);
    const uint32_t from = byte_of(m, s, v[1], 0);
    uint32_t to = byte_of(m, s, v[2], s->n);
    if (to == NONE) to = s->n;
    if (v[0].kind == V_TUPLE) {
        const struct list *l = v[0].u.list;
        for (uint32_t i = 0; i < l->n; i++)
            if (from != NONE && meets(m, s, jn_need_str(m, l->items[i], name), from, to, end)) return jn_v_bool(true);
        return jn_v_bool(false);
    }
    if (v[0].kind != V_STRING)
        jn_fail(m, "%s first arg must be str or a tuple of str, not %s", name, jn_type_name(v[0]));
    return jn_v_bool(from != NONE && meets(m, s, v[0].u.s, from, to, end));
}

static val without(struct vm *m, const struct str *s, const struct args *a, bool end)
{
    val v;
    jn_bind(m, end ? "removesuffix" : "removeprefix", a, "/affix", 1, &v);
    const struct str *x = jn_need_str(m, v, end ? "removesuffix()" : "removeprefix()");
    if (!x->n || !meets(m, s, x, 0, s->n, end)) return part(m, s, 0, s->n);
    return end ? part(m, s, 0, s->n - x->n) : part(m, s, x->n, s->n);
}

/* --- Strip --- */

static bool has_char(const struct str *set, uint32_t c)
{
    uint32_t len;
    if (!set) return jn_char_is_space(c);
    for (uint32_t i = 0; i < set->n; i += len)
        if (jn_char_at(set, i, &len) == c) return true;
    return false;
}

static uint32_t char_before(const struct str *s, uint32_t at)
{
    do at--;
    while (at && ((unsigned char)s->data[at] & 0xC0) == 0x80);
    return at;
}

val jn_str_strip(struct vm *m, const struct str *s, const struct str *set, bool left, bool right)
{
    uint32_t begin = 0, end = s->n, len;
    while (left && begin < end && has_char(set, jn_char_at(s, begin, &len))) {
        begin += len;
        if (set) jn_spend_chars(m, set->n);
    }
    while (right && end > begin) {
        const uint32_t at = char_before(s, end);
        if (!has_char(set, jn_char_at(s, at, &len))) break;
        end = at;
        if (set) jn_spend_chars(m, set->n);
    }
    jn_spend_chars(m, s->n);
    return part(m, s, begin, end);
}

static val strip(struct vm *m, const struct str *s, const struct args *a, bool left, bool right)
{
    val v;
    jn_bind(m, "strip", a, "/chars", 0, &v);
    const bool set = v.kind != V_MISSING && v.kind != V_NONE;
    return jn_str_strip(m, s, set ? jn_need_str(m, v, "strip()") : NULL, left, right);
}

/* --- Split --- */

static void reverse(struct list *l)
{
    for (uint32_t i = 0; i < l->n / 2; i++) {
        const val v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

static struct list *split_space(struct vm *m, const struct str *s, int64_t max)
{
    struct list *l = jn_list_new(m, 0);
    uint32_t at = 0, len;
    for (;;) {
        while (at < s->n && jn_char_is_space(jn_char_at(s, at, &len))) at += len;
        if (at >= s->n) return l;
        uint32_t end = at;
        if (max >= 0 && l->n >= max) { /* the rest, with the space at its end */
            jn_list_push(m, l, part(m, s, at, s->n));
            return l;
        }
        while (end < s->n && !jn_char_is_space(jn_char_at(s, end, &len))) end += len;
        jn_list_push(m, l, part(m, s, at, end));
        at = end;
    }
}

static struct list *rsplit_space(struct vm *m, const struct str *s, int64_t max)
{
    struct list *l = jn_list_new(m, 0);
    uint32_t end = s->n, len;
    for (;;) {
        while (end && jn_char_is_space(jn_char_at(s, char_before(s, end), &len))) end = char_before(s, end);
        if (!end) break;
        uint32_t at = end;
        if (max >= 0 && l->n >= max) {
            jn_list_push(m, l, part(m, s, 0, end));
            break;
        }
        while (at && !jn_char_is_space(jn_char_at(s, char_before(s, at), &len))) at = char_before(s, at);
        jn_list_push(m, l, part(m, s, at, end));
        end = at;
    }
    reverse(l);
    return l;
}

static struct list *split_at(struct vm *m, const struct str *s, const struct str *separator, int64_t max)
{
    struct list *l = jn_list_new(m, 0);
    uint32_t from = 0;
    for (uint32_t at; (max < 0 || l->n < max) && (at = jn_str_find(s, separator, from, s->n)) != NONE;
         from = at + separator->n) {
        jn_spend(m, 0);
        jn_list_push(m, l, part(m, s, from, at));
    }
    jn_list_push(m, l, part(m, s, from, s->n));
    return l;
}

static struct list *rsplit_at(struct vm *m, const struct str *s, const struct str *separator, int64_t max)
{
    struct list *l = jn_list_new(m, 0);
    uint32_t to = s->n;
    for (uint32_t at; (max < 0 || l->n < max) && (at = jn_str_rfind(m, s, separator, 0, to)) != NONE; to = at)
        jn_list_push(m, l, part(m, s, at + separator->n, to));
    jn_list_push(m, l, part(m, s, 0, to));
    reverse(l);
    return l;
}

static val split(struct vm *m, const struct str *s, const struct args *a, bool right)
{
    val v[2];
    jn_bind(m, right ? "rsplit" : "split", a, "sep maxsplit", 0, v);
    const int64_t max = v[1].kind == V_MISSING ? -1 : jn_need_int(m, v[1], "split()");
    jn_spend_chars(m, s->n);
    if (v[0].kind == V_MISSING || v[0].kind == V_NONE)
        return jn_list_value(right ? rsplit_space(m, s, max) : split_space(m, s, max), V_LIST);
    const struct str *separator = jn_need_str(m, v[0], "split()");
    if (!separator->n) jn_fail(m, "empty separator");
    return jn_list_value(right ? rsplit_at(m, s, separator, max) : split_at(m, s, separator, max), V_LIST);
}

struct list *jn_str_lines(struct vm *m, const struct str *s, bool ends)
{
    struct list *l = jn_list_new(m, 0);
    uint32_t begin = 0, len;
    jn_spend_chars(m, s->n);
    for (uint32_t i = 0; i < s->n;) {
        const uint32_t c = jn_char_at(s, i, &len);
        const uint32_t end = i;
        i += len;
        if (!jn_char_is_line_end(c)) continue;
        if (c == '\r' && i < s->n && s->data[i] == '\n') i++;
        jn_spend(m, 0);
        jn_list_push(m, l, part(m, s, begin, ends ? i : end));
        begin = i;
    }
    if (begin < s->n) jn_list_push(m, l, part(m, s, begin, s->n));
    return l;
}

static val partition(struct vm *m, const struct str *s, const struct args *a, bool right)
{
    val v;
    jn_bind(m, "partition", a, "/sep", 1, &v);
    const struct str *separator = jn_need_str(m, v, "partition()");
    if (!separator->n) jn_fail(m, "empty separator");
    jn_spend(m, s->n);
    const uint32_t at = right ? jn_str_rfind(m, s, separator, 0, s->n) : jn_str_find(s, separator, 0, s->n);
    struct list *l = jn_list_new(m, 3);
    const uint32_t first = at != NONE ? at : right ? 0 : s->n, last = at != NONE ? at + separator->n : first;
    jn_list_push(m, l, part(m, s, 0, first));
    jn_list_push(m, l, part(m, s, first, last));
    jn_list_push(m, l, part(m, s, last, s->n));
    return jn_list_value(l, V_TUPLE);
}

/* --- Replace, join, pad --- */

val jn_str_replace(struct vm *m, const struct str *s, const struct str *old, const struct str *new, int64_t max)
{
    struct buf b;
    jn_buf_open(&b, m);
    uint32_t from = 0, len;
    jn_spend_chars(m, s->n);
    if (!old->n) { /* between all characters, and at both ends */
        for (int64_t n = 0; max < 0 || n < max; n++) {
            jn_spend(m, new->n);
            jn_buf_str(&b, new);
            if (from >= s->n) return jn_buf_value(&b, s->markup);
            (void)jn_char_at(s, from, &len);
            jn_buf_slice(&b, s, from, from + len);
            from += len;
        }
    } else {
        int64_t n = 0;
        for (uint32_t at; (max < 0 || n < max) && (at = jn_str_find(s, old, from, s->n)) != NONE;
             from = at + old->n, n++) {
            jn_spend(m, new->n);
            jn_buf_slice(&b, s, from, at);
            jn_buf_str(&b, new);
        }
        if (!n) return part(m, s, 0, s->n);
    }
    jn_buf_slice(&b, s, from, s->n);
    return jn_buf_value(&b, s->markup);
}

static const struct str *escaped(struct vm *m, const struct str *of, const struct str *s)
{
    return of->markup && !s->markup ? jn_str_escape(m, s).u.s : s;
}

static val replace(struct vm *m, const struct str *s, const struct args *a)
{
    val v[3];
    jn_bind(m, "replace", a, "/old new count", 2, v);
    const int64_t max = v[2].kind == V_MISSING ? -1 : jn_need_int(m, v[2], "replace()");
    const struct str *old = jn_need_str(m, v[0], "replace()");
    if (s->markup && v[1].kind != V_STRING) v[1] = (val){ .kind = V_STRING, .u.s = jn_to_str(m, v[1]) };
    return jn_str_replace(m, s, old, escaped(m, s, jn_need_str(m, v[1], "replace()")), max);
}

static val join(struct vm *m, const struct str *s, const struct args *a)
{
    val v;
    jn_bind(m, "join", a, "/iterable", 1, &v);
    if (!jn_is_iterable(v)) jn_fail(m, "can only join an iterable");
    struct iter i;
    jn_iter_open(m, &i, v);
    struct buf b;
    jn_buf_open(&b, m);
    uint32_t n = 0;
    for (val item; jn_iter_next(m, &i, &item); n++) {
        if (n) jn_buf_str(&b, s);
        if (item.kind != V_STRING && !s->markup)
            jn_fail(m, "sequence item %u: expected str instance, %s found", n, jn_type_name(item));
        const struct str *text = jn_to_str(m, item);
        jn_spend(m, text->n);
        jn_buf_str(&b, escaped(m, s, text));
    }
    return jn_buf_value(&b, s->markup);
}

val jn_str_pad(struct vm *m, const struct str *s, int64_t width, const struct str *fill, bool left, bool right)
{
    jn_spend(m, s->n);
    const int64_t n = jn_str_chars(s), room = width - n;
    if (room <= 0) return part(m, s, 0, s->n);
    const int64_t before = !left ? 0 : !right ? room : room / 2 + (room & width & 1);
    struct buf b;
    jn_buf_open(&b, m);
    jn_buf_fill(&b, fill, before);
    jn_buf_str(&b, s);
    jn_buf_fill(&b, fill, room - before);
    return jn_buf_value(&b, s->markup);
}

static val pad(struct vm *m, const struct str *s, const struct args *a, bool left, bool right)
{
    val v[2];
    jn_bind(m, "ljust", a, "/width fillchar", 1, v);
    const int64_t width = jn_need_int(m, v[0], "width");
    const struct str *fill = v[1].kind == V_MISSING ? jn_v_text(m, " ").u.s : jn_need_str(m, v[1], "fillchar");
    fill = escaped(m, s, fill);
    if (jn_str_chars(fill) != 1) jn_fail(m, "the fill character must be exactly one character long");
    return jn_str_pad(m, s, width, fill, left, right);
}

static val zfill(struct vm *m, const struct str *s, const struct args *a)
{
    val v;
    jn_bind(m, "zfill", a, "/width", 1, &v);
    jn_spend(m, s->n);
    const int64_t room = jn_need_int(m, v, "zfill()") - jn_str_chars(s);
    const uint32_t sign = s->n && (s->data[0] == '-' || s->data[0] == '+');
    struct buf b;
    jn_buf_open(&b, m);
    jn_buf_slice(&b, s, 0, sign);
    jn_buf_fill(&b, jn_v_text(m, "0").u.s, room);
    jn_buf_slice(&b, s, sign, s->n);
    return jn_buf_value(&b, s->markup);
}

static val expand_tabs(struct vm *m, const struct str *s, const struct args *a)
{
    val v;
    jn_bind(m, "expandtabs", a, "tabsize", 0, &v);
    const int64_t size = v.kind == V_MISSING ? 8 : jn_need_int(m, v, "expandtabs()");
    struct buf b;
    jn_buf_open(&b, m);
    int64_t column = 0;
    uint32_t len;
    jn_spend_chars(m, s->n);
    for (uint32_t i = 0; i < s->n; i += len) {
        const uint32_t c = jn_char_at(s, i, &len);
        if (c == '\t') {
            if (size <= 0) continue;
            const int64_t room = size - column % size;
            struct str space = { .data = " ", .n = 1, .origin = (uint8_t)jn_str_origin(s, i) };
            jn_buf_fill(&b, &space, room);
            column += room;
            continue;
        }
        column = c == '\n' || c == '\r' ? 0 : column + 1;
        jn_buf_slice(&b, s, i, i + len);
    }
    return jn_buf_value(&b, s->markup);
}

/* --- Questions --- */

enum {
    ALPHA = 1 << 0,
    DECIMAL = 1 << 1,
    DIGIT = 1 << 2,
    NUMERIC = 1 << 3,
    UPPER = 1 << 4,
    LOWER = 1 << 5,
    TITLE = 1 << 6,
    CASED = 1 << 7,
    PRINTABLE = 1 << 9,
    SPACE = 1 << 10,
    START = 1 << 11,
    CONTINUE = 1 << 12
};

/* Has each character one of the flags? Of an empty text: `empty`. */
static bool all(const struct str *s, unsigned flags, bool empty)
{
    uint32_t len;
    for (uint32_t i = 0; i < s->n; i += len)
        if (!(jn_char_flags(jn_char_at(s, i, &len)) & flags)) return false;
    return s->n || empty;
}

bool jn_str_is_case(const struct str *s, bool upper)
{
    bool any = false;
    uint32_t len;
    for (uint32_t i = 0; i < s->n; i += len) {
        const unsigned flags = jn_char_flags(jn_char_at(s, i, &len));
        if (flags & (TITLE | (upper ? LOWER : UPPER))) return false;
        any |= (flags & (upper ? UPPER : LOWER)) != 0;
    }
    return any;
}

static bool is_title(const struct str *s)
{
    bool any = false, cased = false;
    uint32_t len;
    for (uint32_t i = 0; i < s->n; i += len) {
        const unsigned flags = jn_char_flags(jn_char_at(s, i, &len));
        if (flags & (UPPER | TITLE)) {
            if (cased) return false;
            cased = any = true;
        } else if (flags & LOWER) {
            if (!cased) return false;
            any = true;
        } else {
            cased = false;
        }
    }
    return any;
}

static bool is_identifier(const struct str *s)
{
    uint32_t len;
    for (uint32_t i = 0; i < s->n; i += len)
        if (!(jn_char_flags(jn_char_at(s, i, &len)) & (i ? CONTINUE : START))) return false;
    return s->n;
}

static bool question(enum id id, const struct str *s)
{
    switch (id) {
    case S_ISALNUM: return all(s, ALPHA | DECIMAL | DIGIT | NUMERIC, false);
    case S_ISALPHA: return all(s, ALPHA, false);
    case S_ISASCII: return jn_str_chars(s) == s->n;
    case S_ISDECIMAL: return all(s, DECIMAL, false);
    case S_ISDIGIT: return all(s, DIGIT, false);
    case S_ISIDENTIFIER: return is_identifier(s);
    case S_ISLOWER: return jn_str_is_case(s, false);
    case S_ISNUMERIC: return all(s, NUMERIC, false);
    case S_ISPRINTABLE: return all(s, PRINTABLE, true);
    case S_ISSPACE: return all(s, SPACE, false);
    case S_ISTITLE: return is_title(s);
    default: return jn_str_is_case(s, true);
    }
}

static val mapped(struct vm *m, const struct str *s, const struct args *a)
{
    val v;
    jn_bind(m, "format_map", a, "/mapping", 1, &v);
    return jn_format_braces(m, s, &(struct args){ 0 }, &v);
}

val jn_str_method(struct vm *m, unsigned id, const struct str *s, const struct args *a)
{
    const char *const name = method_names[id];
    switch ((enum id)id) {
    case S_CAPITALIZE: jn_bind(m, name, a, "/", 0, NULL); return jn_str_capitalize(m, s);
    case S_CASEFOLD: jn_bind(m, name, a, "/", 0, NULL); return changed_case(m, s, CASE_FOLD);
    case S_LOWER: jn_bind(m, name, a, "/", 0, NULL); return changed_case(m, s, CASE_LOWER);
    case S_UPPER: jn_bind(m, name, a, "/", 0, NULL); return changed_case(m, s, CASE_UPPER);
    case S_TITLE: jn_bind(m, name, a, "/", 0, NULL); return changed_case(m, s, CASE_TITLE);
    case S_SWAPCASE: jn_bind(m, name, a, "/", 0, NULL); return changed_case(m, s, CASE_SWAP);
    case S_CENTER: return pad(m, s, a, true, true);
    case S_LJUST: return pad(m, s, a, false, true);
    case S_RJUST: return pad(m, s, a, true, false);
    case S_ZFILL: return zfill(m, s, a);
    case S_COUNT: return count(m, s, a);
    case S_FIND: return find(m, name, s, a, false, false);
    case S_INDEX: return find(m, name, s, a, false, true);
    case S_RFIND: return find(m, name, s, a, true, false);
    case S_RINDEX: return find(m, name, s, a, true, true);
    case S_STARTSWITH: return affix(m, s, a, false);
    case S_ENDSWITH: return affix(m, s, a, true);
    case S_REMOVEPREFIX: return without(m, s, a, false);
    case S_REMOVESUFFIX: return without(m, s, a, true);
    case S_EXPANDTABS: return expand_tabs(m, s, a);
    case S_FORMAT: return jn_format_braces(m, s, a, NULL);
    case S_FORMAT_MAP: return mapped(m, s, a);
    case S_JOIN: return join(m, s, a);
    case S_STRIP: return strip(m, s, a, true, true);
    case S_LSTRIP: return strip(m, s, a, true, false);
    case S_RSTRIP: return strip(m, s, a, false, true);
    case S_PARTITION: return partition(m, s, a, false);
    case S_RPARTITION: return partition(m, s, a, true);
    case S_REPLACE: return replace(m, s, a);
    case S_SPLIT: return split(m, s, a, false);
    case S_RSPLIT: return split(m, s, a, true);
    case S_SPLITLINES: {
        val ends;
        jn_bind(m, name, a, "keepends", 0, &ends);
        return jn_list_value(jn_str_lines(m, s, ends.kind != V_MISSING && jn_need_int(m, ends, name) != 0), V_LIST);
    }
    case S_ENCODE:
    case S_MAKETRANS:
    case S_TRANSLATE: jn_fail(m, "the method '%s' of str is not supported", name);
    default:
        jn_bind(m, name, a, "/", 0, NULL);
        jn_spend_chars(m, s->n);
        return jn_v_bool(question((enum id)id, s));
    }
}
