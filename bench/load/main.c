/* main.c: options in, one JSON report out. Exit status: 0; 1: a stream broke a rule, or nothing could be measured; 2:
 * usage. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

static const char usage[] =
    "usage: load --url http://HOST:PORT [options]\n"
    "  --requests N          streams in all (100)\n"
    "  --concurrency N       streams open at once, at most (16)\n"
    "  --request-rate R      requests a second, Poisson arrivals; 0: as fast as concurrency allows (0)\n"
    "  --prompt TEXT         the same prompt for all\n"
    "  --input-tokens N      or: N tokens of random words, others for every request (64)\n"
    "  --output-tokens N     max_tokens (64)\n"
    "  --params JSON         an object whose members every request has as well, such as {\"temperature\": 0}\n"
    "  --others N            more streams of low priority that are opened first and not measured\n"
    "  --stalled-readers N   the same, but never read\n"
    "  --abandon P           share of the streams that the client leaves at a random token, by FIN and by RST in turn\n"
    "  --timeout S           seconds without a byte after which a stream has failed (120)\n"
    "  --seed N              of prompts, arrivals and abandoning (1)\n";

static int bad(const char *what, const char *value)
{
    (void)fprintf(stderr, "load: %s: %s\n%s", what, value, usage);
    return 2;
}

static bool number(const char *text, double least, double most, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return !errno && end != text && !*end && *out >= least && *out <= most;
}

/* host:port of http://host:port; IPv4. */
static bool resolve(struct load_options *o)
{
    if (strncmp(o->url, "http://", 7) != 0 || strlen(o->url + 7) >= sizeof o->host) return false;
    (void)snprintf(o->host, sizeof o->host, "%s", o->url + 7);
    o->host[strcspn(o->host, "/")] = '\0';
    char name[sizeof o->host], *colon;
    (void)snprintf(name, sizeof name, "%s", o->host);
    colon = strrchr(name, ':');
    if (colon) *colon = '\0';
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
    if (getaddrinfo(name, colon ? colon + 1 : "80", &hints, &found) != 0) return false;
    memcpy(&o->address, found->ai_addr, sizeof o->address);
    freeaddrinfo(found);
    return true;
}

enum {
    O_URL = 1,
    O_REQUESTS,
    O_CONCURRENCY,
    O_RATE,
    O_PROMPT,
    O_INPUT,
    O_OUTPUT,
    O_PARAMS,
    O_OTHERS,
    O_STALLED,
    O_ABANDON,
    O_TIMEOUT,
    O_SEED,
    O_HELP
};
static const struct option names[] = { { "url", 1, NULL, O_URL },
                                       { "requests", 1, NULL, O_REQUESTS },
                                       { "concurrency", 1, NULL, O_CONCURRENCY },
                                       { "request-rate", 1, NULL, O_RATE },
                                       { "prompt", 1, NULL, O_PROMPT },
                                       { "input-tokens", 1, NULL, O_INPUT },
                                       { "output-tokens", 1, NULL, O_OUTPUT },
                                       { "params", 1, NULL, O_PARAMS },
                                       { "others", 1, NULL, O_OTHERS },
                                       { "stalled-readers", 1, NULL, O_STALLED },
                                       { "abandon", 1, NULL, O_ABANDON },
                                       { "timeout", 1, NULL, O_TIMEOUT },
                                       { "seed", 1, NULL, O_SEED },
                                       { "help", 0, NULL, O_HELP },
                                       { 0 } };

/* 0; else the exit status. */
static int parse(int argc, char **argv, struct load_options *o)
{
    double v = 0;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        const char *name = c >= O_URL && c <= O_HELP ? names[c - 1].name : "";
        if (c == '?' || c == O_HELP) return bad("options", "as below");
        if (c == O_URL)
            o->url = optarg;
        else if (c == O_PROMPT)
            o->prompt = optarg;
        else if (c == O_PARAMS) {
            json_decref(o->params);
            o->params = json_loads(optarg, JSON_REJECT_DUPLICATES, NULL);
            if (!json_is_object(o->params)) return bad("--params wants a JSON object", optarg);
        } else if (!number(optarg, c == O_REQUESTS || c == O_CONCURRENCY || c == O_INPUT || c == O_OUTPUT ? 1 : 0,
                           c == O_ABANDON ? 1 : 1e6, &v)) {
            return bad(name, optarg);
        }
        if (c == O_REQUESTS)
            o->requests = (uint32_t)v;
        else if (c == O_CONCURRENCY)
            o->concurrency = (uint32_t)v;
        else if (c == O_RATE)
            o->rate = v;
        else if (c == O_INPUT)
            o->input_tokens = (uint32_t)v;
        else if (c == O_OUTPUT)
            o->output_tokens = (uint32_t)v;
        else if (c == O_OTHERS || c == O_STALLED) {
            o->others = (uint32_t)v;
            o->stalled = c == O_STALLED;
        } else if (c == O_ABANDON)
            o->abandon = v;
        else if (c == O_TIMEOUT)
            o->timeout = v;
        else if (c == O_SEED)
            o->seed = (uint64_t)v;
    }
    if (optind < argc) return bad("no operands expected", argv[optind]);
    if (!o->url || !resolve(o)) return bad("--url wants http://HOST:PORT, IPv4", o->url ? o->url : "(absent)");
    return 0;
}

int main(int argc, char **argv)
{
    struct load_options o = {
        .requests = 100, .concurrency = 16, .input_tokens = 64, .output_tokens = 64, .timeout = 120, .seed = 1
    };
    struct bodies bodies = { 0 };
    struct results results = { 0 };
    int status = parse(argc, argv, &o);
    if (!status && (!bodies_make(&o, &bodies) || !load_run(&o, &bodies, &results))) status = 1;
    if (!status) {
        json_t *report = load_report(&o, &results);
        if (!report || json_dumpf(report, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) || putchar('\n') == EOF)
            status = 1;
        json_decref(report);
        if (results.violations) {
            (void)fprintf(stderr, "load: %llu violations; the first: %s\n", (unsigned long long)results.violations,
                          results.first_violation);
            status = 1;
        }
    }
    results_free(&results);
    bodies_free(&bodies);
    json_decref(o.params);
    return status;
}
