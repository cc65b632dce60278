/* bench.c: `worker bench`: prefill and decode speed, and decode's share of what this machine's memory gives.
 *
 * A decode step cannot be faster than reading the weights and the cache that it uses once; so the figure to look at is bytes read a
 * second as a share of the bandwidth that as many threads reach by only reading, measured in the same run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bandwidth.h"
#include "commands.h"
#include "errors.h"
#include "json_out.h"
#include "parallel.h"
#include "setup.h"
#include "text.h"

struct spread { double median, least, most; };

struct bench {
    struct model *model;
    struct session *session;
    uint32_t n_prompt, n_generate, n_repeat, threads;
    uint32_t *tokens;               /* [n_prompt] */
    float *logits;                  /* [n_vocab] */
    double *prefill, *decode;       /* [n_repeat] tokens a second */
    double bandwidth;               /* bytes a second */
    double bytes_per_token;         /* weights and cache that an average decode step reads */
};

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct spread spread_of(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, ascending);
    const double median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return (struct spread){ median, values[0], values[n - 1] };
}

/* Bytes of a tensor that one token's pass reads through operation `op`. */
static double operand_bytes(const struct tape_program *p, const struct tape_op *op, uint32_t k)
{
    const struct tape_tensor *t = &p->tensors[op->t[k]];
    const double rows = (double)t->rows * t->slabs;
    switch (op->kind) {
    case WK_OP_EMBED: return (double)t->bytes / rows; /* one row */
    case WK_OP_LINEAR: return k == 0 ? (double)t->bytes * op->u.linear.n / rows : (double)t->bytes;
    case WK_OP_EXPERT: return (double)t->bytes / op->u.linear.n_expert * p->values[op->in[1]].slots; /* the chosen experts */
    default: return (double)t->bytes;
    }
}

/* Of the cache, position p reads every key and value before it that its window holds. */
static double cache_bytes(const struct model *m, double position)
{
    const struct tape_program *p = m->program;
    const double size = m->dev.kv_type == KV_F32 ? 4 : 2;
    double bytes = 0;
    for (uint32_t i = 0; i < p->n_kv_layers; i++) {
        const struct tape_kv_layer *l = &p->kv_layers[i];
        const uint32_t window = p->groups[l->group].window;
        const double seen = window && position > window ? window : position;
        bytes += seen * l->kv_heads * ((double)l->head_k + l->head_v) * size;
    }
    return bytes;
}

static double decode_bytes(const struct bench *b)
{
    const struct tape_program *p = b->model->program;
    double bytes = cache_bytes(b->model, b->n_prompt + b->n_generate / 2.0);
    for (uint32_t i = 0; i < p->n_ops; i++)
        for (uint32_t k = 0; k < 4; k++)
            if (p->ops[i].t[k] != TAPE_NONE) bytes += operand_bytes(p, &p->ops[i], k);
    return bytes;
}

/* One prefill and one decode from an empty cache. The tokens are arbitrary: speed does not depend on them. */
static wk_status measure(struct bench *b, uint32_t round, const struct wk_err *err)
{
    const uint32_t n_vocab = b->model->program->n_vocab;
    session_reset(b->session);
    double start = seconds_now();
    wk_status status = session_feed(b->session, b->tokens, b->n_prompt, ROW_PROMPT, 1, b->logits, err);
    b->prefill[round] = b->n_prompt / (seconds_now() - start);
    start = seconds_now();
    for (uint32_t i = 0; !status && i < b->n_generate; i++) {
        const uint32_t token = (b->tokens[i % b->n_prompt] + 1) % n_vocab;
        status = session_feed(b->session, &token, 1, ROW_GENERATED, 1, b->logits, err);
    }
    b->decode[round] = b->n_generate / (seconds_now() - start);
    return status;
}

static int measure_all(struct bench *b)
{
    const uint32_t n_vocab = b->model->program->n_vocab;
    ERROR_TEXT(err);
    b->tokens = malloc(b->n_prompt * sizeof *b->tokens);
    b->logits = malloc(n_vocab * sizeof *b->logits);
    b->prefill = malloc(b->n_repeat * sizeof *b->prefill);
    b->decode = malloc(b->n_repeat * sizeof *b->decode);
    if (!b->tokens || !b->logits || !b->prefill || !b->decode) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the measurements");
    for (uint32_t i = 0; i < b->n_prompt; i++) b->tokens[i] = (uint32_t)((uint64_t)i * 7919 % n_vocab);
    wk_status status = session_open(b->model, &b->session, &err);
    if (status) return fail_status(STAGE_MODEL, status, &err);
    status = measure(b, 0, &err); /* not counted: it packs the weights and warms the caches */
    for (uint32_t r = 0; !status && r < b->n_repeat && !interrupted(); r++) status = measure(b, r, &err);
    if (status) return fail_status(STAGE_STEP, status, &err);
    if (interrupted()) return EXIT_INTERRUPTED;
    b->bandwidth = bandwidth_read(b->threads);
    if (b->bandwidth <= 0) return fail(CODE_INSUFFICIENT_MEMORY, "no memory to measure the bandwidth with");
    b->bytes_per_token = decode_bytes(b);
    return EXIT_DONE;
}

static int print_result(struct bench *b, bool json)
{
    const struct spread prefill = spread_of(b->prefill, b->n_repeat), decode = spread_of(b->decode, b->n_repeat);
    const double rate = decode.median * b->bytes_per_token, share = rate / b->bandwidth;
    const struct model *m = b->model;
    if (json)
        return json_print(json_pack("{s:o, s:s, s:s, s:i, s:b, s:I, s:I, s:I, s:{s:f, s:f, s:f}, s:{s:f, s:f, s:f}, s:f, s:f, s:f, s:f}", "model",
            json_bytes(m->name, strlen(m->name)), "device", m->device->name, "isa", isa_name(m->dev.isa), "threads", (int)b->threads, "exact", m->dev.exact,
            "prompt_tokens", (json_int_t)b->n_prompt, "generated_tokens", (json_int_t)b->n_generate, "repeats", (json_int_t)b->n_repeat, "prefill_tokens_per_second",
            "median", prefill.median, "min", prefill.least, "max", prefill.most, "decode_tokens_per_second", "median", decode.median, "min", decode.least, "max",
            decode.most, "bytes_per_token", b->bytes_per_token, "decode_bytes_per_second", rate, "read_bandwidth_bytes_per_second", b->bandwidth, "bandwidth_share", share));
    char name[sizeof m->name];
    (void)printf("model      %s, device %s (%s, %u threads%s)\n", text_printable(m->name, name, sizeof name), m->device->name, isa_name(m->dev.isa), b->threads, m->dev.exact ? ", exact" : "");
    (void)printf("prefill    %10.2f tok/s median of %u (%.2f to %.2f), %u tokens\n", prefill.median, b->n_repeat, prefill.least, prefill.most, b->n_prompt);
    (void)printf("decode     %10.2f tok/s median of %u (%.2f to %.2f), %u tokens\n", decode.median, b->n_repeat, decode.least, decode.most, b->n_generate);
    (void)printf("bytes      %10.2f MB a token, %.2f GB/s\n", b->bytes_per_token / 1e6, rate / 1e9);
    (void)printf("bandwidth  %10.2f GB/s read by %u threads; decode reaches %.1f %% of it%s\n", b->bandwidth / 1e9, b->threads, 100 * share,
        share > 1 ? ": the caches hold the model" : "");
    return EXIT_DONE;
}

int command_bench(const struct options *o)
{
    struct opened x;
    struct bench b = { .n_prompt = option_u32(o, OPT_BENCH_PROMPT), .n_generate = option_u32(o, OPT_BENCH_GENERATE), .n_repeat = option_u32(o, OPT_BENCH_REPEAT),
        .threads = option_u32(o, OPT_THREADS) ? option_u32(o, OPT_THREADS) : parallel_processors() };
    const uint32_t context = option_u32(o, OPT_CONTEXT) ? 0 : b.n_prompt + b.n_generate;
    interrupts_catch();
    int result = open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS, .max_wanted = 1, .context = context, .load = true }, &x);
    if (!result && b.n_prompt + b.n_generate > x.model->dev.context)
        result = fail(CODE_CONTEXT_LENGTH_EXCEEDED, "%u + %u tokens do not fit the context of %u; lower -p or -n or raise --context", b.n_prompt, b.n_generate, x.model->dev.context);
    b.model = x.model;
    if (!result) result = measure_all(&b);
    if (!result) result = print_result(&b, option_flag(o, OPT_JSON));
    session_close(b.session);
    free(b.tokens);
    free(b.logits);
    free(b.prefill);
    free(b.decode);
    opened_close(&x);
    return result;
}
