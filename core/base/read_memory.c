/* read_memory.c: a buffer read as one stream or several of equal length, each asked for ahead of its use or not. */
#include "base/read_memory.h"

#include "base/clones.h"

enum { LINE = 64, STREAMS = 4, UNROLLED = 4 };
_Static_assert(READ_UNIT == LINE * STREAMS * UNROLLED, "streams of whole rounds");

typedef uint64_t line_vector __attribute__((vector_size(LINE), may_alias));

/* streams, ahead (bytes; 0: not at all): constants, so that the loops over them are gone. A prefetch past the end is
 * only a hint. */
static inline __attribute__((always_inline)) uint64_t read_streams(const line_vector *p, uint64_t bytes,
                                                                   const uint32_t streams, const uint32_t ahead)
{
    const uint64_t lines = bytes / streams / LINE;
    line_vector seen[STREAMS] = { { 0 } };
    for (uint64_t i = 0; i < lines; i += UNROLLED) {
        for (uint32_t u = 0; u < UNROLLED; u++) {
            for (uint32_t s = 0; s < streams; s++) {
                const line_vector *line = p + s * lines + i + u;
                if (ahead) __builtin_prefetch((const char *)line + ahead);
                seen[(u * streams + s) % STREAMS] ^= *line;
            }
        }
    }
    uint64_t all = 0;
    seen[0] ^= seen[1] ^ seen[2] ^ seen[3];
    for (int i = 0; i < LINE / 8; i++) all ^= seen[0][i];
    return all;
}

/* CLONES: a line is one load where the processor can. */
#define WAY(streams, ahead)                                                               \
    CLONES static uint64_t read_##streams##_##ahead(const line_vector *p, uint64_t bytes) \
    {                                                                                     \
        return read_streams(p, bytes, streams, ahead);                                    \
    }
WAY(1, 0)
WAY(1, 4096)
WAY(1, 8192)
WAY(2, 0)
WAY(2, 4096)
WAY(4, 0)
WAY(4, 4096)

uint64_t read_memory(uint32_t way, const void *p, uint64_t bytes)
{
    static uint64_t (*const ways[READ_WAYS])(const line_vector *, uint64_t) = { read_1_0,   read_1_4096, read_1_8192,
                                                                                read_2_0,   read_2_4096, read_4_0,
                                                                                read_4_4096 };
    return ways[way](p, bytes);
}
