/* unicode.h: what tokenizers want to know of Unicode beyond well-formed UTF-8. Private to core/tokenizer. */
#ifndef CORE_TOKENIZER_UNICODE_H
#define CORE_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool unicode_is_space(uint32_t c); /* White_Space */
bool unicode_is_word(uint32_t c);  /* what \w means in Unicode (UTS 18) */
enum unicode_kind { UNICODE_PLAIN, UNICODE_CONTROL, UNICODE_PUNCTUATION, UNICODE_MARK };
/* By general category: Cc, Cf or Co; P*; Mn; any other. */
enum unicode_kind unicode_kind_of(uint32_t c);
/* The lower case of c, without regard to what stands around it, into out [2]; returns how many characters, 1 or 2. */
size_t unicode_lower(uint32_t c, uint32_t out[2]);

/* A text that grows; zeroed: empty. */
struct byte_buffer {
    char *data;
    size_t n, cap;
};

/* Normalization form C (Unicode 3.11) of text[0..n), bytes that are no UTF-8 left as they are, appended to out. False:
 * no memory. Time O(n), also for a text of combining marks alone. */
bool unicode_nfc(const char *text, size_t n, struct byte_buffer *out);
/* The same in form D, without marks (UNICODE_MARK). */
bool unicode_strip_marks(const char *text, size_t n, struct byte_buffer *out);
/* True: the text is in form C for certain (it has no character that composition or ordering could touch). */
bool unicode_plain(const char *text, size_t n);

#endif
