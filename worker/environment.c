/* environment.c: the variables WORKER_*. One that nobody knows is most likely a known one spelt wrong, so it is refused
 * as an unknown key of a file is. Two kinds pass: names that builds and tests use, and what Kubernetes sets in every
 * pod for a service whose name begins with "worker". */
#include "options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Names of builds and tests, and of the plugins' folders. */
static const char *const others[] = {
    "WORKER_PLUGIN_PATH", "WORKER_TEST_DATA", "WORKER_TEST_VOCAB", "WORKER_GOLDENS",
    "WORKER_FAKE",        "WORKER_PLUGIN",    "WORKER_CUDA",       "WORKER_CUDA_ARCHITECTURES",
    "WORKER_NVCC",        "WORKER_FUZZ",      "WORKER_SANITIZE",
};

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* "..._PORT_7531_TCP", "..._PORT_7531_TCP_ADDR" */
static bool names_port(const char *name)
{
    static const char *const ends[] = { "", "_PROTO", "_PORT", "_ADDR" };
    static const char *const protocols[] = { "TCP", "UDP", "SCTP" };
    for (const char *p = name; (p = strstr(p, "_PORT_")); p += 5) {
        const char *rest = p + 6;
        const size_t digits = strspn(rest, "0123456789");
        if (!digits || rest[digits] != '_') continue;
        rest += digits + 1;
        for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
            const size_t n = strlen(protocols[i]);
            if (strncmp(rest, protocols[i], n) != 0) continue;
            for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
                if (strcmp(rest + n, ends[k]) == 0) return true;
        }
    }
    return false;
}

bool environment_is_link(const char *name, const char *value)
{
    const bool address =
        strncmp(value, "tcp://", 6) == 0 || strncmp(value, "udp://", 6) == 0 || strncmp(value, "sctp://", 7) == 0;
    return strstr(name, "_SERVICE_") || (address && ends_with(name, "_PORT")) || names_port(name);
}

/* The option of any command whose variable this is; OPT_COUNT: none. */
static enum option_id option_of_variable(const char *name)
{
    char own[64];
    int i = 0;
    for (; i < OPT_COUNT; i++) {
        option_environment(&option_table[i], own);
        if (option_table[i].environment && strcmp(own, name) == 0) break;
    }
    return (enum option_id)i;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], name) == 0) return true;
    return option_of_variable(name) != OPT_COUNT;
}

static bool refuse(const struct options *o, const char *name)
{
    const char *command = command_table[o->command].name;
    const struct option_def *nearest = option_of_near_variable(name + strlen("WORKER_"));
    char meant[64] = "";
    if (nearest) option_environment(nearest, meant);
    (void)fprintf(stderr, "worker %s: %.80s: unknown variable%s%s%s; see worker %s --help\n", command, name,
                  nearest ? "; did you mean " : "", meant, nearest ? "?" : "", command);
    return false;
}

bool environment_check(struct options *o)
{
    for (char *const *e = environ; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        char name[128];
        if (!equals || strncmp(*e, "WORKER_", strlen("WORKER_")) != 0) continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)(equals - *e), *e);
        if (environment_is_link(name, equals + 1)) {
            if (!o->n_links++) (void)snprintf(o->link, sizeof o->link, "%.63s", name);
        } else if (!is_known(name)) {
            return refuse(o, name);
        }
    }
    return true;
}
