/* crc32c.h: the check sum CRC-32C (Castagnoli) of bytes; by the processor's instruction where it has one. Pure.
 * [any thread] */
#ifndef HANDOVER_CRC32C_H
#define HANDOVER_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of `before`, the sum of what came before (0: nothing), and n bytes behind it. */
uint32_t crc32c(uint32_t before, const void *bytes, size_t n);

#endif
