/* pooling.c: a model that generates as a model of embeddings.
 *
 * Files of embedding models made of a decoder say how their rows are pooled, or the caller does; the architecture
 * records logits as always. What the head reads, the rows behind the last norm, is pooled instead, and the head is
 * taken off the tape: nothing of it is computed or held. An architecture that reads pooling_type itself does all of it.
 */
#include <string.h>

#include "tape/internal.h"

enum { OF_FILE_RANK = 4 /* of pooling_type, whose other values are enum tape_pooling's */ };

/* Does the plugin serve more of pooling_type than that there is none? */
static bool is_own(const struct wk_arch *arch)
{
    for (uint32_t i = 0; i < arch->n_keys; i++)
        if (strcmp(arch->keys[i].name, "pooling_type") == 0 && arch->keys[i].max > 0) return true;
    return false;
}

bool pooling_read(struct builder *b)
{
    static const char *const words[] = { [TAPE_POOL_FILE] = "none",
                                         [TAPE_POOL_MEAN] = "mean",
                                         [TAPE_POOL_FIRST] = "first",
                                         [TAPE_POOL_LAST] = "last",
                                         [OF_FILE_RANK] = "scores" };
    char key[TAPE_NAME + 16], text[MESSAGE_BYTES];
    const struct wk_err err = { text, sizeof text };
    const struct gguf_kv *name = gguf_find(b->p->file, "general.architecture");
    struct gguf_str s = { 0 };
    uint64_t how = 0;
    const bool named = name && name->type == GGUF_STRING && gguf_str(b->p->file, name, &s, NULL) == WK_OK;
    (void)snprintf(key, sizeof key, "%.*s.pooling_type", named && s.len < TAPE_NAME ? (int)s.len : 0,
                   s.data ? s.data : "");
    const struct gguf_kv *kv = gguf_find(b->p->file, key);
    if (kv && gguf_u64(b->p->file, kv, &how, &err) != WK_OK) {
        messages_say(b->messages, WK_INVALID, "%s", text);
        return false;
    }
    if (b->options->pooling && is_own(b->arch) && !kv) {
        messages_say(b->messages, WK_INVALID,
                     "pooling %s was asked for, but the architecture goes by the file alone, which has no %s",
                     words[b->options->pooling], key);
        return false;
    }
    if (b->options->pooling && (is_own(b->arch) || how) && how != b->options->pooling) {
        messages_say(
            b->messages, WK_INVALID,
            "pooling %s was asked for, but the file says how rows are pooled: %s is %llu (%s); ask for no other",
            words[b->options->pooling], key, (unsigned long long)how, how <= OF_FILE_RANK ? words[how] : "unknown");
        return false;
    }
    if (is_own(b->arch)) return true;
    if (how > OF_FILE_RANK) {
        messages_say(b->messages, WK_UNSUPPORTED,
                     "%s is %llu; 0 (the model generates), 1 (mean), 2 (first), 3 (last) and 4 (scores) are served",
                     key, (unsigned long long)how);
        return false;
    }
    b->pooling = how ? (uint32_t)how : b->options->pooling;
    return true;
}

/* The head: operations from the product that makes logits of rows to the end of the tape, each of the one before. What
 * adapters add to the product lies behind it, and is a part of it. */
static uint32_t find_head(const struct tape_program *p)
{
    for (uint32_t i = p->n_ops; i-- > 0;) {
        const struct tape_op *o = &p->ops[i];
        if (o->adapter) continue;
        if (o->kind == WK_OP_LINEAR) return i;
        if (o->kind != WK_OP_OUTPUT && o->kind != WK_OP_UNARY) return TAPE_NONE;
        if (!i || o->in[0] != p->ops[i - 1].out) return TAPE_NONE;
    }
    return TAPE_NONE;
}

/* Tensors that nothing reads any more go, which the file may have all the same. */
static void forget_tensors(struct builder *b)
{
    struct tape_program *p = b->p;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (int k = 0; k < TAPE_IN; k++)
            if (p->ops[i].t[k] != TAPE_NONE && p->ops[i].t[k] >= n) n = p->ops[i].t[k] + 1;
    p->n_tensors = n;
    for (uint64_t i = 0; i < gguf_tensor_count(p->file); i++)
        if (b->tensor_of_file[i] > n) b->tensor_of_file[i] = UINT32_MAX;
}

/* The last token's row makes scores, as many as the file's cls.output has rows. */
static void record_scores(struct builder *b, const struct wk_builder *table, wk_value rows)
{
    uint32_t n, cols, slabs;
    const struct gguf_tensor *t = builder_find_tensor(b->p->file, b->arch, "", "cls.output", ".weight");
    if (!t || !builder_tensor_shape(t, &n, &cols, &slabs)) {
        messages_say(b->messages, WK_INVALID, "cls.output.weight is missing: pooling_type is 4, scores");
        return;
    }
    wk_embedding(table, wk_linear(table, wk_pool(table, rows, WK_POOL_LAST), "cls.output", n, WK_OPTIONAL), 0);
}

void pooling_record(struct builder *b, const struct wk_builder *table)
{
    static const uint32_t pools[] = {
        [TAPE_POOL_MEAN] = WK_POOL_MEAN, [TAPE_POOL_FIRST] = WK_POOL_FIRST, [TAPE_POOL_LAST] = WK_POOL_LAST
    };
    struct tape_program *p = b->p;
    if (!b->pooling || b->messages->status != WK_OK) return;
    const uint32_t head = b->logits != TAPE_NONE && b->embedding == TAPE_NONE ? find_head(p) : TAPE_NONE;
    if (head == TAPE_NONE) {
        messages_say(b->messages, WK_UNSUPPORTED,
                     "%s: rows cannot be pooled: its logits are not made by a product at the end", p->architecture);
        return;
    }
    const uint32_t rows = p->ops[head].in[0];
    for (uint32_t i = head; i < p->n_ops; i++)
        for (int k = 0; k < TAPE_IN; k++) p->values[rows].n_readers -= p->ops[i].in[k] == rows;
    p->n_values = p->ops[head].out;
    p->n_ops = head;
    b->logits = TAPE_NONE;
    b->scope[0] = 0;
    b->layer = TAPE_NONE;
    forget_tensors(b);
    if (b->pooling == OF_FILE_RANK)
        record_scores(b, table, (wk_value){ rows + 1 });
    else
        wk_embedding(table, wk_pool(table, (wk_value){ rows + 1 }, pools[b->pooling]), WK_OUTPUT_L2_NORM);
}
