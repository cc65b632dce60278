/* transfer_read.c: the members of kv_transfer_params. A pure function. */
#include "body.h"
#include "handover/peers.h"
#include "transfer.h"

enum { ENGINE_MAX = 255 /* bytes of remote_engine_id */ };

static const char member[] = "kv_transfer_params";

static bool read_flag(const json_t *params, const char *name, bool *out, struct refusal *why)
{
    const struct body_object o = { params, "kv_transfer_params." };
    const json_t *v = json_object_get(params, name);
    return !v || json_is_null(v) || body_flag(&o, name, out, why);
}

/* A text without control characters; NULL: absent, or null. */
static bool read_text(const json_t *params, const char *name, size_t most, const char **out, struct refusal *why)
{
    const struct body_object o = { params, "kv_transfer_params." };
    const json_t *v = json_object_get(params, name);
    return !v || json_is_null(v) || body_name(&o, name, most, out, why);
}

bool transfer_read(const json_t *params, struct transfer *out, struct refusal *why)
{
    const struct body_object o = { params, "kv_transfer_params." };
    int64_t port = 0;
    *out = (struct transfer){ 0 };
    if (!params || json_is_null(params)) return true;
    if (!json_is_object(params))
        return refuse(why, SERVE_INVALID_REQUEST, member, "%s: expected an object, or null", member);
    const json_t *at = json_object_get(params, "remote_port"), *ids = json_object_get(params, "remote_block_ids");
    if (!read_flag(params, "do_remote_decode", &out->keep, why) ||
        !read_flag(params, "do_remote_prefill", &out->pull, why) ||
        !read_text(params, "remote_engine_id", ENGINE_MAX, &out->engine, why) ||
        !read_text(params, "remote_host", HANDOVER_HOST_MAX, &out->host, why) ||
        (at && !json_is_null(at) && !body_integer(&o, "remote_port", 1, UINT16_MAX, &port, why)))
        return false;
    if (ids && !json_is_null(ids) && !json_is_array(ids))
        return body_fail(&o, "remote_block_ids", why, "a list, or null");
    out->port = (uint16_t)port;
    out->ids = json_is_array(ids) ? ids : NULL;
    return true;
}
