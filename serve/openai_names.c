/* openai_names.c: the table of known members: OpenAI's, and those that vLLM, SGLang, llama-server, TGI and Ollama add;
 * and of the members of llama-server's own routes.
 *
 * A member that changes an answer is served or refused, never dropped: a constraint that is ignored looks like an
 * answer that keeps it. What asks for nothing (a default that routers write out, a hint to a cache) is accepted. */
#include "openai_names.h"

#include <string.h>

enum kind {
    SERVED, /* read in openai_request.c, or in llama_request.c */
    IDLE,   /* asks for nothing, whatever its value */
    REFUSED /* unless its value asks for nothing */
};
enum {
    COMPLETION = OPENAI_COMPLETION,
    CHAT = OPENAI_CHAT | OPENAI_RENDER,
    BOTH = CHAT | COMPLETION,
    LLAMA = OPENAI_LLAMA | OPENAI_INFILL,
    RAW = COMPLETION | LLAMA, /* without a template */
    ALL = BOTH | LLAMA
};

static const struct name {
    const char *name;
    enum kind kind;
    uint8_t routes;
    bool exact;          /* false, 0, "", [] and {} ask for something, too, unless `nothing` has them */
    const char *nothing; /* an array of values that ask for nothing */
    const char *instead; /* NULL: leave it out */
} names[] = {
    { "model", SERVED, ALL, false, NULL, NULL },
    { "messages", SERVED, CHAT, false, NULL, NULL },
    { "prompt", SERVED, RAW, false, NULL, NULL },
    { "max_tokens", SERVED, ALL, false, NULL, NULL },
    { "max_completion_tokens", SERVED, ALL, false, NULL, NULL },
    { "min_tokens", SERVED, BOTH, false, NULL, NULL },
    { "temperature", SERVED, ALL, false, NULL, NULL },
    { "top_p", SERVED, ALL, false, NULL, NULL },
    { "top_k", SERVED, ALL, false, NULL, NULL },
    { "min_p", SERVED, ALL, false, NULL, NULL },
    { "repetition_penalty", SERVED, BOTH, false, NULL, NULL },
    { "presence_penalty", SERVED, ALL, false, NULL, NULL },
    { "frequency_penalty", SERVED, ALL, false, NULL, NULL },
    { "logit_bias", SERVED, ALL, false, NULL, NULL },
    { "seed", SERVED, ALL, false, NULL, NULL },
    { "response_format", SERVED, ALL, false, NULL, NULL },
    { "json_schema", SERVED, ALL, false, NULL, NULL },
    { "grammar", SERVED, ALL, false, NULL, NULL },
    { "structured_outputs", SERVED, ALL, false, NULL, NULL },
    { "guided_json", SERVED, ALL, false, NULL, NULL },
    { "guided_regex", SERVED, ALL, false, NULL, NULL },
    { "guided_choice", SERVED, ALL, false, NULL, NULL },
    { "guided_grammar", SERVED, ALL, false, NULL, NULL },
    { "stop", SERVED, ALL, false, NULL, NULL },
    { "stop_token_ids", SERVED, BOTH, false, NULL, NULL },
    { "ignore_eos", SERVED, ALL, false, NULL, NULL },
    { "n", SERVED, ALL, false, NULL, NULL },
    { "best_of", SERVED, BOTH, false, NULL, NULL },
    { "logprobs", SERVED, BOTH, false, NULL, NULL },
    { "top_logprobs", SERVED, CHAT, false, NULL, NULL },
    { "prompt_logprobs", SERVED, BOTH, false, NULL, NULL },
    { "echo", SERVED, COMPLETION, false, NULL, NULL },
    { "stream", SERVED, ALL, false, NULL, NULL },
    { "stream_options", SERVED, BOTH, false, NULL, NULL },
    { "priority", SERVED, ALL, false, NULL, NULL },
    { "timings_per_token", SERVED, ALL, false, NULL, NULL },
    { "return_progress", SERVED, ALL, false, NULL, NULL },
    { "kv_transfer_params", SERVED, BOTH, false, NULL, NULL },
    { "reasoning_effort", SERVED, CHAT, false, NULL, NULL },
    { "include_reasoning", SERVED, CHAT, false, NULL, NULL },
    { "enable_thinking", SERVED, CHAT, false, NULL, NULL },
    { "chat_template_kwargs", SERVED, CHAT, false, NULL, NULL },
    { "continue_final_message", SERVED, CHAT, false, NULL, NULL },
    { "add_generation_prompt", SERVED, CHAT, false, NULL, NULL },
    { "documents", SERVED, CHAT, false, NULL, NULL },
    { "tools", SERVED, CHAT, false, NULL, NULL },
    { "tool_choice", SERVED, CHAT, false, NULL, NULL },
    { "parallel_tool_calls", SERVED, CHAT, false, NULL, NULL },
    { "parse_special", SERVED, COMPLETION | OPENAI_LLAMA, false, NULL, NULL },
    { "add_special_tokens", SERVED, COMPLETION, false, NULL, NULL },

    { "n_predict", SERVED, LLAMA, false, NULL, NULL },
    { "n_probs", SERVED, LLAMA, false, NULL, NULL },
    { "n_cmpl", SERVED, LLAMA, false, NULL, NULL },
    { "n_indent", SERVED, LLAMA, false, NULL, NULL },
    { "t_max_predict_ms", SERVED, LLAMA, false, NULL, NULL },
    { "repeat_penalty", SERVED, LLAMA, false, NULL, NULL },
    { "samplers", SERVED, LLAMA, false, NULL, NULL },
    { "return_tokens", SERVED, LLAMA, false, NULL, NULL },
    { "post_sampling_probs", SERVED, LLAMA, false, NULL, NULL },
    { "response_fields", SERVED, LLAMA, false, NULL, NULL },
    { "input_prefix", SERVED, OPENAI_INFILL, false, NULL, NULL },
    { "input_suffix", SERVED, OPENAI_INFILL, false, NULL, NULL },
    { "input_extra", SERVED, OPENAI_INFILL, false, NULL, NULL },

    { "user", IDLE, ALL, false, NULL, NULL },
    { "metadata", IDLE, ALL, false, NULL, NULL },
    { "store", IDLE, ALL, false, NULL, NULL },
    { "service_tier", IDLE, ALL, false, NULL, NULL },
    { "safety_identifier", IDLE, ALL, false, NULL, NULL },
    { "prompt_cache_key", IDLE, ALL, false, NULL, NULL },
    { "prompt_cache_retention", IDLE, ALL, false, NULL, NULL },
    { "cache_prompt", IDLE, ALL, false, NULL, NULL },
    { "cache_salt", IDLE, ALL, false, NULL, NULL },
    { "id_slot", IDLE, ALL, false, NULL, NULL },
    { "n_keep", IDLE, ALL, false, NULL, NULL },
    { "keep_alive", IDLE, ALL, false, NULL, NULL },
    { "request_id", IDLE, ALL, false, NULL, NULL },
    { "rid", IDLE, ALL, false, NULL, NULL },
    { "session_id", IDLE, ALL, false, NULL, NULL },
    { "parallel_tool_calls", IDLE, RAW, false, NULL, NULL },
    { "spaces_between_special_tokens", IDLE, ALL, false, NULL, NULL },
    { "guided_decoding_backend", IDLE, ALL, false, NULL, NULL },
    { "repeat_last_n", IDLE, ALL, false, NULL, NULL },
    { "mirostat_tau", IDLE, ALL, false, NULL, NULL },
    { "mirostat_eta", IDLE, ALL, false, NULL, NULL },
    { "dynatemp_exponent", IDLE, ALL, false, NULL, NULL },
    { "dry_base", IDLE, ALL, false, NULL, NULL },
    { "dry_allowed_length", IDLE, ALL, false, NULL, NULL },
    { "dry_penalty_last_n", IDLE, ALL, false, NULL, NULL },
    { "dry_sequence_breakers", IDLE, ALL, false, NULL, NULL },
    { "xtc_threshold", IDLE, ALL, false, NULL, NULL },
    { "media_io_kwargs", IDLE, ALL, false, NULL, NULL },
    { "parse_tool_calls", IDLE, ALL, false, NULL, NULL },
    { "smoothing_curve", IDLE, ALL, false, NULL, NULL },
    { "dynatemp_low", IDLE, ALL, false, NULL, NULL },
    { "dynatemp_high", IDLE, ALL, false, NULL, NULL },
    { "perf_metrics_in_response", IDLE, ALL, false, NULL, NULL },
    { "usage", IDLE, ALL, false, NULL, NULL },

    { "stream_options", IDLE, LLAMA, false, NULL, NULL },
    { "t_max_prompt_ms", IDLE, LLAMA, false, NULL, NULL },
    { "n_discard", IDLE, LLAMA, false, NULL, NULL },
    { "n_cache_reuse", IDLE, LLAMA, false, NULL, NULL },
    { "sse_ping_interval", IDLE, LLAMA, false, NULL, NULL },
    { "backend_sampling", IDLE, LLAMA, false, NULL, NULL },
    { "adaptive_decay", IDLE, LLAMA, false, NULL, NULL },

    { "messages", REFUSED, RAW, false, NULL, "/v1/chat/completions" },
    { "prompt", REFUSED, CHAT, false, NULL, "messages" },
    { "top_logprobs", REFUSED, RAW, false, NULL, "logprobs" },
    { "n_probs", REFUSED, BOTH, false, NULL, "logprobs" },
    { "logprobs", REFUSED, LLAMA, false, NULL, "n_probs" },
    { "prompt_logprobs", REFUSED, LLAMA, true, "[false]", "/v1/completions" },
    { "repetition_penalty", REFUSED, LLAMA, true, "[1]", "repeat_penalty" },
    { "min_tokens", REFUSED, LLAMA, false, NULL, "/v1/completions" },
    { "stop_token_ids", REFUSED, LLAMA, false, NULL, "/v1/completions" },
    { "best_of", REFUSED, LLAMA, false, "[1]", "n_cmpl" },
    { "kv_transfer_params", REFUSED, LLAMA, false, NULL, "/v1/completions" },
    { "echo", REFUSED, CHAT | LLAMA, false, NULL, NULL },
    { "suffix", REFUSED, ALL, false, NULL, NULL },
    { "tools", REFUSED, RAW, false, NULL, "/v1/chat/completions" },
    { "tool_choice", REFUSED, RAW, false, "[\"none\",\"auto\"]", "/v1/chat/completions" },
    { "functions", REFUSED, ALL, false, NULL, "tools" },
    { "function_call", REFUSED, ALL, false, "[\"none\",\"auto\"]", "tool_choice" },
    { "structural_tag", REFUSED, ALL, false, NULL, NULL },
    { "regex", REFUSED, ALL, false, NULL, "structured_outputs with \"regex\"" },
    { "ebnf", REFUSED, ALL, false, NULL, "grammar" },
    { "json", REFUSED, ALL, false, NULL, "structured_outputs with \"json\"" },
    { "json_object", REFUSED, ALL, false, NULL, "response_format" },
    { "choice", REFUSED, ALL, false, NULL, "structured_outputs with \"choice\"" },
    { "schema", REFUSED, ALL, false, NULL, "json_schema" },
    { "response_schema", REFUSED, ALL, false, NULL, "json_schema" },
    { "output_schema", REFUSED, ALL, false, NULL, "json_schema" },
    { "guided_decoding", REFUSED, ALL, false, NULL, "structured_outputs" },
    { "grammar_lazy", REFUSED, ALL, false, NULL, "tools" },
    { "grammar_triggers", REFUSED, ALL, false, NULL, "tools" },
    { "guided_whitespace_pattern", REFUSED, ALL, false, NULL, NULL },
    { "extra_body", REFUSED, ALL, false, NULL, "members of the request itself" },
    { "format", REFUSED, ALL, false, NULL, "response_format" },
    { "allowed_token_ids", REFUSED, ALL, true, NULL, "logit_bias" },
    { "bad_words", REFUSED, ALL, false, NULL, "logit_bias" },
    { "bad_words_ids", REFUSED, ALL, false, NULL, "logit_bias" },
    { "logits_processors", REFUSED, ALL, false, NULL, NULL },
    { "custom_logit_processor", REFUSED, ALL, false, NULL, NULL },
    { "custom_params", REFUSED, ALL, false, NULL, NULL },
    { "vllm_xargs", REFUSED, ALL, false, NULL, NULL },
    { "audio", REFUSED, ALL, false, NULL, NULL },
    { "modalities", REFUSED, ALL, false, "[[\"text\"]]", NULL },
    { "prediction", REFUSED, ALL, false, NULL, NULL },
    { "verbosity", REFUSED, ALL, false, "[\"medium\"]", NULL },
    { "web_search_options", REFUSED, ALL, true, NULL, NULL },
    { "image_data", REFUSED, ALL, false, NULL, NULL },
    { "documents", REFUSED, RAW, false, NULL, "/v1/chat/completions" },
    { "input", REFUSED, ALL, true, NULL, "messages" },
    { "instructions", REFUSED, ALL, false, NULL, "a system message" },
    { "system", REFUSED, CHAT, false, NULL, "a system message" },
    { "options", REFUSED, ALL, false, NULL, "members of the request itself" },
    { "max_new_tokens", REFUSED, ALL, true, NULL, "max_tokens" },
    { "min_new_tokens", REFUSED, ALL, false, NULL, "min_tokens" },
    { "n_predict", REFUSED, BOTH, true, NULL, "max_tokens" },
    { "t_max_predict_ms", REFUSED, BOTH, false, NULL, "the header X-Deadline" },
    { "do_sample", REFUSED, ALL, true, "[true]", "temperature 0" },
    { "use_beam_search", REFUSED, ALL, false, NULL, NULL },
    { "num_beams", REFUSED, ALL, true, "[1]", NULL },
    { "length_penalty", REFUSED, ALL, false, "[1]", NULL },
    { "early_stopping", REFUSED, ALL, false, NULL, NULL },
    { "repeat_penalty", REFUSED, BOTH, false, "[1]", "repetition_penalty" },
    { "encoder_repetition_penalty", REFUSED, ALL, false, "[1]", NULL },
    { "no_repeat_ngram_size", REFUSED, ALL, false, NULL, NULL },
    { "typical_p", REFUSED, ALL, false, "[1]", NULL },
    { "tfs_z", REFUSED, ALL, false, "[1]", NULL },
    { "top_a", REFUSED, ALL, false, NULL, NULL },
    { "top_n_sigma", REFUSED, ALL, false, "[-1]", NULL },
    { "epsilon_cutoff", REFUSED, ALL, false, NULL, NULL },
    { "eta_cutoff", REFUSED, ALL, false, NULL, NULL },
    { "mirostat", REFUSED, ALL, false, NULL, NULL },
    { "mirostat_mode", REFUSED, ALL, false, NULL, NULL },
    { "dynatemp_range", REFUSED, ALL, false, NULL, NULL },
    { "dry_multiplier", REFUSED, ALL, false, NULL, NULL },
    { "xtc_probability", REFUSED, ALL, false, NULL, NULL },
    { "adaptive_target", REFUSED, ALL, false, "[-1]", NULL },
    { "samplers", REFUSED, BOTH, false, NULL, NULL },
    { "min_keep", REFUSED, ALL, false, NULL, NULL },
    { "watermark", REFUSED, ALL, false, NULL, NULL },
    { "stop_regex", REFUSED, ALL, false, NULL, "stop" },
    { "include_stop_str_in_output", REFUSED, ALL, false, NULL, NULL },
    { "no_stop_trim", REFUSED, ALL, false, NULL, NULL },
    { "truncate", REFUSED, ALL, false, NULL, NULL },
    { "truncate_prompt_tokens", REFUSED, ALL, true, NULL, NULL },
    { "skip_special_tokens", REFUSED, ALL, true, "[true]", NULL },
    { "detokenize", REFUSED, ALL, true, "[true]", NULL },
    { "return_token_ids", REFUSED, ALL, false, NULL, NULL },
    { "return_tokens", REFUSED, BOTH, false, NULL, NULL },
    { "return_tokens_as_token_ids", REFUSED, ALL, false, NULL, NULL },
    { "return_hidden_states", REFUSED, ALL, false, NULL, NULL },
    { "prompt_embeds", REFUSED, ALL, false, NULL, NULL },
    { "lora", REFUSED, ALL, false, NULL, NULL },
    { "lora_path", REFUSED, ALL, false, NULL, NULL },
    { "mm_processor_kwargs", REFUSED, ALL, false, NULL, NULL },
    { "thinking", REFUSED, ALL, false, "[{\"type\":\"disabled\"}]", "reasoning_effort" },
    { "think", REFUSED, ALL, false, NULL, "reasoning_effort" },
    { "enable_thinking", REFUSED, RAW, false, NULL, "/v1/chat/completions" },
    { "reasoning", REFUSED, ALL, false, NULL, "reasoning_effort" },
    { "reasoning_budget", REFUSED, ALL, true, "[-1]", "reasoning_effort" },
    { "thinking_budget", REFUSED, ALL, true, "[-1]", "reasoning_effort" },
    { "thinking_budget_tokens", REFUSED, ALL, true, "[-1]", "reasoning_effort" },
    { "thinking_token_budget", REFUSED, ALL, true, "[-1]", "reasoning_effort" },
    { "reasoning_format", REFUSED, ALL, false, "[\"auto\",\"deepseek\"]", NULL },
    { "separate_reasoning", REFUSED, ALL, true, "[true]", "include_reasoning" },
    { "stream_reasoning", REFUSED, ALL, true, "[true]", "include_reasoning" },
    { "input_ids", REFUSED, ALL, true, NULL, "a prompt of token ids" },
    { "inputs", REFUSED, ALL, true, NULL, "messages or prompt" },
    { "parameters", REFUSED, ALL, false, NULL, "members of the request itself" },
    { "max_length", REFUSED, ALL, true, NULL, "max_tokens" },
    { "max_tokens_to_sample", REFUSED, ALL, true, NULL, "max_tokens" },
    { "min_length", REFUSED, ALL, false, NULL, "min_tokens" },
    { "num_ctx", REFUSED, ALL, true, NULL, "the flag --context" },
    { "num_return_sequences", REFUSED, ALL, true, "[1]", "n" },
    { "n_cmpl", REFUSED, BOTH, true, "[1]", "n" },
    { "random_seed", REFUSED, ALL, true, NULL, "seed" },
    { "stop_sequences", REFUSED, ALL, false, NULL, "stop" },
    { "safe_prompt", REFUSED, ALL, false, NULL, NULL },
    { "prompt_mode", REFUSED, ALL, false, NULL, NULL },
    { "transforms", REFUSED, ALL, false, NULL, NULL },
    { "models", REFUSED, ALL, false, NULL, NULL },
    { "plugins", REFUSED, ALL, false, NULL, NULL },
    { "enable_search", REFUSED, ALL, false, NULL, NULL },
    { "search_parameters", REFUSED, ALL, false, NULL, NULL },
    { "deferred", REFUSED, ALL, false, NULL, NULL },
    { "prompt_truncate_len", REFUSED, ALL, true, NULL, NULL },
    { "context_length_exceeded_behavior", REFUSED, ALL, false, "[\"error\"]", NULL },
    { "return_full_text", REFUSED, ALL, false, NULL, NULL },
    { "decoder_input_details", REFUSED, ALL, false, NULL, NULL },
    { "details", REFUSED, ALL, false, NULL, NULL },
    { "top_n_tokens", REFUSED, ALL, false, NULL, NULL },
    { "post_sampling_probs", REFUSED, BOTH, false, NULL, NULL },
    { "response_fields", REFUSED, BOTH, false, NULL, NULL },
    { "return_routed_experts", REFUSED, ALL, false, NULL, NULL },
    { "return_meta_info", REFUSED, ALL, false, NULL, NULL },
    { "session_params", REFUSED, ALL, false, NULL, NULL },
    { "penalize_nl", REFUSED, ALL, false, NULL, NULL },
    { "n_indent", REFUSED, BOTH, false, NULL, NULL },
    { "input_prefix", REFUSED, BOTH | OPENAI_LLAMA, false, NULL, "/infill" },
    { "input_suffix", REFUSED, BOTH | OPENAI_LLAMA, false, NULL, "/infill" },
    { "input_extra", REFUSED, BOTH | OPENAI_LLAMA, false, NULL, "/infill" },
    { "penalty_alpha", REFUSED, ALL, false, NULL, NULL },
    { "smoothing_factor", REFUSED, ALL, false, NULL, NULL },
    { "dynamic_temperature", REFUSED, ALL, false, NULL, NULL },
    { "temperature_last", REFUSED, ALL, false, NULL, NULL },
    { "sampler_order", REFUSED, ALL, false, NULL, NULL },
    { "guidance_scale", REFUSED, ALL, false, "[1]", NULL },
    { "negative_prompt", REFUSED, ALL, false, NULL, NULL },
    { "chat_template", REFUSED, ALL, false, NULL, NULL },
    { "chat_template_kwargs", REFUSED, RAW, false, NULL, "/v1/chat/completions" },
    { "continue_final_message", REFUSED, RAW, false, NULL, "/v1/chat/completions" },
    { "add_generation_prompt", REFUSED, RAW, true, "[true]", "/v1/chat/completions" },
    { "reasoning_effort", REFUSED, RAW, false, "[\"none\",\"minimal\"]", "/v1/chat/completions" },
    { "include_reasoning", IDLE, RAW, false, NULL, NULL },
    { "parse_special", REFUSED, CHAT | OPENAI_INFILL, false, NULL, "/v1/completions" },
    { "add_special_tokens", REFUSED, CHAT | LLAMA, false, NULL, NULL }, /* the template has them */
};

static bool same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

/* Is the value one of a JSON array's? */
static bool among(const json_t *v, const char *array)
{
    json_t *list = array ? json_loads(array, 0, NULL) : NULL;
    bool found = false;
    for (size_t i = 0; i < json_array_size(list); i++) found = found || same(v, json_array_get(list, i));
    json_decref(list);
    return found;
}

static bool is_empty(const json_t *v)
{
    return json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_string(v) && !json_string_length(v)) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

bool openai_names_is_nothing(const json_t *v, const char *nothing) { return is_empty(v) || among(v, nothing); }

bool openai_names_has(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0) return true;
    return false;
}

bool openai_names_check(const struct body_object *o, enum openai_route route, struct refusal *why)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct name *n = &names[i];
        const json_t *v = n->kind == REFUSED && (n->routes & route) ? json_object_get(o->object, n->name) : NULL;
        if (!v || json_is_null(v) || (!n->exact && is_empty(v)) || among(v, n->nothing)) continue;
        return refuse(why, SERVE_INVALID_REQUEST, n->name, "%s: this worker does not serve it; %s%s", n->name,
                      n->instead ? "what it serves instead: " : "leave it out", n->instead ? n->instead : "");
    }
    return true;
}
