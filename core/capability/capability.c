/* capability.c: MCD and ECP. */
#include "capability/capability.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "capability/json_text.h"
#include "tokenizer/tokenizer.h"

/* What the tape's operations and the CPU executor serve, whatever the plugin: the words of tape_describe. */
static const char *const positional[] = { "rope_llama", "rope_neox", "yarn", "longrope", "alibi", "learned", "none" };
static const char *const attention[] = { "mha",     "gqa",   "mqa",           "mla",   "swa",
                                         "chunked", "sinks", "bidirectional", "state", "none" };

/* ---- names --------------------------------------------------------------------------------------------- */

static json_t *words(const char *const *list, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) (void)json_array_append_new(array, json_string(list[i]));
    return array;
}

static void add_lower(void *array, const char *name) { (void)json_array_append_new(array, json_lower(name)); }

static void add_name(void *array, const char *name) { (void)json_array_append_new(array, json_string(name)); }

static json_t *type_names(const struct plugin_registry *r)
{
    json_t *array = json_array();
    plugin_each_name(r, WK_KIND_QUANT, add_lower, array);
    return array;
}

static json_t *architecture_names(const struct plugin_registry *r)
{
    json_t *array = json_array();
    plugin_each_name(r, WK_KIND_ARCH, add_name, array);
    return array;
}

void capabilities_join(const json_t *array, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(array) && n < cap; i++) {
        int k = snprintf(out + n, cap - n, "%s%s", i ? ", " : "", json_string_value(json_array_get(array, i)));
        if (k > 0) n += (size_t)k;
    }
    if (!json_array_size(array)) (void)snprintf(out, cap, "none");
}

/* The numbers of general.file_type. */
static const char *file_type_name(uint64_t type)
{
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",       [3] = "Q4_1",    [7] = "Q8_0",     [8] = "Q5_0",
        [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S",    [12] = "Q3_K_M", [13] = "Q3_K_L",  [14] = "Q4_K_S",
        [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",    [18] = "Q6_K",   [19] = "IQ2_XXS", [20] = "IQ2_XS",
        [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS",   [24] = "IQ1_S",  [25] = "IQ4_NL",  [26] = "IQ3_S",
        [27] = "IQ3_M",  [28] = "IQ2_S",  [29] = "IQ2_M",     [30] = "IQ4_XS", [31] = "IQ1_M",   [32] = "BF16",
        [36] = "TQ1_0",  [37] = "TQ2_0",  [38] = "MXFP4_MOE", [39] = "NVFP4"
    };
    return type < sizeof names / sizeof *names ? names[type] : NULL;
}

/* The type that holds most bytes; files have few types, of which each is added up once. */
static uint32_t largest_type(const struct gguf *file)
{
    struct {
        uint32_t type;
        uint64_t bytes;
    } types[64];
    uint32_t n = 0, best = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        uint32_t k = 0;
        while (k < n && types[k].type != t->ggml_type) k++;
        if (k == sizeof types / sizeof *types) continue;
        if (k == n) {
            types[n].type = t->ggml_type;
            types[n++].bytes = 0;
        }
        types[k].bytes += t->room; /* of one file's size together */
        if (types[k].bytes > types[best].bytes) best = k;
    }
    return types[best].type;
}

void capabilities_quantization(const struct gguf *file, const struct plugin_registry *r, char out[QUANTIZATION_TEXT])
{
    const struct gguf_kv *kv = gguf_find(file, "general.file_type");
    uint64_t type;
    const char *name = kv && !gguf_u64(file, kv, &type, NULL) ? file_type_name(type) : NULL;
    (void)snprintf(out, QUANTIZATION_TEXT, "%s", name ? name : "?");
    if (name || !gguf_tensor_count(file)) return;
    const uint32_t most = largest_type(file);
    const struct wk_type_cpu *known = plugin_find_type(r, most, NULL);
    if (known)
        (void)snprintf(out, QUANTIZATION_TEXT, "%s", known->name);
    else
        (void)gguf_tensor_type_text(most, out);
}

/* ---- profile ------------------------------------------------------------------------------------------- */

json_t *capabilities_profile(const struct plugin_registry *r, const char *worker_id, const struct device_info *gpu)
{
    char host[96] = "worker-";
    if (!worker_id && gethostname(host + 7, sizeof host - 8) != 0) (void)snprintf(host, sizeof host, "worker-local");
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:[s, s*]}", "worker_id", worker_id ? worker_id : host,
                     "supports_architecture", architecture_names(r), "supports_positional",
                     words(positional, sizeof positional / sizeof *positional), "supports_attention",
                     words(attention, sizeof attention / sizeof *attention), "supports_quant", type_names(r),
                     "max_context", (json_int_t)CAPABILITIES_MAX_CONTEXT, "max_vocab", (json_int_t)TOKENIZER_MAX_VOCAB,
                     "vram_bytes", (json_int_t)(gpu ? gpu->memory : 0), "devices", "cpu", gpu ? "cuda" : NULL);
}

/* ---- descriptor ---------------------------------------------------------------------------------------- */

static const char *type_owner(void *user, uint32_t ggml_type) { return plugin_type_owner(user, ggml_type); }
static const struct wk_type_cpu *find_type(void *user, uint32_t ggml_type)
{
    return plugin_find_type(user, ggml_type, NULL);
}
static void describe_types(void *user, char *text, size_t cap)
{
    (void)plugin_describe(user, WK_KIND_QUANT, text, cap);
}

static bool architecture_of(const struct gguf *file, char out[TAPE_NAME])
{
    struct gguf_str name;
    const struct gguf_kv *kv = gguf_find(file, "general.architecture");
    if (!kv || gguf_str(file, kv, &name, NULL) || name.len >= TAPE_NAME) return false;
    (void)snprintf(out, TAPE_NAME, "%.*s", (int)name.len, name.data);
    return true;
}

wk_status capabilities_record(const struct gguf *file, const struct plugin_registry *r, struct gguf_accepted *accepted,
                              struct tape_program **out, const struct wk_err *err)
{
    char architecture[TAPE_NAME], loaded[2048], key[TAPE_NAME + 8];
    *out = NULL;
    wk_status status = adapter_not_model(file, err);
    if (status) return status;
    if (!architecture_of(file, architecture))
        return wk_fail(err, WK_INVALID, "%s: no usable general.architecture: not a model", gguf_path(file));
    const struct plugin_entry *who;
    const struct wk_arch *arch = plugin_find_arch(r, architecture, &who);
    if (!arch) {
        (void)snprintf(key, sizeof key, "arch:%s", architecture);
        if (plugin_why_not(r, key, loaded, sizeof loaded)) return wk_fail(err, WK_UNSUPPORTED, "%s", loaded);
        (void)plugin_describe(r, WK_KIND_ARCH, loaded, sizeof loaded);
        return wk_fail(err, WK_UNSUPPORTED, "architecture %s: no plugin serves it; found: %s", architecture, loaded);
    }
    struct tape_options options = { .fuse = FUSE_ALL,
                                    .accepted = accepted,
                                    .host = plugin_host(who->plugin),
                                    .find_type = find_type,
                                    .type_owner = type_owner,
                                    .describe_types = describe_types,
                                    .user = (void *)(uintptr_t)r /* both callbacks only read */ };
    status = tape_record(arch, file, &options, out, err);
    if (status) return status;
    if (!tape_gives_logits(*out) && !tokenizer_served(file))
        return WK_OK; /* it runs on ids: model.c opens no tokenizer */
    const wk_status keys = tokenizer_check_keys(file, accepted, err);
    if (keys) {
        tape_free(*out);
        *out = NULL;
    }
    return keys;
}

uint32_t capabilities_context(const struct tape_program *program)
{
    char key[TAPE_NAME + 24];
    uint64_t value = 0;
    (void)snprintf(key, sizeof key, "%s.context_length", program->architecture);
    const struct gguf_kv *kv = gguf_find(program->file, key);
    if (!kv || gguf_u64(program->file, kv, &value, NULL) || value == 0 || value > UINT32_MAX) return program->context;
    return (uint32_t)value;
}

json_t *capabilities_descriptor(const char *model_id, const struct plugin_registry *r,
                                const struct tape_program *program)
{
    struct tape_capabilities c;
    json_t *quant = json_array();
    tape_describe(program, &c);
    for (uint32_t i = 0; i < c.n_types; i++) {
        /* As the profile names them: by ggml's name, whatever a plugin calls a type that has one. */
        const char *known = gguf_ggml_name(c.types[i]);
        const struct wk_type_cpu *type = known ? NULL : plugin_find_type(r, c.types[i], NULL);
        if (known || type) (void)json_array_append_new(quant, json_lower(known ? known : type->name));
    }
    return json_pack("{s:o, s:s, s:s, s:s, s:o, s:I, s:I}", "model_id", json_bytes(model_id, strlen(model_id)),
                     "architecture", program->architecture, "positional", c.positional, "attention", c.attention,
                     "quant", quant, "context_max", (json_int_t)capabilities_context(program), "vocab_size",
                     (json_int_t)c.n_vocab);
}

/* Takes the sentence, unless it has been said. False: nothing more can be added. */
static bool add_missing(struct missing *m, char *sentence)
{
    if (!sentence) return false;
    for (uint32_t i = 0; i < m->n; i++) {
        if (strcmp(m->sentence[i], sentence) != 0) continue;
        free(sentence);
        return true;
    }
    if (m->n == CAPABILITIES_MAX_MISSING) {
        free(sentence);
        return false;
    }
    m->sentence[m->n++] = sentence;
    return true;
}

void capabilities_missing(const struct gguf *file, const struct plugin_registry *r, struct missing *out)
{
    char architecture[TAPE_NAME], served[1024], key[TAPE_NAME + 8], why[2048], *sentence;
    *out = (struct missing){ .n = 0 };
    if (architecture_of(file, architecture) && !plugin_find_arch(r, architecture, NULL)) {
        json_t *names = architecture_names(r);
        capabilities_join(names, served, sizeof served);
        json_decref(names);
        (void)snprintf(key, sizeof key, "arch:%s", architecture);
        if (plugin_why_not(r, key, why, sizeof why))
            sentence = strdup(why);
        else if (asprintf(&sentence, "model requires architecture %s, worker only supports %s", architecture, served) <
                 0)
            sentence = NULL;
        if (!add_missing(out, sentence)) return;
    }
    json_t *types = type_names(r);
    capabilities_join(types, served, sizeof served);
    json_decref(types);
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        if (plugin_find_type(r, t->ggml_type, NULL)) continue;
        char type[GGUF_TYPE_TEXT];
        (void)snprintf(key, sizeof key, "ggml:%u", t->ggml_type);
        if (plugin_why_not(r, key, why, sizeof why))
            sentence = strdup(why);
        else if (asprintf(&sentence, "model requires %s, worker only supports %s",
                          gguf_tensor_type_text(t->ggml_type, type), served) < 0)
            sentence = NULL;
        if (!add_missing(out, sentence)) return;
    }
}

static bool listed(const json_t *list, const char *word, size_t len)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strlen(one) == len && memcmp(one, word, len) == 0) return true;
    }
    return false;
}

/* Each word of a text must be in the profile's list. */
static bool compare_words(const char *what, const char *text, const json_t *list, struct missing *out)
{
    char served[1024], *sentence;
    capabilities_join(list, served, sizeof served);
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " ")) {
        const size_t len = strcspn(at, " ");
        if (!listed(list, at, len)) {
            if (asprintf(&sentence, "model requires %s%.*s, worker only supports %s", what, (int)len, at, served) < 0)
                sentence = NULL;
            if (!add_missing(out, sentence)) return false;
        }
        at += len;
    }
    return true;
}

static bool compare_most(const char *what, json_int_t asked, json_int_t most, struct missing *out)
{
    char *sentence;
    if (asked <= most) return true;
    if (asprintf(&sentence,
                 "model requires %s %" JSON_INTEGER_FORMAT ", worker only supports up to %" JSON_INTEGER_FORMAT, what,
                 asked, most) < 0)
        sentence = NULL;
    return add_missing(out, sentence);
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

void capabilities_compare(const json_t *mcd, const json_t *ecp, struct missing *out)
{
    const json_t *quant = json_object_get(mcd, "quant"), *types = json_object_get(ecp, "supports_quant");
    bool room =
        compare_words("architecture ", text_of(mcd, "architecture"), json_object_get(ecp, "supports_architecture"),
                      out) &&
        compare_words("positional ", text_of(mcd, "positional"), json_object_get(ecp, "supports_positional"), out) &&
        compare_words("attention ", text_of(mcd, "attention"), json_object_get(ecp, "supports_attention"), out);
    for (size_t i = 0; room && i < json_array_size(quant); i++)
        room = compare_words("", json_string_value(json_array_get(quant, i)), types, out);
    room = room && compare_most("context", json_integer_value(json_object_get(mcd, "context_max")),
                                json_integer_value(json_object_get(ecp, "max_context")), out);
    if (room)
        (void)compare_most("vocabulary", json_integer_value(json_object_get(mcd, "vocab_size")),
                           json_integer_value(json_object_get(ecp, "max_vocab")), out);
}

void missing_free(struct missing *m)
{
    for (uint32_t i = 0; i < m->n; i++) free(m->sentence[i]);
    m->n = 0;
}

/* ---- <model>.mcd.json ---------------------------------------------------------------------------------- */

static wk_status compare_sidecar(const char *path, const json_t *given, json_t *descriptor, const struct wk_err *err)
{
    const char *key;
    json_t *stated, *found;
    if (!json_is_object(given)) return wk_fail(err, WK_INVALID, "%s: expected a JSON object", path);
    json_object_foreach ((json_t *)(uintptr_t)given, key, stated) {
        found = json_object_get(descriptor, key);
        if (!found || strcmp(key, "model_id") == 0 || json_equal(found, stated)) continue;
        char *is = json_dumps(found, JSON_ENCODE_ANY), *says = json_dumps(stated, JSON_ENCODE_ANY);
        wk_status status =
            wk_fail(err, WK_INVALID, "%s: %s is %.200s, but the model's file has %.200s; correct or remove it", path,
                    key, says ? says : "?", is ? is : "?");
        free(is);
        free(says);
        return status;
    }
    json_t *id = json_object_get(given, "model_id");
    if (json_is_string(id)) (void)json_object_set(descriptor, "model_id", id);
    return WK_OK;
}

wk_status capabilities_sidecar(const struct gguf *file, json_t *descriptor, const struct wk_err *err)
{
    char *path;
    const char *model = gguf_path(file);
    const size_t len = strlen(model), stem = len > 5 && strcasecmp(model + len - 5, ".gguf") == 0 ? len - 5 : len;
    json_error_t why;
    if (asprintf(&path, "%.*s.mcd.json", (int)stem, model) < 0) return wk_fail(err, WK_NO_MEMORY, "no memory");
    wk_status status = WK_OK;
    if (access(path, F_OK) == 0) {
        json_t *given = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
        status = given ? compare_sidecar(path, given, descriptor, err)
                       : wk_fail(err, WK_INVALID, "%s: line %d: %s", path, why.line, why.text);
        json_decref(given);
    }
    free(path);
    return status;
}
