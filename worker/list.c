/* list.c: `worker list`: the models that this machine has, where --model finds them, and of each whether it runs here
 * and about how fast. Nothing is loaded: each file's header is planned, and the processor's memory is read once to see
 * how fast it is. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth.h"
#include "commands.h"
#include "errors.h"
#include "hub/catalog.h"
#include "json_out.h"
#include "parallel.h"
#include "planning.h"
#include "speed.h"
#include "text.h"

enum { POSITION = 512 /* tokens before the one whose speed is told */, MOST_WIDTH = 60, REASON = 4096 };

struct listing {
    const struct options *o;
    const struct device_ops *device;
    struct plugin_registry *plugins;
    struct catalog catalog;
    struct planning plan; /* of the file at hand */
    struct error_caught caught;
    double bandwidth; /* bytes a second; 0: not measured yet, or not of this device */
};

/* One file, looked at. */
struct row {
    const struct catalog_entry *entry;
    char quantization[QUANTIZATION_TEXT], architecture[64];
    uint32_t context;
    uint64_t needs; /* bytes; 0: it cannot be planned */
    bool runs, generates;
    double bytes_per_token, speed; /* 0: not known */
    char why[REASON];              /* "": it runs */
};

/* ---- a file -------------------------------------------------------------------------------------------- */

static void name_architecture(const struct gguf *file, char out[64])
{
    const struct gguf_kv *kv = gguf_find(file, "general.architecture");
    struct gguf_str name;
    char raw[64];
    (void)snprintf(raw, sizeof raw, "?");
    if (kv && !gguf_str(file, kv, &name, NULL))
        (void)snprintf(raw, sizeof raw, "%.*s", name.len < sizeof raw ? (int)name.len : (int)sizeof raw - 1, name.data);
    (void)text_printable(raw, out, 64);
}

/* What `worker plan` would refuse it for; "": nothing. */
static void find_reason(struct listing *l, struct row *r)
{
    const struct planning *p = &l->plan;
    size_t n = 0;
    for (uint32_t i = 0; i < p->missing.n && n < sizeof r->why; i++) {
        const int k = snprintf(r->why + n, sizeof r->why - n, "%s%s", i ? "; " : "", p->missing.sentence[i]);
        n += k > 0 ? (size_t)k : 0;
    }
    if (r->why[0]) return;
    if (!p->model) {
        (void)snprintf(r->why, sizeof r->why, "%s", p->why);
        return;
    }
    errors_catch(&l->caught);
    const int refused = capabilities_check(p->model->file, r->entry->path, l->plugins, p->model->program);
    errors_catch(NULL);
    if (refused)
        (void)snprintf(r->why, sizeof r->why, "%s", l->caught.text);
    else if (!p->fits)
        (void)snprintf(r->why, sizeof r->why,
                       "needs %" PRIu64 " bytes, %" PRIu64 " are available; with a smaller --context it needs less",
                       p->model->plan.total, p->available);
    else if (p->gpu_missing)
        (void)snprintf(r->why, sizeof r->why, "%s", p->why_gpu);
}

/* Of a GPU it is measured by loading a model alone: worker bench. */
static void estimate(struct listing *l, struct row *r)
{
    const struct model *m = l->plan.model;
    const uint32_t threads = m->dev.threads < PARALLEL_MAX ? m->dev.threads : PARALLEL_MAX;
    const double position = m->dev.context < POSITION ? m->dev.context : POSITION;
    r->bytes_per_token = decode_bytes(m, 1, position);
    if (l->device->probe) return;
    if (l->bandwidth <= 0) l->bandwidth = bandwidth_read(threads);
    if (r->bytes_per_token > 0) r->speed = l->bandwidth / r->bytes_per_token;
}

static void look_at(struct listing *l, const struct catalog_entry *e, struct row *r)
{
    struct gguf *file = NULL;
    ERROR_TEXT(err);
    *r = (struct row){ .entry = e, .quantization = "?", .architecture = "?" };
    if (e->why || gguf_open(e->path, &file, &err)) {
        (void)snprintf(r->why, sizeof r->why, "%s", e->why ? e->why : err_text);
        return;
    }
    capabilities_quantization(file, l->plugins, r->quantization);
    name_architecture(file, r->architecture);
    planning_file(l->o, l->device, l->plugins, file, &l->plan);
    find_reason(l, r);
    if (l->plan.model) {
        r->needs = l->plan.model->plan.total;
        r->context = l->plan.model->dev.context;
        r->generates = !model_generates(l->plan.model, NULL);
    }
    r->runs = !r->why[0];
    if (r->runs && r->generates) estimate(l, r);
    planning_drop(&l->plan);
}

/* ---- output -------------------------------------------------------------------------------------------- */

static json_t *row_json(const struct row *r)
{
    const struct catalog_entry *e = r->entry;
    return json_pack("{s:o, s:s, s:o?, s:I, s:I, s:s, s:s, s:o, s:o, s:b, s:b, s:o?, s:o, s:o}", "name",
                     json_bytes(e->name, strlen(e->name)), "place", catalog_place_name(e->place), "path",
                     e->path ? json_bytes(e->path, strlen(e->path)) : NULL, "files", (json_int_t)e->files, "bytes",
                     (json_int_t)e->bytes, "quantization", r->quantization, "architecture", r->architecture, "context",
                     r->context ? json_integer((json_int_t)r->context) : json_null(), "needs_bytes",
                     r->needs ? json_integer((json_int_t)r->needs) : json_null(), "runs", r->runs, "generates",
                     r->generates, "reason", r->why[0] ? json_bytes(r->why, strlen(r->why)) : NULL, "bytes_per_token",
                     r->bytes_per_token > 0 ? json_real(r->bytes_per_token) : json_null(), "tokens_per_second",
                     r->speed > 0 ? json_real(r->speed) : json_null());
}

static int print_json(struct listing *l)
{
    json_t *places = json_array(), *models = json_array();
    struct row r;
    for (int p = 0; p < CATALOG_PLACES; p++) {
        const char *folder = l->catalog.folder[p];
        (void)json_array_append_new(places, json_pack("{s:s, s:o?}", "place", catalog_place_name((enum catalog_place)p),
                                                      "path", folder ? json_bytes(folder, strlen(folder)) : NULL));
    }
    for (size_t i = 0; i < l->catalog.n; i++) {
        look_at(l, &l->catalog.entries[i], &r);
        (void)json_array_append_new(models, row_json(&r));
    }
    return json_print(json_pack("{s:s, s:s*, s:o, s:o, s:b, s:o, s:o}", "device", l->plan.device, "gpu",
                                l->plan.gpu.name[0] ? l->plan.gpu.name : NULL, "available_bytes",
                                l->plan.available ? json_integer((json_int_t)l->plan.available) : json_null(),
                                "read_bandwidth_bytes_per_second",
                                l->bandwidth > 0 ? json_real(l->bandwidth) : json_null(), "cut", l->catalog.cut,
                                "places", places, "models", models));
}

static void print_row(const struct row *r, int width)
{
    char name[REASON], size[SIZE_TEXT], speed[32] = "-", why[REASON];
    if (r->speed > 0) (void)snprintf(speed, sizeof speed, "%.*f", r->speed < 9.95 ? 1 : 0, r->speed);
    (void)printf("%-*s  %8s  %-10s %-14s %-5s %8s  %s\n", width, text_printable(r->entry->name, name, sizeof name),
                 r->entry->path ? size_text(r->entry->bytes, size) : "-", r->quantization, r->architecture,
                 r->runs ? "yes" : "no", speed, catalog_place_name(r->entry->place));
    for (const char *line = r->why; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char one[REASON];
        (void)snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
        (void)printf("    %s\n", text_printable(one, why, sizeof why));
    }
    (void)fflush(stdout); /* the next one may take a moment */
}

static void print_places(const struct listing *l)
{
    static const char *const names[CATALOG_PLACES] = { "model folder", "Ollama", "hub's cache" };
    char shown[MODEL_PATH];
    for (int p = 0; p < CATALOG_PLACES; p++) {
        size_t n = 0;
        for (size_t i = 0; i < l->catalog.n; i++) n += l->catalog.entries[i].place == (enum catalog_place)p;
        (void)printf("%-14s %s, %zu model%s\n", names[p],
                     l->catalog.folder[p] ? text_printable(l->catalog.folder[p], shown, sizeof shown)
                                          : "not known: HOME is not set",
                     n, n == 1 ? "" : "s");
    }
    if (l->catalog.cut) (void)printf("%-14s there are more models than are listed\n", "cut");
}

static int print_text(struct listing *l)
{
    struct row r;
    char size[SIZE_TEXT];
    int width = 4;
    for (size_t i = 0; i < l->catalog.n; i++) {
        const size_t n = strlen(l->catalog.entries[i].name);
        if ((int)n > width) width = n < MOST_WIDTH ? (int)n : MOST_WIDTH;
    }
    if (l->catalog.n)
        (void)printf("%-*s  %8s  %-10s %-14s %-5s %8s  %s\n", width, "NAME", "SIZE", "FORMAT", "ARCHITECTURE", "RUNS",
                     "TOK/S", "PLACE");
    for (size_t i = 0; i < l->catalog.n; i++) {
        look_at(l, &l->catalog.entries[i], &r);
        print_row(&r, width);
    }
    if (l->catalog.n) (void)printf("\n");
    print_places(l);
    if (l->plan.available)
        (void)printf("%-14s %s, %s available\n", "device", l->plan.device, size_text(l->plan.available, size));
    if (l->bandwidth > 0)
        (void)printf("%-14s %s/s read: TOK/S is what that gives one sequence after %d tokens; worker bench measures\n",
                     "memory", size_text((uint64_t)l->bandwidth, size), POSITION);
    if (!l->catalog.n) (void)printf("%-14s worker pull hf:ORG/NAME:Q4_K_M fetches one\n", "no model");
    return EXIT_DONE;
}

int command_list(const struct options *o)
{
    struct listing *l = calloc(1, sizeof *l);
    ERROR_TEXT(err);
    if (!l) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the list of models");
    l->o = o;
    int result = planning_device(o, &l->device, &l->plan);
    if (!result) result = open_plugins(o, &l->plugins);
    if (!result && catalog_open(option_text(o, OPT_MODEL_DIR), &l->catalog, &err))
        result = fail(CODE_INSUFFICIENT_MEMORY, "%s", err_text);
    if (!result) result = option_flag(o, OPT_JSON) ? print_json(l) : print_text(l);
    catalog_close(&l->catalog);
    plugin_registry_close(l->plugins);
    free(l);
    return result;
}
