/* chunks.c: a state machine over the bytes of a chunked body. See chunks.h. */
#include "chunks.h"

#include <stdbool.h>
#include <string.h>

enum state {
    AT_SIZE = 0,  /* digits of a size */
    AT_EXTENSION, /* behind ';' */
    AT_SIZE_END,  /* LF of a size's line */
    AT_DATA,
    AT_DATA_CR,
    AT_DATA_LF,
    AT_LAST_CR, /* of the empty line behind the last chunk */
    AT_LAST_LF,
    AT_END,
    AT_FAULT
};

static bool fault(struct chunks *c, const char *reason)
{
    c->state = AT_FAULT;
    c->reason = reason;
    return false;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool take_size(struct chunks *c, char byte)
{
    const int value = hex_value(byte);
    if (value >= 0) {
        if (c->digits == CHUNKS_DIGITS_MAX) return fault(c, "the size of a chunk has more than 8 digits");
        c->digits++;
        c->left = c->left * 16 + (uint64_t)value;
        return true;
    }
    if (!c->digits || (byte != '\r' && byte != ';'))
        return fault(c, "the size of a chunk is not hexadecimal digits alone");
    c->state = byte == '\r' ? AT_SIZE_END : AT_EXTENSION;
    return true;
}

static bool take_extension(struct chunks *c, char byte)
{
    if (byte == '\r') {
        c->state = AT_SIZE_END;
        return true;
    }
    if (byte < 0x20 || byte > 0x7e) return fault(c, "a chunk's extension has a character that is not printable");
    if (++c->extension > CHUNKS_EXTENSION_MAX || ++c->extensions > CHUNKS_EXTENSIONS_MAX)
        return fault(c, "the chunks' extensions are longer than 256 bytes a chunk, or 4096 in all");
    return true;
}

static bool expect(struct chunks *c, char byte, char wanted, enum state next, const char *reason)
{
    if (byte != wanted) return fault(c, reason);
    c->state = (uint8_t)next;
    return true;
}

/* One byte that is not data. */
static bool take(struct chunks *c, char byte)
{
    static const char no_end[] = "a chunk's data do not end where its size says, in CR LF";
    switch ((enum state)c->state) {
    case AT_SIZE: return take_size(c, byte);
    case AT_EXTENSION: return take_extension(c, byte);
    case AT_SIZE_END:
        c->digits = c->extension = 0;
        return expect(c, byte, '\n', c->left ? AT_DATA : AT_LAST_CR, "a chunk's size is not followed by CR LF");
    case AT_DATA_CR: return expect(c, byte, '\r', AT_DATA_LF, no_end);
    case AT_DATA_LF: return expect(c, byte, '\n', AT_SIZE, no_end);
    case AT_LAST_CR: return expect(c, byte, '\r', AT_LAST_LF, "the body has trailers, which are not taken");
    case AT_LAST_LF: return expect(c, byte, '\n', AT_END, "the last chunk is not followed by CR LF");
    default: return false;
    }
}

enum chunks_verdict chunks_decode(struct chunks *c, const char *in, size_t n, size_t *used, char *out, size_t room,
                                  size_t *made)
{
    *used = *made = 0;
    while (c->state != AT_END && c->state != AT_FAULT && *used < n) {
        if (c->state != AT_DATA) {
            if (take(c, in[*used])) ++*used;
            continue;
        }
        size_t piece = n - *used;
        if (piece > c->left) piece = (size_t)c->left;
        if (piece > room - *made) piece = room - *made;
        if (!piece) return CHUNKS_FULL;
        memmove(out + *made, in + *used, piece);
        *used += piece;
        *made += piece;
        c->left -= piece;
        if (!c->left) c->state = AT_DATA_CR;
    }
    return c->state == AT_END ? CHUNKS_DONE : c->state == AT_FAULT ? CHUNKS_BAD : CHUNKS_MORE;
}
