/* unserved.c: one row for each feature of the tape that not every device has. */
#include "device/unserved.h"

#include "tape/tape.h"

static bool value_in_key(const struct tape_program *p, const struct tape_op *o)
{
    (void)p;
    return o->kind == WK_OP_ATTENTION && o->u.attn.value_in_key;
}

static const struct {
    const char *what;
    unsigned devices; /* that do not have it */
    bool (*used)(const struct tape_program *p, const struct tape_op *o);
} rows[] = {
    { "values in keys", DEVICE_CUDA, value_in_key },
};

wk_status device_serves(const struct tape_program *p, enum device_kind device, const struct wk_err *err)
{
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            if (rows[k].devices & device && rows[k].used(p, &p->ops[i]))
                return wk_fail(err, WK_UNSUPPORTED, "%s: %s does not serve %s",
                               p->ops[i].out == TAPE_NONE ? "output" : p->values[p->ops[i].out].name,
                               device == DEVICE_CPU ? "the CPU" : "cuda", rows[k].what);
    return WK_OK;
}
