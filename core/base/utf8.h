/* utf8.h: well-formed UTF-8 (Unicode table 3-7), and text that arrives in pieces.
 *
 * Tokens may end in the middle of a character. utf8_stream holds such a beginning back, so that everything it gives out
 * is valid UTF-8 at every moment; what can never become a character is replaced by U+FFFD, one for each maximal subpart
 * (Unicode 3.9, D93b). However the same bytes are cut into pieces, the concatenated output is the same. */
#ifndef CORE_BASE_UTF8_H
#define CORE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length (1..4) of a character whose first byte this is; 0: none begins so. */
size_t utf8_length(unsigned char first);
/* May b stand at index i (1..3) of the character that `first` begins? */
bool utf8_continues(unsigned char first, size_t i, unsigned char b);
/* Length (1..4) of the character that begins at bytes[0]; 0: bytes[0..n) does not begin with a whole character. */
size_t utf8_sequence(const unsigned char *bytes, size_t n);
/* Is all of the text whole characters? */
bool utf8_is_valid(const char *text, size_t n);
/* Decodes a sequence whose length utf8_sequence gave. */
uint32_t utf8_decode(const unsigned char *bytes, size_t len);
/* Writes the character c (no surrogate, at most U+10FFFF) to out; returns its length. */
size_t utf8_encode(uint32_t c, char out[4]);

/* Characters of a text that is valid. */
size_t utf8_count(const char *text, size_t n);

struct utf8_stream {
    unsigned char held[4];
    uint8_t n;    /* bytes held */
    uint8_t want; /* length of the character that they begin */
};

/* Room that utf8_stream_push needs for n bytes. */
#define UTF8_STREAM_ROOM(n) (3 * (size_t)(n) + 4)

/* A zeroed struct is an empty stream. Writes at most UTF8_STREAM_ROOM(n) bytes to out; returns how many. */
size_t utf8_stream_push(struct utf8_stream *s, const void *bytes, size_t n, char *out);
/* End of the text: a held beginning becomes U+FFFD. Writes 0 or 3 bytes. */
size_t utf8_stream_flush(struct utf8_stream *s, char *out);
/* End by the length limit: a held beginning is the limit's doing, not the model's, and vanishes. */
void utf8_stream_drop(struct utf8_stream *s);

#endif
