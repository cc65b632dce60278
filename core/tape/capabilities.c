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
        if (o->kind != WK_OP_ROPE) continue;
        if (file_says(p, "yarn")) return "yarn";
        if (gguf_tensor_find(p->file, long_factors, sizeof long_factors - 1)) return "longrope";
        return o->u.rope.style == WK_ROPE_INTERLEAVED ? "rope_llama" : "rope_neox";
    }
    return found;
}

static const char *attention(const struct tape_program *p)
{
    static const char *const names[4][3] = { { "mha", "gqa", "mqa" },
                                             { "mha swa", "gqa swa", "mqa swa" },
                                             { "mha sinks", "gqa sinks", "mqa sinks" },
                                             { "mha swa sinks", "gqa swa sinks", "mqa swa sinks" } };
    unsigned heads = 0, extras = 0;
    bool found = false;
    for (uint32_t i = 0; i < p->n_kv_layers; i++) {
        const struct tape_op *o = &p->ops[p->kv_layers[i].op];
        if (o->kind != WK_OP_ATTENTION) continue;
        found = true;
        if (o->u.attn.kv_heads != o->u.attn.heads) heads = o->u.attn.kv_heads == 1 ? 2 : 1;
        if (o->u.attn.window) extras |= 1;
        if (o->t[0] != TAPE_NONE) extras |= 2;
    }
    return found ? names[extras][heads] : "none";
}

void tape_describe(const struct tape_program *p, struct tape_capabilities *out)
{
    enum { MAX_TYPES = sizeof out->types / sizeof out->types[0] };
    *out = (struct tape_capabilities){
        .positional = positional(p), .attention = attention(p), .context_max = p->context, .n_vocab = p->n_vocab
    };
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct tape_tensor *t = &p->tensors[i];
        uint32_t k = 0;
        while (k < out->n_types && out->types[k] != t->type->ggml_type) k++;
        if (k == MAX_TYPES) continue;
        if (k == out->n_types) out->types[out->n_types++] = t->type->ggml_type;
        out->type_bytes[k] += t->bytes;
    }
}
