/* harmony_parse.c: the model's ids as messages. See harmony.h.
 *
 * The reference's parser refuses what is not as documented; here an answer that a user waits for must come through, so
 * every state takes every token: a message that begins without <|start|>, a header without a channel or without
 * <|message|>, a recipient in either half of the header, with "to=" or without, <|constrain|> glued to the word before
 * it, <|return|> in the middle of an output. */
#include "harmony/harmony.h"

#include <stdio.h>
#include <string.h>

enum { MARK_CHANNEL = '\1', MARK_CONSTRAIN = '\2', MAX_WORDS = 16 };

bool harmony_find_ids(const struct tokenizer *t, struct harmony_ids *out)
{
    const struct {
        const char *text;
        uint32_t *id;
    } wanted[] = { { "<|start|>", &out->start },
                   { "<|end|>", &out->end },
                   { "<|message|>", &out->message },
                   { "<|channel|>", &out->channel },
                   { "<|constrain|>", &out->constrain },
                   { "<|return|>", &out->done },
                   { "<|call|>", &out->call } };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].id = tokenizer_find(t, wanted[i].text, strlen(wanted[i].text));
        if (*wanted[i].id == TOKEN_NONE || tokenizer_type(t, *wanted[i].id) == TOKEN_NORMAL) return false;
    }
    return true;
}

bool harmony_calls(const struct harmony_header *h)
{
    return h->role == HARMONY_ASSISTANT && h->recipient[0] && strcmp(h->recipient, "all") != 0;
}
bool harmony_visible(const struct harmony_header *h)
{
    return h->role == HARMONY_ASSISTANT && !harmony_calls(h) &&
           (h->channel == HARMONY_FINAL || h->channel == HARMONY_COMMENTARY);
}

/* ---- headers ------------------------------------------------------------------------------------------- */

struct word {
    const char *text;
    size_t len;
};

static bool is_mark(char c) { return c == MARK_CHANNEL || c == MARK_CONSTRAIN; }
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool word_is(struct word w, const char *text)
{
    return w.len == strlen(text) && memcmp(w.text, text, w.len) == 0;
}

static void copy_name(struct word w, char out[HARMONY_NAME])
{
    const size_t n = w.len < HARMONY_NAME ? w.len : HARMONY_NAME - 1;
    memcpy(out, w.text, n);
    out[n] = '\0';
}

static enum harmony_channel channel_of(const char *name)
{
    static const char *const names[] = { "final", "analysis", "commentary" };
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) return (enum harmony_channel)i;
    return name[0] ? HARMONY_OTHER : HARMONY_FINAL;
}

/* Words and marks of a header; a mark ends the word before it. Returns how many, at most MAX_WORDS. */
static size_t cut_words(const char *head, size_t n, struct word *out)
{
    size_t words = 0;
    for (size_t i = 0; i < n && words < MAX_WORDS;) {
        if (is_space(head[i])) {
            i++;
            continue;
        }
        const size_t begin = i++;
        while (!is_mark(head[begin]) && i < n && !is_space(head[i]) && !is_mark(head[i])) i++;
        out[words++] = (struct word){ head + begin, i - begin };
    }
    return words;
}

static bool set_role(struct harmony_header *h, struct word w)
{
    static const char *const names[] = { "system", "developer", "user", "assistant" };
    for (int i = 0; i < 4; i++)
        if (word_is(w, names[i])) {
            h->role = (enum harmony_role)i;
            return true;
        }
    return false;
}

/* Words that nothing marks: a role first, unless it is known; then a recipient without "to=" and a type of content. A
 * lone one is the recipient, as the reference has it, but for the two types that models write. */
static void take_plain(struct harmony_header *h, bool role_known, const struct word *plain, size_t n)
{
    if (n && role_known && word_is(plain[0], "assistant"))
        plain++, n--;
    else if (n && !role_known) {
        if (!set_role(h, plain[0])) {
            h->role = HARMONY_TOOL;
            copy_name(plain[0], h->name);
        }
        plain++, n--;
    }
    if (!n) return;
    const struct word last = plain[n - 1];
    const bool type = h->recipient[0] || n > 1 || word_is(last, "json") || word_is(last, "code");
    if (type && !h->content_type[0]) copy_name(last, h->content_type);
    if (!h->recipient[0] && (n > 1 || !type)) copy_name(plain[type ? n - 2 : n - 1], h->recipient);
}

static void parse_header(struct harmony_parser *p)
{
    struct harmony_header *h = &p->header;
    struct word words[MAX_WORDS], plain[MAX_WORDS];
    const size_t n = cut_words(p->head, p->n, words);
    size_t n_plain = 0;
    *h = (struct harmony_header){ .role = HARMONY_ASSISTANT };
    for (size_t i = 0; i < n; i++) {
        const bool mark = is_mark(words[i].text[0]);
        if (mark && i + 1 < n && !is_mark(words[i + 1].text[0])) {
            const bool channel = words[i].text[0] == MARK_CHANNEL;
            copy_name(words[i + 1], channel ? h->channel_name : h->content_type);
            h->constrained = h->constrained || !channel;
            i++;
        } else if (!mark && words[i].len > 3 && memcmp(words[i].text, "to=", 3) == 0)
            copy_name((struct word){ words[i].text + 3, words[i].len - 3 }, h->recipient);
        else if (!mark)
            plain[n_plain++] = words[i];
    }
    h->channel = channel_of(h->channel_name);
    take_plain(h, p->role_known, plain, n_plain);
}

/* The length of the channel's name at the beginning of text; models that forget <|message|> forget
 * the space as well. */
static size_t channel_length(const char *text, size_t n)
{
    static const char *const names[] = { "final", "analysis", "commentary" };
    for (int i = 0; i < 3; i++)
        if (n >= strlen(names[i]) && memcmp(text, names[i], strlen(names[i])) == 0) return strlen(names[i]);
    size_t len = 0;
    while (len < n && !is_space(text[len])) len++;
    return len;
}

/* A header that turns out to be none: the text that stands in it, behind the channel's name if there is one, is
 * content. */
static struct token_bytes header_as_text(struct harmony_parser *p)
{
    static const char role[] = "assistant";
    const char *mark = memrchr(p->head, MARK_CHANNEL, p->n);
    size_t at = mark ? (size_t)(mark - p->head) + 1 : 0, n = 0;
    p->header = (struct harmony_header){ .role = HARMONY_ASSISTANT };
    if (mark) {
        const size_t len = channel_length(p->head + at, p->n - at);
        copy_name((struct word){ p->head + at, len }, p->header.channel_name);
        p->header.channel = channel_of(p->header.channel_name);
        at += len;
    } else if (p->n >= sizeof role - 1 && memcmp(p->head, role, sizeof role - 1) == 0)
        at = sizeof role - 1;
    while (at < p->n && is_space(p->head[at])) at++;
    for (; at < p->n; at++) /* control tokens leave nothing behind */
        if (!is_mark(p->head[at])) p->head[n++] = p->head[at];
    p->n = 0;
    return (struct token_bytes){ p->head, n };
}

/* ---- states -------------------------------------------------------------------------------------------- */

void harmony_begin(struct harmony_parser *p, const struct harmony_ids *ids, bool prompted)
{
    *p = (struct harmony_parser){ .ids = *ids,
                                  .state = prompted ? HARMONY_IN_HEADER : HARMONY_BETWEEN,
                                  .role_known = prompted };
}

static void enter_header(struct harmony_parser *p, bool role_known)
{
    p->state = HARMONY_IN_HEADER;
    p->role_known = role_known;
    p->n = 0;
}

/* True: it fits, with the 0 that nothing needs. */
static bool add_to_header(struct harmony_parser *p, const char *bytes, size_t n)
{
    if (n > sizeof p->head - p->n) return false;
    memcpy(p->head + p->n, bytes, n);
    p->n += n;
    return true;
}

static size_t end_message(struct harmony_parser *p, enum harmony_end end, struct harmony_event *out)
{
    p->state = HARMONY_BETWEEN;
    *out = (struct harmony_event){ .kind = HARMONY_END, .end = end };
    return 1;
}

/* A header that ends without <|message|>. */
static size_t drop_header(struct harmony_parser *p, enum harmony_end end, struct harmony_event *out)
{
    const struct token_bytes text = header_as_text(p);
    p->state = HARMONY_BETWEEN;
    if (!text.len) return 0;
    out[0] = (struct harmony_event){ .kind = HARMONY_BEGIN };
    out[1] = (struct harmony_event){ .kind = HARMONY_TEXT, .text = text };
    return 2 + end_message(p, end, out + 2);
}

/* What is open ends. */
static size_t close_open(struct harmony_parser *p, enum harmony_end end, struct harmony_event *out)
{
    if (p->state == HARMONY_IN_CONTENT) return end_message(p, end, out);
    return p->state == HARMONY_IN_HEADER ? drop_header(p, end, out) : 0;
}

static size_t push_text(struct harmony_parser *p, struct token_bytes piece, struct harmony_event *out)
{
    size_t n = 0;
    if (!piece.len) return 0;
    if (p->state == HARMONY_BETWEEN) enter_header(p, true); /* it may be one whose <|start|> is missing */
    if (p->state == HARMONY_IN_HEADER) {
        if (add_to_header(p, piece.data, piece.len)) return 0;
        const struct token_bytes text = header_as_text(p); /* no header is as long as this */
        p->state = HARMONY_IN_CONTENT;
        out[n++] = (struct harmony_event){ .kind = HARMONY_BEGIN };
        if (text.len) out[n++] = (struct harmony_event){ .kind = HARMONY_TEXT, .text = text };
    }
    out[n++] = (struct harmony_event){ .kind = HARMONY_TEXT, .text = piece };
    return n;
}

static size_t push_mark(struct harmony_parser *p, char mark, struct harmony_event *out)
{
    size_t n = 0;
    if (p->state == HARMONY_IN_CONTENT) {
        if (mark == MARK_CONSTRAIN) return 0; /* means nothing there */
        n = end_message(p, HARMONY_CUT, out);
    }
    if (p->state == HARMONY_BETWEEN) enter_header(p, true);
    (void)add_to_header(p, &mark, 1);
    return n;
}

static size_t push_message(struct harmony_parser *p, struct harmony_event *out)
{
    if (p->state == HARMONY_IN_CONTENT) return 0; /* twice */
    if (p->state == HARMONY_BETWEEN) enter_header(p, true);
    parse_header(p);
    p->n = 0;
    p->state = HARMONY_IN_CONTENT;
    *out = (struct harmony_event){ .kind = HARMONY_BEGIN };
    return 1;
}

size_t harmony_push(struct harmony_parser *p, uint32_t id, struct token_bytes piece,
                    struct harmony_event out[HARMONY_EVENTS])
{
    const struct harmony_ids *ids = &p->ids;
    if (id == ids->start) {
        const size_t n = close_open(p, HARMONY_CUT, out);
        enter_header(p, false);
        return n;
    }
    if (id == ids->end) return close_open(p, HARMONY_ENDED, out);
    if (id == ids->done) return close_open(p, HARMONY_DONE, out);
    if (id == ids->call) return close_open(p, HARMONY_CALLED, out);
    if (id == ids->channel) return push_mark(p, MARK_CHANNEL, out);
    if (id == ids->constrain) return push_mark(p, MARK_CONSTRAIN, out);
    return id == ids->message ? push_message(p, out) : push_text(p, piece, out);
}

bool harmony_holds(const struct harmony_parser *p) { return p->state == HARMONY_IN_HEADER && p->n > 0; }

size_t harmony_finish(struct harmony_parser *p, struct harmony_event out[HARMONY_EVENTS])
{
    return close_open(p, HARMONY_CUT, out);
}
