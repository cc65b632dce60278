/* router_facts.c: what routers ask of each worker when they begin to use it, by the names that SGLang's and vLLM's
 * servers gave: GET /server_info and /model_info, and the same behind get_. vLLM's own /server_info has its
 * configuration as `vllm_config`; of that stands here what a router reads. */
#include "capability/json_text.h"
#include "inside.h"
#include "kv_events.h"

static json_t *name_of(const struct serve_model *m) { return json_bytes(m->name, strlen(m->name)); }

/* vLLM's names for where cache events are. */
static json_t *kv_events_config(const struct serve_options *o)
{
    if (!o->kv_events) return json_null();
    return json_pack("{s:b, s:s, s:s, s:s?, s:s}", "enable_kv_cache_events", 1, "publisher", "zmq", "endpoint",
                     o->kv_events, "replay_endpoint", o->kv_events_replay, "topic",
                     o->kv_events_topic ? o->kv_events_topic : "");
}

static json_t *vllm_config(const struct serve *s, const struct serve_model *m, const struct engine_stats *e)
{
    return json_pack("{s:{s:o, s:o, s:I}, s:{s:i, s:I, s:b}, s:{s:i, s:i, s:i}, s:o}", "model_config", "model",
                     name_of(m), "served_model_name", name_of(m), "max_model_len", (json_int_t)m->facts.context,
                     "cache_config", "block_size", KV_PAGE, "num_gpu_blocks", (json_int_t)e->pages,
                     "enable_prefix_caching", s->o->engine.prefix_cache, "parallel_config", "tensor_parallel_size", 1,
                     "pipeline_parallel_size", 1, "data_parallel_size", 1, "kv_events_config", kv_events_config(s->o));
}

static void on_server(void *user, struct http_request *r)
{
    struct serve *s = user;
    struct engine_stats e;
    const struct serve_model *m = serve_ready_for(s, r);
    if (!m) return;
    engine_stats(m->engine, &e);
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s}", "version", WORKER_VERSION, "instance_id",
                          s->o->worker_id, "role", s->o->role, "model_path", name_of(m), "tokenizer_path", name_of(m),
                          "served_model_name", name_of(m), "device", s->device->name, "quantization", m->quant_kind);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = { { "context_length", m->facts.context },
                    { "page_size", KV_PAGE },
                    { "kv_block_size", KV_PAGE },
                    { "max_total_num_tokens", e.pages * KV_PAGE },
                    { "max_running_requests", s->o->engine.max_sequences },
                    { "max_queued_requests", s->o->engine.max_queue },
                    { "tp_size", 1 },
                    { "pp_size", 1 },
                    { "dp_size", 1 } };
    for (size_t i = 0; o && i < sizeof numbers / sizeof *numbers; i++)
        (void)json_object_set_new(o, numbers[i].name, json_integer((json_int_t)numbers[i].value));
    if (o) (void)json_object_set_new(o, "vllm_config", vllm_config(s, m, &e));
    serve_answer(s, r, 200, o);
}

static void on_model(void *user, struct http_request *r)
{
    struct serve *s = user;
    const struct serve_model *m = serve_ready_for(s, r);
    if (!m) return;
    const char *architecture = m->facts.architecture;
    serve_answer(s, r, 200,
                 json_pack("{s:o, s:o, s:b, s:n, s:s, s:s, s:[s], s:b, s:b, s:I, s:I}", "model_path", name_of(m),
                           "tokenizer_path", name_of(m), "is_generation", m->facts.width == 0,
                           "preferred_sampling_params", "weight_version", serve_digest_text(m), "model_type",
                           architecture, "architectures", architecture, "has_image_understanding", 0,
                           "has_audio_understanding", 0, "max_model_len", (json_int_t)m->facts.context, "vocab_size",
                           (json_int_t)m->facts.n_vocab));
}

const struct http_route serve_router_routes[] = {
    { "GET", "/server_info", on_server, false },
    { "GET", "/get_server_info", on_server, false },
    { "GET", "/model_info", on_model, false },
    { "GET", "/get_model_info", on_model, false },
};
const uint32_t serve_n_router_routes = sizeof serve_router_routes / sizeof *serve_router_routes;
