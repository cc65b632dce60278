/* serve.c: `worker serve`: options to a service, and the one place that opens its models. */
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/address.h"
#include "capability/capability.h"
#include "commands.h"
#include "errors.h"
#include "gate.h"
#include "gate/fetch.h"
#include "parallel.h"
#include "serve/callback.h"
#include "serve/kv_events.h"
#include "serve/serve.h"
#include "serve/signals.h"
#include "chat/clock.h"
#include "setup.h"
#include "text.h"
#include "base/utf8.h"

enum { MAX_ORIGINS = 16, MAX_HOSTS = 16, MAX_ALIASES = 16, MAX_PEERS = 64 };
enum { PREFILL_POOL = 64, DECODE_POOL = 4 /* of a role that has one, when nothing is said */ };

struct serving {
    struct options o; /* with --device as --gpu-device implies it */
    const struct device_ops *device;
    struct plugin_registry *plugins;
    struct device_info gpu;
    struct signals *signals;
    struct fetch *fetch; /* NULL: nothing is asked of other hosts */
    struct gate *gate;
    bool exposed;               /* other machines reach it */
    pthread_mutex_t lock;       /* one model is opened at a time */
    struct error_caught caught; /* of the last that failed, under the lock */
    struct serve_options s;
    struct serve_handover handover;
    const char *origins[MAX_ORIGINS], *hosts[MAX_HOSTS], *aliases[MAX_ALIASES], *peers[MAX_PEERS];
    struct text chat_template;
    struct jinja_options clock;
    char worker_id[37], model_dir[4096], model_path[MODEL_PATH], device_text[DEVICE_TEXT];
};

/* ---- models -------------------------------------------------------------------------------------------- */

static int open_one(struct serving *v, const char *path, const char *digest, bool load, bool seal, struct opened *x)
{
    const char *name = path ? path : "embedded model";
    struct gguf *file;
    ERROR_TEXT(err);
    wk_status status = open_named(path, &file, &err);
    if (status) return refuse_model(status, name, err_text);
    struct model_needs needs = served_needs(v->s.engine.max_sequences, option_u32(&v->o, OPT_BATCH_TOKENS));
    needs.kv_bytes = option_u64(&v->o, OPT_KV_CACHE_SIZE) << 20;
    needs.load = needs.identify = load;
    needs.hand_over = v->handover.leases || v->handover.pulls;
    needs.digest = digest;
    *x = (struct opened){ .plugins = v->plugins, .gpu = v->gpu };
    int result = open_model_on(&v->o, v->device, file, name, &needs, x);
    if (result || !seal || !v->device->seal) return result;
    status = v->device->seal(x->model->executor, &err);
    return status ? refuse_model(status, name, err_text) : EXIT_DONE;
}

/* Opens a model with what fails kept as text: a failed commit is an answer, not the end. */
static bool open_caught(struct serving *v, const char *path, const char *digest, bool load, bool seal,
                        struct model **out, uint64_t *available, struct serve_failure *why)
{
    struct opened x = { 0 };
    (void)pthread_mutex_lock(&v->lock);
    errors_catch(&v->caught);
    int result = open_one(v, path, digest, load, seal, &x);
    if (!result && available) result = device_available(v->device, &v->gpu, available);
    errors_catch(NULL);
    if (result) {
        (void)snprintf(why->code, sizeof why->code, "%s", error_table[v->caught.code].name);
        (void)snprintf(why->text, sizeof why->text, "%s", v->caught.text);
        model_close(x.model);
        x.model = NULL;
    }
    (void)pthread_mutex_unlock(&v->lock);
    *out = x.model;
    return !result;
}

static bool plan_one(void *user, const char *path, struct model **out, uint64_t *available, struct serve_failure *why)
{
    return open_caught(user, path, NULL, false, false, out, available, why);
}

static bool load_one(void *user, const char *path, const char *digest, bool seal, struct model **out,
                     struct serve_failure *why)
{
    return open_caught(user, path, digest, true, seal, out, NULL, why);
}

static char *profile(void *user)
{
    struct serving *v = user;
    json_t *document = capabilities_profile(v->plugins, v->s.worker_id, v->device->probe ? &v->gpu : NULL);
    char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
    json_decref(document);
    return text;
}

/* ---- options ------------------------------------------------------------------------------------------- */

static int choose_worker_id(struct serving *v)
{
    const char *given = option_text(&v->o, OPT_WORKER_ID);
    unsigned char b[16];
    if (!given) {
        if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
            return fail(CODE_INTERNAL, "the system gives no random numbers: %s; name the worker with --worker-id",
                        strerror(errno));
        b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* version 4 of RFC 9562 */
        b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
        size_t n = 0;
        for (size_t i = 0; i < sizeof b; i++)
            n += (size_t)snprintf(v->worker_id + n, sizeof v->worker_id - n, "%s%02x",
                                  i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
        return EXIT_DONE;
    }
    for (size_t i = 0; i < 36; i++) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? given[i] != '-' : !isxdigit((unsigned char)given[i]))
            return fail_usage(
                "serve", "--worker-id: expected a UUID like 123e4567-e89b-42d3-a456-426614174000, got \"%s\"", given);
    }
    (void)snprintf(v->worker_id, sizeof v->worker_id, "%s", given);
    return EXIT_DONE;
}

static int check_model(struct serving *v)
{
    struct stat st;
    const char *name = option_text(&v->o, OPT_MODEL), *path = v->model_path;
    if (!name) return EXIT_DONE;
    if (option_flag(&v->o, OPT_WAIT_FOR_COMMIT))
        return fail_usage("serve", "--model and --wait-for-commit exclude each other");
    const int result = find_model(&v->o, name, v->model_path);
    if (result || embedded_named(path)) return result;
    if (stat(path, &st) || access(path, R_OK)) return fail(CODE_MODEL_LOAD_FAILED, "%s: %s", path, strerror(errno));
    return S_ISREG(st.st_mode) ? EXIT_DONE : fail(CODE_MODEL_LOAD_FAILED, "%s: not a regular file", path);
}

static int choose_model_dir(struct serving *v)
{
    const char *given = option_text(&v->o, OPT_MODEL_DIR);
    struct stat st;
    if (!given)
        return option_flag(&v->o, OPT_WAIT_FOR_COMMIT)
                   ? fail_usage("serve",
                                "--wait-for-commit needs --model-dir: the folder that models are committed from")
                   : EXIT_DONE;
    char *real = realpath(given, NULL);
    const bool ok = real && strlen(real) < sizeof v->model_dir && stat(real, &st) == 0 && S_ISDIR(st.st_mode);
    if (ok) (void)snprintf(v->model_dir, sizeof v->model_dir, "%s", real);
    free(real);
    return ok ? EXIT_DONE : fail_usage("serve", "--model-dir %s: not a folder", given);
}

/* A step has a row of every job that runs. */
static int check_steps(const struct serving *v)
{
    const uint32_t rows = option_u32(&v->o, OPT_BATCH_TOKENS), sequences = option_u32(&v->o, OPT_SERVE_SEQUENCES);
    if (!rows || rows >= sequences) return EXIT_DONE;
    return fail_usage("serve", "--max-batch-tokens: expected 0, or at least as many as --max-sequences (%u), got %u",
                      sequences, rows);
}

/* Clients give it back letter by letter. */
static int check_name(const struct serving *v)
{
    const char *name = option_text(&v->o, OPT_MODEL_ID);
    for (size_t len; name && *name; name += len) {
        len = utf8_sequence((const unsigned char *)name, strlen(name));
        if (!len || (unsigned char)*name < 0x20 || *name == 0x7f)
            return fail_usage("serve", "--model-id: expected UTF-8 without control characters");
    }
    return EXIT_DONE;
}

/* Where it listens. *exposed becomes true of an address that other machines reach. */
static int check_host(const char *flag, const char *host, bool *exposed)
{
    if (!http_is_host(host))
        return fail_usage("serve",
                          "--%s: expected an IPv4 or IPv6 address like 127.0.0.1 or ::1, or localhost; got "
                          "\"%s\"",
                          flag, host);
    *exposed = *exposed || !address_is_local_host(host);
    return EXIT_DONE;
}

/* Who may ask: a value that no client can ever send is a mistake. */
static int check_askers(const struct options *o)
{
    const char *origins[MAX_ORIGINS], *hosts[MAX_HOSTS];
    const uint32_t n_origins = option_list(o, OPT_ORIGIN, origins, MAX_ORIGINS),
                   n_hosts = option_list(o, OPT_ALLOWED_HOST, hosts, MAX_HOSTS);
    for (uint32_t i = 0; i < n_origins; i++) {
        const char *fault = http_origin_fault(origins[i]);
        if (fault)
            return fail_usage("serve", "--origin %s: no browser sends that: %s; expected SCHEME://HOST[:PORT], or *",
                              origins[i], fault);
    }
    for (uint32_t i = 0; i < n_hosts; i++) {
        const char *fault = http_host_fault(hosts[i]);
        if (fault) return fail_usage("serve", "--allowed-host %s: %s; expected a host's name, or *", hosts[i], fault);
    }
    return EXIT_DONE;
}

static int check_tls(const struct options *o)
{
    const bool cert = option_text(o, OPT_TLS_CERT), key = option_text(o, OPT_TLS_KEY);
    if (cert != key)
        return fail_usage("serve", "--tls-cert and --tls-key belong together: --tls-%s is missing",
                          cert ? "key" : "cert");
    if (option_text(o, OPT_TLS_CLIENT_CA) && !cert)
        return fail_usage("serve", "--tls-client-ca is of --tls-cert and --tls-key, which are not given");
    return EXIT_DONE;
}

static int check_kv_events(const struct options *o)
{
    static const enum option_id ids[] = { OPT_KV_EVENTS, OPT_KV_EVENTS_REPLAY };
    ERROR_TEXT(err);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const char *endpoint = option_text(o, ids[i]);
        if (endpoint && kv_events_check(endpoint, &err))
            return fail_usage("serve", "--%s: %s", option_table[ids[i]].name, err_text);
    }
    const char *of = option_text(o, OPT_KV_EVENTS_REPLAY)  ? "kv-events-replay"
                     : option_text(o, OPT_KV_EVENTS_TOPIC) ? "kv-events-topic"
                                                           : NULL;
    if (of && !option_text(o, OPT_KV_EVENTS))
        return fail_usage("serve", "--%s is of --kv-events, which is not given", of);
    if (option_text(o, OPT_KV_EVENTS) && option_flag(o, OPT_NO_PREFIX_CACHE))
        return fail_usage("serve", "--kv-events are of the prefix cache, which --no-prefix-cache turns off");
    return EXIT_DONE;
}

static int check_addresses(struct serving *v)
{
    const struct options *o = &v->o;
    ERROR_TEXT(err);
    const char *host = option_text(o, OPT_HOST), *admin_host = option_text(o, OPT_ADMIN_HOST),
               *url = option_text(o, OPT_CALLBACK_URL);
    const uint32_t admin = option_u32(o, OPT_ADMIN_PORT);
    int result = check_host("host", host, &v->exposed);
    if (!result && admin_host) result = check_host("admin-host", admin_host, &v->exposed);
    if (!result) result = check_askers(o);
    if (!result) result = check_tls(o);
    if (!result) result = check_kv_events(o);
    if (result) return result;
    if (admin_host && !admin) return fail_usage("serve", "--admin-host is of --admin-port, which is not given");
    if (admin && admin < 1024) return fail_usage("serve", "--admin-port: expected 0 or 1024 to 65535, got %u", admin);
    if (admin == option_u32(o, OPT_PORT)) return fail_usage("serve", "--port and --admin-port are both %u", admin);
    if (url && callback_check(url, &err)) return fail_usage("serve", "--callback-url: %s", err_text);
    return EXIT_DONE;
}

static bool is_role(const struct options *o, const char *role) { return strcmp(option_text(o, OPT_ROLE), role) == 0; }

/* Pages that may be handed over, or pulled, at once. */
static uint32_t pool_of(const struct options *o, enum option_id id, const char *role, uint32_t usual)
{
    return option_given(o, id) ? option_u32(o, id) : is_role(o, role) ? usual : 0;
}

/* A role and its pools: what could never do its part does not start. */
static int check_role(struct serving *v)
{
    char text[512] = "";
    const struct options *o = &v->o;
    struct serve_handover *h = &v->handover;
    h->prefills = is_role(o, "prefill");
    h->leases = pool_of(o, OPT_PREFILL_POOL, "prefill", PREFILL_POOL);
    h->pulls = pool_of(o, OPT_DECODE_POOL, "decode", DECODE_POOL);
    h->most = handover_way_named(option_text(o, OPT_KV_TRANSPORT));
    h->peers = v->peers;
    h->n_peers = option_list(o, OPT_HANDOVER_PEER, v->peers, MAX_PEERS);
    h->host = option_text(o, OPT_HANDOVER_HOST);
    h->ca = option_text(o, OPT_HANDOVER_CA);
    if (h->prefills && !h->leases)
        return fail_usage("serve", "--role prefill needs --prefill-pool-size of 1 or more: it hands pages over");
    if (is_role(o, "decode") && !h->pulls)
        return fail_usage("serve", "--role decode needs --decode-pool-size of 1 or more: it pulls pages");
    if ((h->leases || h->pulls) && option_flag(o, OPT_NO_PREFIX_CACHE))
        return fail_usage("serve", "--no-prefix-cache: pages are handed over from one prefix cache to another");
    for (uint32_t i = 0; i < h->n_peers; i++)
        if (!handover_is_peer(h->peers[i]))
            return fail_usage("serve",
                              "--handover-peer %s: expected a host's name, an address, or a network such as "
                              "10.1.0.0/16 or fd00::/8",
                              h->peers[i]);
    if (h->host && !handover_is_host(h->host))
        return fail_usage("serve", "--handover-host %s: expected a host's name or an address, without a port", h->host);
    if (h->ca && fetch_check_ca(h->ca, &(struct wk_err){ text, sizeof text }))
        return fail_usage("serve", "--handover-ca %s", text);
    return EXIT_DONE;
}

/* --gpu-device alone says where to compute as well. */
static int choose_device(struct serving *v)
{
    struct option_value *device = &v->o.value[OPT_DEVICE];
    if (option_given(&v->o, OPT_GPU_DEVICE) && !option_given(&v->o, OPT_DEVICE)) device->text = "cuda";
    int result = find_device(&v->o, &v->device);
    return result ? result : probe_device(&v->o, v->device, false, &v->gpu);
}

/* What chats are told: a template in the place of the model's, and the time. */
static int read_chat(struct serving *v)
{
    const char *path = option_text(&v->o, OPT_CHAT_TEMPLATE), *date = option_text(&v->o, OPT_TEMPLATE_DATE);
    if (date && !chat_clock_read(date, &v->clock))
        return fail_usage("serve",
                          "--template-date: expected a day or a time of RFC 3339, such as 2026-07-04, got "
                          "\"%.40s\"",
                          date);
    return path ? text_read(NULL, path, &v->chat_template) : EXIT_DONE;
}

static void service_options(struct serving *v)
{
    const struct options *o = &v->o;
    v->s = (struct serve_options){
        .worker_id = v->worker_id,
        .host = option_text(o, OPT_HOST),
        .admin_host = option_text(o, option_text(o, OPT_ADMIN_HOST) ? OPT_ADMIN_HOST : OPT_HOST),
        .port = (uint16_t)option_u32(o, OPT_PORT),
        .admin_port = (uint16_t)option_u32(o, OPT_ADMIN_PORT),
        .tls_cert = option_text(o, OPT_TLS_CERT),
        .tls_key = option_text(o, OPT_TLS_KEY),
        .tls_client_ca = option_text(o, OPT_TLS_CLIENT_CA),
        .model_path = v->model_path[0] ? v->model_path : NULL,
        .wait_for_commit = option_flag(o, OPT_WAIT_FOR_COMMIT),
        .model_dir = v->model_dir[0] ? v->model_dir : NULL,
        .model_id = option_text(o, OPT_MODEL_ID),
        .aliases = v->aliases,
        .n_aliases = option_list(o, OPT_MODEL_ALIAS, v->aliases, MAX_ALIASES),
        .chat_template = { v->chat_template.bytes, v->chat_template.len },
        .chat_template_name = option_text(o, OPT_CHAT_TEMPLATE),
        .json_calls = option_text(o, OPT_TOOL_FORMAT) != NULL,
        .clock_set = option_text(o, OPT_TEMPLATE_DATE) != NULL,
        .clock = v->clock,
        .role = option_text(o, OPT_ROLE),
        .handover = v->handover,
        .callback_url = option_text(o, OPT_CALLBACK_URL),
        .otlp_url = option_text(o, OPT_OTLP),
        .kv_events = option_text(o, OPT_KV_EVENTS),
        .kv_events_replay = option_text(o, OPT_KV_EVENTS_REPLAY),
        .kv_events_topic = option_text(o, OPT_KV_EVENTS_TOPIC),
        .origins = v->origins,
        .n_origins = option_list(o, OPT_ORIGIN, v->origins, MAX_ORIGINS),
        .hosts = v->hosts,
        .n_hosts = option_list(o, OPT_ALLOWED_HOST, v->hosts, MAX_HOSTS),
        .max_tokens_in = option_u32(o, OPT_MAX_TOKENS_IN),
        .max_tokens_out = option_u32(o, OPT_MAX_TOKENS_OUT),
        .limit_tokens_out = option_given(o, OPT_MAX_TOKENS_OUT),
        .max_prompt_chars = option_u32(o, OPT_MAX_PROMPT_CHARS),
        .limit_prompt_chars = o->value[OPT_MAX_PROMPT_CHARS].given || o->value[OPT_MAX_PROMPT_CHARS].filed,
        .max_priority = (int32_t)option_u32(o, OPT_MAX_PRIORITY),
        .max_streams = option_u32(o, OPT_MAX_STREAMS),
        .inference_timeout_s = option_u32(o, OPT_INFERENCE_TIMEOUT),
        .shutdown_timeout_s = option_u32(o, OPT_SHUTDOWN_TIMEOUT),
        .drain_grace_s = option_u32(o, OPT_DRAIN_GRACE),
        .residency_s = option_u32(o, OPT_RESIDENCY),
        .plain_sha256 = option_flag(o, OPT_PLAIN_SHA256),
        .matryoshka = option_flag(o, OPT_MATRYOSHKA),
        .flash_attention = option_flag(o, OPT_FLASH_ATTENTION),
        .flash_tile = option_u32(o, OPT_FLASH_TILE),
        .quiet = option_text(o, OPT_LOG) && log_is_json(o),
        .engine = { .max_sequences = option_u32(o, OPT_SERVE_SEQUENCES),
                    .max_batch_tokens = option_u32(o, OPT_BATCH_TOKENS),
                    .max_queue = option_u32(o, OPT_MAX_QUEUE),
                    .prefix_cache = !option_flag(o, OPT_NO_PREFIX_CACHE),
                    .eviction = strcmp(option_text(o, OPT_KV_EVICTION), "clock") == 0 ? EVICT_CLOCK : EVICT_LRU,
                    .completion_bytes = (uint64_t)option_u32(o, OPT_COMPLETION_CACHE) << 20,
                    .preempt = option_flag(o, OPT_FAIRNESS_PREEMPT),
                    .high_priority = (int32_t)option_u32(o, OPT_FAIRNESS_HIGH_PRI),
                    .timeslice_tokens = option_u32(o, OPT_FAIRNESS_TIMESLICE) },
        .loader = { .user = v, .plan = plan_one, .load = load_one, .profile = profile },
    };
}

static void name_device(struct serving *v)
{
    const uint32_t threads = option_u32(&v->o, OPT_THREADS) ? option_u32(&v->o, OPT_THREADS) : parallel_processors();
    uint32_t isa;
    (void)choose_isa(&v->o, &isa); /* find_device has refused what this processor does not have */
    if (v->device->probe)
        (void)snprintf(v->device_text, sizeof v->device_text, "%s (GPU %u, %s)", v->device->name, v->gpu.index,
                       v->gpu.name);
    else
        (void)snprintf(v->device_text, sizeof v->device_text, "%s (%s, %u threads, %s activations)", v->device->name,
                       plugin_isa_name(isa), threads, option_flag(&v->o, OPT_EXACT) ? "exact" : "8-bit");
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* The last line on standard error, with what is known of the model's and the device's memory. */
static int say_failure(struct serving *v, const struct serve_failure *why)
{
    enum error_code code = CODE_INTERNAL;
    if (v->caught.text[0]) return error_say(&v->caught);
    for (int i = 0; i < CODE_COUNT; i++)
        if (strcmp(error_table[i].name, why->code) == 0) code = (enum error_code)i;
    return fail(code, "%s", why->text);
}

/* Every event says whose it is. */
static void name_events(const struct serving *v)
{
    static struct log_field fields[3]; /* for as long as the process: threads outlive the service */
    static char worker_id[sizeof v->worker_id];
    memcpy(worker_id, v->worker_id, sizeof worker_id);
    fields[0] = log_s("worker_id", worker_id);
    fields[1] = log_u("gpu_device", v->gpu.index);
    log_common(fields);
}

static int serve(struct serving *v)
{
    struct serve_failure why = { 0 };
    struct serve *s = calloc(1, sizeof *s);
    if (!s) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the service");
    s->device = v->device;
    s->info = v->gpu;
    s->device_text = v->device_text;
    s->plugins = v->plugins;
    s->signals = v->signals;
    s->gate = v->gate;
    s->fetch = v->fetch;
    if (v->device->warm) v->device->warm(v->gpu.index);
    const int status = serve_run(&v->s, s, &why);
    if (status == EXIT_DEVICE_LOST) { /* threads may still use all of it */
        if (v->gate) gate_lost(v->gate, "the device was lost");
        return status;
    }
    free(s);
    return status == EXIT_FAILED && why.code[0] ? say_failure(v, &why) : status;
}

int command_serve(const struct options *o)
{
    struct serving *v = calloc(1, sizeof *v);
    if (!v) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the service");
    v->o = *o;
    (void)pthread_mutex_init(&v->lock, NULL);
    int result = choose_audit_key(o);
    if (!result) result = choose_worker_id(v);
    if (!result) { /* before anything that may take long */
        v->signals = signals_start(v->worker_id, option_text(o, OPT_TLS_CERT) || option_text(o, OPT_AUDIT_LOG));
        if (!v->signals) result = fail(CODE_INSUFFICIENT_MEMORY, "no memory, descriptor or thread for signals");
    }
    if (!result) result = check_name(v);
    if (!result) result = check_addresses(v);
    if (!result) result = fetch_start_for(o, &v->fetch);
    if (!result) result = gate_start(o, v->exposed, v->fetch, &v->gate);
    if (!result) result = check_steps(v);
    if (!result) result = check_role(v);
    if (!result) result = check_model(v);
    if (!result) result = read_chat(v);
    if (!result) result = choose_model_dir(v);
    if (!result) result = choose_device(v);
    if (!result) result = open_plugins(o, &v->plugins);
    if (!result) {
        service_options(v);
        name_device(v);
        name_events(v);
        result = serve(v);
    }
    if (result == EXIT_DEVICE_LOST) return result;
    fetch_stop(v->fetch); /* what waits for an answer is told so, and can end */
    gate_close(v->gate);
    fetch_close(v->fetch);
    plugin_registry_close(v->plugins);
    signals_stop(v->signals);
    (void)pthread_mutex_destroy(&v->lock);
    text_free(&v->chat_template);
    free(v);
    return result;
}
