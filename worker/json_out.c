/* json_out.c: JSON values from what a model's file holds. */
#include "json_out.h"

#include <math.h>
#include <stdio.h>

#include "errors.h"

int json_print(json_t *document)
{
    if (!document) return fail(CODE_INSUFFICIENT_MEMORY, "no memory for the JSON document");
    int failed = json_dumpf(document, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
    json_decref(document);
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
