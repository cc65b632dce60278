/* llama_prompt.c: see llama_prompt.h. An infill's layout is llama-server's, so that its clients' models see what they
 * see there:
 *
 *   bos REP myproject\n, for each file of input_extra SEP name\n text, SEP filename\n PRE prefix prompt SUF suffix MID
 *
 * A model without SEP sees the files one after the other, each behind its name; one without REP no project. */
#include "llama_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- marks --------------------------------------------------------------------------------------------- */

enum { TEXTS = 8 };
static const struct mark {
    const char *key, *older; /* below "tokenizer.ggml."; older NULL: none */
    const char *texts[TEXTS];
} mark_names[] = {
    { "fim_pre_token_id",
      "prefix_token_id",
      {
          "<|fim_prefix|>",
          "<fim_prefix>",
          "<fim-prefix>",
          "<｜fim▁begin｜>",
          "▁<PRE>",
          "<PRE>",
          "<|code_prefix|>",
      } },
    { "fim_suf_token_id",
      "suffix_token_id",
      {
          "<|fim_suffix|>",
          "<fim_suffix>",
          "<fim-suffix>",
          "<｜fim▁hole｜>",
          "▁<SUF>",
          "<SUF>",
          "<|code_suffix|>",
      } },
    { "fim_mid_token_id",
      "middle_token_id",
      {
          "<|fim_middle|>",
          "<fim_middle>",
          "<fim-middle>",
          "<｜fim▁end｜>",
          "▁<MID>",
          "<MID>",
          "<|code_middle|>",
      } },
    { "fim_rep_token_id", NULL, { "<|fim_repo|>", "<|repo_name|>", "<reponame>", "<fim-repo>" } },
    { "fim_sep_token_id", NULL, { "<|file_sep|>" } },
    { "fim_pad_token_id", NULL, { "<|fim_pad|>", "<fim_pad>", "<fim-pad>" } },
};

static uint32_t id_of_key(const struct serve_model *m, const char *name)
{
    char key[96];
    uint64_t id;
    (void)snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    const struct gguf_kv *kv = gguf_find(m->facts.file, key);
    return kv && !gguf_u64(m->facts.file, kv, &id, NULL) && id < m->facts.n_vocab ? (uint32_t)id : TOKEN_NONE;
}

static uint32_t find_mark(const struct serve_model *m, const struct mark *mark)
{
    const struct tokenizer *t = m->facts.tokenizer;
    uint32_t id = id_of_key(m, mark->key);
    if (id == TOKEN_NONE && mark->older) id = id_of_key(m, mark->older);
    for (size_t i = 0; id == TOKEN_NONE && i < TEXTS && mark->texts[i]; i++)
        id = tokenizer_find(t, mark->texts[i], strlen(mark->texts[i]));
    return id;
}

struct llama_marks llama_marks_of(const struct serve_model *m)
{
    const struct mark *n = mark_names;
    return (struct llama_marks){ .pre = find_mark(m, &n[0]),
                                 .suf = find_mark(m, &n[1]),
                                 .mid = find_mark(m, &n[2]),
                                 .rep = find_mark(m, &n[3]),
                                 .sep = find_mark(m, &n[4]),
                                 .pad = find_mark(m, &n[5]) };
}

const char *llama_marks_missing(const struct llama_marks *marks)
{
    return marks->pre == TOKEN_NONE   ? mark_names[0].key
           : marks->suf == TOKEN_NONE ? mark_names[1].key
           : marks->mid == TOKEN_NONE ? mark_names[2].key
                                      : NULL;
}

void llama_marks_end(const struct llama_marks *marks, struct job_request *q)
{
    const uint32_t ids[] = { marks->pad, marks->rep, marks->sep };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i] != TOKEN_NONE) q->stop_ids[q->n_stop_ids++] = ids[i];
}

/* ---- ids ----------------------------------------------------------------------------------------------- */

static wk_status add_ids(struct tokens *out, const uint32_t *ids, size_t n, const struct wk_err *err)
{
    enum { MORE = 64 };
    if (n > out->cap - out->n) {
        const size_t cap = out->cap + (n > out->cap ? n : out->cap) + MORE;
        uint32_t *grown = cap <= SIZE_MAX / sizeof *grown ? realloc(out->ids, cap * sizeof *grown) : NULL;
        if (!grown) return wk_fail(err, WK_NO_MEMORY, "no memory for %zu ids", cap);
        out->ids = grown;
        out->cap = cap;
    }
    if (n) memcpy(out->ids + out->n, ids, n * sizeof *ids);
    out->n += n;
    return WK_OK;
}

static wk_status add_id(struct tokens *out, uint32_t id, const struct wk_err *err) { return add_ids(out, &id, 1, err); }

/* A prompt that is no single text: the log's digest is of its ids. */
static void name_by_ids(struct stream_prompt *p)
{
    p->text = (const char *)p->ids.ids;
    p->len = p->ids.n * sizeof *p->ids.ids;
}

/* ---- texts and ids ------------------------------------------------------------------------------------- */

/* The first text, if no id comes before it, begins as the model's texts do. */
static wk_status encode_list(struct stream *x, const json_t *list, struct stream_prompt *p, const struct wk_err *err)
{
    wk_status status = WK_OK;
    for (size_t i = 0; !status && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const struct tokenizer_part part = { json_string_value(v), json_string_length(v), x->q.parse_special };
        status = json_is_string(v) ? stream_encode(x, p, &part, 1, i == 0, err)
                                   : add_id(&p->ids, (uint32_t)json_integer_value(v), err);
    }
    name_by_ids(p);
    return status;
}

/* ---- infill -------------------------------------------------------------------------------------------- */

struct infill {
    struct stream *x;
    const struct llama_request *q;
    struct llama_marks marks;
    const struct wk_err *err;
    wk_status status;
};

static void put_id(struct infill *f, struct tokens *out, uint32_t id)
{
    if (!f->status && id != TOKEN_NONE) f->status = add_id(out, id, f->err);
}

/* Ids of texts that are one behind the other; control tokens that they spell are text. */
static void put_texts(struct infill *f, struct tokens *out, const struct token_bytes *texts, size_t n)
{
    enum { OF_BYTE = 16, MOST = 3 }; /* bytes for each of the text: a copy, and ids whose room grows by doubling */
    struct tokenizer_part parts[MOST];
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct tokenizer_part){ texts[i].data, texts[i].len, false };
        bytes += texts[i].len;
    }
    if (f->status) return;
    const size_t fewest = tokenizer_fewest(f->x->m->facts.tokenizer, parts, n);
    if (fewest > stream_prompt_limit(f->x)) f->x->fewest = fewest;
    if (f->x->fewest)
        f->status = wk_fail(f->err, WK_INVALID, "more than the context holds");
    else if (!http_reserve(f->x->r, bytes * OF_BYTE))
        f->status = wk_fail(f->err, WK_NO_MEMORY, "no memory for the prompt");
    else
        f->status = work_encode(f->x->work, f->x->m->facts.tokenizer, parts, n, false, out, f->err);
}

static struct token_bytes text_of(const json_t *v, const char *otherwise)
{
    return json_is_string(v) ? (struct token_bytes){ json_string_value(v), json_string_length(v) }
                             : (struct token_bytes){ otherwise, strlen(otherwise) };
}

/* What stands in front of a file's text. */
static void put_name(struct infill *f, struct tokens *out, struct token_bytes name)
{
    const bool marked = f->marks.sep != TOKEN_NONE;
    const struct token_bytes plain[] = { { "\n\n--- ", 6 }, name, { " ---\n\n", 6 } }, line[] = { name, { "\n", 1 } };
    put_id(f, out, f->marks.sep);
    put_texts(f, out, marked ? line : plain, marked ? 2 : 3);
}

/* Ids of a file, if they may be so few; else none. */
static void put_file(struct infill *f, struct tokens *out, const json_t *file, size_t room)
{
    const struct token_bytes text = text_of(json_object_get(file, "text"), ""),
                             name = text_of(json_object_get(file, "filename"), "tmp");
    const struct tokenizer_part parts[] = { { name.data, name.len, false }, { text.data, text.len, false } };
    if (f->status || tokenizer_fewest(f->x->m->facts.tokenizer, parts, 2) > room) return;
    put_name(f, out, name);
    put_texts(f, out, &text, 1);
    if (out->n > room) out->n = 0;
}

/* The last files that there is room for, in their order: clients send all that they think of, the best last. */
static void put_files(struct infill *f, struct tokens *out, size_t room)
{
    const json_t *files = f->q->extra;
    const size_t n = json_array_size(files);
    struct tokens *of = n ? calloc(n, sizeof *of) : NULL;
    size_t first = n;
    if (n && !of) f->status = wk_fail(f->err, WK_NO_MEMORY, "no memory for %zu files", n);
    while (!f->status && first) {
        put_file(f, &of[first - 1], json_array_get(files, first - 1), room);
        if (f->status || !of[first - 1].n) break;
        room -= of[--first].n;
    }
    for (size_t i = first; !f->status && i < n; i++) f->status = add_ids(out, of[i].ids, of[i].n, f->err);
    for (size_t i = 0; of && i < n; i++) tokens_free(&of[i]);
    free(of);
}

/* Ids that the files may have beside `taken` and the answer. */
static size_t room_for_files(const struct infill *f, size_t taken)
{
    const uint32_t context = f->x->m->facts.context, limit = stream_prompt_limit(f->x);
    const size_t wanted = f->q->n_predict < 0 ? context / 4 : (size_t)f->q->n_predict,
                 answer = wanted < context / 2 ? wanted : context / 2, most = context - answer;
    const size_t prompt = most < limit ? most : limit;
    return prompt > taken ? prompt - taken : 0;
}

static wk_status encode_infill(struct stream *x, const struct llama_request *q, struct stream_prompt *p,
                               const struct wk_err *err)
{
    static const struct token_bytes project = { "myproject\n", 10 }, name = { "filename", 8 };
    const struct tokenizer *t = x->m->facts.tokenizer;
    struct infill f = { .x = x, .q = q, .marks = llama_marks_of(x->m), .err = err };
    struct tokens gap = { 0 };
    const struct token_bytes before[] = { q->prefix, q->middle };
    if (f.marks.sep != TOKEN_NONE) put_name(&f, &gap, name);
    put_id(&f, &gap, f.marks.pre);
    put_texts(&f, &gap, before, 2);
    put_id(&f, &gap, f.marks.suf);
    put_texts(&f, &gap, &q->suffix, 1);
    put_id(&f, &gap, f.marks.mid);
    if (tokenizer_adds_bos(t)) put_id(&f, &p->ids, tokenizer_bos(t));
    put_id(&f, &p->ids, f.marks.rep);
    if (f.marks.rep != TOKEN_NONE) put_texts(&f, &p->ids, &project, 1);
    put_files(&f, &p->ids, room_for_files(&f, p->ids.n + gap.n));
    if (!f.status) f.status = add_ids(&p->ids, gap.ids, gap.n, err);
    tokens_free(&gap);
    name_by_ids(p);
    return f.status;
}

/* ---- both ---------------------------------------------------------------------------------------------- */

wk_status llama_encode(struct stream *x, const struct llama_request *q, uint32_t index, struct stream_prompt *p,
                       const struct wk_err *err)
{
    const json_t *v = q->infill ? NULL : q->prompts[index];
    p->chars = x->q.prompt_chars; /* of all of them */
    if (q->infill) return encode_infill(x, q, p, err);
    if (json_is_array(v)) return encode_list(x, v, p, err);
    p->text = json_string_value(v);
    p->len = json_string_length(v);
    const struct tokenizer_part raw = { p->text, p->len, x->q.parse_special };
    return stream_encode(x, p, &raw, 1, true, err);
}
