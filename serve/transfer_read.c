/* transfer_read.c: the members of kv_transfer_params. */
#include "body.h"
#include "handover/peers.h"
#include "transfer.h"

enum { ENGINE_MAX = 255 /* bytes of remote_engine_id */ };

static const char member[] = "kv_transfer_params";

bool transfer_read(json_t *params, struct transfer *out, struct refusal *why)
{
    const struct body_object o = { params, "kv_transfer_params." };
    int64_t port = 0;
    *out = (struct transfer){ 0 };
    if (!params || json_is_null(params)) return true;
    if (!json_is_object(params))
        return refuse(why, SERVE_INVALID_REQUEST, member, "%s: expected an object, or null", member);
    body_drop_nulls(params);
    if (!body_flag(&o, "do_remote_decode", &out->keep, why) || !body_flag(&o, "do_remote_prefill", &out->pull, why) ||
        !body_name(&o, "remote_engine_id", ENGINE_MAX, &out->engine, why) ||
        !body_name(&o, "remote_host", HANDOVER_HOST_MAX, &out->host, why) ||
        !body_integer(&o, "remote_port", 1, UINT16_MAX, &port, why))
        return false;
    const json_t *ids = json_object_get(params, "remote_block_ids");
    if (ids && !json_is_array(ids)) return body_fail(&o, "remote_block_ids", why, "a list, or null");
    out->port = (uint16_t)port;
    out->ids = ids;
    return true;
}
