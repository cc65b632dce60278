/* custom.c: custom operations of an architecture's plugin: found with the program, checked, enqueued by the plugin's
 * own function. It launches plain kernels: each waits for all that came before, and what comes behind waits for it. */
#include "device/cuda/executor.h"

#include "device/cuda_calls.h"

wk_status cuda_find_customs(struct executor *x, const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *op = &p->ops[i];
        if (op->kind != WK_OP_CUSTOM) continue;
        const char *value = p->values[op->out].name, *name = op->u.custom.def->name;
        char text[400] = "the worker was not told where the plugins' code is";
        if (!x->o.find_custom || x->o.find_custom(x->o.find_user, p->architecture, name, &x->arch, &x->customs[i],
                                                  &(struct wk_err){ text, sizeof text }))
            return wk_fail(err, WK_UNSUPPORTED,
                           "%s: operation \"%s\" is the plugin's own and has code for the CPU alone (%s); use --device "
                           "cpu",
                           value, name, text);
    }
    return WK_OK;
}

wk_status cuda_custom_stage(struct executor *x, const struct tape_launch *l, struct cuda_stage *s,
                            const struct wk_err *err)
{
    const struct tape_op *op = &x->program->ops[l->ops[0]];
    struct cuda_custom_stage *c = &s->custom;
    *c = (struct cuda_custom_stage){ .op = op, .run = x->customs[l->ops[0]]->run, .out = &x->values[op->out] };
    bool whole = s->rows == ROWS_ALL && cuda_all_f32(c->out);
    for (; c->n_in < TAPE_IN && op->in[c->n_in] != TAPE_NONE; c->n_in++) {
        c->in[c->n_in] = &x->values[op->in[c->n_in]];
        whole = whole && cuda_all_f32(c->in[c->n_in]);
    }
    return whole ? WK_OK
                 : wk_fail(err, WK_INTERNAL, "%s: a custom operation's rows are not there",
                           x->program->values[op->out].name);
}

wk_status cuda_enqueue_custom(struct executor *x, const struct cuda_stage *s, uint32_t rows, const struct wk_err *err)
{
    const struct cuda_custom_stage *c = &s->custom;
    const struct tape_op *op = c->op;
    struct wk_custom_cuda_call call = { .struct_size = sizeof call,
                                        .n_rows = rows,
                                        .n_in = c->n_in,
                                        .position = x->prepare.position,
                                        .params = op->u.custom.params,
                                        .params_bytes = op->u.custom.params_bytes,
                                        .out_width = c->out->width,
                                        .out = (float *)(void *)c->out->data,
                                        .out_stride = c->out->stride };
    for (uint32_t i = 0; i < c->n_in; i++) {
        call.in[i] = (const float *)(const void *)c->in[i]->data;
        call.in_stride[i] = c->in[i]->stride;
        call.in_width[i] = c->in[i]->width;
    }
    for (; call.n_tensors < TAPE_IN && op->t[call.n_tensors] != TAPE_NONE; call.n_tensors++)
        call.tensor[call.n_tensors] = x->vectors[op->t[call.n_tensors]];
    return custom_run(c->run, &call, x->stream, err);
}
