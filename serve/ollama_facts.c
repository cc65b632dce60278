/* ollama_facts.c: what Ollama's interface tells of the model: GET /api/version, /api/tags, /api/ps, POST /api/show.
 *
 * There is one model, it is loaded, and it stays. Editors choose by what stands here: by `capabilities`, and by the
 * context length in `model_info`, which is the worker's, since no longer prompt would be taken. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "body.h"
#include "capability/json_text.h"
#include "inside.h"
#include "work.h"

/* The version of Ollama whose interface this is; clients compare it with the least that they want. */
#define OLLAMA_VERSION "0.13.0"
/* Until when the model stays: a date that no client's clock overflows at. */
#define FOR_EVER "2199-01-01T00:00:00Z"

static void on_version(void *user, struct http_request *r)
{
    serve_answer(user, r, 200, json_pack("{s:s}", "version", OLLAMA_VERSION));
}

/* ---- the model ----------------------------------------------------------------------------------------- */

/* Names have a tag there; one that has none gets the usual one, with which it may be called. */
static json_t *name_of(const struct serve_model *m)
{
    char name[sizeof m->name + 8];
    (void)snprintf(name, sizeof name, "%s%s", m->name, strchr(m->name, ':') ? "" : ":latest");
    return json_bytes(name, strlen(name));
}

static json_t *time_of(int64_t seconds)
{
    const time_t when = (time_t)seconds;
    struct tm t;
    char text[32] = "1970-01-01T00:00:00Z";
    if (gmtime_r(&when, &t)) (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t);
    return json_string(text);
}

static double count_parameters(const struct gguf *file)
{
    double n = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        n += (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2] * (double)t->ne[3];
    }
    return n;
}

/* "7.6B", "494.03M", "70B". */
static void name_size(double n, char out[32])
{
    static const struct {
        double unit;
        const char *name;
        int digits;
    } units[] = { { 1e12, "T", 1 }, { 1e9, "B", 1 }, { 1e6, "M", 2 }, { 1e3, "K", 0 }, { 1, "", 0 } };
    size_t i = 0;
    while (n < units[i].unit && units[i].unit > 1) i++;
    const double of = n / units[i].unit;
    (void)snprintf(out, 32, "%.*f%s", of == floor(of) ? 0 : units[i].digits, of, units[i].name);
}

static json_t *details_of(const struct serve_model *m)
{
    char size[32];
    const char *family = m->facts.architecture;
    name_size(count_parameters(m->facts.file), size);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf", "family", family,
                     "families", family, "parameter_size", size, "quantization_level", m->quant_kind);
}

/* What the lists have of a model. */
static json_t *entry_of(const struct serve_model *m, uint64_t bytes)
{
    return json_pack("{s:o, s:o, s:I, s:s, s:o}", "name", name_of(m), "model", name_of(m), "size", (json_int_t)bytes,
                     "digest", m->facts.identity, "details", details_of(m));
}

static void answer_list(struct serve *s, struct http_request *r, const struct serve_model *m, json_t *entry)
{
    json_t *list = json_array();
    if (m) (void)json_array_append_new(list, entry);
    serve_answer(s, r, 200, !m || entry ? json_pack("{s:o}", "models", list) : NULL);
    if (m && !entry) json_decref(list);
}

static void on_tags(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    json_t *entry = m ? entry_of(m, gguf_file_bytes(m->facts.file)) : NULL;
    if (entry) (void)json_object_set_new(entry, "modified_at", time_of(m->ready_at));
    answer_list(s, r, m, entry);
}

static void on_ps(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    const struct shard_handle h = m ? model_facts_handle(&m->facts) : (struct shard_handle){ 0 };
    json_t *entry = m ? entry_of(m, h.vram_bytes ? h.vram_bytes : m->facts.total_bytes) : NULL;
    if (entry) {
        (void)json_object_set_new(entry, "expires_at", json_string(FOR_EVER));
        (void)json_object_set_new(entry, "size_vram", json_integer((json_int_t)h.vram_bytes));
        (void)json_object_set_new(entry, "context_length", json_integer(m->facts.context));
    }
    answer_list(s, r, m, entry);
}

/* ---- /api/show ----------------------------------------------------------------------------------------- */

/* A value of the file; of a list, and of a number that JSON has not, null. */
static json_t *value_of(const struct gguf *file, const struct gguf_kv *kv)
{
    struct gguf_str text;
    uint64_t u;
    int64_t i;
    double f;
    bool flag;
    switch (kv->type) {
    case GGUF_ARRAY: return json_null();
    case GGUF_STRING: return gguf_str(file, kv, &text, NULL) ? json_null() : json_bytes(text.data, text.len);
    case GGUF_BOOL: return gguf_bool(file, kv, &flag, NULL) ? json_null() : json_boolean(flag);
    case GGUF_F32:
    case GGUF_F64: return gguf_f64_at(file, kv, 0, &f, NULL) || !isfinite(f) ? json_null() : json_real(f);
    default: break;
    }
    if (!gguf_i64(file, kv, &i, NULL)) return json_integer(i);
    return gguf_u64(file, kv, &u, NULL) ? json_null() : json_real((double)u);
}

static json_t *info_of(const struct serve_model *m)
{
    const struct gguf *file = m->facts.file;
    char key[128];
    json_t *out = json_object();
    for (uint64_t i = 0; i < gguf_kv_count(file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(file, i);
        static const char template[] = "tokenizer.chat_template"; /* has a member of its own */
        if (kv->key.len == sizeof template - 1 && memcmp(kv->key.data, template, kv->key.len) == 0) continue;
        json_t *name = json_bytes(kv->key.data, kv->key.len);
        if (name) (void)json_object_set_new(out, json_string_value(name), value_of(file, kv));
        json_decref(name);
    }
    (void)json_object_set_new(out, "general.parameter_count", json_integer((json_int_t)count_parameters(file)));
    (void)snprintf(key, sizeof key, "%.60s.context_length", m->facts.architecture);
    (void)json_object_set_new(out, key, json_integer(m->facts.context));
    return out;
}

static json_t *capabilities_of(const struct serve_model *m)
{
    bool single;
    const char *why;
    json_t *list = json_pack("[s]", m->facts.width ? "embedding" : "completion");
    if (m->chat && (chat_calls(m->chat, &single, &why) || chat_is_harmony(m->chat)))
        (void)json_array_append_new(list, json_string("tools"));
    if (m->chat && chat_thinks(m->chat)) (void)json_array_append_new(list, json_string("thinking"));
    return list;
}

/* The file's own template, unless the worker was given another one. */
static json_t *template_of(const struct serve *s, const struct serve_model *m)
{
    struct token_bytes text = s->o->chat_template;
    struct gguf_str own = { 0 };
    const struct gguf_kv *kv = gguf_find(m->facts.file, "tokenizer.chat_template");
    if (!text.data && kv && !gguf_str(m->facts.file, kv, &own, NULL)) text = (struct token_bytes){ own.data, own.len };
    return json_bytes(text.data ? text.data : "", text.len);
}

static json_t *show(const struct serve *s, const struct serve_model *m)
{
    char parameters[64];
    struct gguf_str license = { 0 };
    const struct gguf_kv *kv = gguf_find(m->facts.file, "general.license");
    if (kv && gguf_str(m->facts.file, kv, &license, NULL)) license = (struct gguf_str){ 0 };
    (void)snprintf(parameters, sizeof parameters, "num_ctx                        %u", m->facts.context);
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "license",
                     json_bytes(license.data ? license.data : "", license.len), "parameters", parameters, "template",
                     template_of(s, m), "details", details_of(m), "model_info", info_of(m), "capabilities",
                     capabilities_of(m), "modified_at", time_of(m->ready_at));
}

/* {model}, which old clients call name. */
static bool read_show(struct work *w, const struct serve_model *m, struct refusal *why)
{
    const char *bytes, *name = NULL;
    size_t n;
    json_t *body = NULL;
    bool verbose = false;
    if (!work_body(w, HTTP_BODY_MAX, &bytes, &n) || !body_parse(bytes, n, &body, why)) return false;
    const struct body_object o = { body, "" };
    const char *member = json_object_get(body, "model") ? "model" : "name";
    bool ok = body_name(&o, member, 255, &name, why) && body_flag(&o, "verbose", &verbose, why);
    if (ok && verbose) ok = body_fail(&o, "verbose", why, "false: lists of the file, as its vocabulary, are not told");
    if (ok && name) ok = serve_suits_name(m, name, member, why);
    json_decref(body);
    return ok;
}

static void on_show(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = atomic_load(&s->model);
    struct refusal why = { 0 };
    struct work work;
    work_open(&work, s, r);
    work.untyped = true;
    if (!m) (void)refuse(&why, SERVE_NOT_READY, NULL, "no model is loaded");
    if (m && read_show(&work, m, &why))
        serve_answer(s, r, 200, show(s, m));
    else if (why.text[0])
        serve_refuse(s, r, &why);
    work_close(&work);
}

const struct http_route serve_ollama_facts_routes[] = {
    { "GET", "/api/version", on_version, false },
    { "GET", "/api/tags", on_tags, false },
    { "GET", "/api/ps", on_ps, false },
    { "POST", "/api/show", on_show, false },
};
const uint32_t serve_n_ollama_facts_routes = sizeof serve_ollama_facts_routes / sizeof *serve_ollama_facts_routes;
