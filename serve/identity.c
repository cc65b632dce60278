/* identity.c: fingerprint and digest of the model that is served. */
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

/* What decides ids but for the weights: the program and all that is mapped with it, the model's plugins, the recorded
 * pass and its parameters, a tokenizer.json in the place of the file's vocabulary, the device and how it is used. */
static bool executor_identity(const struct serve *s, const struct model *m, char hex[65])
{
    char text[512], build[65], pass[65];
    struct sha256 *h = build_identity(build) ? sha256_begin() : NULL;
    hex[0] = '\0';
    if (!h) return false;
    tape_digest(m->program, pass);
    const int n = snprintf(text, sizeof text, "%s|%s|%s|%s|%u.%u|%u|%u|%d|%d|", WORKER_VERSION, build, s->device->name,
                           s->info.name, s->info.major, s->info.minor, s->info.runtime, m->dev.isa, m->dev.exact,
                           (int)m->dev.kv_type);
    sha256_update(h, text, (size_t)n);
    sha256_update(h, pass, strlen(pass));
    if (m->tokenizer) sha256_update(h, tokenizer_digest(m->tokenizer), strlen(tokenizer_digest(m->tokenizer)));
    for (uint32_t i = 0; i < m->accepted.n; i++)
        if (m->accepted.used >> i & 1) sha256_update(h, m->accepted.names[i], strlen(m->accepted.names[i]) + 1);
    const struct plugin_entry *who = NULL;
    struct tape_capabilities c;
    tape_describe(m->program, &c);
    if (plugin_find_arch(s->plugins, m->program->architecture, &who))
        sha256_update(h, who->digest, strlen(who->digest));
    for (uint32_t i = 0; i < c.n_types; i++)
        if (plugin_find_type(s->plugins, c.types[i], &who)) sha256_update(h, who->digest, strlen(who->digest));
    return sha256_end(h, hex);
}

static bool name_all(const struct serve_model *m, const char *digest, struct serve_known *out)
{
    char text[160], hex[65];
    const int n = snprintf(text, sizeof text, "%s|%s", m->executor, digest[0] ? digest : m->model->identity);
    (void)snprintf(out->digest, sizeof out->digest, "%s", digest);
    if (!sha256_hex(text, (size_t)n, hex)) return false;
    (void)snprintf(out->fingerprint, sizeof out->fingerprint, "fp_%.32s", hex);
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
    char digest[65];
    known_digest(m->model, digest);
    if (!executor_identity(s, m->model, m->executor) || !name_all(m, digest, &m->at_first)) return false;
    atomic_store(&m->known, &m->at_first);
    return true;
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
    char digest[65];
    if (!wait_for_digest(i, digest) || !name_all(m, digest, &m->in_full)) return NULL;
    atomic_store(&m->known, &m->in_full);
    LOG(LOG_INFO, "digest", NULL, log_s("worker_id", i->s->o->worker_id), log_s("model_ref", m->path),
        log_u("gpu_device", i->s->info.index), log_s("digest", digest), log_s("fingerprint", m->in_full.fingerprint),
        log_b("sealed", m->model->device->handle && load_sealed(m)));
    i->known(i->s, m);
    return NULL;
}

struct identity *identity_start(struct serve *s, struct serve_model *m,
                                void (*known)(struct serve *s, const struct serve_model *m))
{
    struct identity *i = m->at_first.digest[0] ? NULL : calloc(1, sizeof *i);
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
