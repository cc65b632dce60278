/* errors.c: inputs that a plugin refuses: with a text, within the caller's buffer, with a status that means something,
 * and with nothing left behind. An architecture's input is metadata: whatever its table of keys lets pass. */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/internal.h"
#include "plugin/format.h"

/* DRAWS: metadata of random values; FILL: of a buffer that nobody has written to yet. */
enum { DRAWS = 128, FILL = 0xee };

/* ---- every input, one after another -------------------------------------------------------------------- */

/* Metadata number i of those that every check below tries: all plain, each key in each way, then random ones. false:
 * there are no more. */
static bool metadata_of(struct check *c, uint32_t i, struct check_metadata *m)
{
    const struct wk_host *host = plugin_host(c->entry.plugin);
    const uint32_t n = c->arch->n_keys, ways = METADATA_LARGEST + 1;
    bool made;
    if (i < ways)
        made = metadata_make(m, c->arch, host, UINT32_MAX, (enum metadata_way)i, 0, 0);
    else if (i < ways + n * ways)
        made = metadata_make(m, c->arch, host, (i - ways) / ways, (enum metadata_way)((i - ways) % ways), 0, 0);
    else if (i < ways + n * ways + DRAWS)
        made = metadata_make(m, c->arch, host, UINT32_MAX, METADATA_RANDOM, i, 0);
    else
        return false;
    if (!made) check_leave(c);
    return true;
}

/* open() alone; what it takes is closed. */
static void run_metadata(struct check *c)
{
    struct check_metadata m;
    if (!check_start(c, NULL)) return;
    uint32_t taken = 0, n = 0;
    for (; metadata_of(c, n, &m); n++) {
        char text[256] = "";
        taken += metadata_open(&m, NULL, true, &(struct wk_err){ text, sizeof text }) == WK_OK;
    }
    check_note(c, "%u metadata within the ranges of its table: %u taken, %u refused", n, taken, n - taken);
}

static void run_record(struct check *c)
{
    struct check_metadata m;
    char text[256] = "";
    if (!check_start(c, NULL)) return;
    for (uint32_t i = 0; metadata_of(c, i, &m); i++) {
        struct check_recorder *r = recorder_make(c, 0);
        if (!r) check_leave(c);
        (void)metadata_open(&m, r, false, &(struct wk_err){ text, sizeof text });
        recorder_free(r);
    }
}

/* ---- texts --------------------------------------------------------------------------------------------- */

/* An input that may be refused, with this buffer; *what: a text for people. */
typedef wk_status (*refused_fn)(struct check *c, uint32_t i, const struct wk_err *err, const char **what);
enum { NO_MORE = INT32_MIN }; /* a status that no input has */

static wk_status refuse_metadata(struct check *c, uint32_t i, const struct wk_err *err, const char **what)
{
    static char kept[sizeof((struct check_metadata *)0)->text];
    struct check_metadata m;
    if (!metadata_of(c, i, &m)) return NO_MORE;
    (void)snprintf(kept, sizeof kept, "%s", m.text);
    *what = kept;
    return metadata_open(&m, NULL, true, err);
}

/* Rows that no format can store: one value is not finite. */
static wk_status refuse_values(struct check *c, uint32_t i, const struct wk_err *err, const char **what)
{
    static const struct {
        float value;
        const char *what;
    } values[] = { { NAN, "quantize() of a NaN" },
                   { INFINITY, "quantize() of infinity" },
                   { -INFINITY, "quantize() of -infinity" } };
    enum { VALUES = sizeof values / sizeof values[0] };
    if (i >= c->quant->n_types * VALUES) return NO_MORE;
    const struct wk_type_cpu *t = c->quant->types[i / VALUES];
    const uint32_t k = 2 * t->block;
    float *x = guarded(sizeof *x * k, 64, 0);
    void *blocks = guarded(2 * (size_t)t->block_bytes, 1, 0);
    if (!x || !blocks) check_leave(c);
    for (uint32_t j = 0; j < k; j++) x[j] = 1.0f;
    x[k - 1] = values[i % VALUES].value;
    *what = values[i % VALUES].what;
    struct plugin_call call;
    PLUGIN_CALL(&call, t->quantize, "quantize");
    const wk_status status = format_quantize(t, blocks, x, k, err);
    plugin_call_end(&call);
    guarded_free(x);
    guarded_free(blocks);
    return status;
}

static refused_fn refuser(const struct check *c) { return c->arch ? refuse_metadata : refuse_values; }

static void run_text(struct check *c)
{
    if (!check_start(c, NULL)) return;
    const char *what = "";
    for (uint32_t i = 0;; i++) {
        char text[256] = "";
        const wk_status status = refuser(c)(c, i, &(struct wk_err){ text, sizeof text }, &what);
        if (status == NO_MORE) break;
        if (status == WK_OK || text[0]) continue;
        check_fail(c,
                   "%s: refused with status %d and no text; expected what was expected, what was found and what to "
                   "do: return wk_fail(err, ...)",
                   what, status);
        break;
    }
}

static void run_status(struct check *c)
{
    if (!check_start(c, NULL)) return;
    const char *what = "";
    for (uint32_t i = 0;; i++) {
        char text[256];
        const wk_status status = refuser(c)(c, i, &(struct wk_err){ text, sizeof text }, &what);
        if (status == NO_MORE) break;
        if (status >= WK_OK && status <= WK_CANCELLED) continue;
        check_fail(c, "%s: status %d, which is none of WK_OK to WK_CANCELLED", what, status);
        break;
    }
}

/* Buffers of every awkward size; a byte behind one is a crash. */
static void run_buffer(struct check *c)
{
    static const uint64_t sizes[] = { 1, 16, 256 };
    if (!check_start(c, NULL)) return;
    const char *what = "";
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (uint32_t i = 0;; i++) {
            char *text = guarded(sizes[s], 1, FILL);
            if (!text) check_leave(c);
            const wk_status status = refuser(c)(c, i, &(struct wk_err){ text, sizes[s] }, &what);
            const bool ended = memchr(text, '\0', sizes[s]) != NULL;
            const bool touched = (unsigned char)text[0] != FILL;
            guarded_free(text);
            if (status == NO_MORE) break;
            if (ended || !touched) continue; /* no text at all is another rule's */
            check_fail(c,
                       "%s: the text in a buffer of %llu bytes has no end; write with wk_fail, or with snprintf and "
                       "the buffer's own size",
                       what, (unsigned long long)sizes[s]);
            return;
        }
    }
    for (uint32_t i = 0; refuser(c)(c, i, i % 2 ? NULL : &(struct wk_err){ NULL, 0 }, &what) != NO_MORE; i++) {}
}

/* ---- what is left behind ------------------------------------------------------------------------------- */

static size_t bytes_in_use(void)
{
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* All inputs once, so that what is made once is made; then again. */
static void run_leak(struct check *c)
{
    if (!check_start(c, NULL)) return;
    const char *what = "";
    size_t used[3];
    for (int pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0; refuser(c)(c, i, NULL, &what) != NO_MORE; i++) {}
        used[pass] = bytes_in_use();
    }
    if (used[2] == 0)
        check_skip(c, "this build's allocator does not tell how much is in use");
    else if (used[2] > used[1] && used[1] > used[0])
        check_fail(c,
                   "%zu bytes more are in use after each round of opening and closing; free what open() allocates on "
                   "every way out of it, and the rest in close()",
                   used[2] - used[1]);
}

static void run_finite(struct check *c)
{
    if (!check_start(c, NULL)) return;
    const char *what = "";
    for (uint32_t i = 0;; i++) {
        const wk_status status = refuse_values(c, i, NULL, &what);
        if (status == NO_MORE) break;
        if (status == WK_OK)
            check_fail(c, "type %s: %s is taken; expected WK_INVALID with the index of the value",
                       c->quant->types[i / 3]->name, what);
    }
}

static const struct check_def checks[] = {
    { "errors.metadata",
      "open takes or refuses whatever lies within the ranges of its keys, with any shapes of tensors: it does not "
      "crash.",
      CHECK_OF_ARCH, false, NULL, run_metadata },
    { "errors.finite", "quantize refuses values that are not finite.", CHECK_OF_QUANT, false, NULL, run_finite },
    { "errors.text", "What is refused is refused with a text.", CHECK_OF_PLUGIN, false, NULL, run_text },
    { "errors.status", "A status is one of those of worker/abi.h.", CHECK_OF_PLUGIN, false, NULL, run_status },
    { "errors.buffer",
      "A text ends within the caller's buffer, however small, and nothing is written behind it; without a buffer there "
      "is none.",
      CHECK_OF_PLUGIN, false, NULL, run_buffer },
    { "errors.leak", "What open allocates is freed, by itself where it refuses and by close.", CHECK_OF_ARCH, false,
      NULL, run_leak },
    { "errors.record", "record ends by a count, whatever open has taken.", CHECK_OF_ARCH, false, NULL, run_record },
};
CHECK_LIST(checks_errors, CHECK_ERRORS, checks);
