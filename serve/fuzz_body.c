/* fuzz_body.c: libFuzzer target: any bytes as the body of /execute, /worker/execute, of both completions of /v1,
 * of its responses and of its messages, of /completion and /infill, and of /api/chat and /api/generate.
 * What is accepted is within its ranges, what is refused says why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "llama_request.h"
#include "messages.h"
#include "ollama_request.h"
#include "openai_request.h"
#include "responses.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool promise)
{
    if (!promise) abort();
}

/* What is written of a body that is taken is one JSON object. */
static void write_responses(const char *data, size_t size)
{
    struct responses *r = calloc(1, sizeof *r);
    struct http_text out = { 0 };
    struct refusal why;
    require(r != NULL);
    if (responses_write(r, data, size, &out, &why))
        require(jr_is_object(out.data, out.n) && r->repeated.n > 0);
    else
        require(why.text[0] && memchr(why.text, 0, sizeof why.text) && memchr(why.field, 0, sizeof why.field));
    http_text_free(&out);
    responses_free(r);
}

/* The same of messages: a body in which no member comes twice. */
static void write_messages(const char *data, size_t size)
{
    for (int counted = 0; counted < 2; counted++) {
        struct messages m = { 0 };
        struct http_text out = { 0 };
        struct refusal why;
        json_t *written = NULL;
        if (messages_write(data, size, counted, &m, &out, &why)) {
            require(body_parse(out.data, out.n, &written, &why));
            require(json_array_size(json_object_get(written, "messages")) == m.n);
            (void)refuse(&why, SERVE_INVALID_REQUEST, "messages[0].tool_calls",
                         "messages[0].tool_calls: expected none");
            require(messages_reword(&m, &why) == (m.n > 0));
        }
        require(written || why.text[0]);
        json_decref(written);
        http_text_free(&out);
        messages_free(&m);
    }
}

/* The same of Ollama's, and of one that asks for nothing nothing. */
static void write_ollama(const char *data, size_t size)
{
    for (int form = 0; form < 4; form++) {
        const struct ollama_limits limits = {
            .context = form & 1 ? 512 : 0, .max_tokens_out = 2048, .most_tokens = 4096, .always_reasons = form & 1
        };
        struct ollama_body body;
        struct http_text out = { 0 };
        struct refusal why;
        if (ollama_write(form & 2, data, size, &limits, &body, &out, &why))
            require(body.asks == OLLAMA_LOAD || body.asks == OLLAMA_UNLOAD ? !out.n : jr_is_object(out.data, out.n));
        else
            require(why.text[0] && memchr(why.text, 0, sizeof why.text) && memchr(why.field, 0, sizeof why.field));
        free(body.model);
        http_text_free(&out);
    }
}

static void try_llama(const char *data, size_t size, bool infill, const struct job_request_limits *limits)
{
    static const struct llama_model model = { .context = 512 };
    static struct llama_request q;
    struct refusal why;
    struct http_text settings = { 0 };
    if (!llama_request_read(data, size, infill, limits, &model, &q, &why)) {
        require(why.text[0] && memchr(why.text, 0, sizeof why.text) && memchr(why.field, 0, sizeof why.field));
        return;
    }
    const struct sampler_params *p = &q.o.q.params;
    require(q.o.q.max_tokens <= 4096 && q.o.q.n_stops <= STOP_MAX && q.o.top <= SAMPLER_MAX_TOP);
    require(q.n_prompts >= 1 && q.o.n >= 1 && q.n_prompts * q.o.n <= OPENAI_MOST_IN_ALL && q.infill == infill);
    require(p->temperature >= 0 && p->temperature <= 2 && p->top_p >= 0 && p->top_p <= 1 && p->repetition_penalty > 0 &&
            p->n_logit_bias <= SAMPLER_MAX_BIAS);
    for (uint32_t i = 0; !infill && i < q.n_prompts; i++)
        require(json_is_string(q.prompts[i]) || json_array_size(q.prompts[i]));
    llama_request_settings(&q, NULL, &settings);
    require(settings.n > 0);
    http_text_free(&settings);
    llama_request_free(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct job_request_limits limits = {
        .max_prompt_chars = 64, .max_tokens_out = 2048, .max_priority = 1000, .most_tokens = 4096
    };
    int64_t ms;
    require(body_memory((const char *)data, size) >= size / 2);
    for (int form = 0; form < 2; form++) {
        struct job_request r;
        struct refusal why;
        if (!(form ? job_request_worker_execute : job_request_execute)((const char *)data, size, &limits, &r, &why)) {
            require(why.text[0] && memchr(why.text, 0, sizeof why.text) && memchr(why.field, 0, sizeof why.field));
            continue;
        }
        require(r.prompt_chars >= 1 && r.prompt_chars <= 64 && r.prompt_len >= r.prompt_chars && r.max_tokens >= 1 &&
                r.max_tokens <= 2048 && r.n_stops <= REQUEST_STOPS);
        require(r.params.temperature >= 0 && r.params.temperature <= 2 && r.params.repetition_penalty > 0 &&
                (form ? r.handle_id != NULL : r.job_id[0] != 0));
        for (uint32_t i = 0; i < r.n_stops; i++)
            require(r.stop_lens[i] >= 1 && r.stop_lens[i] <= STOP_MAX_BYTES && r.stops[i][r.stop_lens[i]] == '\0');
        job_request_free(&r);
    }
    for (int form = 0; form < 2; form++) {
        static struct openai_request r;
        struct refusal why;
        if (!(form ? openai_request_chat : openai_request_completion)((const char *)data, size, &limits, &r, &why)) {
            require(why.text[0] && memchr(why.text, 0, sizeof why.text) && memchr(why.field, 0, sizeof why.field));
            continue;
        }
        require(r.q.max_tokens <= 4096 && r.q.n_stop_ids <= REQUEST_STOP_IDS && r.q.n_stops <= STOP_MAX);
        require(r.n >= 1 && r.n <= OPENAI_MOST_ANSWERS && r.n_prompts >= 1 &&
                r.n_prompts <= (form ? 1 : OPENAI_MOST_IN_ALL / r.n) && r.top <= SAMPLER_MAX_TOP &&
                r.prompt_top <= SAMPLER_MAX_TOP && !(r.prompt_probs && r.stream) && !(form && r.echo));
        for (uint32_t i = 0; i < r.n_prompts; i++)
            require(form ? r.conversation.n > 0 : r.prompts[i].ids ? r.prompts[i].n_ids > 0 : r.prompts[i].len > 0);
        require(r.q.params.temperature >= 0 && r.q.params.temperature <= 2 && r.q.params.repetition_penalty > 0 &&
                r.q.params.n_logit_bias <= SAMPLER_MAX_BIAS);
        size_t bytes = 0;
        for (size_t i = 0; i < r.conversation.n; i++) bytes += r.conversation.messages[i].text.len;
        require(!form || bytes <= r.q.prompt_len);
        require(!r.chat.kwargs.data ||
                (*r.chat.kwargs.data == '{' && r.chat.kwargs.data[r.chat.kwargs.len - 1] == '}'));
        require(!r.chat.tools.data || *r.chat.tools.data == '[');
        openai_request_free(&r);
    }
    write_responses((const char *)data, size);
    write_messages((const char *)data, size);
    write_ollama((const char *)data, size);
    for (int infill = 0; infill < 2; infill++) try_llama((const char *)data, size, infill, &limits);
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (job_request_deadline(text, &ms)) require(ms > -100000000 && ms < INT64_C(1000000000000000));
    free(text);
    return 0;
}
