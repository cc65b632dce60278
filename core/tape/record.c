/* record.c: tape_record, from a file and a plugin to a program: keys, open, record, what only the whole tape can tell,
 * passes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/call.h"
#include "tape/internal.h"

/* A tensor that nothing reads refuses the file: else a misspelt optional bias would be lost in silence. */
static void check_tensors(const struct builder *b)
{
    for (uint64_t i = 0; i < gguf_tensor_count(b->p->file); i++) {
        const struct gguf_str *name = &gguf_tensor_at(b->p->file, i)->name;
        if (!b->tensor_of_file[i] && !name_listed(b->arch->ignored, b->arch->n_ignored, *name))
            messages_say(b->messages, WK_INVALID, "%.*s is in the file, nothing reads it", (int)name->len, name->data);
    }
}

/* What only the whole tape can tell. An earlier message makes these meaningless. */
static void check_whole(const struct builder *b)
{
    const struct tape_program *p = b->p;
    struct messages *m = b->messages;
    if (m->status != WK_OK) return;
    if (b->logits == TAPE_NONE && b->embedding == TAPE_NONE)
        messages_say(m, WK_INVALID, "neither logits nor embedding recorded");
    if (!p->n_vocab) messages_say(m, WK_INVALID, "no embedding of tokens recorded");
    for (uint32_t i = 0; i < p->n_values; i++)
        if (!p->values[i].n_readers) messages_say(m, WK_INVALID, "%s is computed and never read", p->values[i].name);
    if (b->logits != TAPE_NONE && p->n_vocab) {
        uint32_t width = p->values[p->ops[b->logits].in[0]].width;
        if (width != p->n_vocab)
            messages_say(m, WK_INVALID, "logits: %u wide, the table of tokens has %u rows", (unsigned)width,
                         (unsigned)p->n_vocab);
    }
    check_tensors(b);
    adapt_end(b);
}

static bool run_passes(struct builder *b)
{
    struct tape_program *p = b->p;
    struct uses uses;
    canonical_pass(p);
    if (!taps_pass(p, b->options, b->messages)) return false;
    bool ok = uses_make(p, b->scratch, &uses);
    if (ok) {
        roles_pass(p, &uses);
        demand_pass(p);
    }
    ok = ok && fuse_pass(p, &uses, b->options->fuse, b->arena, b->scratch) && plan_pass(p, b->arena, b->scratch);
    if (!ok) messages_no_memory(b->messages);
    return ok;
}

static bool prepare(struct builder *b, struct wk_meta *meta)
{
    struct tape_program *p = b->p;
    size_t n_tensors = (size_t)gguf_tensor_count(p->file);
    b->labels = labels_new(b->scratch);
    b->tensor_of_file = arena_take(b->scratch, n_tensors ? n_tensors : 1, sizeof *b->tensor_of_file);
    b->type_refused = arena_take(b->scratch, 256, 1);
    if (!b->labels || !b->tensor_of_file || !b->type_refused) {
        messages_no_memory(b->messages);
        return false;
    }
    if (!pooling_read(b) || !keys_check(b->arch, p->file, b->options->accepted, b->options->host, b->pooling != 0,
                                        b->scratch, meta, b->messages))
        return false;
    (void)snprintf(p->architecture, sizeof p->architecture, "%s", meta->architecture);
    return adapt_begin(b) && keys_context(p->file, p->architecture, b->options->context, &p->context, b->messages);
}

/* What the ABI promises to open, record and close, [serialised, any one thread]: a service plans models while it loads
 * one. Held from open to close, so that a plugin may keep in static memory what lies between. */
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

/* Everything between two arenas: messages tell how it went. */
static void record(struct builder *b)
{
    struct wk_meta meta;
    if (!prepare(b, &meta)) return;
    char text[1024] = "";
    const struct wk_err err = { text, sizeof text };
    void *model = NULL;
    struct plugin_call call;
    (void)pthread_mutex_lock(&recording);
    PLUGIN_CALL(&call, b->arch->open, "open");
    wk_status status = b->arch->open(&meta, &model, &err);
    plugin_call_end(&call);
    if (status != WK_OK) {
        (void)pthread_mutex_unlock(&recording);
        messages_say(b->messages, status, "%s: %s", b->p->architecture,
                     text[0] ? text : "the plugin refuses this model without saying why");
        return;
    }
    struct wk_builder table;
    builder_table(b, &table);
    PLUGIN_CALL(&call, b->arch->record, "record");
    b->arch->record(&table, model);
    plugin_call_end(&call);
    PLUGIN_CALL(&call, b->arch->close, "close");
    b->arch->close(model);
    plugin_call_end(&call);
    (void)pthread_mutex_unlock(&recording);
    pooling_record(b, &table);
    check_whole(b);
    if (b->messages->status == WK_OK) (void)run_passes(b);
}

wk_status tape_record(const struct wk_arch *arch, const struct gguf *file, const struct tape_options *o,
                      struct tape_program **out, const struct wk_err *err)
{
    *out = NULL;
    struct arena *arena = arena_new(), *scratch = arena_new();
    struct messages *messages = calloc(1, sizeof *messages);
    struct tape_program *p = arena ? arena_take(arena, 1, sizeof *p) : NULL;
    wk_status status;
    if (!p || !scratch || !messages) {
        status = wk_fail(err, WK_NO_MEMORY, "out of memory while the tape was recorded");
    } else {
        p->file = file;
        p->arena = arena;
        struct builder b = { .p = p,
                             .arena = arena,
                             .scratch = scratch,
                             .messages = messages,
                             .arch = arch,
                             .options = o,
                             .layer = TAPE_NONE,
                             .logits = TAPE_NONE,
                             .embedding = TAPE_NONE };
        record(&b);
        status = messages_report(messages, err);
    }
    if (status == WK_OK)
        *out = p;
    else
        arena_free(arena);
    arena_free(scratch);
    free(messages);
    return status;
}

void tape_free(struct tape_program *p)
{
    if (p) arena_free(p->arena);
}

uint32_t tape_find_value(const struct tape_program *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_values; i++)
        if (strcmp(p->values[i].name, name) == 0) return i;
    return TAPE_NONE;
}

bool tape_launch_tapped(const struct tape_program *p, const struct tape_launch *l)
{
    for (uint32_t i = 0; i < l->n_ops; i++) {
        const struct tape_op *op = &p->ops[l->ops[i]];
        if ((op->out != TAPE_NONE && p->values[op->out].tapped) ||
            (op->kind == WK_OP_ATTENTION && op->u.attn.tap_scores) || (op->kind == WK_OP_ROUTE && op->u.route.tap_ids))
            return true;
    }
    return false;
}
