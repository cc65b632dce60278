/* fetch_frame.h: what the worker and worker-fetch say to each other over their socket: frames of one request or one
 * answer each, in the machine's own byte order. Both are of one build; each still checks every length it reads. */
#ifndef GATE_FETCH_FRAME_H
#define GATE_FETCH_FRAME_H

#include <stdint.h>

enum frame_text {
    FRAME_METHOD,
    FRAME_URL,
    FRAME_TYPE,    /* "": none, as of those below */
    FRAME_HEADERS, /* lines with '\n' between them */
    FRAME_CA,
    FRAME_SOCKET,
    FRAME_CERT,
    FRAME_KEY,
    FRAME_BODY,
    FRAME_TEXTS
};

enum {
    FRAME_HTTPS_ONLY = 1,        /* of flags */
    FRAME_STREAM = 2,            /* of flags: the body is answered in parts, as it comes */
    FRAME_DOWNLOAD = 4,          /* of flags, with FRAME_STREAM: the first part is the answer's header, as it came; the
                                  * body may be of any length, whatever most_bytes says */
    FRAME_HELLO = 0x77660002,    /* status of the first answer, whose id is 0: worker-fetch is ready; its version */
    FRAME_MOST_TEXTS = 64 << 10, /* all but the body */
    FRAME_MOST_FAILURE = 400
};

/* Followed by the texts, a zero behind each. */
struct frame_request {
    uint32_t bytes; /* of the whole frame */
    uint32_t flags;
    uint64_t id;
    uint32_t timeout_ms, most_bytes;
    uint32_t len[FRAME_TEXTS]; /* without the zeros */
    uint32_t reserved;         /* 0 */
};
_Static_assert(sizeof(struct frame_request) == 64, "no padding");

/* Followed by the failure, or by the body; no zeros. Of a stream: parts of the body, then an end without any. */
struct frame_answer {
    uint32_t bytes;
    uint32_t status; /* of HTTP; 0: it failed */
    uint64_t id;
    uint32_t failure_len, body_len;
    uint32_t more;     /* 1: a part of a stream; the answer goes on */
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct frame_answer) == 32, "no padding");

#endif
