/* debug.c: `worker debug tape` and `worker debug tap` (`kernels`: debug_kernels.c).
 *
 * A tap is a second reader of a value of the recorded pass: fusion leaves it whole, and its rows come out here, one
 * .npy file (NumPy format 1.0, F32 [rows, width]) for each value, with an index.json that also holds the ids and the
 * argmax of the last row. Three names are no values of the pass but made of its results: selected_logits, the row that
 * the next token is chosen from, probabilities, its softmax, and output_embedding, the row of the whole text as a model
 * of embeddings gives it. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/result_file.h"
#include "capabilities.h"
#include "commands.h"
#include "debug.h"
#include "errors.h"
#include "json_out.h"
#include "session_tokens.h"
#include "setup.h"

enum { MAX_TAPS = 256, TAP_NAME = TAPE_NAME + 8 /* ".scores" */ };

#define SELECTED_LOGITS "selected_logits"
#define PROBABILITIES "probabilities"
#define OUTPUT_EMBEDDING "output_embedding"

struct tapped {
    char name[TAP_NAME];
    float *data;
    uint32_t rows, width;
};

struct tap_run {
    struct model *model;
    struct session *session;
    struct id_list tokens;
    float *logits; /* [tokens][n_vocab]; NULL: the model gives none */
    struct tapped *values;
    uint32_t n_values, cap;
    bool no_memory, selected, probabilities, embedding; /* the last three: asked for */
};

/* ---- catching values ----------------------------------------------------------------------------------- */

static void catch_value(void *user, const char *name, const float *data, uint32_t rows, uint32_t width)
{
    struct tap_run *t = user;
    const uint64_t bytes = (uint64_t)rows * width * sizeof *data;
    if (t->n_values == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 64;
        struct tapped *grown = realloc(t->values, cap * sizeof *grown);
        if (!grown) {
            t->no_memory = true;
            return;
        }
        t->values = grown;
        t->cap = cap;
    }
    struct tapped *v = &t->values[t->n_values];
    *v = (struct tapped){ .data = malloc(bytes ? bytes : 1), .rows = rows, .width = width };
    t->no_memory = t->no_memory || !v->data;
    if (!v->data) return;
    memcpy(v->data, data, bytes);
    (void)snprintf(v->name, sizeof v->name, "%s", name);
    t->n_values++;
}

static const float *last_row(const struct tap_run *t)
{
    return t->logits + (uint64_t)(t->tokens.n - 1) * t->model->program->n_vocab;
}

/* At temperature 1. Sums are doubles, from the row's largest logit: what is far below it is 0, nothing is infinite. */
static void catch_probabilities(struct tap_run *t)
{
    const uint32_t n = t->model->program->n_vocab;
    const float *row = last_row(t);
    float *out = malloc(n * sizeof *out), most = row[0];
    double sum = 0;
    t->no_memory = t->no_memory || !out;
    if (!out) return;
    for (uint32_t i = 1; i < n; i++) most = row[i] > most ? row[i] : most;
    for (uint32_t i = 0; i < n; i++) sum += exp((double)row[i] - most);
    for (uint32_t i = 0; i < n; i++) out[i] = (float)(exp((double)row[i] - most) / sum);
    catch_value(t, PROBABILITIES, out, 1, n);
    free(out);
}

/* every: all that there is was asked for, nothing by name. */
static int check_results(struct tap_run *t, bool every)
{
    const struct tape_program *p = t->model->program;
    const bool logits = tape_gives_logits(p), embedding = p->embedding_width != 0;
    if (!every && !logits && (t->selected || t->probabilities))
        return fail(CODE_INVALID_REQUEST,
                    "%s: gives no logits, of which " SELECTED_LOGITS " and " PROBABILITIES " are made", t->model->name);
    if (!every && !embedding && t->embedding)
        return fail(CODE_INVALID_REQUEST, "%s: gives no embedding, which is what " OUTPUT_EMBEDDING " is",
                    t->model->name);
    t->selected = t->selected && logits;
    t->probabilities = t->probabilities && logits;
    t->embedding = t->embedding && embedding;
    return EXIT_DONE;
}

static int run_once(struct tap_run *t)
{
    const struct tape_program *p = t->model->program;
    const bool logits = tape_gives_logits(p);
    ERROR_TEXT(err);
    t->logits = logits ? malloc((uint64_t)t->tokens.n * p->n_vocab * sizeof *t->logits) : NULL;
    if (logits && !t->logits) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for logits");
    wk_status status = session_open(t->model, &t->session, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    t->model->device->taps(t->model->executor, catch_value, t);
    status =
        session_feed(t->session, t->tokens.ids, t->tokens.n, ROW_PROMPT, logits ? t->tokens.n : 0, t->logits, &err);
    t->model->device->taps(t->model->executor, NULL, NULL);
    if (status) return fail_status(STAGE_STEP, status, &err);
    if (t->selected) catch_value(t, SELECTED_LOGITS, last_row(t), 1, p->n_vocab);
    if (t->probabilities) catch_probabilities(t);
    if (t->embedding) catch_value(t, OUTPUT_EMBEDDING, session_embedding(t->session), 1, p->embedding_width);
    return t->no_memory ? fail(CODE_INSUFFICIENT_MEMORY, "no memory for the tapped values") : EXIT_DONE;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

/* Makes the folder, or accepts one that is empty. */
static int make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0) return EXIT_DONE;
    if (errno != EEXIST) return fail(CODE_OUTPUT_FAILED, "%s: cannot be made: %s", path, strerror(errno));
    DIR *d = opendir(path);
    if (!d) return fail(CODE_OUTPUT_FAILED, "%s: cannot be read: %s", path, strerror(errno));
    bool empty = true;
    for (const struct dirent *e; empty && (e = readdir(d));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    (void)closedir(d);
    return empty ? EXIT_DONE : fail(CODE_OUTPUT_FAILED, "%s: is not empty; name a new folder", path);
}

/* NumPy format 1.0: magic, version, length of the header, the header as a Python literal padded so that data begin at a
 * multiple of 64. */
static void write_npy(struct result_file *out, const float *data, uint32_t rows, uint32_t width)
{
    char head[128];
    int n = snprintf(head, sizeof head, "{'descr': '<f4', 'fortran_order': False, 'shape': (%u, %u), }", rows, width);
    memset(head + n, ' ', sizeof head - (size_t)n);
    head[117] = '\n';                                              /* 10 bytes come before: 128 in all */
    (void)result_file_write(out, "\x93NUMPY\x01\x00\x76\x00", 10); /* a failed write shows at the end */
    (void)result_file_write(out, head, 118);
    (void)result_file_write(out, data, (uint64_t)rows * width * sizeof *data);
}

/* A value's name is its file's name where a file system can have it. */
static void file_name(const struct tapped *v, uint32_t i, char out[TAP_NAME + 8])
{
    const bool plain =
        v->name[0] != '.' &&
        strspn(v->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(v->name);
    if (plain)
        (void)snprintf(out, TAP_NAME + 8, "%s.npy", v->name);
    else
        (void)snprintf(out, TAP_NAME + 8, "value-%u.npy", i);
}

static int write_file(const char *folder, const char *name, const struct tapped *v, const char *json)
{
    struct result_file f;
    char *path;
    ERROR_TEXT(err);
    if (asprintf(&path, "%s/%s", folder, name) < 0) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for a name");
    wk_status status = result_file_open(path, &f, &err);
    free(path);
    if (status == WK_OK) {
        if (v)
            write_npy(&f, v->data, v->rows, v->width);
        else if (result_file_write(&f, json, strlen(json)))
            (void)result_file_write(&f, "\n", 1);
        status = result_file_finish(&f, &err);
    }
    return status ? fail_status(STAGE_OUTPUT, status, &err) : EXIT_DONE;
}

static uint32_t last_argmax(const struct tap_run *t)
{
    const uint32_t n = t->model->program->n_vocab;
    const float *row = last_row(t);
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static int write_index(const struct tap_run *t, const char *folder, json_t *taps)
{
    json_t *ids = json_array();
    for (uint32_t i = 0; i < t->tokens.n; i++) (void)json_array_append_new(ids, json_integer(t->tokens.ids[i]));
    json_t *index = json_pack("{s:o, s:o, s:I, s:o*, s:o}", "model", json_bytes(t->model->name, strlen(t->model->name)),
                              "ids", ids, "context", (json_int_t)t->model->dev.context, "argmax",
                              t->logits ? json_integer(last_argmax(t)) : NULL, "taps", taps);
    char *text = index ? json_dumps(index, JSON_INDENT(1)) : NULL;
    json_decref(index);
    if (!text) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the index");
    int result = write_file(folder, "index.json", NULL, text);
    free(text);
    return result;
}

static int write_folder(const struct tap_run *t, const char *folder)
{
    json_t *taps = json_array();
    int result = make_folder(folder);
    for (uint32_t i = 0; !result && i < t->n_values; i++) {
        const struct tapped *v = &t->values[i];
        char name[TAP_NAME + 8];
        file_name(v, i, name);
        (void)json_array_append_new(taps, json_pack("{s:s, s:s, s:[I, I]}", "name", v->name, "file", name, "shape",
                                                    (json_int_t)v->rows, (json_int_t)v->width));
        result = write_file(folder, name, v, NULL);
    }
    if (result) {
        json_decref(taps);
        return result;
    }
    return write_index(t, folder, taps);
}

/* ---- the commands -------------------------------------------------------------------------------------- */

/* --tap all: every value, and the scores of every attention, which have to be asked for by name. */
static int expand_all(const struct options *o, const char ***names, uint32_t *n)
{
    struct opened x;
    int result = open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS, .max_logits_rows = STEP_ROWS }, &x);
    const struct tape_program *p = result ? NULL : x.model->program;
    *names = p ? calloc((size_t)p->n_ops + 1, sizeof **names) : NULL;
    if (!result && !*names) result = fail(CODE_INSUFFICIENT_MEMORY, "no memory for names");
    if (!result) (*names)[(*n)++] = strdup("*");
    for (uint32_t i = 0; !result && i < p->n_ops; i++) {
        char *name;
        if (p->ops[i].kind != WK_OP_ATTENTION) continue;
        if (asprintf(&name, "%s.scores", p->values[p->ops[i].out].name) < 0)
            result = fail(CODE_INSUFFICIENT_MEMORY, "no memory for names");
        else
            (*names)[(*n)++] = name;
    }
    opened_close(&x);
    return result;
}

/* Takes what is made of results out of the names, of which the pass is asked for the rest. */
static uint32_t without_made(struct tap_run *t, const char **names, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool selected = strcmp(names[i], SELECTED_LOGITS) == 0,
                   probabilities = strcmp(names[i], PROBABILITIES) == 0,
                   embedding = strcmp(names[i], OUTPUT_EMBEDDING) == 0;
        t->selected = t->selected || selected;
        t->probabilities = t->probabilities || probabilities;
        t->embedding = t->embedding || embedding;
        if (!selected && !probabilities && !embedding) names[kept++] = names[i];
    }
    return kept;
}

static int tap(const struct options *o)
{
    struct opened x = { 0 };
    struct tap_run t = { 0 };
    const char *given[MAX_TAPS], **all = NULL, *folder = option_text(o, OPT_OUT);
    uint32_t n_all = 0, n = option_list(o, OPT_TAP, given, MAX_TAPS);
    if (!n || !folder) return fail_usage("debug", "tap needs --tap NAME and --out DIR");
    int result = session_tokens_usage(o);
    const bool every = n == 1 && strcmp(given[0], "all") == 0;
    t.selected = t.probabilities = t.embedding = every;
    if (!every) n = without_made(&t, given, n);
    if (!result && every) result = expand_all(o, &all, &n_all);
    struct model_needs needs = { .max_rows = STEP_ROWS,
                                 .max_logits_rows = STEP_ROWS,
                                 .load = true,
                                 .taps = every ? all : given,
                                 .n_taps = every ? n_all : n };
    if (!result) result = open_model(o, &needs, &x);
    t.model = x.model;
    if (!result) result = check_results(&t, every);
    if (!result) result = session_tokens(o, t.model, &t.tokens);
    if (!result && t.tokens.n > t.model->dev.context)
        result =
            fail(CODE_CONTEXT_LENGTH_EXCEEDED, "the text has %u tokens, the context %u; shorten it or raise --context",
                 t.tokens.n, t.model->dev.context);
    if (!result && t.tokens.n > STEP_ROWS)
        result = fail(CODE_INVALID_REQUEST, "tap takes one step of at most %d tokens, the text has %u; shorten it",
                      STEP_ROWS, t.tokens.n);
    if (!result) result = run_once(&t);
    if (!result) result = write_folder(&t, folder);
    for (uint32_t i = 0; i < n_all; i++) free((char *)(uintptr_t)all[i]);
    free(all);
    for (uint32_t i = 0; i < t.n_values; i++) free(t.values[i].data);
    free(t.values);
    free(t.logits);
    free(t.tokens.ids);
    session_close(t.session);
    opened_close(&x);
    return result;
}

static int tape(const struct options *o)
{
    struct opened x;
    char digest[65];
    int result = open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS, .max_logits_rows = 1 }, &x);
    if (!result) {
        tape_print(x.model->program, stdout);
        tape_digest(x.model->program, digest);
        (void)printf("digest %s\n", digest);
    }
    opened_close(&x);
    return result;
}

int command_debug(const struct options *o)
{
    const char *action = o->operands[0];
    if (strcmp(action, "tap") == 0) return tap(o);
    if (strcmp(action, "tape") == 0) return tape(o);
    if (strcmp(action, "kernels") == 0) return debug_kernels(o);
    return fail_usage("debug", "expected tap, tape or kernels");
}
