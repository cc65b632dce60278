/* planning.c: see planning.h. What is planned is what `worker run` takes, or with --max-sequences what `worker serve`
 * does. */
#include "planning.h"

#include "errors.h"

int planning_device(const struct options *o, const struct device_ops **device, struct planning *p)
{
    const struct wk_err why = { p->why_gpu, sizeof p->why_gpu };
    p->device = option_text(o, OPT_DEVICE);
    p->max_sequences = option_u32(o, OPT_MAX_SEQUENCES) ? option_u32(o, OPT_MAX_SEQUENCES) : 1;
    const int result = find_device(o, device);
    if (result) return result;
    if ((*device)->probe && (*device)->probe(option_u32(o, OPT_GPU_DEVICE), &p->gpu, &why)) {
        p->gpu = (struct device_info){ 0 };
        p->gpu_missing = true;
        return EXIT_DONE;
    }
    return device_available(*device, &p->gpu, &p->available);
}

void planning_file(const struct options *o, const struct device_ops *device, const struct plugin_registry *plugins,
                   struct gguf *file, struct planning *p)
{
    const bool serves = option_u32(o, OPT_MAX_SEQUENCES);
    const struct model_needs needs = serves ? served_needs(p->max_sequences, option_u32(o, OPT_BATCH_TOKENS))
                                            : (struct model_needs){ .max_rows = STEP_ROWS_BEST, .max_logits_rows = 1 };
    const struct wk_err why = { p->why, sizeof p->why };
    struct model_options options;
    p->model = NULL;
    p->missing.n = 0;
    p->why[0] = '\0';
    capabilities_missing(file, plugins, &p->missing);
    model_options_from(o, device, plugins, &needs, &options);
    p->status = model_plan(file, plugins, &options, &p->model, &why);
    p->fits = p->model && (!p->available || p->model->plan.total <= p->available);
}

void planning_drop(struct planning *p)
{
    missing_free(&p->missing);
    model_close(p->model);
    p->model = NULL;
}
