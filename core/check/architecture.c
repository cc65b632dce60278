/* architecture.c: what an architecture records, and what becomes of it: the same for the same input, and rows that know
 * of nothing but their own sequence. Of --model, or of a small model that is made for it. */
#include <stdlib.h>
#include <string.h>

#include "check/internal.h"
#include "model/session.h"
#include "plugin/format.h"

enum { TOKENS = 40, SEQUENCES = 3, STEP_ROWS = 64, THREADS = 3 };

/* ---- recordings without a file ------------------------------------------------------------------------- */

/* The hash of a recording of plain metadata of architecture `which`; false: they are refused. */
static bool record_plain(struct check *c, uint32_t which, bool early, uint64_t *hash)
{
    char text[256] = "";
    struct check_metadata m;
    struct check_recorder *r = recorder_make(c, 0);
    if (!r || !metadata_make(&m, c->arch, plugin_host(c->entry.plugin), UINT32_MAX, METADATA_PLAIN, which, 0))
        check_leave(c);
    const bool taken = metadata_open(&m, r, early, &(struct wk_err){ text, sizeof text }) == WK_OK;
    *hash = r->hash;
    recorder_free(r);
    return taken;
}

/* What open() was given is gone when record() runs. */
static void run_kept(struct check *c)
{
    uint64_t kept, again, gone;
    if (!check_start(c, NULL)) return;
    for (uint32_t i = 0; i < c->arch->n_names; i++)
        if (record_plain(c, i, false, &kept) && record_plain(c, i, false, &again) && record_plain(c, i, true, &gone) &&
            kept == again && kept != gone)
            check_fail(
                c, "%s: record() records something else once the metadata are gone; copy in open() what record() needs",
                c->arch->names[i]);
}

/* Of every size that a plugin may ask for, so that what it gets next lies elsewhere. */
static void take_memory(void)
{
    for (size_t n = 16; n < 1024; n += 16) {
        void *volatile kept = malloc(n);
        (void)kept;
    }
}

/* Again and again, with the plugin's memory at other addresses. */
static void run_pure(struct check *c)
{
    uint64_t first, again;
    if (!check_start(c, NULL)) return;
    for (uint32_t i = 0; i < c->arch->n_names; i++) {
        if (!record_plain(c, i, false, &first)) continue;
        for (uint32_t n = 0; n < 4; n++) {
            take_memory();
            const bool taken = record_plain(c, i, false, &again);
            if (taken && first == again) continue;
            check_fail(c,
                       "%s: recording number %u of the same metadata %s; record() depends on the metadata, the context "
                       "and the tensors alone: keep no state between models, and ask for neither time nor addresses",
                       c->arch->names[i], n + 2, taken ? "is another" : "is refused");
            return;
        }
    }
}

/* ---- models -------------------------------------------------------------------------------------------- */

/* Opens --model, or a small one of architecture `which`. NULL: there is none, which has been told. */
static struct gguf *open_file(struct check *c, uint32_t which)
{
    char text[256];
    struct gguf *file = NULL;
    if (c->options->model) {
        if (gguf_open(c->options->model, &file, &(struct wk_err){ text, sizeof text }) != WK_OK)
            check_fail(c, "%s", text);
        return file;
    }
    file = small_model_make(c, which, text);
    if (!file) check_skip(c, "%s: no small model could be made, give one by --model: %s", c->arch->names[which], text);
    return file;
}

static struct model *plan_model(struct check *c, struct gguf *file, uint32_t threads, char text[512])
{
    struct model *m = NULL;
    const uint32_t best = plugin_detect_isa();
    const struct model_options o = { .device = device_cpu(),
                                     .dev = { .threads = threads,
                                              .isa = c->options->isa < best ? c->options->isa : best,
                                              .context = TOKENS,
                                              .max_sequences = SEQUENCES,
                                              .max_rows = STEP_ROWS,
                                              .max_logits_rows = STEP_ROWS },
                                     .fuse = FUSE_ALL,
                                     .plugin = c->entry.plugin };
    if (!c->options->plugins)
        (void)snprintf(text, 512, "there are no formats");
    else
        (void)model_plan(file, c->options->plugins, &o, &m, &(struct wk_err){ text, 512 });
    return m;
}

/* How many models are looked at: one given, or a small one of each architecture. */
static uint32_t models_of(const struct check *c) { return c->options->model ? 1 : c->arch->n_names; }

/* The host takes the recording, of the same file twice the same one. */
static void run_tape(struct check *c)
{
    if (!check_start(c, NULL)) return;
    for (uint32_t i = 0; i < models_of(c); i++) {
        char digest[2][65] = { "", "" }, text[512] = "";
        for (int twice = 0; twice < 2; twice++) {
            struct gguf *file = open_file(c, i);
            struct model *m = file ? plan_model(c, file, 1, text) : NULL;
            if (!file) break;
            if (!m) {
                check_fail(c, "the model is refused: %s", text);
                break;
            }
            tape_digest(m->program, digest[twice]);
            model_close(m);
        }
        if (strcmp(digest[0], digest[1]) != 0)
            check_fail(c,
                       "%s: the same file is recorded in two ways; record() depends on the metadata, the context and "
                       "the tensors alone",
                       c->arch->names[i]);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Logits of all positions of one sequence, computed in one of several ways. */
struct rows {
    struct model *model;
    uint32_t tokens[SEQUENCES][TOKENS];
    float *logits; /* [TOKENS][n_vocab] of sequence 0 */
};

enum way { WHOLE, ONE_BY_ONE, CHUNKS, TOGETHER, WAYS };
static const char *const way_names[WAYS] = { "all at once", "one by one", "in chunks",
                                             "together with other sequences" };

static wk_status feed(struct rows *r, enum way way, const struct wk_err *err)
{
    struct session *s;
    wk_status status = session_open(r->model, &s, err);
    for (uint32_t at = 0, n; status == WK_OK && at < TOKENS; at += n) {
        n = way == WHOLE ? TOKENS : way == ONE_BY_ONE ? 1 : 1 + at % 7;
        if (n > TOKENS - at) n = TOKENS - at;
        status = session_feed(s, r->tokens[0] + at, n, way == ONE_BY_ONE ? ROW_GENERATED : ROW_PROMPT, n,
                              r->logits + (size_t)at * r->model->program->n_vocab, err);
    }
    session_close(s);
    return status;
}

/* Steps of all sequences, each with another number of rows; those of sequence 0 are wanted. */
static wk_status feed_together(struct rows *r, const struct wk_err *err)
{
    struct session *s[SEQUENCES] = { NULL };
    wk_status status = WK_OK;
    for (uint32_t i = 0; status == WK_OK && i < SEQUENCES; i++) status = session_open(r->model, &s[i], err);
    while (status == WK_OK && session_length(s[0]) < TOKENS) {
        struct step_seq seqs[SEQUENCES];
        uint32_t tokens[STEP_ROWS], logits_rows[STEP_ROWS], n_of[SEQUENCES];
        struct step step = { .tokens = tokens,
                             .seqs = seqs,
                             .logits_rows = logits_rows,
                             .logits = r->logits + (size_t)session_length(s[0]) * r->model->program->n_vocab,
                             .pooled = NULL };
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            const uint32_t at = session_length(s[i]), left = TOKENS - at, most = 1 + (at + 3 * i) % 6;
            n_of[i] = left < most ? left : most;
            if (!n_of[i]) continue;
            n_of[i] = session_grow(s[i], n_of[i]);
            seqs[step.n_seqs++] = session_rows(s[i], step.n_rows, n_of[i], n_of[i] == 1 ? ROW_GENERATED : ROW_PROMPT);
            for (uint32_t j = 0; j < n_of[i]; j++) {
                if (i == 0) logits_rows[step.n_logits_rows++] = step.n_rows;
                tokens[step.n_rows++] = r->tokens[i][at + j];
            }
        }
        status = r->model->device->step(r->model->executor, &step, err);
        for (uint32_t i = 0; status == WK_OK && i < SEQUENCES; i++)
            if (n_of[i]) session_advance(s[i], n_of[i]);
    }
    for (uint32_t i = 0; i < SEQUENCES; i++) session_close(s[i]);
    return status;
}

/* The logits of sequence 0, the caller's; NULL: they cannot be computed, and why. */
static float *logits_of(struct check *c, struct model *m, enum way way, char text[512])
{
    struct rows *r = calloc(1, sizeof *r);
    const struct wk_err err = { text, 512 };
    const uint32_t vocabulary = m->program->n_vocab;
    if (!r || !(r->logits = calloc((size_t)TOKENS * vocabulary, sizeof *r->logits))) check_leave(c);
    r->model = m;
    for (uint32_t s = 0; s < SEQUENCES; s++)
        for (uint32_t i = 0; i < TOKENS; i++) r->tokens[s][i] = (i * 7 + s * 5 + i * i % 3) % vocabulary;
    const wk_status status = way == TOGETHER ? feed_together(r, &err) : feed(r, way, &err);
    return status == WK_OK ? r->logits : NULL;
}

static void compare(struct check *c, const char *name, const float *a, const float *b, uint32_t vocabulary,
                    const char *how)
{
    for (uint32_t i = 0; i < TOKENS * vocabulary; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) == 0) continue;
        check_fail(
            c,
            "%s: position %u, logit %u is %.9g where the tokens are computed all at once, and %.9g %s; a row of a "
            "custom operation depends on its own inputs alone",
            name, i / vocabulary, i % vocabulary, (double)a[i], (double)b[i], how);
        return;
    }
}

/* Loaded, with as many threads. NULL: it cannot be, which has been told. */
static struct model *load_model(struct check *c, uint32_t which, uint32_t threads)
{
    char text[512] = "";
    struct gguf *file = open_file(c, which);
    if (!file) return NULL;
    struct model *m = plan_model(c, file, threads, text);
    if (m && !tape_gives_logits(m->program)) {
        check_skip(c, "%s: has no logits; rows of embeddings are all rows of a text", c->arch->names[which]);
        return NULL;
    }
    if (m && model_load(m, &(struct wk_err){ text, sizeof text }) == WK_OK) return m;
    check_skip(c, "%s: the model cannot be run here: %s", c->arch->names[which], text);
    return NULL;
}

static void run_rows(struct check *c)
{
    if (!check_start(c, NULL)) return;
    for (uint32_t i = 0; i < models_of(c); i++) {
        char text[512] = "";
        const char *name = c->arch->names[i];
        struct model *m = load_model(c, i, 1), *other = m ? load_model(c, i, THREADS) : NULL;
        if (!m || !other) continue;
        const uint32_t vocabulary = m->program->n_vocab;
        const float *whole = logits_of(c, m, WHOLE, text), *threads = whole ? logits_of(c, other, WHOLE, text) : NULL;
        if (threads) compare(c, name, whole, threads, vocabulary, "with three threads");
        for (int way = ONE_BY_ONE; whole && way < WAYS; way++) {
            const float *again = logits_of(c, m, (enum way)way, text);
            if (again) compare(c, name, whole, again, vocabulary, way_names[way]);
        }
        if (text[0]) check_skip(c, "%s: its rows could not be computed: %s", name, text);
    }
}

static const struct check_def checks[] = {
    { "architecture.kept", "record reads nothing of what was given to open: the metadata are gone by then.",
      CHECK_OF_ARCH, false, "errors.record", run_kept },
    { "architecture.pure", "record depends on the metadata, the context and the tensors alone.", CHECK_OF_ARCH, false,
      "architecture.kept", run_pure },
    { "architecture.tape",
      "Of a model's file, or a small one, the host takes the recording: every tensor is used or ignored by name, every "
      "value is read, and it is the same each time.",
      CHECK_OF_ARCH, false, "architecture.pure", run_tape },
    { "architecture.rows",
      "A row's logits are the same bits however the text is cut, whatever is computed with it, on any number of "
      "threads.",
      CHECK_OF_ARCH, false, "architecture.tape", run_rows },
};
CHECK_LIST(checks_architecture, CHECK_ARCHITECTURE, checks);
