/* messages.c: what is wrong with a model, collected so that one attempt tells as much as it can. */
#include <stdarg.h>
#include <string.h>

#include "tape/internal.h"

static int gravity(wk_status status)
{
    switch (status) {
    case WK_OK: return 0;
    case WK_UNSUPPORTED: return 1;
    case WK_NO_MEMORY: return 3;
    default: return 2;
    }
}

void messages_say(struct messages *m, wk_status status, const char *format, ...)
{
    if (gravity(status) > gravity(m->status)) m->status = status;
    if (m->n == TAPE_MAX_MESSAGES) {
        m->lost++;
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(m->text[m->n++], MESSAGE_BYTES, format, args);
    va_end(args);
}

void messages_no_memory(struct messages *m)
{
    if (m->status != WK_NO_MEMORY) messages_say(m, WK_NO_MEMORY, "out of memory while the tape was recorded");
}

wk_status messages_report(const struct messages *m, const struct wk_err *err)
{
    if (m->status == WK_OK || !err || !err->text || !err->cap) return m->status;
    size_t used = 0;
    err->text[0] = '\0';
    for (uint32_t i = 0; i < m->n && used + 1 < err->cap; i++) {
        int n = snprintf(err->text + used, err->cap - used, "%s%s", i ? "\n" : "", m->text[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (m->lost && used + 1 < err->cap)
        (void)snprintf(err->text + used, err->cap - used, "\n... and %u more", (unsigned)m->lost);
    return m->status;
}
