/* doctor.c: `worker doctor`: what is missing on this machine, how bad that is, and the command that mends it. It
 * changes nothing and loads no model; that a model can be served is shown by planning the one inside the program. */
#include "doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "gate/download.h"
#include "hub/catalog.h"
#include "json_out.h"
#include "planning.h"
#include "setup.h"
#include "text.h"

static const char *const state_names[] = { "ok", "note", "advice", "fault" };

struct finding *doctor_find(struct doctor *d, const char *check, enum finding_state state, const char *format, ...)
{
    struct finding *f = &d->findings[d->n < MOST_FINDINGS ? d->n : MOST_FINDINGS - 1];
    va_list args;
    if (d->n < MOST_FINDINGS)
        d->n++;
    else
        d->more = true;
    *f = (struct finding){ .check = check, .state = state, .code = CODE_INTERNAL };
    va_start(args, format);
    (void)vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return f;
}

void doctor_mend(struct finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(f->mend, sizeof f->mend, format, args);
    va_end(args);
}

static void fault(struct finding *f, enum error_code code)
{
    f->state = FINDING_FAULT;
    f->code = code;
}

/* ---- CUDA ----------------------------------------------------------------------------------------------- */

static void check_cuda(struct doctor *d)
{
    static const char build[] = "cmake --preset release -DWORKER_CUDA=on && cmake --build --preset release";
    const struct device_ops *ops = NULL;
    struct device_info gpu = { 0 };
    ERROR_TEXT(err);
    const uint32_t index = option_u32(d->o, OPT_GPU_DEVICE);
    const enum finding_state bad = d->has_gpu ? FINDING_ADVICE : FINDING_NOTE;
    if (device_cuda(&ops, &err)) {
        struct finding *f = doctor_find(d, "cuda module", bad, "%s", err_text);
        if (d->has_gpu || d->wants_gpu) doctor_mend(f, "%s", build);
        if (d->wants_gpu) fault(f, CODE_DEVICE_NOT_FOUND);
        return;
    }
    (void)doctor_find(d, "cuda module", FINDING_OK, "device-cuda.so of this build");
    const wk_status status = ops->probe(index, &gpu, &err);
    if (status) {
        struct finding *f = doctor_find(d, "cuda", bad, "%s", err_text);
        if (status == WK_INVALID)
            doctor_mend(f, "nvidia-smi -L   # which GPUs there are: --gpu-device counts them from 0");
        else
            doctor_mend(f, "sudo apt-get install --only-upgrade nvidia-driver");
        if (d->wants_gpu) fault(f, status == WK_INVALID ? CODE_INVALID_DEVICE : CODE_DEVICE_NOT_FOUND);
        return;
    }
    char memory[SIZE_TEXT];
    (void)doctor_find(d, "cuda", FINDING_OK,
                      "GPU %u of %u: %s, %s, compute capability %u.%u, CUDA of the driver %u.%u, of the runtime %u.%u",
                      index, gpu.count, gpu.name, size_text(gpu.memory, memory), gpu.major, gpu.minor,
                      gpu.driver / 1000, gpu.driver % 1000 / 10, gpu.runtime / 1000, gpu.runtime % 1000 / 10);
}

/* ---- plugins -------------------------------------------------------------------------------------------- */

/* What others could write to is refused by the loader; that has a command. */
static void mend_plugin(struct finding *f, const struct plugin_entry *e)
{
    struct stat file, folder;
    char quoted[QUOTED], *path = strdup(e->path), *slash = path ? strrchr(path, '/') : NULL;
    if (slash) slash[slash == path] = '\0';
    const bool file_open = stat(e->path, &file) == 0 && (file.st_mode & 022),
               folder_open = slash && stat(path, &folder) == 0 && (folder.st_mode & 022);
    if (file_open || folder_open)
        doctor_mend(f, "chmod go-w %s", doctor_quoted(file_open ? e->path : path, quoted));
    else
        doctor_mend(f, "worker plugin check %s   # what is wrong with it; without the file it is not looked at",
                    doctor_quoted(e->path, quoted));
    free(path);
}

static void check_plugins(struct doctor *d, const struct plugin_registry *r)
{
    uint32_t good = 0, architectures = 0, formats = 0;
    for (uint32_t i = 0; i < plugin_count(r); i++) {
        const struct plugin_entry *e = plugin_at(r, i);
        const bool usable = e->state == PLUGIN_FOUND || e->state == PLUGIN_LOADED;
        good += usable;
        architectures += usable && e->note.kind == WK_KIND_ARCH;
        formats += usable && e->note.kind == WK_KIND_QUANT;
        if (usable) continue;
        char path[MODEL_PATH], reason[512];
        const bool refused = e->state == PLUGIN_REFUSED;
        struct finding *f = doctor_find(d, "plugin", refused ? FINDING_ADVICE : FINDING_NOTE, "%s: %s: %s",
                                        text_printable(e->path, path, sizeof path), refused ? "refused" : "shadowed",
                                        text_printable(e->reason ? e->reason : "?", reason, sizeof reason));
        if (refused) mend_plugin(f, e);
    }
    struct finding *f =
        doctor_find(d, "plugins", FINDING_OK, "%u: %u of architectures, %u of formats", good, architectures, formats);
    if (architectures && formats) return;
    fault(f, CODE_PLUGIN_REFUSED);
    doctor_mend(f,
                "sudo cmake --install build-release --prefix /usr/local   # or worker --plugin-dir DIR: their folder");
}

/* The registry, with what it says kept as a finding. NULL: it is not open. */
static struct plugin_registry *find_plugins(struct doctor *d, struct error_caught *caught)
{
    struct plugin_registry *r = NULL;
    errors_catch(caught);
    const int result = open_plugins(d->o, &r);
    errors_catch(NULL);
    if (result) {
        fault(doctor_find(d, "plugins", FINDING_FAULT, "%.1000s", caught->text), CODE_PLUGIN_REFUSED);
        return NULL;
    }
    check_plugins(d, r);
    return r;
}

/* ---- a model -------------------------------------------------------------------------------------------- */

/* Plans the model inside the program, as --device says. */
static void check_model(struct doctor *d, const struct plugin_registry *plugins, struct error_caught *caught)
{
    const struct device_ops *device = NULL;
    struct gguf *file = NULL;
    struct planning *p = calloc(1, sizeof *p);
    ERROR_TEXT(err);
    char needs[SIZE_TEXT], available[SIZE_TEXT];
    if (!p || open_named(NULL, &file, &err)) {
        fault(doctor_find(d, "model", FINDING_FAULT, "the model inside the program: %s", p ? err_text : "no memory"),
              CODE_INSUFFICIENT_MEMORY);
        free(p);
        return;
    }
    errors_catch(caught);
    const int result = planning_device(d->o, &device, p);
    errors_catch(NULL);
    if (result || p->gpu_missing) {
        fault(doctor_find(d, "model", FINDING_FAULT, "--device %s cannot be used", option_text(d->o, OPT_DEVICE)),
              result ? caught->code : CODE_DEVICE_NOT_FOUND);
        gguf_close(file);
        free(p);
        return;
    }
    planning_file(d->o, device, plugins, file, p);
    if (!p->model) {
        fault(doctor_find(d, "model", FINDING_FAULT, "the model inside the program cannot run: %.900s",
                          p->missing.n ? p->missing.sentence[0] : p->why),
              CODE_MODEL_LOAD_FAILED);
    } else {
        struct finding *f = doctor_find(d, "model", FINDING_OK, "%s needs %s, %s available", p->model->name,
                                        size_text(p->model->plan.total, needs),
                                        p->available ? size_text(p->available, available) : "an unknown amount");
        if (!p->fits) {
            fault(f, p->gpu.name[0] ? CODE_INSUFFICIENT_VRAM : CODE_INSUFFICIENT_MEMORY);
            doctor_mend(f, p->gpu.name[0] ? "nvidia-smi   # what takes the GPU's memory"
                                          : "ps -eo rss,pid,comm --sort=-rss | head   # what takes the memory");
        }
    }
    planning_drop(p);
    free(p);
}

static void check_models(struct doctor *d)
{
    struct catalog c;
    ERROR_TEXT(err);
    const wk_status status = catalog_open(option_text(d->o, OPT_MODEL_DIR), &c, &err);
    if (status)
        (void)doctor_find(d, "models", FINDING_NOTE, "%s", err_text);
    else if (c.n)
        (void)doctor_find(d, "models", FINDING_OK, "%zu%s are there: worker list", c.n, c.cut ? " and more" : "");
    else
        doctor_mend(doctor_find(d, "models", FINDING_NOTE, "none is there but those inside the program"),
                    "worker pull hf:ORG/NAME:Q4_K_M");
    catalog_close(&c);
}

static void check_helper(struct doctor *d)
{
    struct download *helper = NULL;
    ERROR_TEXT(err);
    const wk_status status = download_open(NULL, &helper, &err);
    download_close(helper);
    if (status)
        doctor_mend(doctor_find(d, "worker-fetch", FINDING_ADVICE,
                                "%s: worker pull, issuers, policy servers and exporters need it", err_text),
                    "sudo apt-get install libcurl4 && sudo cmake --install build-release --prefix /usr/local");
    else
        (void)doctor_find(d, "worker-fetch", FINDING_OK, "starts");
}

/* ---- output --------------------------------------------------------------------------------------------- */

static const struct finding *first_fault(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->findings[i].state == FINDING_FAULT) return &d->findings[i];
    return NULL;
}

static int print_json(const struct doctor *d)
{
    json_t *findings = json_array();
    for (uint32_t i = 0; i < d->n; i++) {
        const struct finding *f = &d->findings[i];
        (void)json_array_append_new(findings,
                                    json_pack("{s:s, s:s, s:o, s:o?}", "check", f->check, "state",
                                              state_names[f->state], "text", json_bytes(f->text, strlen(f->text)),
                                              "mend", f->mend[0] ? json_bytes(f->mend, strlen(f->mend)) : NULL));
    }
    return json_print(json_pack("{s:b, s:s, s:b, s:o}", "serves", first_fault(d) == NULL, "device",
                                option_text(d->o, OPT_DEVICE), "cut", d->more, "findings", findings));
}

static int print_text(const struct doctor *d)
{
    char shown[sizeof d->findings[0].mend];
    for (uint32_t i = 0; i < d->n; i++) {
        const struct finding *f = &d->findings[i];
        (void)printf("%-8s %-14s %s\n", state_names[f->state], f->check, text_printable(f->text, shown, sizeof shown));
        if (f->mend[0]) (void)printf("%-8s %-14s   %s\n", "", "", text_printable(f->mend, shown, sizeof shown));
    }
    if (d->more) (void)printf("%-8s %-14s there are more findings than are shown\n", "note", "");
    if (!first_fault(d)) (void)printf("\na model can be served on --device %s\n", option_text(d->o, OPT_DEVICE));
    return EXIT_DONE;
}

int command_doctor(const struct options *o)
{
    struct doctor *d = calloc(1, sizeof *d);
    struct error_caught *caught = calloc(1, sizeof *caught);
    int result = d && caught ? EXIT_DONE : fail(CODE_INSUFFICIENT_MEMORY, "no memory for what is found");
    if (!result) {
        d->o = o;
        d->wants_gpu = strcmp(option_text(o, OPT_DEVICE), "cuda") == 0;
        doctor_processor(d);
        doctor_memory(d);
        doctor_driver(d);
        check_cuda(d);
        struct plugin_registry *plugins = find_plugins(d, caught);
        if (plugins) check_model(d, plugins, caught);
        plugin_registry_close(plugins);
        doctor_limits(d);
        doctor_port(d);
        check_helper(d);
        doctor_folder(d);
        check_models(d);
        result = option_flag(o, OPT_JSON) ? print_json(d) : print_text(d);
        const struct finding *f = first_fault(d);
        if (!result && f)
            result = fail(f->code, "no model can be served on --device %s: %s: %s", option_text(o, OPT_DEVICE),
                          f->check, f->text);
    }
    free(caught);
    free(d);
    return result;
}
