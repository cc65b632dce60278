/* bad_bodies.h: bodies of POST /execute that have to be refused with 400, and the field that the refusal names. For the parser's test and for the one that sends them. */
#ifndef SERVE_BAD_BODIES_H
#define SERVE_BAD_BODIES_H

#include <stddef.h>

#define WITH(members) "{\"job_id\":\"b\",\"prompt\":\"Hi\"," members "}"

struct bad_body { const char *body, *field; size_t n; /* bytes, if it holds NUL; else 0 */ };
static const struct bad_body bad_bodies[] = {
    /* not JSON, or not an object */
    { "", "job_id", 0 }, { " ", "", 0 }, { "{", "", 0 }, { "}", "", 0 }, { "[]", "", 0 }, { "null", "", 0 }, { "1", "", 0 }, { "\"text\"", "", 0 }, { "true", "", 0 }, { "{}{}", "", 0 },
    { "{\"job_id\":\"b\",\"prompt\":\"Hi\"} x", "", 0 }, { "{'job_id':'b'}", "", 0 }, { "{job_id:\"b\"}", "", 0 }, { "{\"job_id\" \"b\"}", "job_id", 0 }, { "{\"job_id\":\"b\",}", "", 0 },
    { "{\"job_id\":\"b\" \"prompt\":\"Hi\"}", "job_id", 0 }, { "// comment\n{\"job_id\":\"b\",\"prompt\":\"Hi\"}", "", 0 }, { "\xef\xbb\xbf{\"job_id\":\"b\",\"prompt\":\"Hi\"}", "", 0 },
    { "{\"job_id\":\"b\",\"prompt\":\"Hi\"}\0", "", 29 }, { "{\"job_id\":\"b\",\"prompt\":\"H\0i\"}", "prompt", 29 },
    { "[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]", "", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"Hi\",\"stop\":[[[[[[[[[[[[]]]]]]]]]]]]}", "stop", 0 },
    /* names */
    { WITH("\"unknown\":1"), "unknown", 0 }, { WITH("\"Temperature\":1"), "Temperature", 0 }, { WITH("\"stream\":true"), "stream", 0 }, { WITH("\"n_predict\":5"), "n_predict", 0 },
    { WITH("\"handle_id\":\"x\""), "handle_id", 0 }, { WITH("\"params\":{}"), "params", 0 }, { WITH("\"\":1"), "", 0 }, { WITH("\"prompt\":\"again\""), "prompt", 0 },
    { WITH("\"seed\":1,\"seed\":1"), "seed", 0 }, { WITH("\"job_id\":\"c\""), "job_id", 0 },
    /* job_id */
    { "{\"prompt\":\"Hi\"}", "job_id", 0 }, { "{\"job_id\":\"\",\"prompt\":\"Hi\"}", "job_id", 0 }, { "{\"job_id\":1,\"prompt\":\"Hi\"}", "job_id", 0 },
    { "{\"job_id\":null,\"prompt\":\"Hi\"}", "job_id", 0 }, { "{\"job_id\":[\"b\"],\"prompt\":\"Hi\"}", "job_id", 0 }, { "{\"job_id\":\"a\\u0000b\",\"prompt\":\"Hi\"}", "job_id", 0 },
    { "{\"job_id\":\"a\\nb\",\"prompt\":\"Hi\"}", "job_id", 0 }, { "{\"job_id\":\"a\\u007f\",\"prompt\":\"Hi\"}", "job_id", 0 },
    { "{\"job_id\":\"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\",\"prompt\":\"Hi\"}", "job_id", 0 },
    /* prompt */
    { "{\"job_id\":\"b\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":null}", "prompt", 0 },
    { "{\"job_id\":\"b\",\"prompt\":7}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":[\"Hi\"]}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":{\"text\":\"Hi\"}}", "prompt", 0 },
    { "{\"job_id\":\"b\",\"prompt\":\"\xff\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"\xc3\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"\xc0\xaf\"}", "prompt", 0 },
    { "{\"job_id\":\"b\",\"prompt\":\"\xed\xa0\x80\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"\xf4\x90\x80\x80\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"\\ud800\"}", "prompt", 0 },
    { "{\"job_id\":\"b\",\"prompt\":\"\\udc00\\ud800\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"\\x41\"}", "prompt", 0 }, { "{\"job_id\":\"b\",\"prompt\":\"a\nb\"}", "prompt", 0 },
    { "{\"job_id\":\"b\",\"prompt\":\"open}", "prompt", 0 },
    /* max_tokens */
    { WITH("\"max_tokens\":0"), "max_tokens", 0 }, { WITH("\"max_tokens\":-1"), "max_tokens", 0 }, { WITH("\"max_tokens\":2049"), "max_tokens", 0 }, { WITH("\"max_tokens\":1.5"), "max_tokens", 0 },
    { WITH("\"max_tokens\":1.0"), "max_tokens", 0 }, { WITH("\"max_tokens\":1e2"), "max_tokens", 0 }, { WITH("\"max_tokens\":\"5\""), "max_tokens", 0 }, { WITH("\"max_tokens\":null"), "max_tokens", 0 },
    { WITH("\"max_tokens\":true"), "max_tokens", 0 }, { WITH("\"max_tokens\":9223372036854775807"), "max_tokens", 0 }, { WITH("\"max_tokens\":9223372036854775808"), "max_tokens", 0 },
    { WITH("\"max_tokens\":99999999999999999999999"), "max_tokens", 0 }, { WITH("\"max_tokens\":4294967297"), "max_tokens", 0 }, { WITH("\"max_tokens\":01"), "max_tokens", 0 },
    { WITH("\"max_tokens\":+1"), "max_tokens", 0 }, { WITH("\"max_tokens\":0x10"), "max_tokens", 0 }, { WITH("\"max_tokens\":"), "max_tokens", 0 },
    /* temperature */
    { WITH("\"temperature\":-0.1"), "temperature", 0 }, { WITH("\"temperature\":2.01"), "temperature", 0 }, { WITH("\"temperature\":NaN"), "temperature", 0 }, { WITH("\"temperature\":nan"), "temperature", 0 },
    { WITH("\"temperature\":Infinity"), "temperature", 0 }, { WITH("\"temperature\":-Infinity"), "temperature", 0 }, { WITH("\"temperature\":1e400"), "temperature", 0 },
    { WITH("\"temperature\":\"0.7\""), "temperature", 0 }, { WITH("\"temperature\":null"), "temperature", 0 }, { WITH("\"temperature\":false"), "temperature", 0 }, { WITH("\"temperature\":[1]"), "temperature", 0 },
    { WITH("\"temperature\":.5"), "temperature", 0 }, { WITH("\"temperature\":1."), "temperature", 0 }, { WITH("\"temperature\":1e"), "temperature", 0 }, { WITH("\"temperature\":3"), "temperature", 0 },
    { WITH("\"temperature\":18446744073709551616"), "temperature", 0 },
    /* top_p, top_k, min_p */
    { WITH("\"top_p\":-0.01"), "top_p", 0 }, { WITH("\"top_p\":1.01"), "top_p", 0 }, { WITH("\"top_p\":\"1\""), "top_p", 0 }, { WITH("\"top_p\":null"), "top_p", 0 }, { WITH("\"top_p\":NaN"), "top_p", 0 },
    { WITH("\"top_p\":-1e-300"), "top_p", 0 }, { WITH("\"top_k\":-1"), "top_k", 0 }, { WITH("\"top_k\":0.5"), "top_k", 0 }, { WITH("\"top_k\":262145"), "top_k", 0 }, { WITH("\"top_k\":\"40\""), "top_k", 0 },
    { WITH("\"top_k\":null"), "top_k", 0 }, { WITH("\"top_k\":4294967296"), "top_k", 0 }, { WITH("\"min_p\":-0.5"), "min_p", 0 }, { WITH("\"min_p\":1.5"), "min_p", 0 }, { WITH("\"min_p\":{}"), "min_p", 0 },
    { WITH("\"min_p\":null"), "min_p", 0 },
    /* repetition_penalty */
    { WITH("\"repetition_penalty\":0"), "repetition_penalty", 0 }, { WITH("\"repetition_penalty\":-1"), "repetition_penalty", 0 }, { WITH("\"repetition_penalty\":2.5"), "repetition_penalty", 0 },
    { WITH("\"repetition_penalty\":1e-60"), "repetition_penalty", 0 }, { WITH("\"repetition_penalty\":\"1\""), "repetition_penalty", 0 }, { WITH("\"repetition_penalty\":null"), "repetition_penalty", 0 },
    /* seed */
    { WITH("\"seed\":-1"), "seed", 0 }, { WITH("\"seed\":1.5"), "seed", 0 }, { WITH("\"seed\":1.0"), "seed", 0 }, { WITH("\"seed\":18446744073709551616"), "seed", 0 },
    { WITH("\"seed\":\"18446744073709551616\""), "seed", 0 }, { WITH("\"seed\":\"\""), "seed", 0 }, { WITH("\"seed\":\"-1\""), "seed", 0 }, { WITH("\"seed\":\"1.0\""), "seed", 0 },
    { WITH("\"seed\":\" 1\""), "seed", 0 }, { WITH("\"seed\":\"0x10\""), "seed", 0 }, { WITH("\"seed\":\"1\\u0000\""), "seed", 0 }, { WITH("\"seed\":null"), "seed", 0 }, { WITH("\"seed\":true"), "seed", 0 },
    { WITH("\"seed\":[1]"), "seed", 0 }, { WITH("\"seed\":-9223372036854775809"), "seed", 0 }, { WITH("\"seed\":1e10"), "seed", 0 },
    { WITH("\"seed\":99999999999999999999999999999999999999999999999999999999999999999999999999"), "seed", 0 },
    /* stop */
    { WITH("\"stop\":\"x\""), "stop", 0 }, { WITH("\"stop\":null"), "stop", 0 }, { WITH("\"stop\":[\"\"]"), "stop", 0 }, { WITH("\"stop\":[1]"), "stop", 0 }, { WITH("\"stop\":[null]"), "stop", 0 },
    { WITH("\"stop\":[[\"a\"]]"), "stop", 0 }, { WITH("\"stop\":{\"a\":1}"), "stop", 0 }, { WITH("\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]"), "stop", 0 }, { WITH("\"stop\":[\"a\",\"\\ud800\"]"), "stop", 0 },
    /* priority, chat, metrics */
    { WITH("\"priority\":1.5"), "priority", 0 }, { WITH("\"priority\":1001"), "priority", 0 }, { WITH("\"priority\":-1001"), "priority", 0 }, { WITH("\"priority\":\"1\""), "priority", 0 },
    { WITH("\"priority\":9223372036854775808"), "priority", 0 }, { WITH("\"chat\":1"), "chat", 0 }, { WITH("\"chat\":\"true\""), "chat", 0 }, { WITH("\"chat\":null"), "chat", 0 },
    { WITH("\"metrics\":0"), "metrics", 0 }, { WITH("\"metrics\":\"yes\""), "metrics", 0 }, { WITH("\"metrics\":{}"), "metrics", 0 }, { WITH("\"metrics\":True"), "metrics", 0 },
};
enum { N_BAD_BODIES = sizeof bad_bodies / sizeof *bad_bodies };

#endif
