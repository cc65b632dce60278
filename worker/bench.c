/* bench.c: `worker bench`: prefill and decode speed, and decode's share of what this machine's memory gives; of models
 * that give embeddings see bench_texts.c.
 *
 * Both are measured as `worker run` generates: sampled on the device, with steps in flight ahead of what has been seen.
 * A decode step cannot be faster than reading the weights, and the cache of each of its sequences, once; so the figure
 * to look at is bytes read a second as a share of the bandwidth that the GPU, or as many threads, reach by only
 * reading, measured in the same run.
 *
 * --kernels: then the launches of as many decode steps of one sequence, each timed by itself (bench_launches.h).
 *
 * --constrained: so many of the sequences have a mask for each id, as a grammar makes them: of every second id in turn,
 * so that they may generate for ever. It costs what the way of the masks costs, not their making. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth.h"
#include "bench_launches.h"
#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "model/generator.h"
#include "parallel.h"
#include "speed.h"

/* A constraint: ids of even numbers, then of odd ones, and so on. */
struct half {
    struct sampler_constraint constraint;
    uint32_t words, n;
};

struct bench {
    struct opened *x;
    struct model *model;
    struct generator *generator;
    struct sampler_params params;
    uint32_t sequences, constrained, n_prompt, n_generate, n_repeat, threads;
    uint32_t depth;                /* positions before the decode: n_prompt, or what --depth says */
    uint32_t *tokens;              /* [longest prompt] */
    uint32_t *ids;                 /* [sequences] */
    struct half *halves;           /* [sequences] */
    struct launch_table *launches; /* NULL: without --kernels */
    double *prefill, *decode;      /* [n_repeat] tokens a second, of all sequences together */
    double bandwidth;              /* bytes a second */
    double bytes_per_token;        /* weights and cache that an average decode step reads, by its sequences */
    double began, opened, first; /* seconds: when the command began; from there to the open model, to the first token */
};

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread spread_of(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, ascending);
    const double median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return (struct spread){ median, values[0], values[n - 1] };
}

static wk_status half_mask(void *user, uint64_t *bits, const struct wk_err *err)
{
    const struct half *h = user;
    (void)err;
    memset(bits, h->n % 2 ? 0xaa : 0x55, h->words * sizeof *bits);
    return WK_OK;
}

static wk_status half_accept(void *user, uint32_t id, const struct wk_err *err)
{
    struct half *h = user;
    return id % 2 == h->n++ % 2 ? WK_OK : wk_fail(err, WK_INTERNAL, "id %u was not allowed", id);
}

static const struct sampler_constraint *constrain(struct bench *b, uint32_t i)
{
    struct half *h = &b->halves[i];
    if (i >= b->constrained) return NULL;
    *h = (struct half){ .constraint = { h, half_mask, half_accept, NULL },
                        .words = (b->model->program->n_vocab + 63) / 64 };
    return &h->constraint;
}

/* All sequences from an empty cache through n tokens, to their first ids. The tokens are arbitrary: speed does not
 * depend on them. */
static wk_status start_all(struct bench *b, uint32_t n, const struct wk_err *err)
{
    wk_status status = WK_OK;
    for (uint32_t i = 0; !status && i < b->sequences; i++) {
        struct sampler_params params = b->params;
        params.seed = i;
        const struct generator_job job = { .params = &params,
                                           .prompt = b->tokens,
                                           .n_prompt = n,
                                           .most = b->n_generate + 1,
                                           .stop = interrupted,
                                           .constraint = constrain(b, i) };
        status = generator_start(b->generator, i, &job, err);
    }
    return status;
}

static wk_status next(struct bench *b, const struct wk_err *err)
{
    wk_status status = generator_next(b->generator, b->ids, err);
    for (uint32_t i = 0; !status && i < b->sequences; i++)
        if (b->ids[i] >= b->model->program->n_vocab)
            return wk_fail(err, WK_INVALID, "a step gave no token: the weights are damaged or overflow");
    return status;
}

static wk_status measure(struct bench *b, uint32_t round, const struct wk_err *err)
{
    double start = seconds_now();
    wk_status status = start_all(b, b->n_prompt, err);
    b->prefill[round] = (double)b->sequences * b->n_prompt / (seconds_now() - start);
    if (b->first <= 0) b->first = seconds_now() - b->began;
    if (!status && b->depth != b->n_prompt) status = start_all(b, b->depth, err);
    if (!status) status = next(b, err);
    start = seconds_now();
    for (uint32_t i = 0; !status && i < b->n_generate; i++) {
        if (interrupted()) return wk_fail(err, WK_CANCELLED, "interrupted");
        status = next(b, err);
    }
    b->decode[round] = (double)b->sequences * b->n_generate / (seconds_now() - start);
    return status;
}

static wk_status measure_bandwidth(struct bench *b, const struct wk_err *err)
{
    if (b->model->device->bandwidth) return b->model->device->bandwidth(b->model->executor, &b->bandwidth, err);
    b->bandwidth = bandwidth_read(b->threads);
    return b->bandwidth > 0 ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to measure the bandwidth with");
}

static int measure_all(struct bench *b)
{
    const uint32_t n_vocab = b->model->program->n_vocab, longest = b->depth > b->n_prompt ? b->depth : b->n_prompt;
    ERROR_TEXT(err);
    b->tokens = malloc(longest * sizeof *b->tokens);
    b->ids = malloc(b->sequences * sizeof *b->ids);
    b->halves = calloc(b->sequences, sizeof *b->halves);
    b->prefill = malloc(b->n_repeat * sizeof *b->prefill);
    b->decode = malloc(b->n_repeat * sizeof *b->decode);
    if (!b->tokens || !b->ids || !b->halves || !b->prefill || !b->decode)
        return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the measurements");
    for (uint32_t i = 0; i < longest; i++) b->tokens[i] = (uint32_t)((uint64_t)i * 7919 % n_vocab);
    wk_status status = generator_open(b->model, b->sequences, &b->generator, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    status = measure(b, 0, &err); /* not counted: it packs the weights and warms the caches */
    for (uint32_t r = 0; !status && r < b->n_repeat && !interrupted(); r++) status = measure(b, r, &err);
    if (interrupted()) return EXIT_INTERRUPTED;
    if (!status) status = measure_bandwidth(b, &err);
    if (status) return fail_status(STAGE_STEP, status, &err);
    b->bytes_per_token = decode_bytes(b->model, b->sequences, b->depth + b->n_generate / 2.0);
    if (!b->launches) return EXIT_DONE;
    generator_close(b->generator);
    b->generator = NULL;
    status = launches_measure(b->launches, b->model, b->tokens, b->depth, b->n_generate, &err);
    return status ? fail_status(STAGE_STEP, status, &err) : EXIT_DONE;
}

static int print_result(struct bench *b, bool json)
{
    const struct spread prefill = spread_of(b->prefill, b->n_repeat), decode = spread_of(b->decode, b->n_repeat);
    const double rate = decode.median * b->bytes_per_token, share = rate / b->bandwidth;
    const struct model *m = b->model;
    const bool gpu = m->device->probe != NULL;
    if (json)
        return json_print(json_pack(
            "{s:o, s:s, s:s*, s:s*, s:i, s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:{s:f, s:f, s:f}, s:{s:f, "
            "s:f, "
            "s:f}, s:f, s:f, s:f, s:f, s:o*}",
            "model", json_bytes(m->name, strlen(m->name)), "device", m->device->name, "gpu",
            gpu ? b->x->gpu.name : NULL, "isa", gpu ? NULL : plugin_isa_name(m->dev.isa), "threads", (int)b->threads,
            "exact", m->dev.exact, "sequences", (json_int_t)b->sequences, "constrained", (json_int_t)b->constrained,
            "depth", (json_int_t)b->depth, "temperature", (double)b->params.temperature, "open_seconds", b->opened,
            "first_token_seconds", b->first, "prompt_tokens", (json_int_t)b->n_prompt, "generated_tokens",
            (json_int_t)b->n_generate, "repeats", (json_int_t)b->n_repeat, "prefill_tokens_per_second", "median",
            prefill.median, "min", prefill.least, "max", prefill.most, "decode_tokens_per_second", "median",
            decode.median, "min", decode.least, "max", decode.most, "bytes_per_token", b->bytes_per_token,
            "decode_bytes_per_second", rate, "read_bandwidth_bytes_per_second", b->bandwidth, "bandwidth_share", share,
            "launches", b->launches ? launches_json(b->launches, b->bandwidth) : NULL));
    char device[DEVICE_TEXT], readers[32] = "the GPU", each[64] = "";
    if (!gpu) (void)snprintf(readers, sizeof readers, "%u threads", b->threads);
    (void)printf("model      %s, device %s\n", m->name, opened_device(b->x, device));
    if (b->constrained)
        (void)snprintf(each, sizeof each, ", each of %u sequences, %u constrained", b->sequences, b->constrained);
    else if (b->sequences > 1)
        (void)snprintf(each, sizeof each, ", each of %u sequences", b->sequences);
    (void)printf("prefill    %10.2f tok/s median of %u (%.2f to %.2f), %u tokens%s\n", prefill.median, b->n_repeat,
                 prefill.least, prefill.most, b->n_prompt, each);
    (void)printf("decode     %10.2f tok/s median of %u (%.2f to %.2f), %u tokens after %u%s, temperature %g\n",
                 decode.median, b->n_repeat, decode.least, decode.most, b->n_generate, b->depth, each,
                 (double)b->params.temperature);
    (void)printf("bytes      %10.2f MB a token, %.2f GB/s\n", b->bytes_per_token / 1e6, rate / 1e9);
    (void)printf("start      %10.2f s to the open model, %.2f s to the first token\n", b->opened, b->first);
    (void)printf("bandwidth  %10.2f GB/s read by %s; decode reaches %.1f %% of it%s\n", b->bandwidth / 1e9, readers,
                 100 * share, share > 1 ? ": the caches hold the model" : "");
    if (b->launches) launches_print(b->launches, b->bandwidth);
    return EXIT_DONE;
}

static void read_options(const struct options *o, struct bench *b)
{
    b->sequences = option_u32(o, OPT_BENCH_SEQUENCES);
    b->constrained = option_u32(o, OPT_BENCH_CONSTRAINED);
    b->n_prompt = option_u32(o, OPT_BENCH_PROMPT);
    b->n_generate = option_u32(o, OPT_BENCH_GENERATE);
    b->n_repeat = option_u32(o, OPT_BENCH_REPEAT);
    b->depth = option_u32(o, OPT_BENCH_DEPTH) ? option_u32(o, OPT_BENCH_DEPTH) : b->n_prompt;
    b->threads = option_u32(o, OPT_THREADS) ? option_u32(o, OPT_THREADS) : parallel_processors();
    b->params = (struct sampler_params){ .temperature = (float)option_real(o, OPT_TEMPERATURE),
                                         .top_k = option_u32(o, OPT_TOP_K),
                                         .top_p = (float)option_real(o, OPT_TOP_P),
                                         .min_p = (float)option_real(o, OPT_MIN_P),
                                         .repetition_penalty = 1 };
}

/* A text has no decode. */
static int measure_texts(const struct options *o, const struct bench *b)
{
    static const struct {
        enum option_id id;
        const char *name;
    } of_decode[] = { { OPT_BENCH_GENERATE, "-n" },
                      { OPT_BENCH_DEPTH, "--depth" },
                      { OPT_BENCH_CONSTRAINED, "--constrained" },
                      { OPT_BENCH_KERNELS, "--kernels" } };
    for (size_t i = 0; i < sizeof of_decode / sizeof *of_decode; i++)
        if (option_given(o, of_decode[i].id))
            return fail_usage("bench", "%s: %s gives embeddings and generates nothing", of_decode[i].name,
                              b->model->name);
    const struct texts texts = { .n = b->sequences,
                                 .tokens = b->n_prompt,
                                 .repeats = b->n_repeat,
                                 .threads = b->threads,
                                 .began = b->began,
                                 .opened = b->opened,
                                 .json = option_flag(o, OPT_JSON) };
    return bench_texts(&texts, b->x);
}

/* needed: positions of a sequence. */
static int measure_tokens(const struct options *o, struct bench *b, uint32_t needed)
{
    if (needed > b->model->dev.context)
        return fail(CODE_CONTEXT_LENGTH_EXCEEDED,
                    "%u + %u tokens do not fit the context of %u; lower -p, -n or --depth or raise --context",
                    needed - b->n_generate, b->n_generate, b->model->dev.context);
    if (b->launches && !b->model->device->launches)
        return fail_usage("bench", "--kernels: --device %s does not tell the times of launches; use --device cuda",
                          b->model->device->name);
    const int result = measure_all(b);
    return result ? result : print_result(b, option_flag(o, OPT_JSON));
}

int command_bench(const struct options *o)
{
    struct opened x;
    struct bench b = { .began = seconds_now() };
    struct launch_table launches;
    read_options(o, &b);
    if (option_flag(o, OPT_BENCH_KERNELS)) b.launches = &launches;
    const uint32_t needed = (b.depth > b.n_prompt ? b.depth : b.n_prompt) + b.n_generate + (b.launches ? 1 : 0);
    if (b.constrained > b.sequences)
        return fail_usage("bench", "--constrained %u: expected at most --sequences, %u", b.constrained, b.sequences);
    if (b.launches && b.sequences > 1)
        return fail_usage("bench", "--kernels: the launches of one sequence are timed, not of --sequences %u",
                          b.sequences);
    interrupts_catch();
    const struct model_needs needs = { .max_rows = STEP_ROWS_BEST,
                                       .max_logits_rows = b.sequences,
                                       .sequences = b.sequences,
                                       .context = option_u32(o, OPT_CONTEXT) ? 0 : needed,
                                       .text_context = option_u32(o, OPT_CONTEXT) ? 0 : b.n_prompt,
                                       .load = true };
    int result = open_model(o, &needs, &x);
    b.opened = seconds_now() - b.began;
    b.x = &x;
    b.model = x.model;
    if (!result) result = b.model->program->embedding_width ? measure_texts(o, &b) : measure_tokens(o, &b, needed);
    generator_close(b.generator);
    free(b.tokens);
    free(b.ids);
    free(b.halves);
    free(b.prefill);
    free(b.decode);
    opened_close(&x);
    return result;
}
