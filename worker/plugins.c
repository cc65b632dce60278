/* plugins.c: `worker plugin`: list and info FILE; check and new have files of their own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "plugin_check.h"
#include "setup.h"

static const char *state_name(enum plugin_state state)
{
    static const char *const names[] = { "found", "loaded", "shadowed", "refused" };
    return names[state];
}

static const char *kind_name(uint16_t kind)
{
    return kind == WK_KIND_ARCH         ? "architecture"
           : kind == WK_KIND_QUANT      ? "quantization"
           : kind == WK_KIND_QUANT_CUDA ? "quantization-cuda"
           : kind == WK_KIND_ARCH_CUDA  ? "architecture-cuda"
                                        : "?";
}

/* A note's text fields come from a file that may be hostile: bounded, and only what is printable. */
static const char *printable(const char *field, size_t cap, char *out)
{
    size_t i = 0;
    for (; i + 1 < cap && field[i]; i++) out[i] = field[i] > ' ' && field[i] < 127 ? field[i] : '?';
    out[i] = '\0';
    return out;
}

static json_t *entry_json(const struct plugin_entry *e)
{
    char id[64];
    const struct wk_note_desc *n = &e->note;
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*, s:s, s:s*, s:s*, s:s*}", "state", state_name(e->state), "id",
                     printable(n->id, sizeof id, id), "kind", kind_name(n->kind), "claims", e->claims, "path", e->path,
                     "cuda", e->cuda, "sha256", e->digest, "reason", e->reason, "rule", e->rule, "warnings",
                     e->warnings);
}

static int list_json(const struct plugin_registry *r)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < plugin_count(r); i++) (void)json_array_append_new(array, entry_json(plugin_at(r, i)));
    return json_print(json_pack("{s:o}", "plugins", array));
}

static int list_text(const struct plugin_registry *r)
{
    (void)printf("%-9s %-28s %-40s %-5s %-64s %s\n", "STATE", "ID", "CLAIMS", "CUDA", "SHA256", "PATH");
    for (uint32_t i = 0; i < plugin_count(r); i++) {
        const struct plugin_entry *e = plugin_at(r, i);
        char id[64];
        (void)printf("%-9s %-28s %-40s %-5s %-64s %s\n", state_name(e->state),
                     e->note.id[0] ? printable(e->note.id, sizeof id, id) : "-", e->claims[0] ? e->claims : "-",
                     e->cuda ? "yes" : "-", e->digest[0] ? e->digest : "-", e->path);
        if (e->reason) (void)printf("%-9s %s\n", "", e->reason);
        if (e->warnings) (void)printf("%-9s %s\n", "", e->warnings);
    }
    return EXIT_DONE;
}

static int list(const struct options *o)
{
    struct plugin_registry *r;
    int result = open_plugins(o, &r);
    if (result) return result;
    result = option_flag(o, OPT_JSON) ? list_json(r) : list_text(r);
    plugin_registry_close(r);
    return result;
}

static void print_info(const struct plugin_entry *e)
{
    char id[64];
    const struct wk_note_desc *n = &e->note;
    (void)printf("path      %s\nsha256    %s\nid        %s\nkind      %s\nclaims    %s\nabi       %u.%u to "
                 "%u.%u\nlayout    %08x%08x\n",
                 e->path, e->digest, printable(n->id, sizeof id, id), kind_name(n->kind), e->claims, n->abi_major,
                 n->abi_minor_min, n->abi_major, n->abi_minor_built, n->layout[1], n->layout[0]);
    if (e->warnings) (void)printf("warnings  %s\n", e->warnings);
}

static int info(const struct options *o)
{
    struct plugin_entry e = { 0 };
    ERROR_TEXT(err);
    int result = allow_plugins(o);
    if (result) return result;
    char *path = realpath(o->operands[1], NULL); /* no code of it runs, so a relative path is harmless here */
    if (!path) return fail(CODE_PLUGIN_REFUSED, "%s: %s", o->operands[1], strerror(errno));
    wk_status status = plugin_inspect(path, &e, &err);
    if (status)
        result = fail_status(STAGE_PLUGINS, status, &err);
    else if (option_flag(o, OPT_JSON))
        result = json_print(entry_json(&e));
    else
        print_info(&e);
    free(path);
    plugin_entry_clear(&e);
    return result;
}

static int check(const struct options *o)
{
    const int result = allow_plugins(o);
    if (result) return result;
    return option_flag(o, OPT_LIST) ? plugin_check_list(o) : plugin_check_file(o);
}

int command_plugin(const struct options *o)
{
    const char *action = o->operands[0], *only[1];
    if (strcmp(action, "new") == 0 && o->n_operands == 3) return plugin_new(o);
    if (option_given(o, OPT_PLUGIN_ID)) return fail_usage("plugin", "--id goes with new arch|quant NAME");
    if (strcmp(action, "check") == 0 && o->n_operands == (option_flag(o, OPT_LIST) ? 1 : 2)) return check(o);
    if (option_flag(o, OPT_LIST) || option_list(o, OPT_ONLY, only, 1) || o->value[OPT_MODEL].flag)
        return fail_usage("plugin", "--list goes with check alone, --only and --model with check FILE");
    if (strcmp(action, "list") == 0 && o->n_operands == 1) return list(o);
    if (strcmp(action, "info") == 0 && o->n_operands == 2) return info(o);
    return fail_usage("plugin", "expected list, info FILE, check FILE, check --list or new arch|quant NAME");
}
