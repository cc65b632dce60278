/* inspect.c: `worker inspect FILE`: what a model's file holds and what it asks for. Reads the header alone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capabilities.h"
#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "setup.h"
#include "text.h"

/* Tensors of one type. */
struct type_use {
    uint32_t ggml_type;
    char name[32];
    uint64_t count, bytes;
};

struct inspection {
    const struct gguf *file;
    const struct plugin_registry *plugins;
    char model_id[MODEL_NAME];
    struct type_use types[64];
    uint32_t n_types;
    json_t *descriptor; /* NULL: the model cannot run here; why says so */
    char why[4096];
    struct missing missing;
    struct gguf_accepted accepted;
};

static void name_type(const struct plugin_registry *r, uint32_t ggml_type, char out[32])
{
    const struct wk_type_cpu *type = plugin_find_type(r, ggml_type, NULL);
    if (type)
        (void)snprintf(out, 32, "%s", type->name);
    else
        (void)gguf_tensor_type_text(ggml_type, out);
}

static void count_types(struct inspection *n)
{
    for (uint64_t i = 0; i < gguf_tensor_count(n->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(n->file, i);
        const struct wk_type_cpu *type = plugin_find_type(n->plugins, t->ggml_type, NULL);
        uint64_t bytes;
        uint32_t k = 0;
        /* Where nobody knows the geometry, the room up to the next tensor is the best figure there is. */
        if (!type || gguf_tensor_bytes(n->file, t, type->block, type->block_bytes, &bytes, NULL)) bytes = t->room;
        while (k < n->n_types && n->types[k].ggml_type != t->ggml_type) k++;
        if (k == sizeof n->types / sizeof *n->types) continue;
        if (k == n->n_types) {
            n->types[n->n_types++].ggml_type = t->ggml_type;
            name_type(n->plugins, t->ggml_type, n->types[k].name);
        }
        n->types[k].count++;
        n->types[k].bytes += bytes;
    }
}

static int examine(struct inspection *n)
{
    struct tape_program *program;
    const struct wk_err why = { n->why, sizeof n->why };
    ERROR_TEXT(err);
    model_name(n->file, n->model_id);
    count_types(n);
    capabilities_missing(n->file, n->plugins, &n->missing);
    if (capabilities_record(n->file, n->plugins, &n->accepted, &program, &why)) return EXIT_DONE;
    n->descriptor = capabilities_descriptor(n->model_id, n->plugins, program);
    tape_free(program);
    if (!n->descriptor) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the descriptor");
    wk_status status = capabilities_sidecar(n->file, n->descriptor, &err);
    json_t *profile = capabilities_profile(n->plugins, NULL, NULL);
    if (profile) capabilities_compare(n->descriptor, profile, &n->missing);
    json_decref(profile);
    return status ? fail_status(STAGE_MODEL, status, &err) : EXIT_DONE;
}

static json_t *tensors_json(const struct inspection *n)
{
    json_t *array = json_array();
    for (uint64_t i = 0; i < gguf_tensor_count(n->file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(n->file, i);
        char type[32];
        json_t *shape = json_array();
        name_type(n->plugins, t->ggml_type, type);
        for (uint32_t d = 0; d < t->n_dims; d++) (void)json_array_append_new(shape, json_integer((json_int_t)t->ne[d]));
        (void)json_array_append_new(array, json_pack("{s:o, s:s, s:o}", "name", json_bytes(t->name.data, t->name.len),
                                                     "type", type, "shape", shape));
    }
    return array;
}

/* A device for which every type of the file has kernels here; whether there is such a device is not asked. */
static bool has_kernels(const struct inspection *n)
{
    const struct wk_quant_cuda *kernels;
    bool all = true;
    for (uint32_t i = 0; all && i < n->n_types; i++)
        all = !plugin_find_cuda(n->plugins, n->types[i].ggml_type, &kernels, NULL);
    return all;
}

static int print_json(const struct inspection *n)
{
    json_t *metadata = json_object(), *types = json_array(), *missing = json_array();
    for (uint64_t i = 0; i < gguf_kv_count(n->file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(n->file, i);
        (void)json_object_setn_new(metadata, kv->key.data, kv->key.len, json_kv(n->file, kv));
    }
    for (uint32_t i = 0; i < n->n_types; i++)
        (void)json_array_append_new(types,
                                    json_pack("{s:s, s:I, s:I, s:I}", "type", n->types[i].name, "ggml_type",
                                              (json_int_t)n->types[i].ggml_type, "tensors",
                                              (json_int_t)n->types[i].count, "bytes", (json_int_t)n->types[i].bytes));
    for (uint32_t i = 0; i < n->missing.n; i++)
        (void)json_array_append_new(missing, json_string(n->missing.sentence[i]));
    return json_print(json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:o?, s:o?, s:[s*, s*], s:o, s:o, s:o, s:o}", "path",
        json_bytes(gguf_path(n->file), strlen(gguf_path(n->file))), "gguf_version", (json_int_t)gguf_version(n->file),
        "file_bytes", (json_int_t)gguf_file_bytes(n->file), "shards", (json_int_t)gguf_shard_count(n->file),
        "alignment", (json_int_t)gguf_alignment(n->file), "mcd", n->descriptor ? json_incref(n->descriptor) : NULL,
        "reason", n->descriptor ? NULL : json_bytes(n->why, strlen(n->why)), "devices", n->descriptor ? "cpu" : NULL,
        n->descriptor && has_kernels(n) ? "cuda" : NULL, "missing", missing, "types", types, "metadata", metadata,
        "tensors", tensors_json(n)));
}

static void print_descriptor(const json_t *descriptor)
{
    static const char *const keys[] = { "architecture", "positional", "attention" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        (void)printf("%-14s %s\n", keys[i], json_string_value(json_object_get(descriptor, keys[i])));
    (void)printf("%-14s %" JSON_INTEGER_FORMAT "\n", "context",
                 json_integer_value(json_object_get(descriptor, "context_max")));
    (void)printf("%-14s %" JSON_INTEGER_FORMAT "\n", "vocabulary",
                 json_integer_value(json_object_get(descriptor, "vocab_size")));
}

static int print_text(const struct inspection *n)
{
    char clean[4096];
    (void)printf("%-14s %s\n%-14s %s\n", "file", gguf_path(n->file), "model", n->model_id);
    (void)printf("%-14s GGUF v%u, %" PRIu64 " bytes in %u file%s, %" PRIu64 " keys, %" PRIu64 " tensors\n", "format",
                 gguf_version(n->file), gguf_file_bytes(n->file), gguf_shard_count(n->file),
                 gguf_shard_count(n->file) == 1 ? "" : "s", gguf_kv_count(n->file), gguf_tensor_count(n->file));
    if (n->descriptor) print_descriptor(n->descriptor);
    if (n->descriptor)
        (void)printf("%-14s cpu%s\n", "kernels for", has_kernels(n) ? ", cuda" : "");
    else
        (void)printf("%-14s %s\n", "cannot run", text_printable(n->why, clean, sizeof clean));
    for (uint32_t i = 0; i < n->missing.n; i++)
        (void)printf("%-14s %s\n", "missing", text_printable(n->missing.sentence[i], clean, sizeof clean));
    for (uint32_t i = 0; i < n->n_types; i++)
        (void)printf("%-14s %" PRIu64 " tensors, %" PRIu64 " bytes\n", n->types[i].name, n->types[i].count,
                     n->types[i].bytes);
    return EXIT_DONE;
}

int command_inspect(const struct options *o)
{
    struct inspection n = { 0 };
    struct gguf *file = NULL;
    struct plugin_registry *plugins = NULL;
    int result = open_path(o, o->operands[0], &file);
    if (!result) result = open_plugins(o, &plugins);
    if (!result) {
        n.file = file;
        n.plugins = plugins;
        n.accepted = accepted_keys(o);
        result = examine(&n);
    }
    if (!result) result = option_flag(o, OPT_JSON) ? print_json(&n) : print_text(&n);
    missing_free(&n.missing);
    json_decref(n.descriptor);
    plugin_registry_close(plugins);
    gguf_close(file);
    return result;
}
