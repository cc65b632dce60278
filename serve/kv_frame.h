/* kv_frame.h: what the worker and worker-events say to each other over their socket, in the machine's own byte order.
 * The helper first says a kv_hello; then a byte whenever somebody asks for batches that it no longer has. The worker
 * says kv_frames, each followed by its topic and payload.
 */
#ifndef SERVE_KV_FRAME_H
#define SERVE_KV_FRAME_H

#include <stdint.h>

enum {
    KV_TOPIC_MAX = 512,         /* bytes */
    KV_PAYLOAD_MAX = 256 << 10, /* bytes; a batch of KV_BATCH records has at most half of it */
    KV_BATCH = 256              /* records of a batch */
};

struct kv_hello {
    uint32_t failed; /* text says why, and the helper ends */
    char text[508];
};

struct kv_frame {
    uint64_t sequence;
    uint32_t topic, payload; /* bytes */
};

#endif
