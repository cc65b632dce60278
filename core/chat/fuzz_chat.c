/* fuzz_chat.c: templates by strangers with conversations by strangers: opened, tried out, shaped, rendered. Input: a
 * template, a zero byte, messages as JSON. */
#include <stdlib.h>
#include <string.h>

#include "chat/chat.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void require(bool what)
{
    if (!what) abort();
}

static void check(const struct chat_prompt *p, bool made, const struct chat_problem *why)
{
    require(made || (why->status && why->text[0] && memchr(why->text, 0, sizeof why->text) &&
                     memchr(why->field, 0, sizeof why->field)));
    for (size_t i = 0; made && i < p->n; i++) require(p->part[i].len > 0);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const unsigned char *end = size ? memchr(data, 0, size) : NULL;
    if (!end) return 0;
    const size_t n = (size_t)(end - data);
    const char *json = (const char *)end + 1;
    struct conversation said;
    struct chat_problem why;
    struct chat *c;
    if (!conversation_read(json, size - n - 1, &said, &why)) {
        require(why.status && why.text[0]);
        return 0;
    }
    if (!chat_open_text((const char *)data, n, NULL, NULL, &c, NULL)) {
        struct chat_request q = CHAT_REQUEST_OF(&said);
        for (int k = 0; k < 3; k++) {
            struct chat_prompt p;
            q.continue_final = k == 1;
            q.no_generation = k == 2;
            const bool made = chat_render(c, &q, &p, &why);
            check(&p, made, &why);
            chat_prompt_free(&p);
        }
        chat_close(c);
    }
    conversation_free(&said);
    return 0;
}
