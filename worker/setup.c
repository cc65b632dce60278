/* setup.c: plugins, files and models as the options ask for them. */
#include "setup.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/result_file.h"
#include "capabilities.h"
#include "device/kv_pages.h"
#include "errors.h"
#include "hub/catalog.h"
#include "json_out.h"
#include "log/log.h"
#include "log/words.h"
#include "parallel.h"

_Static_assert(DEFAULT_CONTEXT == 4096, "the help of --context and the README say it");

enum { MAX_DIRS = 16, MAX_PREFER = 64, FLASH_TILE = 128 };

bool log_is_json(const struct options *o)
{
    const char *asked = option_text(o, OPT_LOG);
    return asked ? strcmp(asked, "json") == 0 : o->command == CMD_SERVE && !isatty(STDERR_FILENO);
}

/* The key itself is never said. */
int choose_audit_key(const struct options *o)
{
    const char *command = command_table[o->command].name, *given = option_text(o, OPT_AUDIT_KEY);
    char bytes[LOG_KEY_MOST + 3]; /* and a line's end, and one more: too long */
    size_t n = given ? strlen(given) : 0;
    if (!given) return EXIT_DONE;
    if (given[0] == '@') {
        FILE *f = fopen(given + 1, "re");
        n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
        const bool failed = !f || ferror(f);
        if (f) (void)fclose(f);
        if (failed) return fail_usage(command, "--audit-key: %s: cannot be read", given + 1);
        if (n && bytes[n - 1] == '\n') n--;
        if (n && bytes[n - 1] == '\r') n--;
    } else {
        memcpy(bytes, given, n);
    }
    if (n < LOG_KEY_LEAST || n > LOG_KEY_MOST)
        return fail_usage(command, "--audit-key: expected a key of %d to %d bytes, got %zu", LOG_KEY_LEAST,
                          LOG_KEY_MOST, n);
    log_key(bytes, n);
    return EXIT_DONE;
}

int allow_plugins(const struct options *o)
{
    ERROR_TEXT(err);
    const wk_status status = plugin_allow_only(option_text(o, OPT_PLUGIN_DIGEST), &err);
    return status ? fail_status(STAGE_PLUGINS, status, &err) : EXIT_DONE;
}

int open_plugins(const struct options *o, struct plugin_registry **out)
{
    const char *dirs[MAX_DIRS], *prefer[MAX_PREFER], *given[MAX_PREFER];
    struct plugin_options p = { .dirs = dirs, .prefer = prefer, .given = given };
    ERROR_TEXT(err);
    const int allowed = allow_plugins(o);
    if (allowed) return allowed;
    p.n_dirs = option_list(o, OPT_PLUGIN_DIR, dirs, MAX_DIRS);
    p.n_prefer = option_list(o, OPT_PREFER, prefer, MAX_PREFER);
    p.n_given = option_list(o, OPT_PLUGIN_OPTION, given, MAX_PREFER);
    /* The registry takes absolute paths alone. A folder given on the command line means what its
     * user sees from here. */
    char *made[MAX_DIRS] = { NULL }, *here = getcwd(NULL, 0);
    for (uint32_t i = 0; i < p.n_dirs; i++)
        if (dirs[i][0] != '/' && here && asprintf(&made[i], "%s/%s", here, dirs[i]) >= 0) dirs[i] = made[i];
    wk_status status = plugin_registry_open(&p, out, &err);
    for (uint32_t i = 0; i < p.n_dirs; i++) free(made[i]);
    free(here);
    return status ? fail_status(STAGE_PLUGINS, status, &err) : EXIT_DONE;
}

bool embedded_named(const char *path) { return strncmp(path, "embedded:", strlen("embedded:")) == 0; }

wk_status open_named(const char *path, struct gguf **out, const struct wk_err *err)
{
    uint32_t n, i = 0;
    char known[256];
    int len = 0;
    const struct embedded_model *m = embedded_models(&n);
    *out = NULL;
    if (path && !embedded_named(path)) return gguf_open(path, out, err);
    while (path && i < n && strcmp(path, m[i].name) != 0) i++;
    if (i < n)
        return gguf_open_memory(m[i].begin, (uint64_t)(m[i].end - m[i].begin), path ? path : "embedded model", out,
                                err);
    for (i = 0; i < n && len >= 0 && (size_t)len < sizeof known; i++)
        len += snprintf(known + len, sizeof known - (size_t)len, "%s%s", i ? ", " : "", m[i].name);
    return wk_fail(err, WK_INVALID, "%s: not a model of this program, which has %s", path, known);
}

static int find_in_catalog(const struct options *o, const char *name, char path[MODEL_PATH])
{
    struct catalog catalog;
    const struct catalog_entry *found = NULL;
    ERROR_TEXT(err);
    wk_status status = catalog_open(option_text(o, OPT_MODEL_DIR), &catalog, &err);
    if (!status) status = catalog_find(&catalog, name, &found, &err);
    if (found && !status) (void)snprintf(path, MODEL_PATH, "%s", found->path);
    catalog_close(&catalog);
    if (status && access(name, F_OK) == 0)
        return fail(error_code_of(STAGE_MODEL, status), "%s; the file here of that name is ./%s", err_text, name);
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

int find_model(const struct options *o, const char *name, char path[MODEL_PATH])
{
    if (!embedded_named(name) && !catalog_is_path(name)) return find_in_catalog(o, name, path);
    if ((size_t)snprintf(path, MODEL_PATH, "%s", name) < MODEL_PATH) return EXIT_DONE;
    return fail(CODE_MODEL_LOAD_FAILED, "%.80s...: a path of at most %d bytes is expected", name, MODEL_PATH - 1);
}

int open_path(const struct options *o, const char *name, struct gguf **out)
{
    char path[MODEL_PATH];
    ERROR_TEXT(err);
    *out = NULL;
    int result = name ? find_model(o, name, path) : EXIT_DONE;
    if (result) return result;
    wk_status status = open_named(name ? path : NULL, out, &err);
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

int open_model_file(const struct options *o, bool embedded, struct gguf **out)
{
    const char *path = option_text(o, OPT_MODEL);
    *out = NULL;
    if (!path && !embedded)
        return fail_usage(command_table[o->command].name,
                          "--model FILE is needed: a GGUF file, a model's name, or embedded:haiku");
    return open_path(o, path, out);
}

int open_tokenizer(const struct options *o, struct tokenizer **out)
{
    struct gguf *file;
    ERROR_TEXT(err);
    *out = NULL;
    const char *json = option_text(o, OPT_TOKENIZER);
    if (json && !option_text(o, OPT_MODEL)) {
        wk_status alone = tokenizer_open_json(json, NULL, 0, out, &err);
        return alone ? fail_status(STAGE_MODEL, alone, &err) : EXIT_DONE;
    }
    int result = open_model_file(o, false, &file);
    if (result) return result;
    struct gguf_accepted accepted = accepted_keys(o);
    wk_status status = tokenizer_open_for(file, json, 0, &accepted, out, &err);
    gguf_close(file); /* the vocabulary has been copied */
    if (!status && !*out)
        return fail(
            CODE_MODEL_LOAD_FAILED,
            "%s: the file embeds no tokenizer and there is no tokenizer.json beside it; give one with --tokenizer",
            option_text(o, OPT_MODEL));
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

/* ---- devices ------------------------------------------------------------------------------------------- */

/* What is asked of attention. The GPU's kernels are fused, with tiles of their own; what it cannot do is refused, never
 * passed over.
 */
static int check_attention(const struct options *o, bool cpu)
{
    const char *command = command_table[o->command].name;
    const bool on = option_flag(o, OPT_FLASH_ATTENTION);
    const uint32_t tile = option_u32(o, OPT_FLASH_TILE);
    if (cpu && (option_given(o, OPT_FLASH_ATTENTION) || option_given(o, OPT_FLASH_TILE)))
        LOG(LOG_WARN, "no_effect",
            "--cuda-flash-attention and --cuda-flash-tile have no effect: --device cpu computes attention its own way",
            log_b("flash_attention", on), log_u("flash_tile", tile));
    if (cpu) return EXIT_DONE;
    if (!on)
        return fail_usage(
            command, "--cuda-flash-attention off: --device cuda has the fused attention alone; leave it on, or use "
                     "--device cpu");
    if (tile != FLASH_TILE)
        return fail_usage(
            command,
            "--cuda-flash-tile: the kernels of --device cuda have tiles of their own; leave it at %d, got "
            "%u",
            FLASH_TILE, tile);
    return EXIT_DONE;
}

int choose_isa(const struct options *o, uint32_t *out)
{
    const char *asked = option_text(o, OPT_ISA);
    ERROR_TEXT(err);
    *out = plugin_detect_isa();
    if (!asked || !plugin_isa_named(asked, *out, out, &err)) return EXIT_DONE;
    return fail_usage(command_table[o->command].name, "--isa: %s", err_text);
}

/* FILE or FILE:SCALE; what follows the last ':' is a scale if it is a number. False: it is no finite one. */
static bool split_adapter(char *text, struct adapter_source *out)
{
    char *colon = strrchr(text, ':'), *end = NULL;
    const double scale = colon && colon[1] ? strtod(colon + 1, &end) : 1;
    *out = (struct adapter_source){ text, 1 };
    if (!end || *end || colon == text) return true;
    *colon = '\0';
    out->scale = scale;
    return isfinite(scale);
}

static struct {
    struct adapter_source list[ADAPTERS_MAX];
    char path[ADAPTERS_MAX][MODEL_PATH];
} lora;

static int read_adapters(const struct options *o)
{
    const char *given[ADAPTERS_MAX];
    const uint32_t n = option_list(o, OPT_LORA, given, ADAPTERS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        const bool fits = (size_t)snprintf(lora.path[i], MODEL_PATH, "%s", given[i]) < MODEL_PATH;
        if (!given[i][0] || !fits || !split_adapter(lora.path[i], &lora.list[i]))
            return fail_usage(
                command_table[o->command].name,
                "--lora: expected a file of an adapter and, behind a colon, a finite scale, got \"%.80s\"", given[i]);
    }
    return EXIT_DONE;
}

const struct adapter_source *lora_adapters(const struct options *o, uint32_t *n)
{
    const char *given[ADAPTERS_MAX];
    *n = option_list(o, OPT_LORA, given, ADAPTERS_MAX);
    return lora.list;
}

int find_device(const struct options *o, const struct device_ops **out)
{
    static const enum option_id of_cuda[] = { OPT_GPU_DEVICE, OPT_UPLOAD_CHUNK };
    ERROR_TEXT(err);
    *out = NULL;
    const int adapters = read_adapters(o);
    if (adapters) return adapters;
    const char *digest = option_text(o, OPT_DIGEST);
    if (digest && strspn(digest, "0123456789abcdef") != 64)
        return fail_usage(command_table[o->command].name, "--digest: expected 64 lower-case hexadecimal digits");
    if (strcmp(option_text(o, OPT_DEVICE), "cpu") == 0) {
        for (size_t i = 0; i < sizeof of_cuda / sizeof *of_cuda; i++)
            if (o->value[of_cuda[i]].flag)
                return fail_usage(command_table[o->command].name, "--%s needs --device cuda",
                                  option_table[of_cuda[i]].name);
        uint32_t isa;
        int result = choose_isa(o, &isa);
        if (result) return result;
        *out = device_cpu();
        return check_attention(o, true);
    }
    int result = check_attention(o, false);
    if (result) return result;
    wk_status status = device_cuda(out, &err);
    if (!status) errors_watch_device((*out)->dead);
    return status ? fail(CODE_DEVICE_NOT_FOUND, "%s", err_text) : EXIT_DONE;
}

int probe_device(const struct options *o, const struct device_ops *device, bool warm, struct device_info *out)
{
    const uint32_t gpu = option_u32(o, OPT_GPU_DEVICE);
    ERROR_TEXT(err);
    *out = (struct device_info){ 0 };
    if (!device->probe) return EXIT_DONE;
    wk_status status = device->probe(gpu, out, &err);
    if (status)
        return fail_with(status == WK_INVALID ? CODE_INVALID_DEVICE : CODE_DEVICE_NOT_FOUND,
                         (const struct log_field[]){ log_u("gpu_device", gpu), { 0 } }, "%s", err_text);
    if (warm) device->warm(gpu);
    return EXIT_DONE;
}

int device_available(const struct device_ops *device, const struct device_info *gpu, uint64_t *out)
{
    struct device_memory memory;
    ERROR_TEXT(err);
    if (!device->device_memory) {
        *out = machine_memory_available();
        return EXIT_DONE;
    }
    wk_status status = device->device_memory(gpu->index, &memory, &err);
    *out = memory.free;
    return status ? fail_status(STAGE_STEP, status, &err) : EXIT_DONE;
}

const char *opened_device(const struct opened *x, char out[DEVICE_TEXT])
{
    const struct model *m = x->model;
    if (m->device->probe)
        (void)snprintf(out, DEVICE_TEXT, "%s (GPU %u, %s)", m->device->name, x->gpu.index, x->gpu.name);
    else
        (void)snprintf(out, DEVICE_TEXT, "%s (%s, %u threads, %s activations)", m->device->name,
                       plugin_isa_name(m->dev.isa), m->dev.threads, m->dev.exact ? "exact" : "8-bit");
    return out;
}

/* ---- models -------------------------------------------------------------------------------------------- */

static wk_status find_cuda(void *user, uint32_t ggml_type, const struct wk_quant_cuda **out, const struct wk_err *err)
{
    return plugin_find_cuda(user, ggml_type, out, err);
}
static wk_status find_custom(void *user, const char *architecture, const char *name, const struct wk_arch_cuda **module,
                             const struct wk_custom_cuda **out, const struct wk_err *err)
{
    return plugin_find_custom(user, architecture, name, module, out, err);
}

static void say_progress(const char *path, double fraction)
{
    log_progress("model_load_progress", "loading", path, fraction);
}

static void on_progress(void *user, double fraction) { say_progress(user, fraction); }

struct gguf_accepted accepted_keys(const struct options *o)
{
    static const char *names[GGUF_MAX_ACCEPTED]; /* models keep it, and there is one set of options a process */
    const uint32_t n = option_list(o, OPT_ACCEPT_KEY, names, GGUF_MAX_ACCEPTED);
    return (struct gguf_accepted){ .names = names, .n = n };
}

struct model_needs served_needs(uint32_t n, uint32_t rows)
{
    enum { SCORED = 64 /* rows of a prompt whose log probabilities are wanted, a step */ };
    const uint32_t scored = rows && rows < SCORED ? rows : SCORED;
    return (struct model_needs){ .max_rows = rows,
                                 .max_logits_rows = n > scored ? n : scored,
                                 .sequences = 2 * n + 1, /* jobs that yielded or were preempted keep their samplers */
                                 .kv_sequences = n };
}

static enum tape_pooling pooling_of(const struct options *o)
{
    const char *how = option_text(o, OPT_POOLING);
    if (!how) return TAPE_POOL_FILE;
    return strcmp(how, "mean") == 0 ? TAPE_POOL_MEAN : strcmp(how, "first") == 0 ? TAPE_POOL_FIRST : TAPE_POOL_LAST;
}

void model_options_from(const struct options *o, const struct device_ops *device, const struct plugin_registry *plugins,
                        const struct model_needs *needs, struct model_options *out)
{
    const bool exact = option_flag(o, OPT_EXACT);
    const struct gguf_accepted accepted = accepted_keys(o);
    uint32_t isa, n_adapters;
    const struct adapter_source *adapters = lora_adapters(o, &n_adapters);
    (void)choose_isa(o, &isa); /* find_device has refused what this processor does not have */
    const uint32_t rows = needs->max_rows ? needs->max_rows : device->run_ahead > 1 ? STEP_ROWS_GPU : STEP_ROWS;
    *out = (struct model_options){
        .device = device,
        .dev = { .threads = option_u32(o, OPT_THREADS) ? option_u32(o, OPT_THREADS) : parallel_processors(),
                 .isa = isa,
                 .exact = exact,
                 .kv_type = exact ? KV_F32 : KV_F16,
                 .context = needs->context ? needs->context : option_u32(o, OPT_CONTEXT),
                 .max_rows = rows,
                 .max_logits_rows = needs->max_logits_rows,
                 .max_sequences = needs->sequences ? needs->sequences : 1,
                 .kv_sequences = needs->kv_sequences,
                 .hand_over = needs->hand_over,
                 .gpu = option_u32(o, OPT_GPU_DEVICE),
                 .find_cuda = find_cuda,
                 .find_custom = find_custom,
                 .find_user = (void *)(uintptr_t)plugins, /* the registry is immutable to us */
                 .progress = on_progress,
                 .digest = needs->digest ? needs->digest : option_text(o, OPT_DIGEST),
                 .upload_chunk = option_u32(o, OPT_UPLOAD_CHUNK) << 20 },
        .fuse = FUSE_ALL,
        .pooling = pooling_of(o),
        .taps = needs->taps,
        .n_taps = needs->n_taps,
        .tokenizer = option_text(o, OPT_TOKENIZER),
        .accept = accepted.names,
        .n_accept = accepted.n,
        .adapters = adapters,
        .n_adapters = n_adapters,
        .identify = needs->identify,
    };
}

/* What of it is its user's to change. */
static const char *smaller(const struct opened *x) { return x->kv_given ? "--kv-cache-size-mb" : "--context"; }

static int refuse_vram(const struct opened *x, const char *path, uint64_t available, const char *text)
{
    const struct model *m = x->model;
    const struct log_field fields[] = { log_u("gpu_device", x->gpu.index),
                                        log_s("model", m->name),
                                        log_s("path", path),
                                        log_u("vram_required", m->plan.total),
                                        log_u("vram_available", available),
                                        { 0 } };
    return fail_with(CODE_INSUFFICIENT_VRAM, fields,
                     "%s: needs %" PRIu64 " bytes (weights %" PRIu64 ", KV cache %" PRIu64
                     " for a context of %u), GPU %u (%s) has %" PRIu64 " available of %" PRIu64
                     "%s%s; lower %s or take a smaller model",
                     path, m->plan.total, m->plan.bytes[MEMORY_WEIGHTS], m->plan.bytes[MEMORY_KV],
                     (unsigned)m->dev.context, x->gpu.index, x->gpu.name, available, x->gpu.memory, text[0] ? ": " : "",
                     text, smaller(x));
}

/* Refuses a plan that cannot fit before anything of it is allocated. */
static int check_memory(const struct opened *x, const char *path, uint64_t *available)
{
    const struct model *m = x->model;
    int result = device_available(m->device, &x->gpu, available);
    if (result || !*available || m->plan.total <= *available) return result;
    if (m->device->probe) return refuse_vram(x, path, *available, "");
    return fail(CODE_INSUFFICIENT_MEMORY,
                "%s: needs %" PRIu64 " bytes (KV cache %" PRIu64 " for a context of %u), the host has %" PRIu64
                " available; lower %s or take a smaller model",
                m->name, m->plan.total, m->plan.bytes[MEMORY_KV], (unsigned)m->dev.context, *available, smaller(x));
}

int refuse_model(wk_status status, const char *path, const char *text)
{
    const enum error_code code = error_code_of(STAGE_MODEL, status);
    return strncmp(text, path, strlen(path)) == 0 ? fail(code, "%s", text) : fail(code, "%s: %s", path, text);
}

void shard_id(const struct opened *x, const struct shard_handle *h, char out[128])
{
    (void)snprintf(out, 128, "%.80s:gpu%u:%u-of-%u", x->model->name, h->gpu_device, h->shard_index + 1,
                   h->total_shards);
}

json_t *opened_handle(const struct opened *x, const char *path)
{
    struct shard_handle h;
    char id[128];
    if (!x->model->device->handle) return NULL;
    x->model->device->handle(x->model->executor, &h);
    shard_id(x, &h, id);
    return json_pack("{s:o, s:s, s:I, s:I, s:b, s:b, s:s, s:o, s:I, s:I}", "shard_id", json_bytes(id, strlen(id)),
                     "device", x->model->device->name, "gpu_device", (json_int_t)h.gpu_device, "vram_bytes",
                     (json_int_t)h.vram_bytes, "sealed", h.sealed, "write_protected", h.write_protected, "digest",
                     h.digest, "model_ref", json_bytes(path, strlen(path)), "shard_index", (json_int_t)h.shard_index,
                     "total_shards", (json_int_t)h.total_shards);
}

static void say_loaded(const struct opened *x, const char *path, double seconds)
{
    const struct model *m = x->model;
    struct shard_handle h = { 0 };
    char id[128];
    if (!m->device->handle) {
        LOG(LOG_INFO, "model_load_complete", NULL, log_s("model", m->name), log_f("seconds", seconds),
            log_s("model_ref", path));
        return;
    }
    m->device->handle(m->executor, &h);
    shard_id(x, &h, id);
    LOG(LOG_INFO, "model_load_complete", NULL, log_s("model", m->name), log_f("seconds", seconds),
        log_s("shard_id", id), log_u("gpu_device", h.gpu_device), log_s("gpu", x->gpu.name),
        log_u("vram_bytes", h.vram_bytes), log_b("sealed", h.sealed), log_b("write_protected", h.write_protected),
        log_s("digest", h.digest), log_s("model_ref", path), log_u("shard_index", h.shard_index),
        log_u("total_shards", h.total_shards));
}

/* PTX of an old GPU knows neither the newer one's instructions nor its kernels. */
static void warn_of_ptx(const struct opened *x)
{
    const struct device_info *g = &x->gpu;
    const uint32_t ptx = x->model->device->ptx ? x->model->device->ptx(x->model->executor) : 0;
    char text[384];
    if (!ptx) return;
    (void)snprintf(text, sizeof text,
                   "this build has no machine code for GPU %u (%.63s, compute capability %u.%u): the driver compiled "
                   "its PTX of %u.%u, which is slower than code of the GPU's own; build with "
                   "-DWORKER_CUDA_ARCHITECTURES=%u%u%s-real",
                   g->index, g->name, g->major, g->minor, ptx / 10, ptx % 10, g->major, g->minor,
                   g->major == 9 && g->minor == 0 ? "a" : "");
    LOG(LOG_WARN, "kernels_from_ptx", text, log_u("gpu_device", g->index), log_u("compute", g->major * 10 + g->minor),
        log_u("ptx", ptx));
}

static int load(const struct opened *x, const char *path)
{
    struct model *m = x->model;
    uint64_t available = 0;
    ERROR_TEXT(err);
    int result = check_memory(x, path, &available);
    if (result) return result;
    const double start = seconds_now();
    LOG(LOG_INFO, "model_load_start", NULL, log_s("model", m->name), log_s("device", m->device->name),
        log_u("bytes", m->plan.total), log_s("model_ref", path));
    say_progress(path, 0);
    wk_status status = model_load(m, &err);
    if (status == WK_NO_MEMORY && m->device->probe) return refuse_vram(x, path, available, err_text);
    if (status) return refuse_model(status, path, err_text);
    say_progress(path, 1);
    if (m->device->residency && (status = m->device->residency(m->executor, &err)))
        return m->device->dead() ? fail_status(STAGE_STEP, status, &err)
                                 : fail(CODE_VRAM_RESIDENCY_FAILED, "%s: %s", path, err_text);
    warn_of_ptx(x);
    for (uint32_t i = 0; i < m->n_adapters; i++)
        LOG(LOG_INFO, "adapter_loaded", NULL, log_s("model", m->name), log_f("scale", m->adapters[i].scale),
            log_s("path", gguf_path(m->adapters[i].file)));
    say_loaded(x, path, seconds_now() - start);
    return EXIT_DONE;
}

/* Everything that is missing is named before the tape is recorded: its messages would name the first alone. */
static int refuse_missing(const struct gguf *file, const struct plugin_registry *plugins, const char *path)
{
    struct missing missing;
    if (!plugin_count(plugins))
        return fail(CODE_PLUGIN_REFUSED,
                    "%s: no plugin was found: beside bin/worker there is neither lib/worker/plugins of an installation "
                    "nor plugins of a build; leave the program where it was "
                    "installed, or name their folder with --plugin-dir",
                    path);
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
    (void)snprintf(text, sizeof text, "a context of %u is longer than the %u that the model is made for",
                   m->dev.context, most);
    LOG(LOG_WARN, "context_beyond_model", text, log_u("context", m->dev.context), log_u("context_max", most));
}

/* The KV cache, where it is not simply one of full length for every sequence. */
static int size_kv(const struct opened *x, const char *path, const struct model_needs *needs)
{
    uint64_t available = 0;
    ERROR_TEXT(err);
    int result = needs->kv_bytes ? EXIT_DONE : device_available(x->model->device, &x->gpu, &available);
    if (result) return result;
    uint64_t least = 0;
    for (uint32_t g = 0; g < x->model->program->n_groups; g++)
        least += x->model->plan.kv_page_bytes[g] *
                 kv_least(kv_span(&x->model->program->groups[g], x->model->dev.context), x->model->dev.context);
    const uint64_t fits = needs->kv_bytes ? 0 : model_kv_auto(x->model, available);
    /* Not even a page fits: the smallest plan is made, and refused with its figures. */
    wk_status status = model_set_kv(x->model, needs->kv_bytes ? needs->kv_bytes : fits > least ? fits : least, &err);
    return status ? refuse_model(status, path, err_text) : EXIT_DONE;
}

int open_model_on(const struct options *o, const struct device_ops *device, struct gguf *file, const char *path,
                  const struct model_needs *needs, struct opened *out)
{
    struct model_options options;
    ERROR_TEXT(err);
    int result = refuse_missing(file, out->plugins, path);
    if (result) {
        gguf_close(file);
        return result;
    }
    out->kv_given = needs->kv_bytes != 0;
    model_options_from(o, device, out->plugins, needs, &options);
    if (needs->text_context && model_pools(file)) options.dev.context = needs->text_context;
    options.dev.progress_user = (void *)(uintptr_t)path; /* read alone */
    wk_status status = model_plan(file, out->plugins, &options, &out->model, &err);
    if (status) return refuse_model(status, path, err_text);
    warn_of_context(out->model);
    result = capabilities_check(out->model->file, path, out->plugins, out->model->program);
    if (!result && needs->kv_sequences) result = size_kv(out, path, needs);
    return !result && needs->load ? load(out, path) : result;
}

int open_model(const struct options *o, const struct model_needs *needs, struct opened *out)
{
    const char *path = option_text(o, OPT_MODEL) ? option_text(o, OPT_MODEL) : "embedded model";
    const struct device_ops *device;
    struct gguf *file;
    *out = (struct opened){ 0 };
    int result = find_device(o, &device);
    if (!result && needs->load) result = probe_device(o, device, true, &out->gpu);
    if (!result) result = open_model_file(o, true, &file);
    if (result) return result;
    result = open_plugins(o, &out->plugins);
    if (result) {
        gguf_close(file);
        return result;
    }
    return open_model_on(o, device, file, path, needs, out);
}

void opened_close(struct opened *x)
{
    model_close(x->model);
    plugin_registry_close(x->plugins);
    *x = (struct opened){ 0 };
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
    if (stop_asked) {
        result_file_remove_temporaries();
        (void)signal(signal_number, SIG_DFL);
        (void)raise(signal_number);
    }
    stop_asked = 1;
}

/* A write that is under way goes on: it has not failed. */
static void catch_by(void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
}

void interrupts_catch(void) { catch_by(on_interrupt); }

static void on_question(int signal_number)
{
    (void)signal_number;
    stop_asked = 1;
}

void interrupts_ask(void) { catch_by(on_question); }

bool interrupted(void) { return stop_asked != 0; }
void interrupts_forget(void) { stop_asked = 0; }
