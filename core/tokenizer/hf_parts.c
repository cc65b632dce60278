/* hf_parts.c: normalizer, pre-tokenizer, post-processor and decoder of a tokenizer.json (Hugging Face tokenizers,
 * version 1.0).
 *
 * The schema is closed: a type, member or value that is not understood could change ids, so it is refused by name and
 * path. What cannot change ids (offsets, the second text of a pair) is read and let be. */
#include "tokenizer/model.h"

#include <stdlib.h>
#include <string.h>

size_t hf_member(struct json_reader *r, const char *const *names, size_t n, uint64_t *seen)
{
    struct json_text key;
    if (!jr_member(r, &key)) return SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        if (!jr_is(key, names[i])) continue;
        if (*seen >> i & 1) {
            (void)jr_fail(r, WK_INVALID, "this member comes twice");
            return SIZE_MAX;
        }
        *seen |= 1ull << i;
        return i;
    }
    (void)jr_fail(r, WK_UNSUPPORTED, "unknown member");
    return SIZE_MAX;
}

/* ---- parts with a type --------------------------------------------------------------------------------- */

/* Members that parts may have; which ones a part of some type has, and what they may say, is tested
 * where it is taken. */
enum member {
    M_TYPE,
    M_LIST_NORMALIZERS,
    M_LIST_PRETOKENIZERS,
    M_LIST_PROCESSORS,
    M_LIST_DECODERS,
    M_PREPEND,
    M_PATTERN,
    M_CONTENT,
    M_BEHAVIOR,
    M_INVERT,
    M_PREFIX_SPACE,
    M_TRIM,
    M_USE_REGEX,
    M_REPLACEMENT,
    M_SCHEME,
    M_SPLIT,
    M_DIGITS,
    M_SINGLE,
    M_PAIR,
    M_SPECIALS,
    M_START,
    M_STOP,
    M_STR_REP,
    M_COUNT
};
static const char *const member_names[M_COUNT] = { "type",
                                                   "normalizers",
                                                   "pretokenizers",
                                                   "processors",
                                                   "decoders",
                                                   "prepend",
                                                   "pattern",
                                                   "content",
                                                   "behavior",
                                                   "invert",
                                                   "add_prefix_space",
                                                   "trim_offsets",
                                                   "use_regex",
                                                   "replacement",
                                                   "prepend_scheme",
                                                   "split",
                                                   "individual_digits",
                                                   "single",
                                                   "pair",
                                                   "special_tokens",
                                                   "start",
                                                   "stop",
                                                   "str_rep" };
#define HAS(member) (1ull << (member))

/* A part's members as raw JSON. */
struct part {
    struct json_text raw[M_COUNT];
    char type[32];
    uint64_t seen;
};

/* Reads an object's members; its type into part->type. */
static bool read_part(struct json_reader *r, struct part *part)
{
    memset(part, 0, sizeof *part);
    if (!jr_object(r)) return false;
    for (size_t i; (i = hf_member(r, member_names, M_COUNT, &part->seen)) != SIZE_MAX;) {
        if (i == M_TYPE) {
            struct json_text type;
            if (!jr_string(r, &type)) return false;
            (void)snprintf(part->type, sizeof part->type, "%.*s",
                           (int)(type.len < sizeof part->type ? type.len : sizeof part->type - 1), type.data);
        } else if (!jr_raw(r, &part->raw[i]))
            return false;
    }
    if (!r->status && !(part->seen & HAS(M_TYPE))) return jr_fail(r, WK_INVALID, "expected an object with a type");
    return !r->status;
}

/* Are the members those that this type has? */
static bool only(struct json_reader *r, const struct part *part, uint64_t needed, uint64_t allowed)
{
    const uint64_t missing = needed & ~part->seen, other = part->seen & ~(needed | allowed | HAS(M_TYPE));
    if (missing)
        return jr_fail(r, WK_INVALID, "%s: expected a member %s", part->type, member_names[__builtin_ctzll(missing)]);
    if (other)
        return jr_fail(r, WK_UNSUPPORTED, "%s: unknown member %s", part->type, member_names[__builtin_ctzll(other)]);
    return true;
}

/* A member's value through a reader of its own, whose failures are given on. */
static bool value_of(struct json_reader *r, struct json_text raw, const char *member,
                     bool (*read)(struct json_reader *, void *), void *out)
{
    struct json_reader inside;
    char path[160];
    (void)snprintf(path, sizeof path, "%s.%s", r->path, member);
    jr_open(&inside, raw.data, raw.len, r->name, path, r->err);
    if (!read(&inside, out)) r->status = inside.status ? inside.status : WK_INVALID;
    jr_close(&inside);
    return !r->status;
}
static bool value(struct json_reader *r, const struct part *part, enum member member,
                  bool (*read)(struct json_reader *, void *), void *out)
{
    return value_of(r, part->raw[member], member_names[member], read, out);
}

static bool read_bool(struct json_reader *r, void *out) { return jr_bool(r, out); }
static bool read_u64(struct json_reader *r, void *out) { return jr_u64(r, out); }

/* A string copied to where it may stay: at most sizeof text - 1 bytes. */
struct small_text {
    char text[2048];
    size_t len;
};
static bool read_small(struct json_reader *r, void *out)
{
    struct small_text *small = out;
    struct json_text s;
    if (!jr_string(r, &s)) return false;
    if (s.len >= sizeof small->text)
        return jr_fail(r, WK_UNSUPPORTED, "a text of %zu bytes; at most %zu are supported", s.len,
                       sizeof small->text - 1);
    memcpy(small->text, s.data, s.len);
    small->text[small->len = s.len] = '\0';
    return true;
}

static bool flag(struct json_reader *r, const struct part *part, enum member member, bool preset, bool *out)
{
    *out = preset;
    return !(part->seen & HAS(member)) || value(r, part, member, read_bool, out);
}

/* {"Regex": "..."} or {"String": "..."} */
struct pattern {
    bool regex;
    struct small_text text;
};
static bool read_pattern(struct json_reader *r, void *out)
{
    static const char *const names[] = { "String", "Regex" };
    struct pattern *pattern = out;
    uint64_t seen = 0;
    if (!jr_object(r)) return false;
    const size_t i = hf_member(r, names, 2, &seen);
    if (i == SIZE_MAX) return jr_fail(r, WK_INVALID, "expected String or Regex");
    pattern->regex = i == 1;
    if (!read_small(r, &pattern->text)) return false;
    if (hf_member(r, names, 2, &seen) != SIZE_MAX) return jr_fail(r, WK_INVALID, "expected one of String and Regex");
    return !r->status;
}

/* Calls `take` for the part, or for each part of a Sequence. Sequences do not nest: no file has that. */
typedef bool take_part(struct json_reader *r, const struct part *part, void *user);
struct sequence {
    enum member list;
    const char *what;
    take_part *take;
    void *user;
};

static bool read_list(struct json_reader *r, void *user)
{
    const struct sequence *s = user;
    struct part part;
    if (!jr_array(r)) return false;
    while (jr_element(r)) {
        const uint64_t element = r->level[r->depth - 1].count - 1;
        if (!read_part(r, &part)) return false;
        if (strcmp(part.type, "Sequence") == 0)
            return jr_fail(r, WK_UNSUPPORTED, "a Sequence inside a Sequence is not supported");
        char path[160];
        const char *outer = r->path;
        (void)snprintf(path, sizeof path, "%s[%llu]", outer, (unsigned long long)element);
        struct json_reader at = *r; /* says the element's path without what has been read of it */
        at.path = path;
        at.depth = 0;
        at.scratch = NULL;
        if (!s->take(&at, &part, s->user)) {
            r->status = at.status;
            return false;
        }
    }
    return !r->status;
}

static wk_status read_sequence(struct json_text json, const char *name, struct sequence *s, const struct wk_err *err)
{
    struct json_reader r;
    struct part part;
    jr_open(&r, json.data, json.len, name, s->what, err);
    if (!jr_null(&r) && read_part(&r, &part)) {
        if (strcmp(part.type, "Sequence") != 0)
            (void)s->take(&r, &part, s->user);
        else if (only(&r, &part, HAS(s->list), 0))
            (void)value(&r, &part, s->list, read_list, s);
    }
    jr_close(&r);
    return r.status;
}

/* ---- normalizer ---------------------------------------------------------------------------------------- */

static bool add_step(struct json_reader *r, struct hf_pipeline *p, enum hf_kind kind, const struct small_text *from,
                     const struct small_text *to)
{
    if (p->n_steps == HF_MAX_STEPS)
        return jr_fail(r, WK_UNSUPPORTED, "more than %d steps are not supported", HF_MAX_STEPS);
    struct hf_step *s = &p->step[p->n_steps++];
    *s = (struct hf_step){ .kind = kind };
    s->from = malloc(from ? from->len + 1 : 1);
    s->to = malloc(to ? to->len + 1 : 1);
    if (!s->from || !s->to) return jr_fail(r, WK_NO_MEMORY, "no memory");
    if (from) memcpy(s->from, from->text, s->from_len = from->len);
    if (to) memcpy(s->to, to->text, s->to_len = to->len);
    return true;
}

static bool take_normalizer(struct json_reader *r, const struct part *part, void *user)
{
    struct hf_pipeline *p = user;
    struct small_text to;
    struct pattern from;
    if (strcmp(part->type, "NFC") == 0) return only(r, part, 0, 0) && add_step(r, p, HF_NFC, NULL, NULL);
    if (strcmp(part->type, "Prepend") == 0)
        return only(r, part, HAS(M_PREPEND), 0) && value(r, part, M_PREPEND, read_small, &to) &&
               add_step(r, p, HF_PREPEND, NULL, &to);
    if (strcmp(part->type, "Replace") != 0)
        return jr_fail(r, WK_UNSUPPORTED,
                       "normalizer %s is not supported; supported are NFC, Prepend, Replace and a Sequence of them",
                       part->type);
    if (!only(r, part, HAS(M_PATTERN) | HAS(M_CONTENT), 0) || !value(r, part, M_PATTERN, read_pattern, &from) ||
        !value(r, part, M_CONTENT, read_small, &to))
        return false;
    if (from.regex) return jr_fail(r, WK_UNSUPPORTED, "Replace with a Regex is not supported; String is");
    if (!from.text.len || to.len > 4 * from.text.len)
        return jr_fail(r, WK_UNSUPPORTED, "Replace of %zu bytes by %zu is not supported", from.text.len, to.len);
    return add_step(r, p, HF_REPLACE, &from.text, &to);
}

wk_status hf_read_normalizer(struct hf_pipeline *p, struct json_text json, const char *name, const struct wk_err *err)
{
    struct sequence s = { M_LIST_NORMALIZERS, "normalizer", take_normalizer, p };
    return read_sequence(json, name, &s, err);
}

/* ---- pre-tokenizer ------------------------------------------------------------------------------------- */

struct pretokenizer_parts {
    struct hf_pipeline *p;
    struct pretokenizer *words;
    uint32_t n;
};

/* Steps fail with texts of their own; the path is put before them. */
static bool step_result(struct json_reader *r, wk_status status, const char *text)
{
    return !status || jr_fail(r, status, "%s", text);
}

static bool take_split(struct json_reader *r, const struct part *part, struct pretokenizer *words)
{
    struct pattern pattern;
    struct small_text behavior;
    char text[512];
    const struct wk_err why = { text, sizeof text };
    bool invert, total = false;
    if (!only(r, part, HAS(M_PATTERN) | HAS(M_BEHAVIOR) | HAS(M_INVERT), 0) ||
        !value(r, part, M_PATTERN, read_pattern, &pattern) || !value(r, part, M_BEHAVIOR, read_small, &behavior) ||
        !value(r, part, M_INVERT, read_bool, &invert))
        return false;
    const bool isolated = strcmp(behavior.text, "Isolated") == 0, removed = strcmp(behavior.text, "Removed") == 0,
               previous = strcmp(behavior.text, "MergedWithPrevious") == 0;
    if (!pattern.regex) {
        if (invert || (!isolated && !previous))
            return jr_fail(r, WK_UNSUPPORTED, "Split at a String with behavior %s%s is not supported", behavior.text,
                           invert ? ", inverted," : "");
        return step_result(r,
                           pretokenizer_add_literal(words, pattern.text.text, pattern.text.len,
                                                    isolated ? LITERAL_ISOLATED : LITERAL_WITH_PREVIOUS, &why),
                           text);
    }
    if (!step_result(r, pretokenizer_add_regex(words, pattern.text.text, pattern.text.len, &total, &why), text))
        return false;
    /* Removing what an expression that matches everything does not match removes nothing. */
    return isolated || (removed && invert && total) ||
           jr_fail(r, WK_UNSUPPORTED, "Split with behavior %s%s is not supported", behavior.text,
                   invert ? ", inverted," : "");
}

static bool take_metaspace(struct json_reader *r, const struct part *part, struct pretokenizer_parts *parts)
{
    struct small_text replacement, scheme;
    bool split, legacy;
    char text[256];
    const struct wk_err why = { text, sizeof text };
    if (!only(r, part, HAS(M_REPLACEMENT), HAS(M_SCHEME) | HAS(M_SPLIT) | HAS(M_PREFIX_SPACE) | HAS(M_STR_REP)) ||
        !value(r, part, M_REPLACEMENT, read_small, &replacement) || !flag(r, part, M_SPLIT, true, &split) ||
        !flag(r, part, M_PREFIX_SPACE, true, &legacy))
        return false;
    (void)snprintf(scheme.text, sizeof scheme.text, "%s", legacy ? "always" : "never");
    if (part->seen & HAS(M_SCHEME) && !value(r, part, M_SCHEME, read_small, &scheme)) return false;
    if (strcmp(replacement.text, "\xE2\x96\x81") != 0)
        return jr_fail(r, WK_UNSUPPORTED, "Metaspace: replacement must be U+2581, found '%s'", replacement.text);
    parts->p->metaspace = true;
    if (strcmp(scheme.text, "always") == 0)
        parts->p->prepend = HF_ALWAYS;
    else if (strcmp(scheme.text, "first") == 0)
        parts->p->prepend = HF_FIRST;
    else if (strcmp(scheme.text, "never") != 0)
        return jr_fail(r, WK_INVALID, "Metaspace: prepend_scheme must be always, first or never, found '%s'",
                       scheme.text);
    return !split ||
           step_result(
               r, pretokenizer_add_literal(parts->words, replacement.text, replacement.len, LITERAL_WITH_NEXT, &why),
               text);
}

static bool take_byte_level(struct json_reader *r, const struct part *part, struct pretokenizer_parts *parts)
{
    bool prefix, regex;
    char text[256];
    const struct wk_err why = { text, sizeof text };
    if (!only(r, part, HAS(M_PREFIX_SPACE), HAS(M_TRIM) | HAS(M_USE_REGEX)) ||
        !flag(r, part, M_PREFIX_SPACE, false, &prefix) || !flag(r, part, M_USE_REGEX, true, &regex))
        return false;
    if (prefix && parts->n > 1)
        return jr_fail(r, WK_UNSUPPORTED, "ByteLevel: add_prefix_space behind another pre-tokenizer is not supported");
    parts->p->byte_level = true;
    parts->p->prefix_space = prefix;
    return !regex || step_result(r, pretokenizer_add_step(parts->words, STEP_GPT2, &why), text);
}

static bool take_pretokenizer(struct json_reader *r, const struct part *part, void *user)
{
    struct pretokenizer_parts *parts = user;
    struct small_text behavior;
    bool individual;
    char text[256];
    const struct wk_err why = { text, sizeof text };
    parts->n++;
    if (parts->p->byte_level)
        return jr_fail(r, WK_UNSUPPORTED,
                       "%s behind ByteLevel is not supported: it would cut bytes instead of characters", part->type);
    if (parts->p->metaspace) return jr_fail(r, WK_UNSUPPORTED, "%s behind Metaspace is not supported", part->type);
    if (strcmp(part->type, "Split") == 0) return take_split(r, part, parts->words);
    if (strcmp(part->type, "ByteLevel") == 0) return take_byte_level(r, part, parts);
    if (strcmp(part->type, "Metaspace") == 0)
        return parts->n == 1 ? take_metaspace(r, part, parts)
                             : jr_fail(r, WK_UNSUPPORTED, "Metaspace behind another pre-tokenizer is not supported");
    if (strcmp(part->type, "Digits") == 0)
        return only(r, part, HAS(M_DIGITS), 0) && value(r, part, M_DIGITS, read_bool, &individual) &&
               step_result(r, pretokenizer_add_step(parts->words, individual ? STEP_DIGIT : STEP_DIGITS, &why), text);
    if (strcmp(part->type, "Punctuation") == 0) {
        (void)snprintf(behavior.text, sizeof behavior.text, "Isolated");
        if (!only(r, part, 0, HAS(M_BEHAVIOR)) ||
            (part->seen & HAS(M_BEHAVIOR) && !value(r, part, M_BEHAVIOR, read_small, &behavior)))
            return false;
        const bool run = strcmp(behavior.text, "Contiguous") == 0;
        if (!run && strcmp(behavior.text, "Isolated") != 0)
            return jr_fail(r, WK_UNSUPPORTED, "Punctuation with behavior %s is not supported", behavior.text);
        return step_result(r, pretokenizer_add_step(parts->words, run ? STEP_PUNCTUATION_RUN : STEP_PUNCTUATION, &why),
                           text);
    }
    return jr_fail(r, WK_UNSUPPORTED,
                   "pre-tokenizer %s is not supported; supported are ByteLevel, Split, Metaspace, Digits, Punctuation "
                   "and a Sequence of them",
                   part->type);
}

wk_status hf_read_pretokenizer(struct hf_pipeline *p, struct pretokenizer *words, struct json_text json,
                               const char *name, const struct wk_err *err)
{
    struct pretokenizer_parts parts = { p, words, 0 };
    struct sequence s = { M_LIST_PRETOKENIZERS, "pre_tokenizer", take_pretokenizer, &parts };
    return read_sequence(json, name, &s, err);
}

/* ---- post-processor ------------------------------------------------------------------------------------ */

struct processor {
    struct hf_ends *ends;
    const struct vocab *vocab;
    struct json_text specials;
    bool text_seen;
};

/* The id of a template's special token, from special_tokens: exactly one. */
static bool read_special_id(struct json_reader *r, void *out)
{
    uint64_t id = 0, n = 0;
    if (!jr_array(r)) return false;
    for (; jr_element(r); n++)
        if (!jr_u64(r, &id)) return false;
    if (!r->status && n != 1)
        return jr_fail(r, WK_UNSUPPORTED, "a special token of %llu ids is not supported", (unsigned long long)n);
    *(uint64_t *)out = id;
    return !r->status;
}

struct special_wanted {
    const struct small_text *name;
    uint64_t id;
    bool found;
};
static bool find_special(struct json_reader *r, void *out)
{
    struct special_wanted *wanted = out;
    struct json_text key;
    if (!jr_object(r)) return false;
    while (jr_member(r, &key)) {
        static const char *const names[] = { "id", "ids", "tokens" };
        const bool it = jr_is(key, wanted->name->text);
        uint64_t seen = 0;
        if (!jr_object(r)) return false;
        for (size_t i; (i = hf_member(r, names, 3, &seen)) != SIZE_MAX;) {
            if (i == 1 && it ? !read_special_id(r, &wanted->id) : !jr_skip(r)) return false;
            wanted->found = wanted->found || (i == 1 && it);
        }
    }
    return !r->status && (wanted->found || jr_fail(r, WK_INVALID, "has no ids of '%.64s'", wanted->name->text));
}

/* One piece of "single": {"SpecialToken": {"id", "type_id"}} or {"Sequence": {"id": "A", "type_id"}}. */
static bool take_piece(struct json_reader *r, struct processor *p)
{
    static const char *const kinds[] = { "SpecialToken", "Sequence" }, *const names[] = { "id", "type_id" };
    struct small_text id = { .len = 0 };
    uint64_t seen = 0, inside = 0;
    if (!jr_object(r)) return false;
    const size_t kind = hf_member(r, kinds, 2, &seen);
    if (kind == SIZE_MAX) return jr_fail(r, WK_INVALID, "expected SpecialToken or Sequence");
    if (!jr_object(r)) return false;
    for (size_t i; (i = hf_member(r, names, 2, &inside)) != SIZE_MAX;)
        if (i == 0 ? !read_small(r, &id) : !jr_skip(r)) return false;
    if (r->status) return false;
    if (kind == 1) {
        if (p->text_seen || strcmp(id.text, "A") != 0) return jr_fail(r, WK_UNSUPPORTED, "expected the text, A, once");
        p->text_seen = true;
    } else {
        struct special_wanted wanted = { .name = &id };
        uint32_t *slot = p->text_seen ? &p->ends->after : &p->ends->before;
        if (!value_of(r, p->specials, "special_tokens", find_special, &wanted)) return false;
        if (wanted.id >= p->vocab->n)
            return jr_fail(r, WK_INVALID, "id %llu is not in the vocabulary of %u tokens",
                           (unsigned long long)wanted.id, p->vocab->n);
        if (*slot != TOKEN_NONE)
            return jr_fail(r, WK_UNSUPPORTED, "more than one special token on one side of the text is not supported");
        *slot = (uint32_t)wanted.id;
    }
    return hf_member(r, kinds, 2, &seen) == SIZE_MAX && !r->status;
}

static bool read_single(struct json_reader *r, void *user)
{
    struct processor *p = user;
    if (!jr_array(r)) return false;
    while (jr_element(r))
        if (!take_piece(r, p)) return jr_fail(r, WK_INVALID, "expected one of SpecialToken and Sequence");
    return !r->status && (p->text_seen || jr_fail(r, WK_INVALID, "the text, A, is not part of it"));
}

static bool take_processor(struct json_reader *r, const struct part *part, void *user)
{
    struct processor *p = user;
    if (strcmp(part->type, "ByteLevel") == 0)
        return only(r, part, 0, HAS(M_PREFIX_SPACE) | HAS(M_TRIM) | HAS(M_USE_REGEX)); /* offsets alone */
    if (strcmp(part->type, "TemplateProcessing") != 0)
        return jr_fail(
            r, WK_UNSUPPORTED,
            "post-processor %s is not supported; supported are ByteLevel, TemplateProcessing and a Sequence of them",
            part->type);
    if (!only(r, part, HAS(M_SINGLE) | HAS(M_SPECIALS), HAS(M_PAIR))) return false;
    if (p->ends->said) return jr_fail(r, WK_UNSUPPORTED, "TemplateProcessing comes twice");
    p->ends->said = true;
    p->specials = part->raw[M_SPECIALS];
    return value(r, part, M_SINGLE, read_single, p);
}

wk_status hf_read_postprocessor(struct hf_ends *ends, const struct vocab *v, struct json_text json, const char *name,
                                const struct wk_err *err)
{
    struct processor p = { .ends = ends, .vocab = v };
    struct sequence s = { M_LIST_PROCESSORS, "post_processor", take_processor, &p };
    *ends = (struct hf_ends){ TOKEN_NONE, TOKEN_NONE, false };
    return read_sequence(json, name, &s, err);
}

/* ---- decoder ------------------------------------------------------------------------------------------- */

struct decoding {
    const struct hf_pipeline *p;
    bool byte_level, spaces, bytes, strips;
};

static bool take_strip(struct json_reader *r, const struct part *part, struct decoding *d)
{
    struct small_text content;
    uint64_t start, stop;
    if (!only(r, part, HAS(M_CONTENT) | HAS(M_START) | HAS(M_STOP), 0) ||
        !value(r, part, M_CONTENT, read_small, &content) || !value(r, part, M_START, read_u64, &start) ||
        !value(r, part, M_STOP, read_u64, &stop))
        return false;
    if (strcmp(content.text, " ") != 0 || start > 1 || stop)
        return jr_fail(r, WK_UNSUPPORTED, "Strip of anything but one space at the start is not supported");
    d->strips = start == 1;
    return true;
}

static bool take_decoder(struct json_reader *r, const struct part *part, void *user)
{
    struct decoding *d = user;
    struct pattern from;
    struct small_text to;
    if (strcmp(part->type, "ByteLevel") == 0)
        return d->byte_level = true, only(r, part, 0, HAS(M_PREFIX_SPACE) | HAS(M_TRIM) | HAS(M_USE_REGEX));
    if (strcmp(part->type, "ByteFallback") == 0) return d->bytes = true, only(r, part, 0, 0);
    if (strcmp(part->type, "Fuse") == 0) return only(r, part, 0, 0);
    if (strcmp(part->type, "Strip") == 0) return take_strip(r, part, d);
    if (strcmp(part->type, "Metaspace") == 0) {
        d->spaces = true;
        d->strips = d->p->prepend != HF_BARE;
        return only(r, part, HAS(M_REPLACEMENT), HAS(M_SCHEME) | HAS(M_SPLIT) | HAS(M_PREFIX_SPACE) | HAS(M_STR_REP));
    }
    if (strcmp(part->type, "Replace") != 0)
        return jr_fail(r, WK_UNSUPPORTED,
                       "decoder %s is not supported; supported are ByteLevel, Replace, ByteFallback, Fuse, Strip, "
                       "Metaspace and a Sequence of them",
                       part->type);
    if (!only(r, part, HAS(M_PATTERN) | HAS(M_CONTENT), 0) || !value(r, part, M_PATTERN, read_pattern, &from) ||
        !value(r, part, M_CONTENT, read_small, &to))
        return false;
    d->spaces = true;
    return (!from.regex && strcmp(from.text.text, "\xE2\x96\x81") == 0 && strcmp(to.text, " ") == 0) ||
           jr_fail(r, WK_UNSUPPORTED, "Replace of anything but U+2581 by a space is not supported");
}

wk_status hf_read_decoder(const struct hf_pipeline *p, bool *strips, struct json_text json, const char *name,
                          const struct wk_err *err)
{
    struct decoding d = { .p = p };
    struct sequence s = { M_LIST_DECODERS, "decoder", take_decoder, &d };
    const wk_status status = read_sequence(json, name, &s, err);
    *strips = d.strips;
    if (status) return status;
    if (p->byte_level ? !d.byte_level || d.spaces || d.bytes || d.strips : d.byte_level || !d.spaces)
        return wk_fail(err, WK_UNSUPPORTED, "%s: decoder: does not undo what the %s model does; expected %s", name,
                       p->byte_level ? "byte-level" : "byte-fallback",
                       p->byte_level ? "ByteLevel" : "Replace or Metaspace, and ByteFallback");
    return WK_OK;
}
