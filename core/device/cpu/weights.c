/* weights.c: what the executor keeps of the file.
 *
 * A matrix is kept as packed tiles, but opening packs nothing: the thread that first needs a tile packs it, straight
 * from the mapping, so a model is ready at once and pays page by page. Small vectors (norms, biases, sinks) become F32
 * at open. Embedding tables stay in the file; a step reads a handful of their rows. Every read of the mapping is
 * guarded: a file that shrinks fails the step, not the process. */
#include "device/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/format.h"
#include "gguf/gguf.h"
#include "gguf/guard.h"
#include "plugin/call.h"
#include "plugin/guarded.h"

static uint64_t row_bytes(const struct tape_tensor *t)
{
    return (uint64_t)(t->cols / t->type->block) * t->type->block_bytes;
}

static const uint8_t *tensor_bytes(const struct tape_tensor *t) { return gguf_tensor_data(t->in, t->file); }

/* A router always gets F32: a choice between experts is not to hang on the rounding of 8-bit activations. */
static uint32_t activation_of(const struct executor *x, const struct tape_tensor *t)
{
    return !x->o.exact && (t->type->activations & WK_ACTIVATION_Q8) && t->role != ROLE_ROUTER ? WK_ACTIVATION_Q8
                                                                                              : WK_ACTIVATION_F32;
}

const struct matrix *weights_matrix(const struct executor *x, uint32_t tensor, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < x->n_matrices; i++) {
        const struct matrix *m = &x->matrices[i];
        if (m->tensor == &x->program->tensors[tensor] && m->first == first && m->n == n) return m;
    }
    return NULL;
}

static void add_matrix(struct executor *x, uint32_t tensor, uint32_t first, uint32_t n)
{
    if (weights_matrix(x, tensor, first, n)) return;
    const struct tape_tensor *t = &x->program->tensors[tensor];
    struct matrix *m = &x->matrices[x->n_matrices++];
    struct plugin_call call;
    PLUGIN_CALL(&call, t->type->tile_bytes, "tile_bytes");
    const uint64_t tile_bytes = t->type->tile_bytes(t->cols);
    plugin_call_end(&call);
    *m = (struct matrix){ .tensor = t,
                          .type = t->type,
                          .product = format_product_for(t->type, x->o.isa),
                          .first = first,
                          .n = n,
                          .k = t->cols,
                          .slabs = t->slabs,
                          .tiles = (n + WK_TILE_ROWS - 1) / WK_TILE_ROWS,
                          .act = activation_of(x, t),
                          .tile_bytes = tile_bytes };
}

/* Tensors that an operation reads as a vector: all but embedding tables, matrices and convolutions. */
static bool is_vector(const struct tape_op *op, uint32_t slot)
{
    if (op->kind == WK_OP_EMBED) return false;
    return (op->kind != WK_OP_LINEAR && op->kind != WK_OP_EXPERT && op->kind != WK_OP_LINEAR_HEADS &&
            op->kind != WK_OP_STATE) ||
           slot > 0;
}

wk_status weights_find(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) most += p->launches[i].n_seg;
    x->matrices = list_new(x, most, sizeof *x->matrices);
    x->vectors = list_new(x, p->n_tensors, sizeof *x->vectors);
    x->is_vector = list_new(x, p->n_tensors, sizeof *x->is_vector);
    if (!x->matrices || !x->vectors || !x->is_vector)
        return wk_fail(err, WK_NO_MEMORY, "out of memory for the list of %u matrices", most);
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        for (uint32_t s = 0; s < l->n_seg; s++) add_matrix(x, l->seg[s].tensor, l->seg[s].first, l->seg[s].n);
    }
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t s = 0; s < TAPE_IN; s++)
            if (p->ops[i].t[s] != TAPE_NONE && is_vector(&p->ops[i], s)) x->is_vector[p->ops[i].t[s]] = true;
    return WK_OK;
}

static bool is_conv(const struct tape_program *p, uint32_t layer)
{
    const struct tape_op *op = &p->ops[p->kv_layers[layer].op];
    return op->kind == WK_OP_STATE && op->u.state.kind == WK_STATE_CONV;
}

static uint64_t tensor_values(const struct tape_tensor *t) { return (uint64_t)t->rows * t->cols * t->slabs; }

void weights_carve(struct executor *x, struct carve *weights, struct carve *workspace)
{
    const struct tape_program *p = x->program;
    uint64_t offset = 0, tiles = 0, widest = 0;
    for (uint32_t i = 0; i < x->n_matrices; i++) {
        struct matrix *m = &x->matrices[i];
        m->offset = offset;
        m->state = tiles;
        offset += m->tile_bytes * m->tiles * m->slabs;
        tiles += (uint64_t)m->tiles * m->slabs;
        if (row_bytes(m->tensor) > widest) widest = row_bytes(m->tensor);
    }
    x->n_tiles = tiles;
    x->tiles = carve(weights, offset, 1);
    for (uint32_t t = 0; t < p->n_tensors; t++)
        if (x->is_vector[t]) x->vectors[t] = carve(weights, tensor_values(&p->tensors[t]), sizeof(float));
    for (uint32_t i = 0; i < p->n_kv_layers; i++) {
        const uint32_t t = p->ops[p->kv_layers[i].op].t[0];
        if (is_conv(p, i)) x->conv[i] = carve(weights, tensor_values(&p->tensors[t]), sizeof(float));
    }
    x->tile_state = carve(workspace, tiles, 1);
    x->zero_row = carve(workspace, widest, 1);
}

static wk_status load_vector(const struct tape_tensor *t, float *y, const struct wk_err *err)
{
    const uint64_t n = tensor_values(t);
    return guarded_dequantize(t->type, y, tensor_bytes(t), n, n / t->type->block * t->type->block_bytes, err);
}

/* From [width][kernel] to [kernel][width]. */
static wk_status load_conv(const struct tape_tensor *t, float *y, const struct wk_err *err)
{
    float *rows = malloc(tensor_values(t) * sizeof *rows);
    if (!rows) return wk_fail(err, WK_NO_MEMORY, "out of memory for the weights of a convolution, %s", t->name);
    const wk_status s = load_vector(t, rows, err);
    for (uint64_t c = 0; !s && c < t->rows; c++)
        for (uint64_t i = 0; i < t->cols; i++) y[i * t->rows + c] = rows[c * t->cols + i];
    free(rows);
    return s;
}

wk_status weights_load_vectors(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    wk_status s = WK_OK;
    for (uint32_t i = 0; !s && i < p->n_tensors; i++)
        if (x->is_vector[i]) s = load_vector(&p->tensors[i], x->vectors[i], err);
    for (uint32_t i = 0; !s && i < p->n_kv_layers; i++)
        if (x->conv[i]) s = load_conv(&p->tensors[p->ops[p->kv_layers[i].op].t[0]], x->conv[i], err);
    return s;
}

static void fail_step(struct executor *x, wk_status status, const char *text)
{
    int32_t none = WK_OK;
    if (atomic_compare_exchange_strong(&x->error, &none, status))
        (void)snprintf(x->error_text, sizeof x->error_text, "%s", text);
}

struct pack {
    const struct matrix *m;
    void *tile;
    const void *rows[WK_TILE_ROWS];
};

static void run_pack(void *arg)
{
    const struct pack *p = arg;
    format_pack(p->m->type, p->tile, p->rows, p->m->k);
}

static bool pack_tile(struct executor *x, const struct matrix *m, uint32_t slab, uint32_t tile)
{
    const uint64_t bytes = row_bytes(m->tensor);
    const uint32_t first = tile * WK_TILE_ROWS, rows = m->n - first < WK_TILE_ROWS ? m->n - first : WK_TILE_ROWS;
    const uint8_t *src = (const uint8_t *)gguf_tensor_data(m->tensor->in, tape_slab_file(m->tensor, slab)) +
                         tape_slab_first(m->tensor, slab) + (m->first + first) * bytes;
    struct pack p = { .m = m, .tile = x->tiles + m->offset + ((uint64_t)slab * m->tiles + tile) * m->tile_bytes };
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) p.rows[r] = r < rows ? src + r * bytes : x->zero_row;
    char text[200];
    struct wk_err err = { text, sizeof text };
    struct plugin_call call;
    PLUGIN_CALL(&call, m->type->pack, "pack");
    wk_status s = gguf_guarded(run_pack, &p, src, rows * bytes, &err);
    plugin_call_end(&call);
    if (s) fail_step(x, s, text);
    return s == WK_OK;
}

const void *weights_tiles(struct executor *x, const struct matrix *m, uint32_t slab, uint32_t tile, uint32_t n)
{
    const uint64_t at = (uint64_t)slab * m->tiles + tile;
    _Atomic uint8_t *state = x->tile_state + m->state + at;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t now = atomic_load_explicit(&state[i], memory_order_acquire);
        while (now != TILE_READY) {
            /* Decode and prompts deal tiles differently, so two threads may want one tile: one packs, the other waits
             * the microseconds. */
            if (now == TILE_EMPTY && atomic_compare_exchange_strong(&state[i], &now, TILE_PACKING)) {
                bool ok = pack_tile(x, m, slab, tile + i);
                atomic_store_explicit(&state[i], ok ? TILE_READY : TILE_EMPTY, memory_order_release);
                if (!ok) break;
            } else if (atomic_load_explicit(&x->error, memory_order_relaxed))
                break;
            now = atomic_load_explicit(&state[i], memory_order_acquire);
        }
    }
    return x->tiles + m->offset + at * m->tile_bytes;
}

void weights_row(struct executor *x, const struct row_op *r, uint64_t row, float *y)
{
    const uint32_t width = (uint32_t)(r->row_bytes / r->type->block_bytes * r->type->block);
    char text[200];
    struct wk_err err = { text, sizeof text };
    wk_status s = guarded_dequantize(r->type, y, r->table + row * r->row_bytes, width, r->row_bytes, &err);
    if (s) fail_step(x, s, text);
}
