/* identity.c: see identity.h. */
#include "identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/sha256.h"
#include "inside.h"
#include "log/log.h"
#include "plugin/plugin.h"

enum {
    LOOK_MS = 20, /* between two questions whether a device's module has its digest */
    NICE = 10     /* of the thread that computes one: what it reads nobody waits for */
};

struct identity {
    struct serve *s;
    struct serve_model *m;
    void (*known)(struct serve *s, const struct serve_model *m);
    pthread_t thread;
    atomic_bool stop;
};

/* The program and all that is mapped with it, the model's plugins, the recorded pass and its parameters, the device and
 * how it is used; of the model's file its headers, and so vocabulary and chat template, with its weights; and what was
 * given in the place of these. */
static bool fingerprint(const struct serve *s, const struct model *m, char out[80])
{
    char text[512], build[65], pass[65], hex[65];
    struct sha256 *h = build_identity(build) ? sha256_begin() : NULL;
    if (!h) return false;
    tape_digest(m->program, pass);
    const int n = snprintf(text, sizeof text, "%s|%s|%s|%s|%u.%u|%u|%u|%d|%d|%d|", WORKER_VERSION, build,
                           s->device->name, s->info.name, s->info.major, s->info.minor, s->info.runtime, m->dev.isa,
                           m->dev.exact, (int)m->dev.kv_type, s->o->json_calls);
    sha256_update(h, text, (size_t)n);
    sha256_update(h, pass, strlen(pass));
    sha256_update(h, m->identity, strlen(m->identity));
    if (m->tokenizer) sha256_update(h, tokenizer_digest(m->tokenizer), strlen(tokenizer_digest(m->tokenizer)));
    if (s->o->chat_template.data) {
        const int k = snprintf(text, sizeof text, "|template %zu|", s->o->chat_template.len);
        sha256_update(h, text, (size_t)k);
        sha256_update(h, s->o->chat_template.data, s->o->chat_template.len);
    }
    for (uint32_t i = 0; i < m->accepted.n; i++)
        if (m->accepted.used >> i & 1) sha256_update(h, m->accepted.names[i], strlen(m->accepted.names[i]) + 1);
    const struct plugin_entry *who = NULL;
    struct tape_capabilities c;
    tape_describe(m->program, &c);
    if (plugin_find_arch(s->plugins, m->program->architecture, &who))
        sha256_update(h, who->digest, strlen(who->digest));
    for (uint32_t i = 0; i < c.n_types; i++)
        if (plugin_find_type(s->plugins, c.types[i], &who)) sha256_update(h, who->digest, strlen(who->digest));
    if (!sha256_end(h, hex)) return false;
    (void)snprintf(out, 80, "fp_%.32s", hex);
    return true;
}

/* What the device's module, or loading, knows by now; "": nothing. */
static void known_digest(const struct model *m, char out[65])
{
    struct shard_handle h = { 0 };
    if (m->device->handle) m->device->handle(m->executor, &h);
    (void)snprintf(out, 65, "%s", m->device->handle ? h.digest : m->digest);
}

bool identity_make(const struct serve *s, struct serve_model *m)
{
    known_digest(m->model, m->at_first.hex);
    atomic_store(&m->digest, &m->at_first);
    return fingerprint(s, m->model, m->fingerprint);
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

/* False: asked to stop, or it cannot be had. */
static bool wait_for_digest(const struct identity *i, char digest[65])
{
    const struct model *m = i->m->model;
    char text[512] = "";
    const struct wk_err err = { text, sizeof text };
    if (!m->device->handle) {
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* refused: then it is not nice */
        const wk_status status = model_digest(m, &i->stop, digest, &err);
        if (!status) return true;
        if (status == WK_CANCELLED) return false;
        LOG(LOG_ERROR, "error", text, log_s("code", "INTERNAL"), log_s("worker_id", i->s->o->worker_id));
        if (status == WK_IO) serve_set_unhealthy(i->s, SERVE_INTERNAL, text); /* it will not come back */
        return false;
    }
    for (digest[0] = '\0'; !atomic_load(&i->stop); (void)usleep(LOOK_MS * 1000)) {
        known_digest(m, digest);
        if (digest[0]) return true;
    }
    return false;
}

static void *run(void *user)
{
    struct identity *i = user;
    struct serve_model *m = i->m;
    if (!wait_for_digest(i, m->in_full.hex)) return NULL;
    atomic_store(&m->digest, &m->in_full);
    LOG(LOG_INFO, "digest", NULL, log_s("worker_id", i->s->o->worker_id), log_s("model_ref", m->path),
        log_u("gpu_device", i->s->info.index), log_s("digest", m->in_full.hex), log_s("fingerprint", m->fingerprint),
        log_b("sealed", m->facts.on_gpu && load_sealed(m)));
    i->known(i->s, m);
    return NULL;
}

struct identity *identity_start(struct serve *s, struct serve_model *m,
                                void (*known)(struct serve *s, const struct serve_model *m))
{
    struct identity *i = m->at_first.hex[0] ? NULL : calloc(1, sizeof *i);
    if (!i) return NULL;
    i->s = s;
    i->m = m;
    i->known = known;
    if (pthread_create(&i->thread, NULL, run, i) == 0) return i;
    free(i);
    return NULL;
}

void identity_stop(struct identity *i)
{
    if (!i) return;
    atomic_store(&i->stop, true);
    (void)pthread_join(i->thread, NULL);
    free(i);
}
