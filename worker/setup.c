/* setup.c: plugins, files and models as the options ask for them. */
#include "setup.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capabilities.h"
#include "errors.h"
#include "log/log.h"
#include "parallel.h"

enum { MAX_DIRS = 16, MAX_PREFER = 64 };

bool log_is_json(const struct options *o) { return strcmp(option_text(o, OPT_LOG), "json") == 0; }

int open_plugins(const struct options *o, struct plugin_registry **out)
{
    const char *dirs[MAX_DIRS], *prefer[MAX_PREFER];
    struct plugin_options p = { .dirs = dirs, .prefer = prefer, .isa = plugin_detect_isa() };
    ERROR_TEXT(err);
    p.n_dirs = option_list(o, OPT_PLUGIN_DIR, dirs, MAX_DIRS);
    p.n_prefer = option_list(o, OPT_PREFER, prefer, MAX_PREFER);
    /* The registry takes absolute paths alone. A folder given on the command line means what its user sees from here. */
    char *made[MAX_DIRS] = { NULL }, *here = getcwd(NULL, 0);
    for (uint32_t i = 0; i < p.n_dirs; i++)
        if (dirs[i][0] != '/' && here && asprintf(&made[i], "%s/%s", here, dirs[i]) >= 0) dirs[i] = made[i];
    wk_status status = plugin_registry_open(&p, out, &err);
    for (uint32_t i = 0; i < p.n_dirs; i++) free(made[i]);
    free(here);
    return status ? fail_status(STAGE_PLUGINS, status, &err) : EXIT_DONE;
}

int open_path(const char *path, struct gguf **out)
{
    ERROR_TEXT(err);
    wk_status status = gguf_open(path, out, &err);
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

int open_model_file(const struct options *o, bool embedded, struct gguf **out)
{
    const char *path = option_text(o, OPT_MODEL);
    ERROR_TEXT(err);
    *out = NULL;
    if (path) return open_path(path, out);
    if (!embedded) return fail_usage(command_table[o->command].name, "--model FILE is needed");
    const struct embedded_model inside = embedded_model();
    wk_status status = gguf_open_memory(inside.bytes, inside.size, "embedded model", out, &err);
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

int find_device(const struct options *o, const struct device_ops **out)
{
    const char *name = option_text(o, OPT_DEVICE);
    *out = NULL;
    if (strcmp(name, "cpu") != 0) return fail(CODE_DEVICE_NOT_FOUND, "device %s: this build has no CUDA device module; use --device cpu", name);
    *out = device_cpu();
    return EXIT_DONE;
}

void model_options_from(const struct options *o, const struct device_ops *device, const struct model_needs *needs, struct model_options *out)
{
    const bool exact = option_flag(o, OPT_EXACT);
    *out = (struct model_options){
        .device = device,
        .dev = { .threads = option_u32(o, OPT_THREADS) ? option_u32(o, OPT_THREADS) : parallel_processors(), .isa = plugin_detect_isa(), .exact = exact, .kv_type = exact ? KV_F32 : KV_F16,
            .context = needs->context ? needs->context : option_u32(o, OPT_CONTEXT), .max_rows = needs->max_rows, .max_wanted = needs->max_wanted,
            .max_sequences = o->command == CMD_PLAN ? option_u32(o, OPT_MAX_SEQUENCES) : 1 },
        .fuse = FUSE_ALL,
        .taps = needs->taps,
        .n_taps = needs->n_taps,
    };
}

/* Refuses a plan that cannot fit before anything of it is allocated. */
static int check_memory(const struct model *m)
{
    const uint64_t available = memory_available();
    if (!available || m->plan.total <= available) return EXIT_DONE;
    return fail(CODE_INSUFFICIENT_MEMORY, "%s: needs %" PRIu64 " bytes (KV cache %" PRIu64 " for a context of %u), the host has %" PRIu64
        " available; lower --context or take a smaller model", m->name, m->plan.total, m->plan.bytes[MEMORY_KV], (unsigned)m->dev.context, available);
}

int refuse_model(wk_status status, const char *path, const char *text)
{
    const enum error_code code = error_code_of(STAGE_MODEL, status);
    return strncmp(text, path, strlen(path)) == 0 ? fail(code, "%s", text) : fail(code, "%s: %s", path, text);
}

static int load(struct model *m, const char *path)
{
    ERROR_TEXT(err);
    int result = check_memory(m);
    if (result) return result;
    const double start = seconds_now();
    LOG(LOG_INFO, "model_load_start", NULL, log_s("model", m->name), log_u("bytes", m->plan.total));
    wk_status status = model_load(m, &err);
    if (status) return refuse_model(status, path, err_text);
    log_progress("loading", 1);
    LOG(LOG_INFO, "model_load_complete", NULL, log_s("model", m->name), log_f("seconds", seconds_now() - start));
    return EXIT_DONE;
}

/* Everything that is missing is named before the tape is recorded: its messages would name the first alone. */
static int refuse_missing(const struct gguf *file, const struct plugin_registry *plugins, const char *path)
{
    struct missing missing;
    capabilities_missing(file, plugins, &missing);
    int result = missing_refuse(&missing, path);
    missing_free(&missing);
    return result;
}

static void warn_of_context(const struct model *m)
{
    char text[128];
    const uint32_t most = capabilities_context(m->program);
    if (m->dev.context <= most) return;
    (void)snprintf(text, sizeof text, "a context of %u is longer than the %u that the model is made for", m->dev.context, most);
    LOG(LOG_WARN, "context_beyond_model", text, log_u("context", m->dev.context), log_u("context_max", most));
}

int open_model(const struct options *o, const struct model_needs *needs, struct opened *out)
{
    const char *path = option_text(o, OPT_MODEL) ? option_text(o, OPT_MODEL) : "embedded model";
    const struct device_ops *device;
    struct gguf *file;
    struct model_options options;
    ERROR_TEXT(err);
    *out = (struct opened){ NULL, NULL };
    int result = find_device(o, &device);
    if (!result) result = open_model_file(o, true, &file);
    if (result) return result;
    result = open_plugins(o, &out->plugins);
    if (!result) result = refuse_missing(file, out->plugins, path);
    if (result) {
        gguf_close(file);
        return result;
    }
    model_options_from(o, device, needs, &options);
    if (needs->load) log_progress("loading", 0);
    wk_status status = model_plan(file, out->plugins, &options, &out->model, &err);
    if (status) return refuse_model(status, path, err_text);
    warn_of_context(out->model);
    result = capabilities_check_sidecar(out->model->file, out->plugins, out->model->program);
    return !result && needs->load ? load(out->model, path) : result;
}

void opened_close(struct opened *x)
{
    model_close(x->model);
    plugin_registry_close(x->plugins);
    *x = (struct opened){ NULL, NULL };
}

uint64_t memory_available(void)
{
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) break;
    (void)fclose(f);
    return kib * 1024;
}

const char *isa_name(uint32_t isa)
{
    static const char *const names[WK_ISA_COUNT] = { "portable", "avx2", "avx512" };
    return isa < WK_ISA_COUNT ? names[isa] : "?";
}

double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static volatile sig_atomic_t stop_asked;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    stop_asked = 1;
}

void interrupts_catch(void)
{
    /* SA_RESETHAND: the second Ctrl-C finds the default action. */
    struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    (void)sigaction(SIGINT, &action, NULL);
}

bool interrupted(void) { return stop_asked != 0; }
