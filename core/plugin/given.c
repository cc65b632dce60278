/* given.c: --plugin-option ID.KEY=VALUE: kept for the process, given to the plugin that asks, and refused if no plugin
 * does. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/plugin.h"
#include "plugin/vet.h"

struct given {
    char *id, *key, *value; /* one allocation, id's */
    bool asked;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct given *given;
static uint32_t n_given;

/* ID.KEY=VALUE: an id has dots, a key has none. */
static bool parse(struct given *g, const char *text)
{
    const char *equals = strchr(text, '='), *dot = equals;
    while (dot && dot > text && *dot != '.') dot--;
    if (!equals || dot == text || dot + 1 == equals) return false;
    g->id = strdup(text);
    if (!g->id) return true;
    g->key = g->id + (dot - text) + 1;
    g->value = g->id + (equals - text) + 1;
    g->key[-1] = g->value[-1] = '\0';
    return true;
}

wk_status plugin_options_keep(const char *const *list, uint32_t n, const struct wk_err *err)
{
    for (uint32_t i = 0; i < n_given; i++) free(given[i].id);
    free(given);
    n_given = 0;
    given = calloc(n ? n : 1, sizeof *given);
    if (!given) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < n; i++) {
        struct given *g = &given[i];
        if (!parse(g, list[i]))
            return wk_fail(err, WK_INVALID,
                           "--plugin-option %s: expected ID.KEY=VALUE, such as org.example.rope.factor=4", list[i]);
        if (!g->id) return wk_fail(err, WK_NO_MEMORY, "out of memory");
        n_given++;
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(given[j].id, g->id) == 0 && strcmp(given[j].key, g->key) == 0)
                return wk_fail(err, WK_INVALID, "--plugin-option %s.%s is given twice", g->id, g->key);
    }
    return WK_OK;
}

const char *plugin_option(const char *id, const char *key)
{
    const char *value = NULL;
    (void)pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n_given && !value; i++)
        if (strcmp(given[i].id, id) == 0 && strcmp(given[i].key, key) == 0) {
            given[i].asked = true;
            value = given[i].value;
        }
    (void)pthread_mutex_unlock(&lock);
    return value;
}

wk_status plugin_options_all_asked(const struct wk_err *err)
{
    wk_status status = WK_OK;
    (void)pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n_given && status == WK_OK; i++)
        if (!given[i].asked)
            status = wk_fail(err, WK_INVALID,
                             "--plugin-option %s.%s: no plugin that this model uses asks for it (see worker plugin "
                             "list)",
                             given[i].id, given[i].key);
    (void)pthread_mutex_unlock(&lock);
    return status;
}
