/* type_names.c: the names of tensor types, as the format's own library spells them, and their blocks. */
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>

#include "gguf/gguf.h"

const char *gguf_ggml_name(uint32_t ggml_type)
{
    static const char *const names[] = {
        [0] = "f32",         [1] = "f16",         [2] = "q4_0",   [3] = "q4_1",    [6] = "q5_0",
        [7] = "q5_1",        [8] = "q8_0",        [9] = "q8_1",   [10] = "q2_K",   [11] = "q3_K",
        [12] = "q4_K",       [13] = "q5_K",       [14] = "q6_K",  [15] = "q8_K",   [16] = "iq2_xxs",
        [17] = "iq2_xs",     [18] = "iq3_xxs",    [19] = "iq1_s", [20] = "iq4_nl", [21] = "iq3_s",
        [22] = "iq2_s",      [23] = "iq4_xs",     [24] = "i8",    [25] = "i16",    [26] = "i32",
        [27] = "i64",        [28] = "f64",        [29] = "iq1_m", [30] = "bf16",   [31] = "q4_0_4_4",
        [32] = "q4_0_4_8",   [33] = "q4_0_8_8",   [4] = "q4_2",   [5] = "q4_3",    [36] = "iq4_nl_4_4",
        [37] = "iq4_nl_4_8", [38] = "iq4_nl_8_8", [34] = "tq1_0", [35] = "tq2_0",  [39] = "mxfp4",
        [40] = "nvfp4",      [41] = "q1_0",       [42] = "q2_0",
    };
    return ggml_type < sizeof names / sizeof *names ? names[ggml_type] : NULL;
}

bool gguf_ggml_block(uint32_t ggml_type, uint32_t *block, uint32_t *block_bytes)
{
    static const uint16_t blocks[][2] = {
        [0] = { 1, 4 },      [1] = { 1, 2 },      [2] = { 32, 18 },    [3] = { 32, 20 },    [6] = { 32, 22 },
        [7] = { 32, 24 },    [8] = { 32, 34 },    [9] = { 32, 36 },    [10] = { 256, 84 },  [11] = { 256, 110 },
        [12] = { 256, 144 }, [13] = { 256, 176 }, [14] = { 256, 210 }, [15] = { 256, 292 }, [16] = { 256, 66 },
        [17] = { 256, 74 },  [18] = { 256, 98 },  [19] = { 256, 50 },  [20] = { 32, 18 },   [21] = { 256, 110 },
        [22] = { 256, 82 },  [23] = { 256, 136 }, [24] = { 1, 1 },     [25] = { 1, 2 },     [26] = { 1, 4 },
        [27] = { 1, 8 },     [28] = { 1, 8 },     [29] = { 256, 56 },  [30] = { 1, 2 },     [34] = { 256, 54 },
        [35] = { 256, 66 },  [39] = { 32, 17 },   [40] = { 64, 36 },   [41] = { 128, 18 },  [42] = { 64, 18 },
        [4] = { 16, 10 },    [5] = { 16, 12 },    [31] = { 32, 18 },   [32] = { 32, 18 },   [33] = { 32, 18 },
        [36] = { 32, 18 },   [37] = { 32, 18 },   [38] = { 32, 18 }, /* withdrawn */
    };
    if (ggml_type >= sizeof blocks / sizeof *blocks || !blocks[ggml_type][0]) return false;
    *block = blocks[ggml_type][0];
    *block_bytes = blocks[ggml_type][1];
    return true;
}

const char *gguf_tensor_type_text(uint32_t ggml_type, char out[GGUF_TYPE_TEXT])
{
    const char *name = gguf_ggml_name(ggml_type);
    if (name)
        (void)snprintf(out, GGUF_TYPE_TEXT, "%s", name);
    else
        (void)snprintf(out, GGUF_TYPE_TEXT, "ggml type %u", (unsigned)ggml_type);
    for (char *c = out; name && *c; c++) *c = (char)tolower((unsigned char)*c);
    return out;
}
