/* index.c: a vocabulary arranged for masks: its tokens as a tree of bytes. Slices of it are made in index_slice.c. */
#include "grammar/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

struct token_bytes grammar_index_bytes(const struct grammar_index *x, uint32_t id)
{
    return id < x->n_vocab ? x->bytes[id] : (struct token_bytes){ NULL, 0 };
}

uint32_t grammar_index_longest(const struct grammar_index *x, const char *bytes, size_t n)
{
    uint32_t id = TOKEN_NONE, depth = 0;
    for (uint32_t i = 0; i < x->all.n && depth < n;) {
        const struct trie_node *node = &x->all.nodes[i];
        if (node->depth <= depth) break; /* the children of the last one are over */
        if (node->byte != (unsigned char)bytes[depth]) {
            i = node->skip;
            continue;
        }
        if (node->token) id = node->token - 1;
        depth++;
        i++;
    }
    return id;
}

bool index_ends(const struct grammar_index *x, uint32_t id)
{
    for (uint32_t i = 0; i < x->n_ends; i++)
        if (x->ends[i] == id) return true;
    return false;
}

void grammar_index_close(struct grammar_index *x)
{
    if (!x) return;
    for (uint32_t i = 0; i < x->n_slices; i++) index_slice_close(&x->slices[i]);
    free(x->bytes);
    free(x->ordinary);
    free(x->same);
    free(x->ends);
    free(x->all.nodes);
    free(x);
}

/* ---- trees --------------------------------------------------------------------------------------------------------
 */

int entry_order(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    const int order = memcmp(p->bytes, q->bytes, p->len < q->len ? p->len : q->len);
    if (order) return order;
    if (p->len != q->len) return p->len < q->len ? -1 : 1;
    return (p->id > q->id) - (p->id < q->id);
}

/* Bytes that both begin with. */
static uint32_t common(const struct entry *a, const struct entry *b)
{
    uint32_t n = 0;
    while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

bool entry_trie(const struct entry *e, uint32_t n, const uint32_t *same, uint32_t *open, struct trie *out)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += e[i].len - (i ? common(&e[i - 1], &e[i]) : 0);
    out->nodes = malloc((count + 1) * sizeof *out->nodes);
    if (!out->nodes) return false;
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t shared = i ? common(&e[i - 1], &e[i]) : 0;
        while (depth > shared) out->nodes[open[--depth]].skip = out->n;
        for (; depth < e[i].len; depth++) {
            open[depth] = out->n;
            out->nodes[out->n++] = (struct trie_node){ .depth = (uint16_t)(depth + 1), .byte = e[i].bytes[depth] };
        }
        out->nodes[out->n - 1].token = e[i].id + 1;
        out->nodes[out->n - 1].shared = same && same[e[i].id];
    }
    while (depth) out->nodes[open[--depth]].skip = out->n;
    return true;
}

/* ---- tokens
 * ------------------------------------------------------------------------------------------------------------ */

/* Marks of chat formats that some files call user-defined: as text they can be spelt by other tokens, and what watches
 * for their ids must not meet them inside a string. */
static bool is_mark(struct token_bytes b) { return b.len > 2 && b.data[0] == '<' && b.data[b.len - 1] == '>'; }

static struct token_bytes bytes_of(const struct tokenizer *t, uint32_t id)
{
    struct token_bytes b = { NULL, 0 };
    const enum token_type type = tokenizer_type(t, id);
    if (tokenizer_ends(t, id) || (type != TOKEN_NORMAL && type != TOKEN_BYTE && type != TOKEN_USER_DEFINED)) return b;
    b = tokenizer_piece(t, id, false);
    if (type == TOKEN_USER_DEFINED && is_mark(b)) b.len = 0;
    return b.len < UINT16_MAX ? b : (struct token_bytes){ NULL, 0 };
}

/* Sorts the ordinary tokens; of those with the same bytes one stays, and the others are listed. */
static uint32_t collect_entries(struct grammar_index *x, struct entry *e)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t id = 0; id < x->n_vocab; id++)
        if (x->bytes[id].len)
            e[n++] = (struct entry){ (const unsigned char *)x->bytes[id].data, (uint32_t)x->bytes[id].len, id, 0 };
    if (n) qsort(e, n, sizeof *e, entry_order);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t before = kept ? e[kept - 1].id : 0;
        if (kept && e[kept - 1].len == e[i].len && !memcmp(e[kept - 1].bytes, e[i].bytes, e[i].len)) {
            x->same[e[i].id] = x->same[before];
            x->same[before] = e[i].id + 1;
        } else {
            e[kept++] = e[i];
        }
        if (e[i].len > x->longest) x->longest = e[i].len;
    }
    return kept;
}

/* Can every text of printable ASCII be written, and end? */
static wk_status check_maskable(const struct grammar_index *x, const struct wk_err *err)
{
    bool single[256] = { false };
    for (uint32_t id = 0; id < x->n_vocab; id++)
        if (x->bytes[id].len == 1) single[(unsigned char)x->bytes[id].data[0]] = true;
    for (uint32_t b = ' '; b <= '~'; b++)
        if (!single[b])
            return wk_fail(err, WK_UNSUPPORTED,
                           "this model's output cannot be constrained: its vocabulary has no token for the byte 0x%02X "
                           "alone",
                           b);
    if (!x->n_ends)
        return wk_fail(err, WK_UNSUPPORTED,
                       "this model's output cannot be constrained: its vocabulary has no token that ends generation");
    return WK_OK;
}

static bool fill(struct grammar_index *x, const struct tokenizer *t)
{
    size_t n_ends;
    const uint32_t *ends = tokenizer_end_ids(t, &n_ends);
    x->words = (x->n_vocab + 63) / 64;
    x->bytes = calloc(x->n_vocab, sizeof *x->bytes);
    x->ordinary = calloc(x->words, sizeof *x->ordinary);
    x->same = calloc(x->n_vocab, sizeof *x->same);
    x->ends = malloc((n_ends + 1) * sizeof *x->ends);
    if (!x->bytes || !x->ordinary || !x->same || !x->ends) return false;
    for (size_t i = 0; i < n_ends; i++)
        if (ends[i] < x->n_vocab) x->ends[x->n_ends++] = ends[i];
    for (uint32_t id = 0; id < x->n_vocab && id < tokenizer_size(t); id++) {
        x->bytes[id] = bytes_of(t, id);
        if (x->bytes[id].len) x->ordinary[id / 64] |= UINT64_C(1) << id % 64;
    }
    return true;
}

static void find_branches(struct grammar_index *x)
{
    for (uint32_t b = 0, i = 0; b <= 256; b++) {
        while (i < x->all.n && x->all.nodes[i].byte < b) i = x->all.nodes[i].skip;
        x->branches[b] = i;
    }
}

static bool arrange(struct grammar_index *x)
{
    struct entry *e = malloc(x->n_vocab * sizeof *e);
    const uint32_t n = e ? collect_entries(x, e) : 0;
    uint32_t *open = malloc((x->longest + 1) * sizeof *open);
    const bool arranged = e && open && entry_trie(e, n, x->same, open, &x->all) && index_slices(x, e, n, open);
    if (arranged) find_branches(x);
    free(e);
    free(open);
    return arranged;
}

wk_status grammar_index_possible(const struct tokenizer *t, uint32_t n_vocab, const struct wk_err *err)
{
    struct grammar_index *x = calloc(1, sizeof *x);
    if (x) x->n_vocab = n_vocab;
    const wk_status status = x && fill(x, t) ? check_maskable(x, err)
                                             : wk_fail(err, WK_NO_MEMORY, "no memory for the index of a vocabulary");
    grammar_index_close(x);
    return status;
}

wk_status grammar_index_open(const struct tokenizer *t, uint32_t n_vocab, struct grammar_index **out,
                             const struct wk_err *err)
{
    struct grammar_index *x = n_vocab ? calloc(1, sizeof *x) : NULL;
    wk_status status = WK_OK;
    *out = NULL;
    if (!n_vocab || n_vocab > TOKENIZER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "a vocabulary of %u ids cannot be masked", n_vocab);
    if (x) x->n_vocab = n_vocab;
    if (x && fill(x, t)) status = check_maskable(x, err);
    if (!status && (!x || !x->ends || !arrange(x)))
        status = wk_fail(err, WK_NO_MEMORY, "no memory for the index of a vocabulary");
    if (status)
        grammar_index_close(x);
    else
        *out = x;
    return status;
}
