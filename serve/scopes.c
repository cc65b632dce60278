/* scopes.c: the scope table. */
#include "scopes.h"

#include <string.h>

/* Of several scopes one is enough. What belongs to one's own jobs needs the scope that makes jobs: control.c shows and
 * cancels others' only to whom an admin scope is given. */
static const struct {
    const char *method, *path;
    uint32_t scope;
} table[] = {
    { "GET", "/", SCOPE_OPEN },
    { "GET", "/openapi.json", SCOPE_OPEN },
    { "GET", "/livez", SCOPE_OPEN },
    { "GET", "/readyz", SCOPE_OPEN },
    { "GET", "/healthz", SCOPE_OPEN },
    { "GET", "/health", SCOPE_OPEN },
    { "GET", "/v1/health", SCOPE_OPEN },
    { "GET", "/version", SCOPE_OPEN },

    { "POST", "/execute", SCOPE_INFERENCE },
    { "POST", "/worker/execute", SCOPE_INFERENCE },
    { "POST", "/v1/chat/completions", SCOPE_INFERENCE },
    { "POST", "/v1/completions", SCOPE_INFERENCE },
    { "POST", "/worker/handover", SCOPE_INFERENCE }, /* and the rights of whom the prompt is of */
    { "POST", "/v1/responses", SCOPE_INFERENCE },
    { "POST", "/v1/responses/input_tokens", SCOPE_INFERENCE },
    { "POST", "/v1/chat/completions/render", SCOPE_INFERENCE },
    { "POST", "/v1/messages", SCOPE_INFERENCE },
    { "POST", "/v1/messages/count_tokens", SCOPE_INFERENCE },
    { "POST", "/completion", SCOPE_INFERENCE },
    { "POST", "/completions", SCOPE_INFERENCE },
    { "POST", "/infill", SCOPE_INFERENCE },
    { "GET", "/props", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "POST", "/props", SCOPE_ADMIN },
    { "GET", "/lora-adapters", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "POST", "/lora-adapters", SCOPE_ADMIN },
    { "POST", "/v1/chat/completions/input_tokens", SCOPE_INFERENCE },
    { "POST", "/v1/completions/render", SCOPE_INFERENCE },
    { "POST", "/apply-template", SCOPE_INFERENCE },
    { "POST", "/chat/completions", SCOPE_INFERENCE },
    { "POST", "/responses", SCOPE_INFERENCE },
    { "POST", "/chat/completions/input_tokens", SCOPE_INFERENCE },
    { "POST", "/responses/input_tokens", SCOPE_INFERENCE },
    { "GET", "/models", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "GET", "/v1/loads", SCOPE_INFERENCE | SCOPE_ADMIN_READ },
    { "GET", "/server_info", SCOPE_INFERENCE | SCOPE_ADMIN_READ },
    { "GET", "/get_server_info", SCOPE_INFERENCE | SCOPE_ADMIN_READ },
    { "GET", "/model_info", SCOPE_INFERENCE | SCOPE_ADMIN_READ },
    { "GET", "/get_model_info", SCOPE_INFERENCE | SCOPE_ADMIN_READ },
    { "GET", "/v1/models", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "GET", "/v1/models/", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "POST", "/api/chat", SCOPE_INFERENCE },
    { "POST", "/api/generate", SCOPE_INFERENCE },
    { "GET", "/api/version", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "GET", "/api/tags", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "GET", "/api/ps", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "POST", "/api/show", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "POST", "/v1/embeddings", SCOPE_EMBED },
    { "POST", "/embedding", SCOPE_EMBED },
    { "POST", "/embeddings", SCOPE_EMBED },
    { "POST", "/api/embed", SCOPE_EMBED },
    { "POST", "/api/embeddings", SCOPE_EMBED },
    { "POST", "/embed", SCOPE_EMBED },
    { "POST", "/v1/rerank", SCOPE_EMBED },
    { "POST", "/v2/rerank", SCOPE_EMBED },
    { "POST", "/rerank", SCOPE_EMBED },
    { "POST", "/reranking", SCOPE_EMBED },
    { "POST", "/v1/reranking", SCOPE_EMBED },
    { "POST", "/tokenize", SCOPE_INFERENCE | SCOPE_EMBED },
    { "POST", "/detokenize", SCOPE_INFERENCE | SCOPE_EMBED },
    { "GET", "/tokenizer_info", SCOPE_INFERENCE | SCOPE_EMBED },
    { "GET", "/capabilities", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "POST", "/cancel", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN },
    { "GET", "/worker/jobs", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },
    { "GET", "/worker/jobs/", SCOPE_INFERENCE | SCOPE_EMBED | SCOPE_ADMIN_READ },

    { "GET", "/metrics", SCOPE_METRICS },
    { "GET", "/worker/live", SCOPE_METRICS | SCOPE_ADMIN_READ },

    { "GET", "/worker/ready", SCOPE_ADMIN_READ },
    { "POST", "/worker/plan", SCOPE_ADMIN_READ },
    { "POST", "/worker/commit", SCOPE_ADMIN },
    { "POST", "/shutdown", SCOPE_ADMIN },

    { "GET", "/admin/api-keys", SCOPE_ADMIN_READ },
    { "GET", "/admin/api-keys/", SCOPE_ADMIN_READ },
    { "POST", "/admin/api-keys", SCOPE_ADMIN },
    { "POST", "/admin/api-keys/", SCOPE_ADMIN },
    { "PATCH", "/admin/api-keys/", SCOPE_ADMIN },
    { "DELETE", "/admin/api-keys/", SCOPE_ADMIN },
    { "GET", "/admin/rate-limits", SCOPE_ADMIN_READ },
    { "PUT", "/admin/rate-limits", SCOPE_ADMIN },
    { "GET", "/admin/guardrails", SCOPE_ADMIN_READ },
    { "PUT", "/admin/guardrails", SCOPE_ADMIN },
    { "GET", "/admin/roles", SCOPE_ADMIN_READ },
    { "PUT", "/admin/roles", SCOPE_ADMIN },
    { "GET", "/admin/scheduler", SCOPE_ADMIN_READ },
    { "PUT", "/admin/scheduler", SCOPE_ADMIN },
    { "GET", "/admin/models", SCOPE_ADMIN_READ },
    { "GET", "/admin/audit", SCOPE_ADMIN_READ },
};

uint32_t serve_scope_of(const struct http_route *route)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].method, route->method) == 0 && strcmp(table[i].path, route->path) == 0)
            return table[i].scope;
    return 0;
}
