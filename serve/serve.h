/* serve.h: the worker as a service: one engine, its endpoints, its life from start to drain.
 *
 * State machine: starting -> (waiting for commit) -> loading -> ready -> draining -> over; unhealthy from anywhere for
 * good. Probes and metrics read cached state only: no device call, no lock that the engine holds.
 *
 * Threads: the main thread supervises (signals, drain, death of the device); a loader opens a model once; a watcher
 * calls the device on the engine's thread for residency and memory; every connection has a thread
 * of the HTTP server. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "chat/chat.h"
#include "codes.h"
#include "device/device.h"
#include "engine/engine.h"
#include "handover/peers.h"
#include "http/http.h"
#include "model_facts.h"

struct callback;
struct kv_events;
struct fetch;
struct gate;
struct handover;
struct otlp;
struct identity;
struct job_log;
struct signals;

enum serve_state {
    SERVE_STARTING = 0,
    SERVE_WAITING,
    SERVE_LOADING,
    SERVE_READY,
    SERVE_DRAINING,
    SERVE_UNHEALTHY,
    SERVE_OVER
};

/* Why a model could not be planned or loaded. */
struct serve_failure {
    char code[40], text[4096];
};

/* How models are opened: by whoever knows plugins and options. Calls never overlap. path NULL: the embedded model;
 * digest NULL: any. False: why says it, and nothing is left behind. */
struct serve_loader {
    void *user;
    /* model_plan alone. available: bytes that the device can give, 0: unknown. The caller closes the model. [any
     * thread] */
    bool (*plan)(void *user, const char *path, struct model **out, uint64_t *available, struct serve_failure *why);
    /* Planned, checked against the capabilities and the memory there is, loaded, resident. seal: wait until it is
     * sealed too. [any thread] */
    bool (*load)(void *user, const char *path, const char *digest, bool seal, struct model **out,
                 struct serve_failure *why);
    /* This worker's Engine Capability Profile as a line of JSON; the caller frees; NULL: no memory. [any thread] */
    char *(*profile)(void *user);
};

/* Pages of prompts between workers (handover.h). */
struct serve_handover {
    bool prefills;            /* --role prefill: what generates more than one id is refused */
    enum handover_way most;   /* the best way that is allowed */
    uint32_t leases, pulls;   /* at once; 0: none */
    const char *const *peers; /* handover/peers.h */
    uint32_t n_peers;
    const char *host; /* at which others reach this worker; NULL: as the request came */
    const char *ca;   /* pull over https, from who has a certificate of these; NULL: plain */
};

/* What `worker serve` was asked for; strings live as long as the process. */
struct serve_options {
    const char *worker_id;          /* a UUID */
    const char *host, *admin_host;  /* as http_options has it */
    uint16_t port, admin_port;      /* admin_port 0: none */
    const char *tls_cert, *tls_key; /* NULL: plain HTTP */
    const char *tls_client_ca;      /* NULL: clients need no certificate */
    const char *model_path;         /* NULL: the embedded model, unless wait_for_commit */
    bool wait_for_commit;           /* no model until POST /worker/commit */
    const char *model_dir;          /* absolute; where model_ref is resolved; NULL: nowhere */
    const char *model_id;           /* NULL: general.name, else the file's stem */
    const char *const *aliases;     /* further names that requests may call the model by; "*": every name */
    uint32_t n_aliases;
    struct token_bytes chat_template; /* instead of the file's; data NULL: none */
    const char *chat_template_name;   /* where it was read from */
    bool json_calls;                  /* --tool-format json: calls of a form that is not known are plain JSON */
    bool clock_set;                   /* templates are told `clock`, whatever the time is */
    struct jinja_options clock;
    const char *role; /* "unified", "prefill", "decode" */
    struct serve_handover handover;
    const char *callback_url; /* NULL: none */
    const char *otlp_url;     /* where traces go; NULL: nowhere */
    /* Cache events (kv_events.h): NULL: none; no second socket; an empty topic. */
    const char *kv_events, *kv_events_replay, *kv_events_topic;
    const char *const *origins;
    uint32_t n_origins; /* CORS: allowed origins */
    const char *const *hosts;
    uint32_t n_hosts;                       /* names of ours that Host may give, besides this machine's */
    uint32_t max_tokens_in, max_tokens_out; /* 0: the context; 2048 */
    bool limit_tokens_out;                  /* max_tokens_out was asked for: it holds for /v1 as well */
    uint32_t max_prompt_chars;              /* of /execute: 32768 */
    bool limit_prompt_chars;                /* it was asked for: it holds for /v1 as well */
    int32_t max_priority;                   /* of a request: 10 */
    uint32_t max_streams, inference_timeout_s, shutdown_timeout_s, residency_s;
    uint32_t drain_grace_s; /* between the end of readiness and the first refusal */
    bool quiet;             /* nothing is written for people on standard output: somebody asked for events */
    bool plain_sha256;      /* events have prompt_sha256 besides prompt_hmac */
    bool matryoshka;        /* a part of the model's embeddings is an embedding, too */
    bool flash_attention;   /* asked for; only --device cuda has it */
    uint32_t flash_tile;
    struct engine_options engine;
    struct serve_loader loader;
};

/* Of a model's weights (identity.h): 64 hexadecimal digits; "": not known yet. */
struct serve_digest {
    char hex[65];
};

struct grammars;

/* Model and engine once loaded; what handlers read. But for `digest`, which changes once at most, nothing changes
 * after SERVE_READY. */
struct serve_model {
    struct model *model;      /* of what opens, watches and describes it */
    struct model_facts facts; /* of everybody else */
    struct engine *engine;
    struct grammars *grammars;
    struct chat *chat; /* NULL: the model has no chat template that is known; no_chat says why */
    char no_chat[512];
    const struct serve_options *o; /* of the service: aliases */
    char name[256], path[4096], plugin[64], quant_kind[32], shard_id[192];
    char fingerprint[80]; /* of all that decides ids (identity.h) */
    struct serve_digest at_first, in_full;
    _Atomic(const struct serve_digest *) digest; /* of these */
    size_t piece_max;                            /* bytes of the longest token */
    int64_t ready_at;                            /* seconds since 1970 */
};

struct serve {
    const struct serve_options *o;
    struct fetch *fetch;                       /* what asks other hosts; NULL: nothing does */
    struct otlp *otlp;                         /* NULL: no traces */
    struct kv_events *kv_events;               /* NULL: none */
    struct handover *handover;                 /* NULL: no pages are handed over, and none are pulled */
    struct gate *gate;                         /* NULL: everybody may do everything, and nothing is written down */
    atomic_int state;                          /* enum serve_state */
    _Atomic(struct serve_model *) model;       /* NULL until loaded */
    _Atomic(struct http_server *) main, admin; /* NULL until bound, main first: handlers may run a moment before; both
                                                  are there once the state is not SERVE_STARTING */
    uint64_t started_ns;                       /* CLOCK_MONOTONIC */
    double startup_seconds;                    /* to ready; read it once the state was SERVE_READY */
    const struct device_ops *device;
    struct device_info info; /* CUDA */
    const char *device_text; /* "cpu (avx512, 8 threads, 8-bit activations)", "cuda (GPU 0, NVIDIA H200)" */
    const struct plugin_registry *plugins; /* open before any model is */
    struct signals *signals;
    char unhealthy_code[40], unhealthy_text[256]; /* written before the state becomes SERVE_UNHEALTHY, never again */
    _Atomic uint64_t refused[SERVE_CODE_COUNT];   /* requests for work that were refused before a stream began */
    atomic_uint streams;                          /* handlers of /execute that have a job */
    struct job_log *jobs;                         /* those that are over */

    /* Of serve.c, load.c and watch.c: */
    int wake;                /* eventfd: the main thread looks around */
    atomic_bool stop_asked;  /* POST /shutdown */
    atomic_bool leaving;     /* not ready any more; work is taken until the state is SERVE_DRAINING */
    atomic_bool loading;     /* a loader is at work: one at a time */
    atomic_bool load_failed; /* the model that the process was started with could not be loaded: failure says why */
    struct serve_failure failure;
    pthread_mutex_t memory_lock;
    struct device_memory memory;
    bool memory_known;         /* CUDA: as the watcher saw it last */
    struct callback *callback; /* set by the loader */
    struct identity *identity;
};

/* Everything from bind to drain. Of *s, device, info, device_text, plugins and signals are given, the rest is
 * zero. Returns the exit status: 0 drained; 1 the start failed and why says it; 70 the device was lost: threads may
 * hang in the driver and still use all of *s. What does not end in time is ended by signals.h, with the process.
 * [main thread] */
int serve_run(const struct serve_options *o, struct serve *s, struct serve_failure *why);

/* The device's memory as last seen; false: a CPU, or not looked at yet. [any thread] */
bool serve_memory(struct serve *s, struct device_memory *out);
/* [any thread] */
static inline const char *serve_digest(const struct serve_model *m) { return atomic_load(&m->digest)->hex; }
static inline const char *serve_digest_text(const struct serve_model *m)
{
    const char *hex = serve_digest(m);
    return hex[0] ? hex : "pending";
}
static inline enum serve_state serve_state_of(const struct serve *s)
{
    return (enum serve_state)atomic_load(&s->state);
}
const char *serve_state_name(enum serve_state state);

/* Routes of each part, gathered by serve.c; handlers get the struct serve as user. */
extern const struct http_route serve_execute_routes[], serve_openai_routes[], serve_control_routes[],
    serve_health_routes[], serve_metrics_routes[], serve_text_routes[], serve_page_routes[], serve_render_routes[],
    serve_responses_routes[], serve_messages_routes[], serve_admin_routes[], serve_llama_routes[],
    serve_ollama_routes[], serve_ollama_facts_routes[], serve_handover_routes[], serve_router_routes[],
    serve_embed_routes[];
extern const uint32_t serve_n_execute_routes, serve_n_openai_routes, serve_n_control_routes, serve_n_health_routes,
    serve_n_metrics_routes, serve_n_text_routes, serve_n_page_routes, serve_n_render_routes, serve_n_responses_routes,
    serve_n_messages_routes, serve_n_admin_routes, serve_n_llama_routes, serve_n_ollama_routes,
    serve_n_ollama_facts_routes, serve_n_handover_routes, serve_n_router_routes, serve_n_embed_routes;
enum { SERVE_PARTS = 17 };
struct serve_part {
    const struct http_route *routes;
    uint32_t n;
};
void serve_parts(struct serve_part out[SERVE_PARTS]); /* all of them [any thread] */

#endif
