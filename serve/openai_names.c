/* openai_names.c: the table of known members: OpenAI's, and those that vLLM, SGLang, llama-server, TGI and Ollama add.
 *
 * A member that changes an answer is served or refused, never dropped: a constraint that is ignored looks like an
 * answer that keeps it. What asks for nothing (a default that routers write out, a hint to a cache) is accepted. */
#include "openai_names.h"

#include <string.h>

enum kind {
    SERVED, /* read in openai_request.c */
    IDLE,   /* asks for nothing, whatever its value */
    REFUSED /* unless its value asks for nothing */
};
enum { COMPLETION = OPENAI_COMPLETION, CHAT = OPENAI_CHAT | OPENAI_RENDER, BOTH = CHAT | COMPLETION };

static const struct name {
    const char *name;
    enum kind kind;
    uint8_t routes;
    bool exact;          /* false, 0, "", [] and {} ask for something, too, unless `nothing` has them */
    const char *nothing; /* an array of values that ask for nothing */
    const char *instead; /* NULL: leave it out */
} names[] = {
    { "model", SERVED, BOTH, false, NULL, NULL },
    { "messages", SERVED, CHAT, false, NULL, NULL },
    { "prompt", SERVED, COMPLETION, false, NULL, NULL },
    { "max_tokens", SERVED, BOTH, false, NULL, NULL },
    { "max_completion_tokens", SERVED, BOTH, false, NULL, NULL },
    { "min_tokens", SERVED, BOTH, false, NULL, NULL },
    { "temperature", SERVED, BOTH, false, NULL, NULL },
    { "top_p", SERVED, BOTH, false, NULL, NULL },
    { "top_k", SERVED, BOTH, false, NULL, NULL },
    { "min_p", SERVED, BOTH, false, NULL, NULL },
    { "repetition_penalty", SERVED, BOTH, false, NULL, NULL },
    { "presence_penalty", SERVED, BOTH, false, NULL, NULL },
    { "frequency_penalty", SERVED, BOTH, false, NULL, NULL },
    { "logit_bias", SERVED, BOTH, false, NULL, NULL },
    { "seed", SERVED, BOTH, false, NULL, NULL },
    { "response_format", SERVED, BOTH, false, NULL, NULL },
    { "json_schema", SERVED, BOTH, false, NULL, NULL },
    { "grammar", SERVED, BOTH, false, NULL, NULL },
    { "structured_outputs", SERVED, BOTH, false, NULL, NULL },
    { "guided_json", SERVED, BOTH, false, NULL, NULL },
    { "guided_regex", SERVED, BOTH, false, NULL, NULL },
    { "guided_choice", SERVED, BOTH, false, NULL, NULL },
    { "guided_grammar", SERVED, BOTH, false, NULL, NULL },
    { "stop", SERVED, BOTH, false, NULL, NULL },
    { "stop_token_ids", SERVED, BOTH, false, NULL, NULL },
    { "ignore_eos", SERVED, BOTH, false, NULL, NULL },
    { "n", SERVED, BOTH, false, NULL, NULL },
    { "best_of", SERVED, BOTH, false, NULL, NULL },
    { "logprobs", SERVED, BOTH, false, NULL, NULL },
    { "top_logprobs", SERVED, CHAT, false, NULL, NULL },
    { "prompt_logprobs", SERVED, BOTH, false, NULL, NULL },
    { "echo", SERVED, COMPLETION, false, NULL, NULL },
    { "stream", SERVED, BOTH, false, NULL, NULL },
    { "stream_options", SERVED, BOTH, false, NULL, NULL },
    { "priority", SERVED, BOTH, false, NULL, NULL },
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
    { "parse_special", SERVED, COMPLETION, false, NULL, NULL },
    { "add_special_tokens", SERVED, COMPLETION, false, NULL, NULL },

    { "user", IDLE, BOTH, false, NULL, NULL },
    { "metadata", IDLE, BOTH, false, NULL, NULL },
    { "store", IDLE, BOTH, false, NULL, NULL },
    { "service_tier", IDLE, BOTH, false, NULL, NULL },
    { "safety_identifier", IDLE, BOTH, false, NULL, NULL },
    { "prompt_cache_key", IDLE, BOTH, false, NULL, NULL },
    { "prompt_cache_retention", IDLE, BOTH, false, NULL, NULL },
    { "cache_prompt", IDLE, BOTH, false, NULL, NULL },
    { "cache_salt", IDLE, BOTH, false, NULL, NULL },
    { "id_slot", IDLE, BOTH, false, NULL, NULL },
    { "n_keep", IDLE, BOTH, false, NULL, NULL },
    { "keep_alive", IDLE, BOTH, false, NULL, NULL },
    { "request_id", IDLE, BOTH, false, NULL, NULL },
    { "rid", IDLE, BOTH, false, NULL, NULL },
    { "session_id", IDLE, BOTH, false, NULL, NULL },
    { "parallel_tool_calls", IDLE, COMPLETION, false, NULL, NULL },
    { "spaces_between_special_tokens", IDLE, BOTH, false, NULL, NULL },
    { "guided_decoding_backend", IDLE, BOTH, false, NULL, NULL },
    { "repeat_last_n", IDLE, BOTH, false, NULL, NULL },
    { "mirostat_tau", IDLE, BOTH, false, NULL, NULL },
    { "mirostat_eta", IDLE, BOTH, false, NULL, NULL },
    { "dynatemp_exponent", IDLE, BOTH, false, NULL, NULL },
    { "dry_base", IDLE, BOTH, false, NULL, NULL },
    { "dry_allowed_length", IDLE, BOTH, false, NULL, NULL },
    { "dry_penalty_last_n", IDLE, BOTH, false, NULL, NULL },
    { "dry_sequence_breakers", IDLE, BOTH, false, NULL, NULL },
    { "xtc_threshold", IDLE, BOTH, false, NULL, NULL },
    { "media_io_kwargs", IDLE, BOTH, false, NULL, NULL },
    { "parse_tool_calls", IDLE, BOTH, false, NULL, NULL },
    { "smoothing_curve", IDLE, BOTH, false, NULL, NULL },
    { "dynatemp_low", IDLE, BOTH, false, NULL, NULL },
    { "dynatemp_high", IDLE, BOTH, false, NULL, NULL },
    { "perf_metrics_in_response", IDLE, BOTH, false, NULL, NULL },
    { "usage", IDLE, BOTH, false, NULL, NULL },

    { "messages", REFUSED, COMPLETION, false, NULL, "/v1/chat/completions" },
    { "prompt", REFUSED, CHAT, false, NULL, "messages" },
    { "top_logprobs", REFUSED, COMPLETION, false, NULL, "logprobs" },
    { "n_probs", REFUSED, BOTH, false, NULL, "logprobs" },
    { "echo", REFUSED, CHAT, false, NULL, NULL },
    { "suffix", REFUSED, BOTH, false, NULL, NULL },
    { "tools", REFUSED, COMPLETION, false, NULL, "/v1/chat/completions" },
    { "tool_choice", REFUSED, COMPLETION, false, "[\"none\",\"auto\"]", "/v1/chat/completions" },
    { "functions", REFUSED, BOTH, false, NULL, "tools" },
    { "function_call", REFUSED, BOTH, false, "[\"none\",\"auto\"]", "tool_choice" },
    { "structural_tag", REFUSED, BOTH, false, NULL, NULL },
    { "regex", REFUSED, BOTH, false, NULL, "structured_outputs with \"regex\"" },
    { "ebnf", REFUSED, BOTH, false, NULL, "grammar" },
    { "json", REFUSED, BOTH, false, NULL, "structured_outputs with \"json\"" },
    { "json_object", REFUSED, BOTH, false, NULL, "response_format" },
    { "choice", REFUSED, BOTH, false, NULL, "structured_outputs with \"choice\"" },
    { "schema", REFUSED, BOTH, false, NULL, "json_schema" },
    { "response_schema", REFUSED, BOTH, false, NULL, "json_schema" },
    { "output_schema", REFUSED, BOTH, false, NULL, "json_schema" },
    { "guided_decoding", REFUSED, BOTH, false, NULL, "structured_outputs" },
    { "grammar_lazy", REFUSED, BOTH, false, NULL, "tools" },
    { "grammar_triggers", REFUSED, BOTH, false, NULL, "tools" },
    { "guided_whitespace_pattern", REFUSED, BOTH, false, NULL, NULL },
    { "extra_body", REFUSED, BOTH, false, NULL, "members of the request itself" },
    { "format", REFUSED, BOTH, false, NULL, "response_format" },
    { "allowed_token_ids", REFUSED, BOTH, true, NULL, "logit_bias" },
    { "bad_words", REFUSED, BOTH, false, NULL, "logit_bias" },
    { "bad_words_ids", REFUSED, BOTH, false, NULL, "logit_bias" },
    { "logits_processors", REFUSED, BOTH, false, NULL, NULL },
    { "custom_logit_processor", REFUSED, BOTH, false, NULL, NULL },
    { "custom_params", REFUSED, BOTH, false, NULL, NULL },
    { "vllm_xargs", REFUSED, BOTH, false, NULL, NULL },
    { "audio", REFUSED, BOTH, false, NULL, NULL },
    { "modalities", REFUSED, BOTH, false, "[[\"text\"]]", NULL },
    { "prediction", REFUSED, BOTH, false, NULL, NULL },
    { "verbosity", REFUSED, BOTH, false, "[\"medium\"]", NULL },
    { "web_search_options", REFUSED, BOTH, true, NULL, NULL },
    { "image_data", REFUSED, BOTH, false, NULL, NULL },
    { "documents", REFUSED, COMPLETION, false, NULL, "/v1/chat/completions" },
    { "input", REFUSED, BOTH, true, NULL, "messages" },
    { "instructions", REFUSED, BOTH, false, NULL, "a system message" },
    { "system", REFUSED, CHAT, false, NULL, "a system message" },
    { "options", REFUSED, BOTH, false, NULL, "members of the request itself" },
    { "max_new_tokens", REFUSED, BOTH, true, NULL, "max_tokens" },
    { "min_new_tokens", REFUSED, BOTH, false, NULL, "min_tokens" },
    { "n_predict", REFUSED, BOTH, true, NULL, "max_tokens" },
    { "t_max_predict_ms", REFUSED, BOTH, false, NULL, "the header X-Deadline" },
    { "do_sample", REFUSED, BOTH, true, "[true]", "temperature 0" },
    { "use_beam_search", REFUSED, BOTH, false, NULL, NULL },
    { "num_beams", REFUSED, BOTH, true, "[1]", NULL },
    { "length_penalty", REFUSED, BOTH, false, "[1]", NULL },
    { "early_stopping", REFUSED, BOTH, false, NULL, NULL },
    { "repeat_penalty", REFUSED, BOTH, false, "[1]", "repetition_penalty" },
    { "encoder_repetition_penalty", REFUSED, BOTH, false, "[1]", NULL },
    { "no_repeat_ngram_size", REFUSED, BOTH, false, NULL, NULL },
    { "typical_p", REFUSED, BOTH, false, "[1]", NULL },
    { "tfs_z", REFUSED, BOTH, false, "[1]", NULL },
    { "top_a", REFUSED, BOTH, false, NULL, NULL },
    { "top_n_sigma", REFUSED, BOTH, false, "[-1]", NULL },
    { "epsilon_cutoff", REFUSED, BOTH, false, NULL, NULL },
    { "eta_cutoff", REFUSED, BOTH, false, NULL, NULL },
    { "mirostat", REFUSED, BOTH, false, NULL, NULL },
    { "mirostat_mode", REFUSED, BOTH, false, NULL, NULL },
    { "dynatemp_range", REFUSED, BOTH, false, NULL, NULL },
    { "dry_multiplier", REFUSED, BOTH, false, NULL, NULL },
    { "xtc_probability", REFUSED, BOTH, false, NULL, NULL },
    { "adaptive_target", REFUSED, BOTH, false, "[-1]", NULL },
    { "samplers", REFUSED, BOTH, false, NULL, NULL },
    { "min_keep", REFUSED, BOTH, false, NULL, NULL },
    { "watermark", REFUSED, BOTH, false, NULL, NULL },
    { "stop_regex", REFUSED, BOTH, false, NULL, "stop" },
    { "include_stop_str_in_output", REFUSED, BOTH, false, NULL, NULL },
    { "no_stop_trim", REFUSED, BOTH, false, NULL, NULL },
    { "truncate", REFUSED, BOTH, false, NULL, NULL },
    { "truncate_prompt_tokens", REFUSED, BOTH, true, NULL, NULL },
    { "skip_special_tokens", REFUSED, BOTH, true, "[true]", NULL },
    { "detokenize", REFUSED, BOTH, true, "[true]", NULL },
    { "return_token_ids", REFUSED, BOTH, false, NULL, NULL },
    { "return_tokens", REFUSED, BOTH, false, NULL, NULL },
    { "return_tokens_as_token_ids", REFUSED, BOTH, false, NULL, NULL },
    { "return_hidden_states", REFUSED, BOTH, false, NULL, NULL },
    { "return_progress", REFUSED, BOTH, false, NULL, NULL },
    { "timings_per_token", REFUSED, BOTH, false, NULL, NULL },
    { "prompt_embeds", REFUSED, BOTH, false, NULL, NULL },
    { "lora", REFUSED, BOTH, false, NULL, NULL },
    { "lora_path", REFUSED, BOTH, false, NULL, NULL },
    { "kv_transfer_params", REFUSED, BOTH, false, NULL, NULL },
    { "mm_processor_kwargs", REFUSED, BOTH, false, NULL, NULL },
    { "thinking", REFUSED, BOTH, false, "[{\"type\":\"disabled\"}]", "reasoning_effort" },
    { "think", REFUSED, BOTH, false, NULL, "reasoning_effort" },
    { "enable_thinking", REFUSED, COMPLETION, false, NULL, "/v1/chat/completions" },
    { "reasoning", REFUSED, BOTH, false, NULL, "reasoning_effort" },
    { "reasoning_budget", REFUSED, BOTH, true, "[-1]", "reasoning_effort" },
    { "thinking_budget", REFUSED, BOTH, true, "[-1]", "reasoning_effort" },
    { "thinking_budget_tokens", REFUSED, BOTH, true, "[-1]", "reasoning_effort" },
    { "thinking_token_budget", REFUSED, BOTH, true, "[-1]", "reasoning_effort" },
    { "reasoning_format", REFUSED, BOTH, false, "[\"auto\",\"deepseek\"]", NULL },
    { "separate_reasoning", REFUSED, BOTH, true, "[true]", "include_reasoning" },
    { "stream_reasoning", REFUSED, BOTH, true, "[true]", "include_reasoning" },
    { "input_ids", REFUSED, BOTH, true, NULL, "a prompt of token ids" },
    { "inputs", REFUSED, BOTH, true, NULL, "messages or prompt" },
    { "parameters", REFUSED, BOTH, false, NULL, "members of the request itself" },
    { "max_length", REFUSED, BOTH, true, NULL, "max_tokens" },
    { "max_tokens_to_sample", REFUSED, BOTH, true, NULL, "max_tokens" },
    { "min_length", REFUSED, BOTH, false, NULL, "min_tokens" },
    { "num_ctx", REFUSED, BOTH, true, NULL, "the flag --context" },
    { "num_return_sequences", REFUSED, BOTH, true, "[1]", "n" },
    { "n_cmpl", REFUSED, BOTH, true, "[1]", "n" },
    { "random_seed", REFUSED, BOTH, true, NULL, "seed" },
    { "stop_sequences", REFUSED, BOTH, false, NULL, "stop" },
    { "safe_prompt", REFUSED, BOTH, false, NULL, NULL },
    { "prompt_mode", REFUSED, BOTH, false, NULL, NULL },
    { "transforms", REFUSED, BOTH, false, NULL, NULL },
    { "models", REFUSED, BOTH, false, NULL, NULL },
    { "plugins", REFUSED, BOTH, false, NULL, NULL },
    { "enable_search", REFUSED, BOTH, false, NULL, NULL },
    { "search_parameters", REFUSED, BOTH, false, NULL, NULL },
    { "deferred", REFUSED, BOTH, false, NULL, NULL },
    { "prompt_truncate_len", REFUSED, BOTH, true, NULL, NULL },
    { "context_length_exceeded_behavior", REFUSED, BOTH, false, "[\"error\"]", NULL },
    { "return_full_text", REFUSED, BOTH, false, NULL, NULL },
    { "decoder_input_details", REFUSED, BOTH, false, NULL, NULL },
    { "details", REFUSED, BOTH, false, NULL, NULL },
    { "top_n_tokens", REFUSED, BOTH, false, NULL, NULL },
    { "post_sampling_probs", REFUSED, BOTH, false, NULL, NULL },
    { "response_fields", REFUSED, BOTH, false, NULL, NULL },
    { "return_routed_experts", REFUSED, BOTH, false, NULL, NULL },
    { "return_meta_info", REFUSED, BOTH, false, NULL, NULL },
    { "session_params", REFUSED, BOTH, false, NULL, NULL },
    { "penalize_nl", REFUSED, BOTH, false, NULL, NULL },
    { "n_indent", REFUSED, BOTH, false, NULL, NULL },
    { "input_prefix", REFUSED, BOTH, false, NULL, NULL },
    { "input_suffix", REFUSED, BOTH, false, NULL, NULL },
    { "input_extra", REFUSED, BOTH, false, NULL, NULL },
    { "penalty_alpha", REFUSED, BOTH, false, NULL, NULL },
    { "smoothing_factor", REFUSED, BOTH, false, NULL, NULL },
    { "dynamic_temperature", REFUSED, BOTH, false, NULL, NULL },
    { "temperature_last", REFUSED, BOTH, false, NULL, NULL },
    { "sampler_order", REFUSED, BOTH, false, NULL, NULL },
    { "guidance_scale", REFUSED, BOTH, false, "[1]", NULL },
    { "negative_prompt", REFUSED, BOTH, false, NULL, NULL },
    { "chat_template", REFUSED, BOTH, false, NULL, NULL },
    { "chat_template_kwargs", REFUSED, COMPLETION, false, NULL, "/v1/chat/completions" },
    { "continue_final_message", REFUSED, COMPLETION, false, NULL, "/v1/chat/completions" },
    { "add_generation_prompt", REFUSED, COMPLETION, true, "[true]", "/v1/chat/completions" },
    { "reasoning_effort", REFUSED, COMPLETION, false, "[\"none\",\"minimal\"]", "/v1/chat/completions" },
    { "include_reasoning", IDLE, COMPLETION, false, NULL, NULL },
    { "parse_special", REFUSED, CHAT, false, NULL, "/v1/completions" },
    { "add_special_tokens", REFUSED, CHAT, false, NULL, NULL }, /* the template has them */
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
