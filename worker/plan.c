/* plan.c: `worker plan FILE`: the exact bytes that loading would take, before anything is loaded: what `worker run`
 * takes, or with --max-sequences what `worker serve` does, as POST /worker/plan says where its whole KV cache has room.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capabilities.h"
#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "planning.h"
#include "setup.h"

static uint64_t group_bytes(const struct model *m, uint32_t g)
{
    return m->plan.kv_pages[g] * m->plan.kv_page_bytes[g];
}

/* The KV cache by what layers see: a window, a chunk; both 0: all positions; or by states, of the row before each. */
static json_t *kv_groups(const struct model *m)
{
    json_t *groups = json_array();
    for (uint32_t g = 0; m && g < m->program->n_groups; g++) {
        const struct tape_kv_group *k = &m->program->groups[g];
        (void)json_array_append_new(groups, json_pack("{s:I, s:I, s:b, s:I, s:I, s:I}", "window", (json_int_t)k->window,
                                                      "chunk", (json_int_t)k->chunk, "state", k->state, "layers",
                                                      (json_int_t)k->n_layers, "pages", (json_int_t)m->plan.kv_pages[g],
                                                      "bytes", (json_int_t)group_bytes(m, g)));
    }
    return groups;
}

static int print_json(const struct planning *p)
{
    json_t *bytes = json_object(), *missing = json_array(), *reasons = json_array();
    for (int k = 0; p->model && k < MEMORY_KINDS; k++)
        (void)json_object_set_new(bytes, memory_kind_name((enum memory_kind)k),
                                  json_integer((json_int_t)p->model->plan.bytes[k]));
    for (uint32_t i = 0; i < p->missing.n; i++)
        (void)json_array_append_new(missing, json_string(p->missing.sentence[i]));
    if (!p->model)
        (void)json_array_append_new(reasons, json_bytes(p->why, strlen(p->why)));
    else if (!p->fits)
        (void)json_array_append_new(reasons, json_string("needs more memory than is available"));
    if (p->gpu_missing) (void)json_array_append_new(reasons, json_string(p->why_gpu));
    return json_print(json_pack(
        "{s:b, s:s, s:s*, s:s*, s:I, s:I, s:o, s:o, s:I, s:o, s:o, s:o}", "feasible", p->model && p->fits, "device",
        p->device, "gpu", p->gpu.name[0] ? p->gpu.name : NULL, "model", p->model ? p->model->name : NULL, "context",
        (json_int_t)(p->model ? p->model->dev.context : 0), "max_sequences", (json_int_t)p->max_sequences, "bytes",
        bytes, "kv_groups", kv_groups(p->model), "total", (json_int_t)(p->model ? p->model->plan.total : 0),
        "available", p->gpu_missing ? json_null() : json_integer((json_int_t)p->available), "missing", missing,
        "reasons", reasons));
}

/* Where windows, chunks or states make a difference. */
static void print_groups(const struct model *m)
{
    char window[32];
    for (uint32_t g = 0; g < m->program->n_groups; g++) {
        const struct tape_kv_group *k = &m->program->groups[g];
        if (m->program->n_groups == 1 && !k->state) continue;
        (void)snprintf(window, sizeof window,
                       k->state    ? "  states"
                       : k->chunk  ? "  chunk %u"
                       : k->window ? "  window %u"
                                   : "  all",
                       k->chunk ? k->chunk : k->window);
        (void)printf("%-14s %15" PRIu64 " bytes, %u pages, %u layer%s\n", window, group_bytes(m, g),
                     m->plan.kv_pages[g], k->n_layers, k->n_layers == 1 ? "" : "s");
    }
}

static int print_text(const struct planning *p)
{
    if (!p->model) return EXIT_DONE; /* the reason is the error that follows */
    (void)printf("%-14s %s on %s, context %u, %u sequence%s\n", "model", p->model->name, p->device,
                 p->model->dev.context, p->max_sequences, p->max_sequences == 1 ? "" : "s");
    for (int k = 0; k < MEMORY_KINDS; k++) {
        (void)printf("%-14s %15" PRIu64 " bytes\n", memory_kind_name((enum memory_kind)k), p->model->plan.bytes[k]);
        if (k == MEMORY_KV) print_groups(p->model);
    }
    (void)printf("%-14s %15" PRIu64 " bytes\n", "total", p->model->plan.total);
    if (p->gpu_missing) {
        (void)printf("%-14s not known: %s\n", "available", p->why_gpu);
        return EXIT_DONE;
    }
    if (p->gpu.name[0]) (void)printf("%-14s GPU %u, %s\n", "gpu", p->gpu.index, p->gpu.name);
    (void)printf("%-14s %15" PRIu64 " bytes\n%-14s %s\n", "available", p->available, "fits", p->fits ? "yes" : "no");
    return EXIT_DONE;
}

/* After the document: the same as an error, so that exit status and last line agree. */
static int verdict(const struct planning *p)
{
    int result = missing_refuse(&p->missing, p->path);
    if (result) return result;
    if (!p->model) return refuse_model(p->status, p->path, p->why);
    if (!p->fits && p->gpu.name[0])
        return fail(CODE_INSUFFICIENT_VRAM,
                    "%s: needs %" PRIu64 " bytes, GPU %u (%s) has %" PRIu64
                    " available; lower --context or --max-sequences",
                    p->path, p->model->plan.total, p->gpu.index, p->gpu.name, p->available);
    if (!p->fits)
        return fail(CODE_INSUFFICIENT_MEMORY,
                    "%s: needs %" PRIu64 " bytes, the host has %" PRIu64
                    " available; lower --context or --max-sequences",
                    p->model->name, p->model->plan.total, p->available);
    return EXIT_DONE;
}

int command_plan(const struct options *o)
{
    const struct device_ops *device;
    struct gguf *file = NULL;
    struct plugin_registry *plugins = NULL;
    struct planning p = { .path = o->operands[0] };
    int result = planning_device(o, &device, &p);
    if (!result) result = open_path(o, o->operands[0], &file);
    if (!result) result = open_plugins(o, &plugins);
    if (result) {
        gguf_close(file);
        return result;
    }
    planning_file(o, device, plugins, file, &p);
    result = p.model ? capabilities_check(p.model->file, p.path, plugins, p.model->program) : EXIT_DONE;
    if (!result) result = option_flag(o, OPT_JSON) ? print_json(&p) : print_text(&p);
    if (!result) result = verdict(&p);
    planning_drop(&p);
    plugin_registry_close(plugins);
    return result;
}
