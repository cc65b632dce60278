/* chunks.h: chunked bodies, decoded as RFC 9112 writes them and no other way. A pure function over bytes, in pieces of
 * any length.
 *
 * Stricter than the RFC wherever leniency has let two parsers see two different bodies: every line ends in CR LF, a
 * size is hexadecimal digits with nothing before or behind them, extensions are printable, short and few, and there are
 * no trailers. */
#ifndef HTTP_CHUNKS_H
#define HTTP_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

enum {
    CHUNKS_DIGITS_MAX = 8,       /* of a size */
    CHUNKS_EXTENSION_MAX = 256,  /* bytes of extensions in one line */
    CHUNKS_EXTENSIONS_MAX = 4096 /* and in all of a body */
};

enum chunks_verdict {
    CHUNKS_MORE = 0, /* all of `in` is used */
    CHUNKS_FULL,     /* no room is left in `out`, and more of the body is to come: call again with room */
    CHUNKS_DONE,     /* the body is over; what follows `used` is not of it */
    CHUNKS_BAD
};

/* Zeroed: before the first byte. */
struct chunks {
    uint8_t state;
    uint32_t digits, extension, extensions; /* digits and bytes so far: of this line; of all lines */
    uint64_t left;                          /* of the size that is read, of the chunk's data */
    const char *reason;                     /* CHUNKS_BAD: a static text */
};

/* Decodes from in [n] into out [room]: *used and *made say how much of either. Data are never larger than what they
 * were decoded from: out may be `in` itself. [any thread] */
enum chunks_verdict chunks_decode(struct chunks *c, const char *in, size_t n, size_t *used, char *out, size_t room,
                                  size_t *made);

#endif
