/* other_paths.c: paths of OpenAI's, Anthropic's and other servers' interfaces that are not served: who asks for one is
 * told so, and what to use instead, in place of a bare 404. */
#include <string.h>

#include "inside.h"

#define CHAT_INSTEAD "use POST /v1/chat/completions"
#define EMBEDDINGS "use POST /v1/embeddings, with a model of embeddings"
#define RANKING "use POST /v1/rerank, with a reranker; other scores and classes are not served"
#define NO_RESPONSES "this worker stores no responses; POST /v1/responses makes one"
#define MESSAGES "this worker serves POST /v1/messages and /v1/messages/count_tokens of Anthropic's interface"
#define ONE_MODEL                                                                                                   \
    "this worker serves one model, which it was started with: it pulls, pushes, creates, copies and deletes none; " \
    "the "                                                                                                          \
    "command worker pull fetches models, worker serve --model serves one"
#define NO_MEDIA "this worker does not serve images, audio and video: it generates text; " CHAT_INSTEAD
#define NO_STORE \
    "this worker stores nothing: no files, batches, assistants, threads, vector stores or fine-tuning; " CHAT_INSTEAD
#define ADAPTERS \
    "adapters are those that the worker was started with (worker serve --lora FILE); GET /lora-adapters lists them"
#define BASE_URL "there is no such path here: OpenAI's clients want the base URL to end in /v1; use "

/* A name that ends in '/' stands for all paths below it. */
static const struct {
    const char *path, *text;
} others[] = {
    { "/v1/responses/", NO_RESPONSES },
    { "/v1/conversations", NO_STORE },
    { "/v1/conversations/", NO_STORE },
    { "/v1/messages/batches", NO_STORE },
    { "/v1/messages/batches/", NO_STORE },
    { "/v1/messages/", MESSAGES },
    { "/v1/complete", MESSAGES },
    { "/v1/chat/completions/", "this worker keeps no completions; POST /v1/chat/completions makes one" },
    { "/v1/images/", NO_MEDIA },
    { "/v1/audio/", NO_MEDIA },
    { "/v1/videos", NO_MEDIA },
    { "/v1/videos/", NO_MEDIA },
    { "/v1/realtime", NO_MEDIA },
    { "/v1/realtime/", NO_MEDIA },
    { "/v1/moderations", RANKING },
    { "/v1/score", RANKING },
    { "/v1/classify", RANKING },
    { "/v1/files", NO_STORE },
    { "/v1/files/", NO_STORE },
    { "/v1/uploads", NO_STORE },
    { "/v1/uploads/", NO_STORE },
    { "/v1/batches", NO_STORE },
    { "/v1/batches/", NO_STORE },
    { "/v1/assistants", NO_STORE },
    { "/v1/assistants/", NO_STORE },
    { "/v1/threads", NO_STORE },
    { "/v1/threads/", NO_STORE },
    { "/v1/vector_stores", NO_STORE },
    { "/v1/vector_stores/", NO_STORE },
    { "/v1/fine_tuning/", NO_STORE },
    { "/v1/engines/", "there are no engines any more in OpenAI's interface; use POST /v1/completions" },
    { "/v1/edits", CHAT_INSTEAD },
    { "/v1/tokenize", "use POST /tokenize" },
    { "/v1/detokenize", "use POST /detokenize" },
    { "/v1/health/", "use GET /livez or GET /readyz" },
    { "/v1/metrics", "use GET /metrics" },
    { "/v1/version", "use GET /version" },
    { "/v1/metadata", "use GET /health" },
    { "/v1/load_lora_adapter", ADAPTERS },
    { "/v1/unload_lora_adapter", ADAPTERS },
    { "/v2/health/", "use GET /livez or GET /readyz" },
    { "/v2/models/", "use GET /readyz" },

    { "/v1/v1/messages", "there is no such path here: Anthropic's clients want the base URL without /v1" },
    { "/v1/v1/messages/", "there is no such path here: Anthropic's clients want the base URL without /v1" },
    { "/v1/v1/", BASE_URL "one /v1" },
    { "/v1/chat", CHAT_INSTEAD },
    { "/v1/slots", "use GET /worker/jobs" },

    { "/models/", BASE_URL "GET /v1/models" },
    { "/chat", CHAT_INSTEAD },
    { "/messages", MESSAGES },
    { "/v1", BASE_URL "GET /v1/models" },

    { "/slots", "use GET /worker/jobs" },
    { "/slots/", "use GET /worker/jobs" },

    { "/generate", "use POST /execute or /v1/completions" },
    { "/generate_stream", "use POST /execute, or /v1/completions with \"stream\": true" },
    { "/invocations", CHAT_INSTEAD },
    { "/inference/v1/generate", "use POST /v1/completions with a prompt of token ids" },
    { "/health_generate", "use GET /health" },
    { "/info", "use GET /health" },
    { "/load", "use GET /metrics or GET /health" },
    { "/loads", "use GET /v1/loads" },
    { "/get_load", "use GET /v1/loads" },
    { "/kv_event_sources", "GET /server_info has kv_events_config" },
    { "/ping", "use GET /livez or GET /readyz" },
    { "/abort_request", "use POST /cancel" },
    { "/abort_requests", "use POST /cancel" },
    { "/flush_cache", "there is nothing to flush: a cached page gives way when another needs its place" },
    { "/pooling", EMBEDDINGS },
    { "/encode", EMBEDDINGS },
    { "/embed_all", EMBEDDINGS },
    { "/embed_sparse", EMBEDDINGS },
    { "/similarity", EMBEDDINGS },
    { "/score", RANKING },
    { "/classify", RANKING },
    { "/predict", RANKING },
    { "/sleep", "use POST /shutdown" },
    { "/docs", "use GET /openapi.json" },
    { "/redoc", "use GET /openapi.json" },
    { "/swagger.json", "use GET /openapi.json" },

    { "/api/pull", ONE_MODEL },
    { "/api/push", ONE_MODEL },
    { "/api/create", ONE_MODEL },
    { "/api/copy", ONE_MODEL },
    { "/api/delete", ONE_MODEL },
    { "/api/blobs/", ONE_MODEL },
    { "/api/", "of Ollama's interface this worker serves /api/version, tags, show, ps, chat, generate and embed" },
};

const char *serve_other_path(const char *path)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *other = others[i].path;
        const size_t n = strlen(other);
        if (other[n - 1] == '/' ? strncmp(path, other, n) == 0 : strcmp(path, other) == 0) return others[i].text;
    }
    return NULL;
}
