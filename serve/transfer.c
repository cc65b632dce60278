/* transfer.c: see transfer.h. */
#include "transfer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "caller.h"
#include "engine/handover.h"
#include "handover.h"
#include "pull.h"
#include "stream.h"

/* ---- roles --------------------------------------------------------------------------------------------- */

bool transfer_may(const struct stream *x, struct refusal *why)
{
    const struct serve_handover *h = &x->s->o->handover;
    if (h->prefills && x->q.max_tokens > 1)
        return refuse(
            why, SERVE_INVALID_REQUEST, "max_tokens",
            "max_tokens: this worker reads prompts for others (--role prefill): expected 0 or 1, got %u; ask a "
            "worker that decodes",
            x->q.max_tokens);
    if (!x->transfer) return true;
    if (x->transfer->keep && !h->leases)
        return refuse(why, SERVE_INVALID_REQUEST, "kv_transfer_params.do_remote_decode",
                      "kv_transfer_params.do_remote_decode: this worker (--role %s) hands no pages over: ask a prefill "
                      "worker, or start this one with --prefill-pool-size",
                      x->s->o->role);
    if (x->transfer->pull && !h->pulls)
        return refuse(
            why, SERVE_INVALID_REQUEST, "kv_transfer_params.do_remote_prefill",
            "kv_transfer_params.do_remote_prefill: this worker (--role %s) pulls no pages: ask a decode worker, "
            "or start this one with --decode-pool-size",
            x->s->o->role);
    return true;
}

/* ---- before the jobs ----------------------------------------------------------------------------------- */

/* False: the next prompt's pages would be waited for in vain, too. */
static bool pull_one(struct stream *x, uint32_t i)
{
    bool in_vain;
    const struct gate_caller *who = &serve_caller(x->r)->who;
    const struct transfer *t = x->transfer;
    const json_t *id = json_array_get(t->ids, i);
    const struct pull_request ask = { .work = x->work,
                                      .m = x->m,
                                      .ids = x->prompts[i].ids.ids,
                                      .n_ids = (uint32_t)x->prompts[i].ids.n,
                                      .salt = { { who->salt[0], who->salt[1] } },
                                      .engine = t->engine,
                                      .host = t->host,
                                      .port = t->port,
                                      .id = json_is_string(id) ? json_string_value(id) : NULL,
                                      .job_id = x->answers[0].log_id };
    x->handed[i].pulled = pull_pages(&ask, &in_vain);
    return !in_vain;
}

void transfer_begin(struct stream *x)
{
    struct engine_layout layout;
    if (!x->transfer) return;
    x->keeps = x->transfer->keep;
    x->handed = calloc(x->n_prompts, sizeof *x->handed);
    const bool can_keep = x->keeps && !engine_layout(x->m->engine, &layout, NULL);
    bool pulls = x->transfer->pull && !x->prompt_probs; /* of which every row is computed */
    for (uint32_t i = 0; x->handed && i < x->n_prompts; i++) {
        pulls = pulls && pull_one(x, i);
        x->handed[i].reserved =
            can_keep && engine_blocks((uint32_t)x->prompts[i].ids.n) > 0 && leases_reserve(x->s->handover->leases);
    }
}

bool transfer_keeps(const struct stream *x, const struct answer *a)
{
    return x->handed && a->index % x->each == 0 && x->handed[a->prompt].reserved;
}

void transfer_started(struct stream *x, const struct answer *a)
{
    if (!x->handed || a->index % x->each) return;
    struct transfer_prompt *p = &x->handed[a->prompt];
    engine_lease_release(p->pulled);
    p->pulled = NULL;
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

void transfer_offer(struct stream *x, const struct answer *a)
{
    uint32_t ready = 0;
    if (!transfer_keeps(x, a)) return;
    struct transfer_prompt *p = &x->handed[a->prompt];
    struct engine_lease *lease = job_lease(a->job);
    if (lease && serve_digest(x->m)[0] && engine_lease_wait(lease, 0, 0, &ready) == LEASE_WHOLE &&
        leases_add(x->s->handover->leases, lease, serve_caller(x->r)->who.salt, serve_now_ns(), p->id)) {
        p->reserved = false;
        return;
    }
    engine_lease_release(lease);
}

/* Where decode workers reach this one: as it was told, else where this request came to. */
static void put_place(struct http_text *out, const struct stream *x)
{
    char host[INET6_ADDRSTRLEN] = "";
    struct sockaddr_storage at;
    const char *given = x->s->o->handover.host;
    http_local_address(x->r, &at);
    const void *bytes = at.ss_family == AF_INET    ? (const void *)&((const struct sockaddr_in *)&at)->sin_addr
                        : at.ss_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)&at)->sin6_addr
                                                   : NULL;
    if (!given && (!bytes || !inet_ntop(at.ss_family, bytes, host, sizeof host))) host[0] = '\0';
    if (!given) given = strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.') ? host + 7 : host;
    http_text_format(out, ",\"remote_host\":");
    http_text_json(out, given, strlen(given));
    http_text_format(out, ",\"remote_port\":%u", http_port(x->s->main));
}

void transfer_put(struct http_text *out, const struct stream *x)
{
    bool any = false;
    if (!x->keeps) return;
    for (uint32_t i = 0; x->handed && i < x->n_prompts; i++) any = any || x->handed[i].id[0];
    http_text_format(out, ",\"kv_transfer_params\":{\"do_remote_prefill\":%s,\"do_remote_decode\":false",
                     any ? "true" : "false");
    if (any) {
        http_text_format(out, ",\"remote_engine_id\":\"%s:%s\",\"remote_block_ids\":[", x->s->o->worker_id,
                         x->m->fingerprint);
        for (uint32_t i = 0; i < x->n_prompts; i++) http_text_format(out, "%s\"%s\"", i ? "," : "", x->handed[i].id);
        http_text_add(out, "]", 1);
        put_place(out, x);
    } else {
        http_text_format(out,
                         ",\"remote_engine_id\":null,\"remote_block_ids\":null,\"remote_host\":null,\"remote_port\":"
                         "null");
    }
    http_text_add(out, "}", 1);
}

void transfer_close(struct stream *x)
{
    for (uint32_t i = 0; x->handed && i < x->n_prompts; i++) {
        engine_lease_release(x->handed[i].pulled);
        if (x->handed[i].reserved) leases_unreserve(x->s->handover->leases);
    }
    free(x->handed);
    x->handed = NULL;
}
