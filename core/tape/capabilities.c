/* capabilities.c: what the model asks of a worker, read off the finished tape. */
#include <string.h>

#include "tape/internal.h"

static bool file_says(const struct tape_program *p, const char *scaling)
{
    char name[2 * TAPE_NAME];
    struct gguf_str s;
    (void)snprintf(name, sizeof name, "%s.rope.scaling.type", p->architecture);
    const struct gguf_kv *kv = gguf_find(p->file, name);
    return kv && gguf_str(p->file, kv, &s, NULL) == WK_OK && s.len == strlen(scaling) &&
           memcmp(s.data, scaling, (size_t)s.len) == 0;
}

/* Scalings are folded into frequencies while recording; their names are the file's. */
static const char *positional(const struct tape_program *p)
{
    static const char long_factors[] = "rope_factors_long.weight";
    const char *found = "none";
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *o = &p->ops[i];
        if (o->kind == WK_OP_EMBED && o->u.embed.index == WK_EMBED_POSITION) found = "learned";
        if (o->kind == WK_OP_ATTENTION && o->u.attn.slopes) found = "alibi";
        if (o->kind != WK_OP_ROPE) continue;
        if (file_says(p, "yarn")) return "yarn";
        if (gguf_tensor_find(p->file, long_factors, sizeof long_factors - 1)) return "longrope";
        return o->u.rope.style == WK_ROPE_INTERLEAVED ? "rope_llama" : "rope_neox";
    }
    return found;
}

/* How heads share keys and values, then what else attention asks for; a state counts where there is no attention, too.
 */
static void attention(const struct tape_program *p, char out[TAPE_NAME])
{
    enum { MHA, GQA, MQA, MLA };
    static const char *const sharing[] = { "mha", "gqa", "mqa", "mla" };
    bool found = false, window = false, chunk = false, sinks = false, state = false;
    unsigned heads = MHA;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *o = &p->ops[i];
        if (o->kind == WK_OP_STATE) state = true;
        if (o->kind != WK_OP_ATTENTION) continue;
        found = true;
        if (o->u.attn.value_in_key)
            heads = MLA;
        else if (o->u.attn.kv_heads != o->u.attn.heads && heads != MLA)
            heads = o->u.attn.kv_heads == 1 ? MQA : GQA;
        if (o->u.attn.window) window = true;
        if (o->u.attn.chunk) chunk = true;
        if (o->t[0] != TAPE_NONE) sinks = true;
    }
    if (found)
        (void)snprintf(out, TAPE_NAME, "%s%s%s%s%s%s", sharing[heads], window ? " swa" : "", chunk ? " chunked" : "",
                       sinks ? " sinks" : "", p->bidirectional ? " bidirectional" : "", state ? " state" : "");
    else
        (void)snprintf(out, TAPE_NAME, "%s", state ? "state" : "none");
}

void tape_describe(const struct tape_program *p, struct tape_capabilities *out)
{
    enum { MAX_TYPES = sizeof out->types / sizeof out->types[0] };
    *out = (struct tape_capabilities){ .positional = positional(p), .context_max = p->context, .n_vocab = p->n_vocab };
    attention(p, out->attention);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tape_tensor *t = &p->tensors[i];
        uint32_t k = 0;
        while (k < out->n_types && out->types[k] != t->type->ggml_type) k++;
        if (k == MAX_TYPES) continue;
        if (k == out->n_types) out->types[out->n_types++] = t->type->ggml_type;
        out->type_bytes[k] += t->bytes;
    }
}
