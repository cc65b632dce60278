/* debug_kernels.c: `worker debug kernels`: which kernel each product of a model gets on a GPU that need not be there.
 *
 * Products are what the recorded pass joins into launches, cut as the CUDA device cuts them: segments that one module
 * takes together are one call. The module of their formats says the kernel (wk_quant_cuda.choice). Inputs are taken as
 * acts: where a module norms several rows itself, the kernel is the same. */
#include <stdio.h>
#include <string.h>

#include <worker/quant_cuda.h>

#include "commands.h"
#include "debug.h"
#include "device/cuda_calls.h"
#include "device/cuda_like.h"
#include "errors.h"
#include "setup.h"

enum { MAX_SEGMENTS = 4, NAMES = 512 };

/* One call of a module, as far as its answer depends on it. */
struct shape {
    uint32_t n_seg, k, type[MAX_SEGMENTS], n[MAX_SEGMENTS];
    uint32_t glu, map, residual;
    uint32_t n_experts, top_k; /* 0: dense */
};
struct kernels {
    const struct model *model;
    const struct plugin_registry *plugins;
    const struct wk_cuda_device *device;
    const struct tape_launch *launch;
    uint32_t seg; /* first segment of the call, of the launch */
};

static const struct tape_tensor *tensor_of(const struct kernels *c, uint32_t seg)
{
    return &c->model->program->tensors[c->launch->seg[seg].tensor];
}

static int find_module(const struct kernels *c, uint32_t seg, const struct wk_quant_cuda **module)
{
    const struct tape_tensor *t = tensor_of(c, seg);
    ERROR_TEXT(err);
    const wk_status status = plugin_find_cuda(c->plugins, t->type->ggml_type, module, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    if (!(*module)->choice)
        return fail(CODE_INVALID_REQUEST, "%s: the CUDA module of %s does not tell which kernels it chooses", t->name,
                    (*module)->id);
    return EXIT_DONE;
}

/* The call that begins with segment c->seg. */
static int shape_of(const struct kernels *c, struct shape *s, const struct wk_quant_cuda **module)
{
    const struct tape_program *p = c->model->program;
    const struct tape_launch *l = c->launch;
    *s = (struct shape){ .k = tensor_of(c, c->seg)->cols };
    for (uint32_t g = c->seg; g < l->n_seg; g++) {
        const struct tape_tensor *t = tensor_of(c, g);
        const struct wk_quant_cuda *own;
        const int result = find_module(c, g, &own);
        if (result) return result;
        s->type[s->n_seg] = t->type->ggml_type;
        s->n[s->n_seg] = l->seg[g].n;
        if (s->n_seg == 0)
            *module = own;
        else if (own != *module || (tape_launch_slabs(l) && s->type[s->n_seg] != s->type[0]) ||
                 !module_serves(own, s->type, s->n_seg + 1))
            break;
        s->n_seg++;
    }
    for (uint32_t g = s->n_seg; g < MAX_SEGMENTS; g++) s->type[g] = s->n[g] = 0;
    if (l->glu != TAPE_NONE && s->n_seg == 2) s->glu = p->ops[l->glu].u.glu.fn;
    s->map = l->n_map ? p->ops[l->map[0]].u.unary.fn : 0;
    s->residual = l->add != TAPE_NONE;
    if (tape_launch_slabs(l)) {
        s->n_experts = tensor_of(c, c->seg)->slabs;
        s->top_k = l->heads ? l->heads : p->values[l->route].slots;
    }
    return EXIT_DONE;
}

/* Prints what `rows` rows get. */
static int print_rows(const struct kernels *c, const struct shape *s, const struct wk_quant_cuda *module, uint32_t rows)
{
    static const uint32_t some; /* what says that there is a choice of experts, or a residual */
    struct wk_cuda_choice choice = { .struct_size = sizeof choice };
    struct wk_cuda_product q = { .struct_size = sizeof q,
                                 .rows = rows * (s->top_k ? s->top_k : 1),
                                 .k = s->k,
                                 .n_seg = s->n_seg,
                                 .glu = s->glu,
                                 .map[0].fn = s->map,
                                 .residual = s->residual ? (const float *)(const void *)&some : NULL,
                                 .expert = s->top_k ? &some : NULL,
                                 .groups = s->top_k ? &some : NULL,
                                 .n_experts = s->n_experts,
                                 .top_k = s->top_k,
                                 .x_items = 1 };
    for (uint32_t i = 0; i < s->n_seg; i++)
        q.seg[i] = (struct wk_cuda_segment){ .ggml_type = s->type[i],
                                             .n = s->n[i],
                                             .out.kind = s->glu ? WK_CUDA_OUT_ACT : WK_CUDA_OUT_F32 };
    ERROR_TEXT(err);
    const wk_status status = module_choice(module, c->device, &q, &choice, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    (void)printf("  %3u rows: %s", rows, choice.kernel);
    if (choice.rows < q.rows) (void)printf(" for %u rows at a time", choice.rows);
    if (choice.n_seg < q.n_seg) (void)printf(" for the first %u of %u matrices", choice.n_seg, q.n_seg);
    if (choice.cluster > 1)
        (void)printf(", %u clusters of %u", choice.grid_x / choice.cluster * choice.grid_y, choice.cluster);
    else
        (void)printf(", %u blocks", choice.grid_x * choice.grid_y);
    (void)printf(" of %u threads, %u bytes of shared memory", choice.threads, choice.shared);
    (void)printf(choice.why_not[0] ? "; not %s\n" : "\n", choice.why_not);
    return EXIT_DONE;
}

/* Launches of the same shape as the call at hand: how many in all; before: also those before it. */
static int count_alike(const struct kernels *c, const struct shape *s, uint32_t *before, uint32_t *all)
{
    const struct tape_program *p = c->model->program;
    *before = *all = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        struct kernels other = { c->model, c->plugins, c->device, &p->launches[i], 0 };
        struct shape its;
        const struct wk_quant_cuda *module;
        if (other.launch->kind != LAUNCH_PRODUCT) continue;
        for (; other.seg < other.launch->n_seg; other.seg += its.n_seg) {
            const int result = shape_of(&other, &its, &module);
            if (result) return result;
            if (memcmp(&its, s, sizeof its)) continue;
            ++*all;
            if (other.launch < c->launch || (other.launch == c->launch && other.seg < c->seg)) ++*before;
        }
    }
    return EXIT_DONE;
}

static int print_call(const struct kernels *c, const struct shape *s, const struct wk_quant_cuda *module)
{
    uint32_t before, all;
    int result = count_alike(c, s, &before, &all);
    if (result || before) return result; /* it was printed with the first of its shape */
    for (uint32_t i = 0; i < s->n_seg; i++) {
        const struct tape_tensor *t = tensor_of(c, c->seg + i);
        (void)printf("%s%s %s %u x %u", i ? " + " : "", t->name, t->type->name, s->n[i], s->k);
    }
    if (s->top_k) (void)printf(", %u of %u %s", s->top_k, s->n_experts, c->launch->heads ? "heads" : "experts");
    (void)printf(s->glu ? ", gated" : "");
    (void)printf(all > 1 ? "; %u launches alike\n" : "\n", all);
    for (uint32_t rows = 1; rows <= WK_CUDA_FEW && !result; rows *= 2) result = print_rows(c, s, module, rows);
    return result;
}

int debug_kernels(const struct options *o)
{
    const char *name = option_text(o, OPT_DEVICE_LIKE);
    struct opened x;
    int result = open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS, .max_logits_rows = 1 }, &x);
    const struct tape_program *p = result ? NULL : x.model->program;
    struct kernels c = { x.model, x.plugins, cuda_like(name), NULL, 0 };
    if (!result)
        (void)printf("%s: %u multiprocessors of %u bytes of shared memory, %u a block; %s clusters, %s wgmma\n", name,
                     c.device->processors, c.device->processor_bytes, c.device->block_bytes,
                     c.device->can & WK_CUDA_CAN_CLUSTERS ? "has" : "no",
                     c.device->can & WK_CUDA_CAN_WGMMA ? "has" : "no");
    for (uint32_t i = 0; !result && i < p->n_launches; i++) {
        struct shape s = { 0 };
        const struct wk_quant_cuda *module = NULL;
        c.launch = &p->launches[i];
        if (c.launch->kind != LAUNCH_PRODUCT) continue;
        for (c.seg = 0; !result && c.seg < c.launch->n_seg; c.seg += s.n_seg) {
            result = shape_of(&c, &s, &module);
            if (!result) result = print_call(&c, &s, module);
        }
    }
    opened_close(&x);
    return result;
}
