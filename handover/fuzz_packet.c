/* fuzz_packet.c: libFuzzer target. Bytes as they are, and the same with a check sum that is right, are read as a
 * packet; what is one must be written as the same bytes, and can be used by itself. Build with -DWORKER_FUZZ=ON and
 * clang. */
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "packet.h"

static void check(const uint8_t *in, size_t n)
{
    struct packet p;
    if (packet_read(in, n, &p, NULL)) return;
    if (packet_bytes(&p) != n || packet_check(&p, &p, NULL)) abort();
    uint8_t *again = malloc(n);
    if (!again) return;
    packet_write(&p, again);
    if (memcmp(in, again, n)) abort();
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { BYTES_AT = 8 };
    check(data, size);
    if (size < BYTES_AT + 8) return 0;
    uint8_t *copy = malloc(size);
    if (!copy) return 0;
    memcpy(copy, data, size);
    for (uint32_t i = 0; i < 4; i++) copy[BYTES_AT + i] = (uint8_t)(size >> 8 * i);
    const uint32_t sum = crc32c(0, copy, size - 4);
    for (uint32_t i = 0; i < 4; i++) copy[size - 4 + i] = (uint8_t)(sum >> 8 * i);
    check(copy, size);
    free(copy);
    return 0;
}
