/* capabilities.c: `worker capabilities`, and how the command line refuses a model that nobody serves. */
#include "capabilities.h"

#include <stdio.h>

#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "setup.h"

static int print_profile(const json_t *profile)
{
    const char *key;
    const json_t *value;
    char text[1024];
    void *at = json_object_iter((json_t *)(uintptr_t)profile);
    for (; at; at = json_object_iter_next((json_t *)(uintptr_t)profile, at)) {
        key = json_object_iter_key(at);
        value = json_object_iter_value(at);
        if (json_is_array(value))
            capabilities_join(value, text, sizeof text);
        else if (json_is_string(value))
            (void)snprintf(text, sizeof text, "%s", json_string_value(value));
        else
            (void)snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        (void)printf("%-22s %s\n", key, text);
    }
    return EXIT_DONE;
}

int command_capabilities(const struct options *o)
{
    struct plugin_registry *r;
    int result = open_plugins(o, &r);
    if (result) return result;
    struct device_info gpu = { 0 };
    const struct device_ops *cuda;
    const bool has_gpu = !device_cuda(&cuda, NULL) && !cuda->probe(0, &gpu, NULL);
    json_t *profile = capabilities_profile(r, NULL, has_gpu ? &gpu : NULL);
    if (option_flag(o, OPT_JSON) || !profile) {
        result = json_print(profile);
    } else {
        result = print_profile(profile);
        json_decref(profile);
    }
    plugin_registry_close(r);
    return result;
}

int missing_refuse(const struct missing *m, const char *path)
{
    char text[4096] = "";
    size_t len = 0;
    for (uint32_t i = 0; i < m->n && len < sizeof text; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s: %s", i ? "\n" : "", path, m->sentence[i]);
    return m->n ? fail(CODE_MODEL_LOAD_FAILED, "%s", text) : EXIT_DONE;
}

int capabilities_check(const struct gguf *file, const char *path, const struct plugin_registry *r,
                       const struct tape_program *program)
{
    char model_id[MODEL_NAME];
    struct missing missing = { .n = 0 };
    ERROR_TEXT(err);
    model_name(file, model_id);
    json_t *descriptor = capabilities_descriptor(model_id, r, program), *profile = capabilities_profile(r, NULL, NULL);
    int result = EXIT_DONE;
    if (descriptor && profile) {
        wk_status status = capabilities_sidecar(file, descriptor, &err);
        if (status) result = fail_status(STAGE_MODEL, status, &err);
        capabilities_compare(descriptor, profile, &missing);
        if (!result) result = missing_refuse(&missing, path);
    } else {
        result = fail(CODE_INSUFFICIENT_MEMORY, "no memory for the descriptor");
    }
    missing_free(&missing);
    json_decref(descriptor);
    json_decref(profile);
    return result;
}
