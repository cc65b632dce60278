/* log_names.c: the names of all fields and headers that a refusal can name. */
#include "log_names.h"

#include <string.h>

#include "openai_names.h"
#include "serve.h"

/* Members of bodies, and headers, that are not in openai_names.c. */
static const char *const names[] = {
    "X-Deadline",
    "add_special",
    "budget_tokens",
    "chat",
    "compaction",
    "container",
    "content",
    "digest",
    "disable_parallel_tool_use",
    "do_remote_decode",
    "do_remote_prefill",
    "display",
    "effort",
    "fingerprint",
    "from",
    "handle_id",
    "id",
    "include_usage",
    "context_management",
    "input_schema",
    "mcp_servers",
    "output_config",
    "output_format",
    "strict",
    "thread",
    "job_id",
    "metrics",
    "model_bytes",
    "model_ref",
    "name",
    "params",
    "place",
    "remote_block_ids",
    "remote_engine_id",
    "remote_host",
    "remote_port",
    "return_token_strs",
    "role",
    "shard_id",
    "shard_index",
    "shard_layout",
    "special",
    "text",
    "tokens",
    "to",
    "tool_calls",
    "tp_degree",
    "type",
    "ways",
    "with_pieces",
};

static bool known(const char *part, size_t n)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], part, n) == 0) return true;
    return openai_names_has(part, n);
}

const char *serve_log_field(const char *field, char out[LOG_WORD]) { return log_field_name(field, known, out); }

static bool is_ours(const char *path)
{
    struct serve_part part[SERVE_PARTS];
    serve_parts(part);
    for (uint32_t p = 0; p < SERVE_PARTS; p++)
        for (uint32_t i = 0; i < part[p].n; i++)
            if (strcmp(part[p].routes[i].path, path) == 0) return true;
    return false;
}

const char *serve_log_path(const char *path, char out[LOG_WORD])
{
    static const char *const below[][2] = { { "/worker/jobs/", "/worker/jobs/{job_id}" },
                                            { "/v1/models/", "/v1/models/{model}" },
                                            { "/admin/api-keys/", "/admin/api-keys/{id}" } };
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        if (strncmp(path, below[i][0], strlen(below[i][0])) == 0) return below[i][1];
    return is_ours(path) ? path : log_hidden(path, out);
}
