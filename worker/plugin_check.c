/* plugin_check.c: `worker plugin check`: runs the checks of core/check and prints what they found. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "plugin_check.h"
#include "setup.h"

enum { MAX_ONLY = 64, FAILED_TEXT = 1024 };

/* ---- the table ----------------------------------------------------------------------------------------- */

static json_t *kinds_json(uint32_t kinds)
{
    static const char *const names[] = { "architecture", "quantization", "quantization-cuda" };
    json_t *array = json_array();
    for (uint32_t i = 0; i < 3; i++)
        if (kinds >> i & 1) (void)json_array_append_new(array, json_string(names[i]));
    return array;
}

static int list_json(void)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < check_count(); i++) {
        const struct check_def *def = check_at(i);
        (void)json_array_append_new(array, json_pack("{s:s, s:s, s:o, s:s}", "id", def->id, "group",
                                                     check_group_name(check_group_of(i)), "kinds",
                                                     kinds_json(def->kinds), "rule", def->rule));
    }
    return json_print(json_pack("{s:o}", "checks", array));
}

int plugin_check_list(const struct options *o)
{
    if (option_flag(o, OPT_JSON)) return list_json();
    for (uint32_t i = 0; i < check_count(); i++) (void)printf("%-26s %s\n", check_at(i)->id, check_at(i)->rule);
    return EXIT_DONE;
}

/* ---- one file ------------------------------------------------------------------------------------------ */

struct report {
    json_t *checks; /* NULL: text is printed */
    uint32_t n[CHECK_FAIL + 1];
    char failed[FAILED_TEXT]; /* "static.note, load.start" */
};

static json_t *outcome_json(const struct check_outcome *c)
{
    json_t *details = json_array();
    for (uint32_t i = 0; i < c->n_texts; i++)
        (void)json_array_append_new(details, json_bytes(c->text[i], strlen(c->text[i])));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", c->def->id, "group", check_group_name(c->group), "rule",
                     c->def->rule, "result", check_result_name(c->result), "details", details);
}

static void outcome_text(const struct check_outcome *c)
{
    (void)printf("%-5s %s\n", check_result_name(c->result), c->def->id);
    if (c->result == CHECK_FAIL) (void)printf("      rule: %s\n", c->def->rule);
    for (uint32_t i = 0; i < c->n_texts; i++) (void)printf("      %s\n", c->text[i]);
    if (c->lost) (void)printf("      ... and %u more\n", c->lost);
    (void)fflush(stdout); /* the next check may take a while */
}

static void tell(void *user, const struct check_outcome *c)
{
    struct report *r = user;
    const size_t n = strlen(r->failed);
    r->n[c->result]++;
    if (c->result == CHECK_FAIL) (void)snprintf(r->failed + n, sizeof r->failed - n, "%s%s", n ? ", " : "", c->def->id);
    if (r->checks)
        (void)json_array_append_new(r->checks, outcome_json(c));
    else
        outcome_text(c);
}

static int finish(struct report *r, const char *path)
{
    const uint32_t all = r->n[CHECK_PASS] + r->n[CHECK_WARN] + r->n[CHECK_SKIP] + r->n[CHECK_FAIL];
    int result = EXIT_DONE;
    if (r->checks)
        result = json_print(json_pack("{s:s, s:i, s:i, s:i, s:i, s:O}", "path", path, "passed", (int)r->n[CHECK_PASS],
                                      "warned", (int)r->n[CHECK_WARN], "skipped", (int)r->n[CHECK_SKIP], "failed",
                                      (int)r->n[CHECK_FAIL], "checks", r->checks));
    else
        (void)printf("%u checks: %u passed, %u passed with a warning, %u skipped, %u failed\n", all, r->n[CHECK_PASS],
                     r->n[CHECK_WARN], r->n[CHECK_SKIP], r->n[CHECK_FAIL]);
    json_decref(r->checks);
    if (result || !r->n[CHECK_FAIL]) return result;
    return fail(CODE_PLUGIN_REFUSED, "%s: %u of %u checks failed: %s", path, r->n[CHECK_FAIL], all, r->failed);
}

int plugin_check_file(const struct options *o)
{
    ERROR_TEXT(err);
    const char *only[MAX_ONLY];
    struct report report = { .checks = option_flag(o, OPT_JSON) ? json_array() : NULL };
    char *path = realpath(o->operands[1], NULL);
    if (!path) return fail(CODE_PLUGIN_REFUSED, "%s: %s", o->operands[1], strerror(errno));
    struct plugin_registry *plugins = NULL;
    uint32_t isa;
    char model[MODEL_PATH] = "";
    int result = choose_isa(o, &isa);
    if (!result && o->value[OPT_MODEL].flag) result = find_model(o, option_text(o, OPT_MODEL), model);
    if (!result) result = open_plugins(o, &plugins);
    if (result) {
        json_decref(report.checks);
        free(path);
        return result;
    }
    const struct check_options options = { .path = path,
                                           .model = model[0] ? model : NULL,
                                           .only = only,
                                           .n_only = option_list(o, OPT_ONLY, only, MAX_ONLY),
                                           .plugins = plugins,
                                           .isa = option_text(o, OPT_ISA) ? isa : FORMAT_ISAS };
    const wk_status status = check_run(&options, tell, &report, &err);
    if (status == WK_OK) {
        result = finish(&report, path);
    } else {
        json_decref(report.checks);
        result = status == WK_INVALID ? fail_usage("plugin", "--only %s", err_text)
                                      : fail_status(STAGE_PLUGINS, status, &err);
    }
    plugin_registry_close(plugins);
    free(path);
    return result;
}
