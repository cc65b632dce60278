/* print.c: a tape for people: operations, launches (and why some stand alone), buffers, KV groups. */
#include <string.h>

#include "tape/internal.h"

const char *launch_kind_name(enum launch_kind kind)
{
    static const char *const names[LAUNCH_KINDS] = { "embed",    "product", "attend", "route", "combine",
                                                     "norm_add", "alone",   "state",  "output" };
    return (unsigned)kind < LAUNCH_KINDS ? names[kind] : "?";
}

static const char *rows_name(enum tape_rows rows)
{
    return rows == ROWS_ALL ? "all" : rows == ROWS_LOGITS ? "logits" : "pooled";
}

static void print_embed(const struct tape_op *o, FILE *out)
{
    static const char *const names[WK_EMBED_END] = { "token", "position", "row", "token type" };
    fprintf(out, " by %s", names[o->u.embed.index]);
    if (o->u.embed.index == WK_EMBED_ROW) fprintf(out, " %u", o->u.embed.offset);
}

static void print_fields(const struct tape_op *o, FILE *out)
{
    switch (o->kind) {
    case WK_OP_EMBED: print_embed(o, out); break;
    case WK_OP_LINEAR:
    case WK_OP_EXPERT:
    case WK_OP_LINEAR_HEADS: fprintf(out, " rows %u..%u", o->u.linear.first, o->u.linear.first + o->u.linear.n); break;
    case WK_OP_NORM:
        fprintf(out, " %s eps %g", o->u.norm.kind == WK_NORM_RMS ? "rms" : "layer", (double)o->u.norm.eps);
        break;
    case WK_OP_ROPE:
        fprintf(out, " %s head %u pairs %u mscale %.9g", o->u.rope.style == WK_ROPE_INTERLEAVED ? "pairs" : "halves",
                o->u.rope.head, o->u.rope.n, o->u.rope.mscale);
        if (o->u.rope.temperature_length)
            fprintf(out, " temperature %.9g of %u", o->u.rope.temperature, o->u.rope.temperature_length);
        break;
    case WK_OP_ATTENTION:
        fprintf(out, " heads %u/%u of %u scale %g", o->u.attn.heads, o->u.attn.kv_heads, o->u.attn.head_k,
                (double)o->u.attn.scale);
        if (o->u.attn.window) fprintf(out, " window %u", o->u.attn.window);
        if (o->u.attn.chunk) fprintf(out, " chunk %u", o->u.attn.chunk);
        if (o->u.attn.flags & WK_ATTENTION_BIDIRECTIONAL) fprintf(out, " bidirectional");
        if (o->u.attn.value_in_key) fprintf(out, " values %u of the keys", o->u.attn.value_in_key);
        if (o->u.attn.slopes) fprintf(out, " slopes");
        fprintf(out, " cache %u", o->u.attn.kv_layer);
        if (o->u.attn.softcap > 0) fprintf(out, " softcap %g", (double)o->u.attn.softcap);
        break;
    case WK_OP_ROUTE:
        fprintf(out, " top %u", o->u.route.k);
        if (o->u.route.groups) fprintf(out, " in %u of %u groups", o->u.route.groups_used, o->u.route.groups);
        break;
    case WK_OP_SLICE:
    case WK_OP_CONCAT: {
        const uint32_t groups = o->kind == WK_OP_SLICE ? o->u.slice.groups : o->u.concat.groups;
        if (groups > 1) fprintf(out, " groups %u", groups);
        break;
    }
    case WK_OP_STATE:
        if (o->u.state.kind == WK_STATE_CONV)
            fprintf(out, " kernel %u", o->u.state.kernel);
        else
            fprintf(out, " heads %u/%u of %u x %u", o->u.state.heads, o->u.state.groups, o->u.state.head_v,
                    o->u.state.head_k);
        fprintf(out, " cache %u", o->u.state.kv_layer);
        break;
    case WK_OP_UNARY: fprintf(out, " function %u p %g", o->u.unary.fn, (double)o->u.unary.p); break;
    case WK_OP_GLU: fprintf(out, " function %u", o->u.glu.fn); break;
    default: break;
    }
}

static void print_op(const struct tape_program *p, uint32_t i, FILE *out)
{
    const struct tape_op *o = &p->ops[i];
    fprintf(out, "%5u  %-9s ", i, op_kind_name(o->kind));
    if (o->out != TAPE_NONE) {
        const struct tape_value *v = &p->values[o->out];
        fprintf(out, "%s [", v->name);
        if (v->slots > 1) fprintf(out, "%u x ", v->slots);
        fprintf(out, "%u] %s", v->width, rows_name(v->rows));
        if (v->buffer != TAPE_NONE) fprintf(out, " b%u", v->buffer);
        if (v->tapped) fprintf(out, " tapped");
        fprintf(out, " <-");
    }
    for (int k = 0; k < TAPE_IN; k++)
        if (o->in[k] != TAPE_NONE) fprintf(out, " %s", p->values[o->in[k]].name);
    print_fields(o, out);
    for (int k = 0; k < TAPE_IN; k++) {
        if (o->t[k] == TAPE_NONE) continue;
        const struct tape_tensor *t = &p->tensors[o->t[k]];
        fprintf(out, "  %s(%s %s %u x %u", t->name, tape_role_name(t->role), t->type->name, t->rows, t->cols);
        if (t->slabs > 1) fprintf(out, " x %u", t->slabs);
        fputc(')', out);
    }
    if (o->launch != TAPE_NONE) fprintf(out, "  launch %u", o->launch);
    fputc('\n', out);
}

static void print_launch(const struct tape_program *p, uint32_t i, FILE *out)
{
    const struct tape_launch *l = &p->launches[i];
    fprintf(out, "%5u  %-8s %-6s", i, launch_kind_name(l->kind), rows_name(l->rows));
    for (uint32_t k = 0; k < l->n_ops; k++) {
        const struct tape_op *o = &p->ops[l->ops[k]];
        fprintf(out, "%s%s", k ? " + " : " ", o->out == TAPE_NONE ? op_kind_name(o->kind) : p->values[o->out].name);
    }
    if (l->alone[0]) fprintf(out, "   (%s)", l->alone);
    fputc('\n', out);
}

static void print_launches_a_layer(const struct tape_program *p, FILE *out)
{
    uint32_t n = 0, outside = 0;
    fprintf(out, "launches a layer:");
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const uint32_t layer = p->launches[i].layer;
        if (layer == TAPE_NONE) {
            outside++;
            continue;
        }
        n++;
        if (i + 1 == p->n_launches || p->launches[i + 1].layer != layer) fprintf(out, " %u", n), n = 0;
    }
    fprintf(out, ", outside: %u\n", outside);
}

void tape_print(const struct tape_program *p, FILE *out)
{
    fprintf(out, "%s: context %u, %u tokens, %u layers, %u operations, %u launches\n", p->architecture, p->context,
            p->n_vocab, p->n_layers, p->n_ops, p->n_launches);
    for (uint32_t i = 0; i < p->n_ops; i++) print_op(p, i, out);
    for (uint32_t i = 0; i < p->n_launches; i++) print_launch(p, i, out);
    print_launches_a_layer(p, out);
    for (uint32_t i = 0; i < p->n_buffers; i++)
        fprintf(out, "buffer %u: %llu bytes a row, %s\n", i, (unsigned long long)p->buffers[i].row_bytes,
                rows_name(p->buffers[i].rows));
    for (uint32_t i = 0; i < p->n_groups; i++)
        if (p->groups[i].state)
            fprintf(out, "KV group %u: %u layers of states\n", i, p->groups[i].n_layers);
        else if (p->groups[i].chunk)
            fprintf(out, "KV group %u: %u layers, chunk %u\n", i, p->groups[i].n_layers, p->groups[i].chunk);
        else
            fprintf(out, "KV group %u: %u layers, window %u\n", i, p->groups[i].n_layers, p->groups[i].window);
}
