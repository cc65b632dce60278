/* load.h: a load generator for POST /execute: thousands of streams of server-sent events on one thread, and the
 * measures of `vllm bench serve`.
 *
 * It is a judge as well as a clock: every stream must begin with `started` for its own job, number its tokens 0, 1, 2,
 * ... and close after exactly one terminal event whose tokens_out is what came. Anything else is a violation, and the
 * exit status says so. */
#ifndef BENCH_LOAD_LOAD_H
#define BENCH_LOAD_LOAD_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

enum { LOAD_OTHERS_TOKENS = 2000 /* max_tokens of streams that are not measured: more than a socket holds */ };

struct load_options {
    const char *url;    /* http://host:port */
    const char *prompt; /* NULL: made of input_tokens tokens, another one for every request */
    uint32_t input_tokens, output_tokens;
    uint32_t requests, concurrency;
    uint32_t others; /* streams beside the measured ones, opened first, of low priority */
    bool stalled;    /* nobody reads them */
    double rate;     /* requests a second, Poisson; 0: as many as concurrency allows */
    double abandon;  /* share of streams that the client leaves at a random token */
    double timeout;  /* seconds without a byte after which a stream is given up */
    uint64_t seed;
    json_t *params; /* object, added to every request; NULL: none */
    struct sockaddr_in address;
    char host[128]; /* for the Host header: name:port */
};

/* ---- numbers ------------------------------------------------------------------------------------------- */
double load_now(void);                 /* seconds, monotonic */
uint64_t load_random(uint64_t *state); /* splitmix64 */
double load_uniform(uint64_t *state);  /* above 0, below 1 */

/* A list of seconds. */
struct series {
    float *v;
    size_t n, cap;
};
bool series_add(struct series *s, double seconds);
void series_free(struct series *s);

/* ---- prompts ------------------------------------------------------------------------------------------- */
/* The bodies of all requests. False: said why on standard error. */
struct bodies {
    char **text;
    uint32_t n;
};
bool bodies_make(const struct load_options *o, struct bodies *out);
void bodies_free(struct bodies *b);

/* ---- one run ------------------------------------------------------------------------------------------- */
enum { LOAD_MAX_CODES = 32 };
struct results {
    struct series ttft, tpot, itl, e2el; /* of completed streams */
    uint64_t completed, abandoned, failed, violations;
    uint64_t input_tokens, output_tokens;
    uint32_t most_streams;  /* open at once, others apart */
    uint32_t others_open;   /* others that the server had answered when measuring began */
    double seconds;         /* from the first request to the last end */
    double refused_slowest; /* longest time to an answer that was not a stream */
    struct {
        char code[64];
        uint64_t n;
    } codes[LOAD_MAX_CODES];
    uint32_t n_codes;
    char first_violation[256];
};
/* False: nothing could be measured, said why. */
bool load_run(const struct load_options *o, const struct bodies *bodies, struct results *out);
void results_count(struct results *r, const char *code);
void results_free(struct results *r);

/* ---- the report, one JSON object; NULL: out of memory -------------------------------------------------- */
json_t *load_report(const struct load_options *o, const struct results *r);

/* ---- one blocking exchange: POSTs a JSON body, returns the answer's JSON; NULL: said why --------------- */
json_t *load_post(const struct load_options *o, const char *path, json_t *body);

#endif
