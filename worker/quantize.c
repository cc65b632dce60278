/* quantize.c: `worker quantize IN OUT TYPE`: writes a model in another encoding.
 *
 * Every tensor's type is decided and every type found before the output is begun; then tensors stream through in file
 * order, a chunk of rows at a time: dequantized by the plugin of the old type, checked to be numbers, quantized by the
 * plugin of the new one, which is told how important each column is where --imatrix says it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "plugin/format.h"
#include "base/checked.h"
#include "commands.h"
#include "errors.h"
#include "gguf/guard.h"
#include "importance.h"
#include "log/log.h"
#include "mixture.h"
#include "parallel.h"
#include "plugin/call.h"
#include "setup.h"

enum { CHUNK_BYTES = 16 << 20 };

struct tensor_job {
    const struct gguf_tensor *tensor;
    const struct wk_type_cpu *from, *to; /* equal: the bytes are copied */
    uint64_t from_bytes, to_bytes;
    bool fell_back;
};

struct quantize {
    const struct gguf *in;
    const struct plugin_registry *plugins;
    const struct mixture *mixture; /* NULL: every matrix becomes `uniform` */
    const struct wk_type_cpu *uniform;
    struct mixture_model model;
    struct importance importance;      /* file NULL: none was given */
    struct tensor_job *jobs;           /* [n] in file order */
    uint64_t n, done_bytes, all_bytes; /* of the output */
    uint32_t threads;
};

/* ---- types --------------------------------------------------------------------------------------------- */

static wk_status find_named(const struct quantize *q, const char *name, const struct gguf_tensor *t,
                            const struct wk_type_cpu **out, const struct wk_err *err)
{
    char loaded[2048];
    *out = plugin_find_type_named(q->plugins, name);
    if (*out) return WK_OK;
    if (plugin_why_not(q->plugins, name, loaded, sizeof loaded))
        return wk_fail(err, WK_UNSUPPORTED, "tensor %.*s: becomes %s: %s", (int)t->name.len, t->name.data, name,
                       loaded);
    (void)plugin_describe(q->plugins, WK_KIND_QUANT, loaded, sizeof loaded);
    return wk_fail(err, WK_UNSUPPORTED, "tensor %.*s: becomes %s, which no plugin serves; found: %s", (int)t->name.len,
                   t->name.data, name, loaded);
}

/* The type of a matrix, after falling back until its rows divide into blocks. */
static wk_status target_type(const struct quantize *q, struct tensor_job *job, const struct wk_err *err)
{
    const struct gguf_tensor *t = job->tensor;
    const char *name = q->mixture ? mixture_type(q->mixture, &q->model, t) : q->uniform->name;
    for (;;) {
        wk_status status = find_named(q, name, t, &job->to, err);
        if (status || t->ne[0] % job->to->block == 0) return status;
        const char *next = mixture_fallback(job->to->name, q->mixture && mixture_is_head(&q->model, t));
        if (!next)
            return wk_fail(err, WK_INVALID, "tensor %.*s: rows of %" PRIu64 " values fit no type", (int)t->name.len,
                           t->name.data, t->ne[0]);
        name = next;
        job->fell_back = true;
    }
}

static wk_status decide(struct quantize *q, struct tensor_job *job, const struct wk_err *err)
{
    const struct gguf_tensor *t = job->tensor;
    job->from = plugin_find_type(q->plugins, t->ggml_type, NULL);
    char type[GGUF_TYPE_TEXT], key[32], why[2048];
    (void)snprintf(key, sizeof key, "ggml:%u", t->ggml_type);
    if (!job->from && plugin_why_not(q->plugins, key, why, sizeof why))
        return wk_fail(err, WK_UNSUPPORTED, "tensor %.*s: %s", (int)t->name.len, t->name.data, why);
    if (!job->from)
        return wk_fail(err, WK_UNSUPPORTED, "tensor %.*s: is of %s, which no plugin serves", (int)t->name.len,
                       t->name.data, gguf_tensor_type_text(t->ggml_type, type));
    wk_status status = gguf_tensor_bytes(q->in, t, job->from->block, job->from->block_bytes, &job->from_bytes, err);
    job->to = job->from;
    if (!status && !mixture_keeps(t)) status = target_type(q, job, err);
    if (status) return status;
    uint64_t blocks = t->ne[0] / job->to->block;
    bool fits = true;
    for (int d = 1; d < GGUF_MAX_DIMS; d++) fits = fits && checked_mul_u64(blocks, t->ne[d], &blocks);
    if (!fits || !checked_mul_u64(blocks, job->to->block_bytes, &job->to_bytes) ||
        !checked_add_u64(q->all_bytes, job->to_bytes, &q->all_bytes))
        return wk_fail(err, WK_INVALID, "tensor %.*s: its size overflows 64 bits", (int)t->name.len, t->name.data);
    return WK_OK;
}

/* Every matrix of a layer that becomes blocks must have its importance. Others need not: the files of others leave out
 * the table of tokens and the head, and nothing is gathered of what reads one pooled row a text, nor of layers that the
 * model leaves out. */
static wk_status check_importance(const struct quantize *q, const struct wk_err *err)
{
    const wk_status status = importance_suits(&q->importance, q->in, err);
    for (uint64_t i = 0; !status && i < q->n; i++) {
        const struct tensor_job *job = &q->jobs[i];
        if (job->from == job->to || job->to->block == 1 || !mixture_is_of_step(&q->model, job->tensor) ||
            importance_has(&q->importance, job->tensor))
            continue;
        return wk_fail(err, WK_INVALID, "%s: %.*s is missing: an importance matrix of another model",
                       gguf_path(q->importance.file), (int)job->tensor->name.len, job->tensor->name.data);
    }
    return status;
}

static wk_status decide_all(struct quantize *q, const struct wk_err *err)
{
    q->n = gguf_tensor_count(q->in);
    q->jobs = calloc(q->n ? q->n : 1, sizeof *q->jobs);
    if (!q->jobs) return wk_fail(err, WK_NO_MEMORY, "no memory for %" PRIu64 " tensors", q->n);
    for (uint64_t i = 0; i < q->n; i++) {
        q->jobs[i].tensor = gguf_tensor_at(q->in, i);
        wk_status status = decide(q, &q->jobs[i], err);
        if (status) return status;
    }
    return q->importance.file ? check_importance(q, err) : WK_OK;
}

/* From a file of quantized tensors another quantization is worse than from the original. */
static void warn_of_loss(const struct quantize *q)
{
    char text[160];
    uint64_t n = 0;
    for (uint64_t i = 0; i < q->n; i++) n += q->jobs[i].from != q->jobs[i].to && q->jobs[i].from->block > 1;
    if (!n) return;
    (void)snprintf(
        text, sizeof text,
        "%" PRIu64
        " tensors are quantized already, and what that lost stays lost: better begin from a file in F32, F16 or BF16",
        n);
    LOG(LOG_WARN, "requantized", text, log_u("tensors", n));
}

/* ---- data ---------------------------------------------------------------------------------------------- */

/* Rows [first, first + rows) of one tensor. Thread i of n takes every n-th row. */
struct conversion {
    const struct tensor_job *job;
    const uint8_t *src;
    uint8_t *dst; /* [rows][to_row] */
    uint64_t first, rows, from_row, to_row;
    float *values;     /* [threads][ne0] */
    float *importance; /* [slabs][ne0]; NULL: all alike */
    struct {
        uint64_t row, column;
        bool broken;
        wk_status status;
        char text[256];
    } found[PARALLEL_MAX]; /* a thread's first failure */
};

static void convert_rows(void *user, uint32_t index, uint32_t n)
{
    struct conversion *c = user;
    const uint64_t width = c->job->tensor->ne[0];
    float *x = c->values + index * width;
    for (uint64_t r = index; r < c->rows; r += n) {
        struct plugin_call call;
        PLUGIN_CALL(&call, c->job->from->dequantize, "dequantize");
        format_dequantize(c->job->from, x, c->src + r * c->from_row, width);
        plugin_call_end(&call);
        uint64_t i = 0;
        while (i < width && isfinite(x[i])) i++;
        c->found[index].row = c->first + r;
        c->found[index].column = i;
        c->found[index].broken = i < width;
        if (i < width) return;
        const struct wk_err err = { c->found[index].text, sizeof c->found[index].text };
        PLUGIN_CALL(&call, c->job->to->quantize, "quantize");
        const uint64_t slab = (c->first + r) / c->job->tensor->ne[1];
        c->found[index].status =
            format_quantize_row(c->job->to, c->dst + r * c->to_row, x,
                                c->importance ? c->importance + slab * width : NULL, (uint32_t)width, &err);
        plugin_call_end(&call);
        if (c->found[index].status) return;
    }
}

/* The failure in the lowest row, so that the message does not depend on the number of threads. */
static wk_status conversion_result(const struct conversion *c, uint32_t threads, const struct wk_err *err)
{
    const struct gguf_tensor *t = c->job->tensor;
    uint32_t worst = threads;
    for (uint32_t i = 0; i < threads; i++)
        if ((c->found[i].broken || c->found[i].status) && (worst == threads || c->found[i].row < c->found[worst].row))
            worst = i;
    if (worst == threads) return WK_OK;
    if (c->found[worst].broken)
        return wk_fail(err, WK_INVALID, "tensor %.*s: value %" PRIu64 " is not a finite number; the model is damaged",
                       (int)t->name.len, t->name.data, c->found[worst].row * t->ne[0] + c->found[worst].column);
    return wk_fail(err, c->found[worst].status, "tensor %.*s: row %" PRIu64 ": %s", (int)t->name.len, t->name.data,
                   c->found[worst].row, c->found[worst].text);
}

static wk_status convert(struct quantize *q, const struct tensor_job *job, struct conversion *c, struct gguf_writer *w,
                         const struct wk_err *err)
{
    const struct gguf_tensor *t = job->tensor;
    const uint64_t rows = t->ne[1] * t->ne[2] * t->ne[3]; /* checked when its bytes were */
    const uint8_t *data = gguf_tensor_data(q->in, t);
    *c = (struct conversion){ .job = job, .from_row = job->from_bytes / rows, .to_row = job->to_bytes / rows };
    const uint64_t most = CHUNK_BYTES / c->to_row ? CHUNK_BYTES / c->to_row : 1, chunk = most < rows ? most : rows;
    uint8_t *src =
        malloc(chunk * c->from_row); /* a copy, made under guard: the file may be cut short while we read it */
    c->src = src;
    c->dst = malloc(chunk * c->to_row);
    c->values = malloc(q->threads * t->ne[0] * sizeof(float));
    wk_status status = src && c->dst && c->values ? WK_OK
                                                  : wk_fail(err, WK_NO_MEMORY, "tensor %.*s: no memory for its rows",
                                                            (int)t->name.len, t->name.data);
    if (!status && q->importance.file) status = importance_of(&q->importance, t, &c->importance, err);
    for (c->first = 0; !status && c->first < rows; c->first += c->rows) {
        if (interrupted()) status = wk_fail(err, WK_CANCELLED, "stopped");
        if (status) break;
        c->rows = rows - c->first < chunk ? rows - c->first : chunk;
        status = gguf_guarded_copy(src, data + c->first * c->from_row, c->rows * c->from_row, err);
        if (status) break;
        parallel(q->threads, convert_rows, c);
        status = conversion_result(c, q->threads, err);
        if (!status) status = gguf_writer_data(w, c->dst, c->rows * c->to_row, err);
        q->done_bytes += c->rows * c->to_row;
        log_progress("quantize_progress", "quantize", NULL, (double)q->done_bytes / (double)q->all_bytes);
    }
    free(src);
    free(c->dst);
    free(c->values);
    free(c->importance);
    return status;
}

/* A tensor that keeps its type: its bytes, in pieces. */
static wk_status copy_tensor(struct quantize *q, const struct tensor_job *job, struct gguf_writer *w,
                             const struct wk_err *err)
{
    const uint8_t *data = gguf_tensor_data(q->in, job->tensor);
    const uint64_t chunk = job->to_bytes < CHUNK_BYTES ? job->to_bytes : CHUNK_BYTES;
    uint8_t *piece = malloc(chunk);
    wk_status status = piece ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory for %" PRIu64 " bytes", chunk);
    for (uint64_t at = 0; !status && at < job->to_bytes; at += chunk) {
        const uint64_t n = job->to_bytes - at < chunk ? job->to_bytes - at : chunk;
        status = gguf_guarded_copy(piece, data + at, n, err);
        if (!status) status = gguf_writer_data(w, piece, n, err);
    }
    q->done_bytes += job->to_bytes;
    free(piece);
    return status;
}

static wk_status write_header(struct quantize *q, struct gguf_writer *w, const struct wk_err *err)
{
    char owner[sizeof GGUF_OWNER_KEY + 12] = "";
    const bool own = q->uniform && q->uniform->ggml_type >= GGUF_OWN_TYPES;
    if (own) (void)snprintf(owner, sizeof owner, GGUF_OWNER_KEY "%u", (unsigned)q->uniform->ggml_type);
    const char *const replaced[] = { "general.file_type", "general.quantization_version", own ? owner : NULL, NULL };
    wk_status status = gguf_writer_copy_metadata(w, q->in, replaced, err);
    if (!status && own) status = gguf_writer_str(w, owner, plugin_type_owner(q->plugins, q->uniform->ggml_type), err);
    if (!status && q->mixture) status = gguf_writer_u32(w, "general.file_type", q->mixture->file_type, err);
    if (!status) status = gguf_writer_u32(w, "general.quantization_version", 2, err);
    for (uint64_t i = 0; !status && i < q->n; i++) {
        const struct tensor_job *job = &q->jobs[i];
        status = gguf_writer_tensor(w, job->tensor->name, job->to->ggml_type, job->tensor->n_dims, job->tensor->ne,
                                    job->to_bytes, err);
    }
    return status;
}

static wk_status write_all(struct quantize *q, const char *path, const struct wk_err *err)
{
    struct gguf_writer *w;
    struct conversion *c = malloc(sizeof *c); /* large: one message for each thread */
    if (!c) return wk_fail(err, WK_NO_MEMORY, "no memory");
    wk_status status = gguf_writer_open(path, &w, err);
    if (!status) {
        status = write_header(q, w, err);
        for (uint64_t i = 0; !status && i < q->n; i++) {
            const struct tensor_job *job = &q->jobs[i];
            status = job->from == job->to ? copy_tensor(q, job, w, err) : convert(q, job, c, w, err);
        }
        if (status)
            gguf_writer_abandon(w);
        else
            status = gguf_writer_finish(w, err);
    }
    free(c);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Is `out` one of the files that `in` is read from? Shards are called <prefix>-00001-of-00003.gguf. */
static bool is_input(const struct gguf *in, const char *out)
{
    const char *path = gguf_path(in);
    const size_t tail = strlen("-00001-of-00003.gguf"), len = strlen(path);
    const uint32_t shards = gguf_shard_count(in);
    bool found = same_file(path, out);
    for (uint32_t i = 2; !found && len > tail && i <= shards; i++) {
        char *shard;
        if (asprintf(&shard, "%.*s-%05u-of-%05u.gguf", (int)(len - tail), path, i, shards) < 0) return true;
        found = same_file(shard, out);
        free(shard);
    }
    return found;
}

/* "290 tensors: 121 f32, 132 q5_0, ...": in order of first appearance. */
static void report(const struct quantize *q, const char *out, bool json)
{
    uint64_t fell_back = 0;
    if (json) {
        LOG(LOG_INFO, "quantize_complete", NULL, log_s("path", out), log_u("tensors", q->n),
            log_u("bytes", q->all_bytes));
        return;
    }
    (void)fprintf(stderr, "worker: %s: %" PRIu64 " tensors, %" PRIu64 " bytes:", out, q->n, q->all_bytes);
    for (uint64_t i = 0; i < q->n; i++) {
        uint64_t count = 0, earlier = 0;
        fell_back += q->jobs[i].fell_back;
        while (earlier < i && q->jobs[earlier].to != q->jobs[i].to) earlier++;
        if (earlier < i) continue;
        for (uint64_t k = i; k < q->n; k++) count += q->jobs[k].to == q->jobs[i].to;
        (void)fprintf(stderr, " %" PRIu64 " %s", count, q->jobs[i].to->name);
    }
    if (fell_back)
        (void)fprintf(stderr,
                      " (%" PRIu64
                      " of them because their rows do not divide into the blocks of the type that the mixture has)",
                      fell_back);
    (void)fputc('\n', stderr);
}

static int quantize_file(struct quantize *q, const char *out, const char *type, const char *imatrix, bool json)
{
    ERROR_TEXT(err);
    q->mixture = mixture_named(type);
    q->uniform = q->mixture ? NULL : plugin_find_type_named(q->plugins, type);
    if (!q->mixture && !q->uniform) {
        char loaded[2048];
        if (plugin_why_not(q->plugins, type, loaded, sizeof loaded))
            return fail(CODE_PLUGIN_REFUSED, "%s: %s", type, loaded);
        (void)plugin_describe(q->plugins, WK_KIND_QUANT, loaded, sizeof loaded);
        return fail(CODE_INVALID_REQUEST,
                    "%s: neither a mixture (see worker quantize --help) nor a type that a plugin serves; found: %s",
                    type, loaded);
    }
    if (is_input(q->in, out)) return fail(CODE_INVALID_REQUEST, "%s: is the input itself; name another file", out);
    q->model = mixture_model_of(q->in, imatrix);
    wk_status status = imatrix ? importance_open(imatrix, &q->importance, &err) : WK_OK;
    if (status) return refuse_model(status, imatrix, err_text);
    status = decide_all(q, &err);
    if (status) return refuse_model(status, gguf_path(q->in), err_text);
    warn_of_loss(q);
    interrupts_catch();
    status = write_all(q, out, &err);
    if (status && interrupted()) return EXIT_INTERRUPTED;
    if (status == WK_IO) return fail_status(STAGE_OUTPUT, status, &err);
    if (status) return refuse_model(status, gguf_path(q->in), err_text);
    report(q, out, json);
    return EXIT_DONE;
}

int command_quantize(const struct options *o)
{
    struct quantize q = { .threads = option_u32(o, OPT_THREADS) ? option_u32(o, OPT_THREADS) : parallel_processors() };
    struct gguf *in = NULL;
    struct plugin_registry *plugins = NULL;
    int result = open_path(o, o->operands[0], &in);
    if (!result) result = open_plugins(o, &plugins);
    if (!result) {
        q.in = in;
        q.plugins = plugins;
        result = quantize_file(&q, o->operands[1], o->operands[2], option_text(o, OPT_IMATRIX), log_is_json(o));
    }
    importance_close(&q.importance);
    free(q.jobs);
    plugin_registry_close(plugins);
    gguf_close(in);
    return result;
}
