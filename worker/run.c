/* run.c: `worker run`, and `worker complete` by a model in this process: prompt, chat template, parameters, and the
 * line of statistics at the end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "commands.h"
#include "errors.h"
#include "generate.h"
#include "log/log.h"
#include "log/words.h"
#include "model_chat.h"
#include "prompt.h"
#include "sampling.h"
#include "setup.h"
#include "text.h"
#include "chat/constraint.h"
#include "grammar/schema.h"
#include "tokenizer/stop.h"
#include "base/utf8.h"

struct run {
    const struct options *o;
    struct opened x;
    struct model_chat chat; /* chat NULL: raw */
    struct text text;
    struct chat_prompt prompt;
    struct tokens tokens;
    struct sampling sampling;
    struct grammar_index *index; /* of an answer that is constrained: */
    struct grammar *grammar, *header;
    struct sampler_constraint constraint;
};

/* ---- prompt to ids ------------------------------------------------------------------------------------- */

/* --chat demands a template, --raw refuses it; else a model that has one is given it. complete has no chats. */
static int choose_chat(struct run *r)
{
    const struct options *o = r->o;
    if (o->command == CMD_COMPLETE || option_flag(o, OPT_RAW) || option_flag(o, OPT_PARSE_SPECIAL)) return EXIT_DONE;
    if (!option_flag(o, OPT_CHAT) && !option_text(o, OPT_CHAT_TEMPLATE) &&
        !gguf_find(r->x.model->file, "tokenizer.chat_template"))
        return EXIT_DONE;
    return model_chat_open(o, r->x.model, "send the prompt as it is with --raw", &r->chat);
}

/* The prompt as one user's message. */
static int wrap(struct run *r)
{
    struct conversation said = { 0 };
    struct chat_problem why;
    struct chat_request q = CHAT_REQUEST_OF(&said);
    const int result =
        conversation_of_user((struct token_bytes){ r->text.bytes, r->text.len }, &said, &why)
            ? model_chat_encode(r->o, r->x.model, r->chat.chat, &q, &r->prompt, &r->tokens)
            : fail(why.status == WK_NO_MEMORY ? CODE_INSUFFICIENT_MEMORY : CODE_INVALID_REQUEST, "%s", why.text);
    conversation_free(&said);
    return result;
}

static int encode(struct run *r)
{
    ERROR_TEXT(err);
    if (r->chat.chat) return wrap(r);
    const wk_status status = tokenizer_encode(r->x.model->tokenizer, r->text.bytes, r->text.len,
                                              option_flag(r->o, OPT_PARSE_SPECIAL), true, &r->tokens, &err);
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

static int make_prompt(struct run *r)
{
    int result = model_chat_tokenizer(r->x.model);
    if (!result) result = choose_chat(r);
    if (!result) result = model_chat_reasoning(r->o, r->chat.chat);
    if (!result) result = encode(r);
    return result ? result : model_chat_fits(r->x.model, &r->tokens);
}

/* ---- what the answer must be ---------------------------------------------------------------------------- */

/* What the options name, compiled; without one: nothing. */
static int compile(struct run *r)
{
    const char *schema = option_text(r->o, OPT_JSON_SCHEMA), *grammar = option_text(r->o, OPT_GRAMMAR),
               *regex = option_text(r->o, OPT_REGEX);
    struct text text = { NULL, 0 };
    ERROR_TEXT(err);
    if (!schema && !grammar && !regex) return EXIT_DONE;
    const int result = text_read(regex, schema ? schema : grammar, &text);
    if (result) return result;
    const wk_status status =
        schema    ? grammar_from_schema(text.bytes, text.len, NULL, NULL, &r->grammar, &err)
        : grammar ? grammar_from_gbnf(text.bytes, text.len, r->x.model->tokenizer, NULL, &r->grammar, &err)
                  : grammar_from_regex(text.bytes, text.len, NULL, &r->grammar, &err);
    text_free(&text);
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

static int constrain(struct run *r)
{
    const struct tokenizer *t = r->x.model->tokenizer;
    const uint32_t n_vocab = r->x.model->program->n_vocab;
    ERROR_TEXT(err);
    const int result = compile(r);
    if (result || !r->grammar) return result;
    wk_status status = grammar_index_open(t, n_vocab, &r->index, &err);
    if (!status && r->chat.chat && chat_is_harmony(r->chat.chat)) status = constraint_harmony(t, &r->header, &err);
    const struct constraint_lead lead = {
        .marks = r->chat.chat && !r->header && r->prompt.marks.open[0] ? &r->prompt.marks : NULL, .header = r->header
    };
    if (!status) status = constraint_open(r->grammar, r->index, t, n_vocab, &lead, &r->constraint, &err);
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

static void statistics(const struct run *r, const struct generation *g)
{
    const struct model *m = r->x.model;
    struct shard_handle handle = { 0 };
    char digest[65] = "", hmac[65], device[DEVICE_TEXT];
    if (log_is_json(r->o)) {
        /* Counts and a keyed digest: no text of the user goes into a log. */
        const bool plain = option_flag(r->o, OPT_PLAIN_SHA256);
        (void)log_hmac(r->text.bytes, r->text.len, hmac);
        if (plain) (void)sha256_hex(r->text.bytes, r->text.len, digest);
        const char *path = option_text(r->o, OPT_MODEL);
        if (m->device->handle) m->device->handle(m->executor, &handle);
        LOG(LOG_INFO, "execute_end", NULL, log_s("model", m->name), log_s("device", m->device->name),
            log_s("model_ref", path ? path : "embedded model"), log_u("gpu_device", r->x.gpu.index),
            log_u("vram_bytes", handle.vram_bytes), log_u("tokens_in", g->n_prompt),
            log_u("tokens_out", g->n_generated), log_f("first_token_ms", g->prefill_seconds * 1e3),
            log_f("decode_time_ms", g->decode_seconds * 1e3), log_u("seed", r->sampling.params.seed),
            log_s("finish_reason", finish_name(g->finish)),
            log_u("prompt_chars", utf8_count(r->text.bytes, r->text.len)), log_s("prompt_hmac", hmac),
            plain ? log_s("prompt_sha256", digest) : (struct log_field){ 0 });
        return;
    }
    (void)fprintf(stderr,
                  "worker: %u prompt tokens in %.2f s (%.1f tok/s), %u tokens in %.2f s (%.1f tok/s), seed %" PRIu64
                  ", finish %s, %s, device %s, model %s\n",
                  g->n_prompt, g->prefill_seconds, rate(g->n_prompt, g->prefill_seconds), g->n_generated,
                  g->decode_seconds, rate(g->n_generated, g->decode_seconds), r->sampling.params.seed,
                  finish_name(g->finish), r->chat.chat ? chat_name(r->chat.chat) : "raw", opened_device(&r->x, device),
                  m->name);
}

static int generate_text(struct run *r)
{
    struct generation g = { .model = r->x.model,
                            .prompt = r->tokens.ids,
                            .n_prompt = (uint32_t)r->tokens.n,
                            .params = &r->sampling.params,
                            .max_tokens = option_u32(r->o, OPT_MAX_TOKENS),
                            .stops = r->sampling.stops,
                            .n_stops = r->sampling.n_stops,
                            .constraint = r->constraint.mask ? &r->constraint : NULL,
                            .ids = option_flag(r->o, OPT_PRINT_IDS),
                            .out = stdout,
                            .out_terminal = isatty(STDOUT_FILENO),
                            .aside_terminal = isatty(STDERR_FILENO) };
    if (r->chat.chat && chat_is_harmony(r->chat.chat))
        g.harmony = &r->chat.harmony;
    else if (r->chat.chat && r->prompt.marks.open[0])
        g.marks = &r->prompt.marks;
    g.aside = option_flag(r->o, OPT_REASONING) ? stderr : NULL;
    int result = generate(&g);
    if (result) return result;
    if ((g.harmony || g.marks) && !g.answered && g.finish == FINISH_LENGTH)
        LOG(LOG_WARN, "no_answer",
            "the limit came while the model was still reasoning: raise --max-tokens or lower --reasoning-effort",
            log_u("tokens_out", g.n_generated));
    else if (g.constraint && g.finish == FINISH_LENGTH)
        LOG(LOG_WARN, "answer_cut",
            "the limit came before the answer's end, so it may be half of one: raise --max-tokens",
            log_u("tokens_out", g.n_generated));
    statistics(r, &g);
    return g.finish == FINISH_INTERRUPT ? EXIT_INTERRUPTED : EXIT_DONE;
}

int command_run(const struct options *o)
{
    struct run r = { .o = o };
    if (option_flag(o, OPT_CHAT) && option_flag(o, OPT_RAW))
        return fail_usage("run", "--chat and --raw exclude each other");
    if (option_flag(o, OPT_CHAT) && option_flag(o, OPT_PARSE_SPECIAL))
        return fail_usage("run",
                          "--chat and --parse-special exclude each other: a template alone makes control tokens");
    if (option_flag(o, OPT_RAW) && option_text(o, OPT_CHAT_TEMPLATE))
        return fail_usage("run", "--chat-template and --raw exclude each other");
    if (option_flag(o, OPT_REASONING) && log_is_json(o))
        return fail_usage("run", "--reasoning and --log json exclude each other: both write to standard error");
    int result = prompt_check_form(o);
    if (!result) result = choose_audit_key(o);
    if (!result) result = sampling_read(o, &r.sampling);
    if (!result) result = prompt_read(o, &r.text);
    if (!result) {
        interrupts_catch();
        result = open_model(o, &(struct model_needs){ .max_rows = STEP_ROWS_BEST, .max_logits_rows = 1, .load = true },
                            &r.x);
    }
    if (!result) result = make_prompt(&r);
    if (!result) result = constrain(&r);
    if (!result) result = generate_text(&r);
    constraint_close(&r.constraint);
    grammar_close(r.grammar);
    grammar_close(r.header);
    grammar_index_close(r.index);
    chat_prompt_free(&r.prompt);
    model_chat_close(&r.chat);
    tokens_free(&r.tokens);
    text_free(&r.text);
    opened_close(&r.x);
    return result;
}
