/* json_out.c: JSON values from what a model's file holds. */
#include "json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "errors.h"

/* Jansson escapes what is below a space alone. DEL and U+0080 to U+009F, which terminals obey as well, stand in strings
 * and nowhere else. */
static bool write_escaped(const char *text)
{
    const unsigned char *at = (const unsigned char *)text, *from = at;
    for (; *at; at++) {
        const bool c1 = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0;
        if (*at != 0x7f && !c1) continue;
        (void)fwrite(from, 1, (size_t)(at - from), stdout);
        at += c1;
        (void)printf("\\u%04x", *at);
        from = at + 1;
    }
    (void)fwrite(from, 1, (size_t)(at - from), stdout);
    return putchar('\n') != EOF && !ferror(stdout);
}

int json_print(json_t *document)
{
    char *text = document ? json_dumps(document, JSON_INDENT(2)) : NULL;
    json_decref(document);
    if (!text) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the JSON document");
    const bool failed = !write_escaped(text);
    free(text);
    return failed ? fail(CODE_OUTPUT_FAILED, "standard output cannot be written") : EXIT_DONE;
}

json_t *json_kv(const struct gguf *file, const struct gguf_kv *kv)
{
    struct gguf_str text;
    int64_t signed_value;
    uint64_t unsigned_value;
    double real;
    bool truth;
    if (kv->type == GGUF_ARRAY)
        return json_pack("{s:s, s:I}", "array", gguf_type_name(kv->element_type), "count", (json_int_t)kv->count);
    if (kv->type == GGUF_STRING) return gguf_str(file, kv, &text, NULL) ? NULL : json_bytes(text.data, text.len);
    if (kv->type == GGUF_BOOL) return gguf_bool_at(file, kv, 0, &truth, NULL) ? NULL : json_boolean(truth);
    if (kv->type == GGUF_F32 || kv->type == GGUF_F64) {
        if (gguf_f64_at(file, kv, 0, &real, NULL)) return NULL;
        return isfinite(real) ? json_real(real)
                              : json_string(isnan(real) ? "nan"
                                            : real < 0  ? "-inf"
                                                        : "inf"); /* JSON has no such numbers */
    }
    if (!gguf_i64_at(file, kv, 0, &signed_value, NULL)) return json_integer(signed_value);
    return gguf_u64_at(file, kv, 0, &unsigned_value, NULL) ? NULL : json_real((double)unsigned_value); /* above 2^63 */
}
