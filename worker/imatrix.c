/* imatrix.c: `worker imatrix`: what the columns of a model's matrices are multiplied with while it reads a text: the
 * importance that `worker quantize --imatrix` weighs errors by.
 *
 * The values that products read are tapped, and the ids that routes choose beside them, so that each expert has the
 * sums of its own rows. Sums are of squares, in doubles, in the order of the text; they do not depend on threads. The
 * text is cut into windows of the context, each of which begins anew. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "errors.h"
#include "gguf/gguf.h"
#include "importance.h"
#include "log/log.h"
#include "session_tokens.h"
#include "setup.h"

enum { WINDOW = 512, ROWS = 64 /* of a step: all tapped values of so many rows are kept */ };

/* A value that products read, or the ids of a route: the rows of the step that was last seen. */
struct source {
    char name[TAPE_NAME + 8];
    bool kept; /* experts wait for the other of x and ids */
    float *data;
    size_t cap; /* floats of data */
    uint32_t rows, width;
    uint64_t steps; /* that gave it */
};
/* Sums of one tensor of the file, or of one slab where each is a tensor: [slabs][k]. */
struct entry {
    const struct tape_tensor *tensor;
    double *sums;     /* [slabs][k] */
    uint64_t *counts; /* [slabs] rows */
};
/* A tensor that reads a value; of experts with the ids that choose its slabs. */
struct site {
    uint32_t entry, x, ids, k; /* ids: TAPE_NONE: a dense product; k: values of a row of a slab */
    bool heads;                /* each part of x has its own slab */
};
struct gathering {
    struct model *model;
    struct source *sources; /* [n_sources] */
    struct entry *entries;  /* [n_entries] */
    struct site *sites;     /* [n_sites] */
    const char **taps;      /* [n_sources] */
    uint32_t n_sources, n_entries, n_sites;
    bool no_memory;
};

/* ---- what is to be seen -------------------------------------------------------------------------------- */

static uint32_t source_of(struct gathering *g, const char *value, const char *tail, bool kept)
{
    char name[TAPE_NAME + 8];
    uint32_t i = 0;
    (void)snprintf(name, sizeof name, "%s%s", value, tail);
    while (i < g->n_sources && strcmp(g->sources[i].name, name) != 0) i++;
    if (i == g->n_sources) memcpy(g->sources[g->n_sources++].name, name, sizeof name);
    g->sources[i].kept |= kept;
    return i;
}

static bool make_entry(struct gathering *g, const struct tape_tensor *t)
{
    struct entry *e = &g->entries[g->n_entries++];
    *e = (struct entry){ .tensor = t,
                         .sums = calloc((size_t)t->slabs * t->cols, sizeof *e->sums),
                         .counts = calloc(t->slabs, sizeof *e->counts) };
    return e->sums && e->counts;
}

static bool add_site(struct gathering *g, const struct tape_program *p, const struct tape_op *o)
{
    const struct tape_tensor *t = &p->tensors[o->t[0]];
    const struct tape_value *x = &p->values[o->in[0]];
    const bool expert = o->kind == WK_OP_EXPERT;
    struct site s = { .k = t->cols, .heads = o->kind == WK_OP_LINEAR_HEADS };
    if (x->pooled) return true; /* one row a text: too few to tell */
    while (s.entry < g->n_entries && g->entries[s.entry].tensor != t) s.entry++;
    if (s.entry == g->n_entries && !make_entry(g, t)) return false;
    s.x = source_of(g, x->name, "", expert);
    s.ids = expert ? source_of(g, p->values[o->in[1]].name, ".ids", true) : TAPE_NONE;
    for (uint32_t i = 0; i < g->n_sites; i++) /* row ranges of one tensor read the same */
        if (g->sites[i].entry == s.entry && g->sites[i].x == s.x && g->sites[i].ids == s.ids) return true;
    g->sites[g->n_sites++] = s;
    return true;
}

static bool find_sites(struct gathering *g, const struct tape_program *p)
{
    g->sources = calloc((size_t)p->n_ops * 2, sizeof *g->sources);
    g->entries = calloc(p->n_tensors, sizeof *g->entries);
    g->sites = calloc(p->n_ops, sizeof *g->sites);
    g->taps = calloc((size_t)p->n_ops * 2, sizeof *g->taps);
    if (!g->sources || !g->entries || !g->sites || !g->taps) return false;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct tape_op *o = &p->ops[i];
        const bool product = o->kind == WK_OP_LINEAR || o->kind == WK_OP_EXPERT || o->kind == WK_OP_LINEAR_HEADS;
        if (product && !add_site(g, p, o)) return false;
    }
    for (uint32_t i = 0; i < g->n_sources; i++) g->taps[i] = g->sources[i].name;
    return true;
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

static void add_row(struct entry *e, uint32_t slab, const float *x, uint32_t k)
{
    double *sums = e->sums + (uint64_t)slab * k;
    for (uint32_t j = 0; j < k; j++) sums[j] += (double)x[j] * x[j];
    e->counts[slab]++;
}

static void add_dense(struct gathering *g, const struct site *s, const float *data, uint32_t rows, uint32_t width)
{
    const uint32_t parts = width / s->k;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < parts; i++)
            add_row(&g->entries[s->entry], s->heads ? i : 0, data + ((uint64_t)r * parts + i) * s->k, s->k);
}

static void add_experts(struct gathering *g, const struct site *s)
{
    const struct source *x = &g->sources[s->x], *ids = &g->sources[s->ids];
    const uint32_t given = x->width / s->k;
    for (uint32_t r = 0; r < x->rows && r < ids->rows; r++)
        for (uint32_t i = 0; i < ids->width; i++)
            add_row(&g->entries[s->entry], (uint32_t)ids->data[(uint64_t)r * ids->width + i],
                    x->data + ((uint64_t)r * given + (given == 1 ? 0 : i)) * s->k, s->k);
}

static bool keep(struct source *s, const float *data, uint32_t rows, uint32_t width)
{
    const size_t n = (size_t)rows * width;
    if (n > s->cap) {
        float *more = realloc(s->data, n * sizeof *more);
        if (!more) return false;
        s->data = more;
        s->cap = n;
    }
    memcpy(s->data, data, n * sizeof *data);
    return true;
}

static void on_value(void *user, const char *name, const float *data, uint32_t rows, uint32_t width)
{
    struct gathering *g = user;
    uint32_t i = 0;
    while (i < g->n_sources && strcmp(g->sources[i].name, name) != 0) i++;
    if (i == g->n_sources) return;
    struct source *s = &g->sources[i];
    s->rows = rows;
    s->width = width;
    s->steps++;
    if (s->kept && !keep(s, data, rows, width)) g->no_memory = true;
    for (uint32_t k = 0; !g->no_memory && k < g->n_sites; k++) {
        const struct site *t = &g->sites[k];
        if (t->ids == TAPE_NONE && t->x == i) add_dense(g, t, data, rows, width);
        /* Whichever comes second has both. */
        if (t->ids != TAPE_NONE && (t->x == i || t->ids == i) && g->sources[t->x].steps == g->sources[t->ids].steps)
            add_experts(g, t);
    }
}

/* ---- the text ------------------------------------------------------------------------------------------ */

static int read_text(struct gathering *g, const struct id_list *ids, uint32_t *windows)
{
    const uint32_t context = g->model->dev.context;
    const uint32_t most = tape_whole_prompt(g->model->program) ? context : ROWS;
    struct session *session;
    ERROR_TEXT(err);
    wk_status s = session_open(g->model, &session, &err);
    if (s) return fail_status(STAGE_MODEL, s, &err);
    g->model->device->taps(g->model->executor, on_value, g);
    for (uint32_t window = 0; !s && window < ids->n; window += context, (*windows)++) {
        const uint32_t end = ids->n - window < context ? ids->n : window + context;
        session_reset(session);
        for (uint32_t at = window; !s && at < end; at += most) {
            if (interrupted()) s = WK_CANCELLED;
            if (!s)
                s = session_feed(session, ids->ids + at, end - at < most ? end - at : most, ROW_PROMPT, 0, NULL, &err);
        }
        log_progress("imatrix_progress", "imatrix", NULL, (double)end / ids->n);
    }
    g->model->device->taps(g->model->executor, NULL, NULL);
    session_close(session);
    if (interrupted()) return EXIT_INTERRUPTED;
    if (g->no_memory) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the values of a step");
    return s ? fail_status(STAGE_STEP, s, &err) : EXIT_DONE;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

/* Slabs [first, first + n) of an entry under a tensor's name; declared, or written. */
static wk_status put_entry(struct gguf_writer *w, const struct entry *e, const struct gguf_tensor *t, uint32_t first,
                           uint32_t n, bool data, const struct wk_err *err)
{
    const uint32_t k = e->tensor->cols;
    const uint64_t sums[2] = { k, n }, counts[2] = { 1, n };
    char name[2][2 * GGUF_MAX_NAME];
    float number;
    wk_status s = WK_OK;
    for (int i = 0; i < 2; i++)
        (void)snprintf(name[i], sizeof name[i], "%.*s%s", (int)t->name.len, t->name.data,
                       i ? IMPORTANCE_COUNTS : IMPORTANCE_SUMS);
    if (!data) {
        s = gguf_writer_tensor(w, (struct gguf_str){ name[0], strlen(name[0]) }, 0, 2, sums,
                               (uint64_t)k * n * sizeof number, err);
        return s ? s
                 : gguf_writer_tensor(w, (struct gguf_str){ name[1], strlen(name[1]) }, 0, 2, counts,
                                      (uint64_t)n * sizeof number, err);
    }
    for (uint64_t j = (uint64_t)first * k; !s && j < (uint64_t)(first + n) * k; j++) {
        number = (float)e->sums[j];
        if (!isfinite(number))
            return wk_fail(
                err, WK_INVALID,
                "%.*s: the values that it is multiplied with become infinite or NaN: the weights are damaged "
                "or overflow",
                (int)t->name.len, t->name.data);
        s = gguf_writer_data(w, &number, sizeof number, err);
    }
    for (uint32_t j = first; !s && j < first + n; j++) {
        number = (float)e->counts[j];
        s = gguf_writer_data(w, &number, sizeof number, err);
    }
    return s;
}

static wk_status put_entries(struct gguf_writer *w, const struct gathering *g, bool data, const struct wk_err *err)
{
    wk_status s = WK_OK;
    for (uint32_t i = 0; !s && i < g->n_entries; i++) {
        const struct tape_tensor *t = g->entries[i].tensor;
        if (!t->slab_files) s = put_entry(w, &g->entries[i], t->file, 0, t->slabs, data, err);
        for (uint32_t k = 0; !s && t->slab_files && k < t->slabs; k++)
            s = put_entry(w, &g->entries[i], t->slab_files[k], k, 1, data, err);
    }
    return s;
}

static wk_status write_file(const struct gathering *g, const char *path, const char *text, uint32_t windows,
                            const struct wk_err *err)
{
    struct gguf_writer *w;
    wk_status s = gguf_writer_open(path, &w, err);
    if (s) return s;
    s = gguf_writer_str(w, "general.type", IMPORTANCE_TYPE, err);
    if (!s) s = gguf_writer_strs(w, "imatrix.datasets", &text, text ? 1 : 0, err);
    if (!s) s = gguf_writer_u32(w, "imatrix.chunk_count", windows, err);
    if (!s) s = gguf_writer_u32(w, "imatrix.chunk_size", g->model->dev.context, err);
    if (!s) s = put_entries(w, g, false, err);
    if (!s) s = put_entries(w, g, true, err);
    if (!s) return gguf_writer_finish(w, err);
    gguf_writer_abandon(w);
    return s;
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* Experts that the text never reached keep equal importances. */
static void warn_of_unseen(const struct gathering *g)
{
    char text[160];
    uint64_t none = 0, all = 0;
    for (uint32_t i = 0; i < g->n_entries; i++)
        for (uint32_t k = 0; k < g->entries[i].tensor->slabs; k++, all++) none += !g->entries[i].counts[k];
    if (!none) return;
    (void)snprintf(text, sizeof text,
                   "%" PRIu64 " of %" PRIu64 " matrices were never used by this text: give a longer or more varied one",
                   none, all);
    LOG(LOG_WARN, "imatrix_incomplete", text, log_u("matrices", none));
}

static int gather(const struct options *o, struct gathering *g)
{
    struct id_list ids = { 0 };
    uint32_t windows = 0;
    ERROR_TEXT(err);
    int result = session_tokens(o, g->model, &ids);
    interrupts_catch();
    if (!result) result = read_text(g, &ids, &windows);
    free(ids.ids);
    if (result) return result;
    warn_of_unseen(g);
    const wk_status s = write_file(g, option_text(o, OPT_IMATRIX_OUT), option_text(o, OPT_FILE), windows, &err);
    return s ? fail_status(STAGE_OUTPUT, s, &err) : EXIT_DONE;
}

static void gathering_free(struct gathering *g)
{
    for (uint32_t i = 0; i < g->n_sources; i++) free(g->sources[i].data);
    for (uint32_t i = 0; i < g->n_entries; i++) free(g->entries[i].sums), free(g->entries[i].counts);
    free(g->sources);
    free(g->entries);
    free(g->sites);
    free((void *)(uintptr_t)g->taps);
}

/* The model is planned twice: the first pass says which values there are to be tapped. */
static int imatrix(const struct options *o)
{
    struct opened x = { 0 }, tapped = { 0 };
    struct gathering g = { 0 };
    struct model_needs needs = { .max_rows = ROWS, .max_logits_rows = 1, .context = option_u32(o, OPT_CONTEXT) };
    int result = open_model(o, &needs, &x);
    if (!result) {
        needs.context = needs.context ? needs.context : x.model->dev.context < WINDOW ? x.model->dev.context : WINDOW;
        if (tape_whole_prompt(x.model->program)) needs.max_rows = needs.context;
        if (!find_sites(&g, x.model->program))
            result = fail(CODE_INSUFFICIENT_MEMORY, "no memory for a list of values");
    }
    needs.load = true;
    needs.taps = g.taps;
    needs.n_taps = g.n_sources;
    if (!result) result = open_model(o, &needs, &tapped);
    g.model = tapped.model;
    if (!result) result = gather(o, &g);
    opened_close(&tapped);
    gathering_free(&g); /* its tensors are the first plan's */
    opened_close(&x);
    return result;
}

int command_imatrix(const struct options *o)
{
    const int result = session_tokens_usage(o);
    if (result) return result;
    if (!option_text(o, OPT_IMATRIX_OUT)) return fail_usage("imatrix", "--out FILE is needed");
    if (strcmp(option_text(o, OPT_DEVICE), "cpu") != 0)
        return fail_usage("imatrix", "--device cuda: importances are gathered on the CPU; leave --device out");
    return imatrix(o);
}
