/* fuzz_harmony.c: libFuzzer target. The first byte chooses: an output of a model (a byte a token, 0..6 control tokens)
 * or a JSON Schema. Build with -DWORKER_FUZZ=ON and clang. */
#include "harmony/harmony.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct harmony_parser *p, const struct harmony_event *events, size_t n, bool *open)
{
    if (n > HARMONY_EVENTS) abort();
    for (size_t i = 0; i < n; i++) {
        if (*open != (events[i].kind != HARMONY_BEGIN)) abort();
        *open = events[i].kind != HARMONY_END;
        if (strlen(p->header.recipient) >= HARMONY_NAME || (harmony_visible(&p->header) && harmony_calls(&p->header)))
            abort();
    }
}

static void parse(const uint8_t *data, size_t size)
{
    static const struct harmony_ids ids = { 0, 1, 2, 3, 4, 5, 6 };
    struct harmony_parser p;
    struct harmony_event events[HARMONY_EVENTS];
    bool open = false;
    harmony_begin(&p, &ids, size & 1);
    for (size_t i = 0; i < size; i++) {
        const struct token_bytes piece = { (const char *)data + i, data[i] > 6 };
        check(&p, events, harmony_push(&p, data[i], piece, events), &open);
    }
    check(&p, events, harmony_finish(&p, events), &open);
    if (open) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct byte_buffer out = { 0 };
    if (!size) return 0;
    if (data[0] & 1)
        parse(data + 1, size - 1);
    else
        (void)harmony_schema((struct token_bytes){ (const char *)data + 1, size - 1 }, "schema", &out, NULL);
    free(out.data);
    return 0;
}
