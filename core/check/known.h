/* known.h: what the blocks of ggml's types mean, in the plainest words, for comparison with a plugin's dequantize. */
#ifndef CORE_CHECK_KNOWN_H
#define CORE_CHECK_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

/* The values of one block of the type, as many as the type has (gguf_ggml_block). false: the host has no reference of
 * it. A NaN is any NaN. [any thread] */
bool known_values(uint32_t ggml_type, const uint8_t *block, float *y);

#endif
