/* negotiation.c: hosts that are older and newer than the plugin, and ones that do not know what it asks for. An older
 * host's structs end where those of 1.0 end, and nothing behind them may be touched; a newer host's go on with bytes
 * that mean nothing yet. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "check/quant.h"
#include "plugin/no_host.h"

enum { EXTRA = 64, GARBAGE = 0xa5, FUTURE = 999 };

/* extra 0: a host of 1.0; else one that has grown by so many bytes. */
static const struct wk_host *make_host(uint32_t extra)
{
    struct wk_host *h = guarded(sizeof *h + extra, 8, GARBAGE);
    if (!h) return NULL;
    *h = plugin_no_host;
    h->struct_size = (uint32_t)sizeof *h + extra;
    h->abi_minor = extra ? FUTURE : 0;
    return h;
}

static void run_host(struct check *c, uint32_t extra)
{
    const struct wk_host *host = make_host(extra);
    if (host && check_start(c, host)) check_exercise(c);
}
static void run_old(struct check *c) { run_host(c, 0); }
static void run_new(struct check *c) { run_host(c, EXTRA); }

/* ---- recordings ---------------------------------------------------------------------------------------- */

/* The hash of a recording of plain metadata by a host that has grown by `extra` bytes; false: refused, with a text. */
static bool record_plain(struct check *c, uint32_t extra, bool supports, uint64_t *hash, char text[256])
{
    struct check_metadata m;
    const struct wk_host *host = extra ? make_host(extra) : plugin_host(c->entry.plugin);
    struct check_recorder *r = recorder_make(c, extra);
    if (!r || !host || !metadata_make(&m, c->arch, host, UINT32_MAX, METADATA_PLAIN, 0, extra)) {
        (void)snprintf(text, 256, "out of memory");
        return false;
    }
    r->supports = supports;
    text[0] = '\0';
    const bool done = metadata_open(&m, r, false, &(struct wk_err){ text, 256 }) == WK_OK;
    *hash = r->hash;
    recorder_free(r);
    return done;
}

static void run_recording(struct check *c)
{
    uint64_t plain = 0, again = 0, grown = 0;
    char text[256];
    if (!check_start(c, NULL)) return;
    if (!record_plain(c, 0, true, &plain, text) || !record_plain(c, 0, true, &again, text))
        check_skip(c, "the metadata of a small model are refused: %s", text);
    else if (plain != again)
        check_skip(c, "two recordings of the same are not the same, of which architecture.pure tells");
    else if (!record_plain(c, EXTRA, true, &grown, text))
        check_fail(c,
                   "open() refuses in a host whose structs are %d bytes longer what it takes from one of its own age: "
                   "%s; read by value_size (wk_meta_value), and nothing behind what you know",
                   EXTRA, text);
    else if (plain != grown)
        check_fail(c,
                   "record() records something else in a host whose structs are %d bytes longer; read by value_size "
                   "(wk_meta_value), and nothing behind what you know",
                   EXTRA);
}

/* A host that does not know an operation says so when it is asked; the plugin records another way, or refuses. */
static void run_unsupported(struct check *c)
{
    uint64_t hash;
    char text[256];
    if (!check_start(c, NULL)) return;
    if (!record_plain(c, 0, false, &hash, text)) check_skip(c, "the metadata of a small model are refused: %s", text);
}

/* Does open() take plain metadata of architecture `which` in which key `key` is a word that nobody knows? have: whether
 * the architecture has the key at all. */
static bool takes_word(struct check *c, uint32_t which, uint32_t key, bool *have)
{
    struct check_metadata m;
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    const struct wk_host *host = plugin_host(c->entry.plugin);
    if (!metadata_make(&m, c->arch, host, UINT32_MAX, METADATA_PLAIN, which, 0)) check_leave(c);
    *have = metadata_open(&m, NULL, false, &err) == WK_OK;
    if (!*have || !metadata_make(&m, c->arch, host, key, METADATA_STRANGE, which, 0)) return false;
    *have = wk_meta_has(m.meta, key);
    return metadata_open(&m, NULL, false, &err) == WK_OK;
}

/* A word that means nothing yet, where others mean something, must not be taken for one of them. */
static void run_words(struct check *c)
{
    uint32_t words = 0;
    if (!check_start(c, NULL)) return;
    for (uint32_t i = 0; i < c->arch->n_keys; i++)
        for (uint32_t which = 0; c->arch->keys[i].type == WK_KEY_TEXT && which < c->arch->n_names; which++) {
            bool have;
            const bool taken = takes_word(c, which, i, &have);
            words += have;
            if (taken && have)
                check_fail(
                    c,
                    "%s.%s: open() takes a word that means nothing (\"no-such-word\"); expected WK_UNSUPPORTED with "
                    "a text that names the word: a model that says something new is another model",
                    c->arch->names[which], c->arch->keys[i].name);
        }
    if (!words) check_skip(c, "no architecture that takes the metadata of a small model has a key that is a text");
}

/* ---- calls of a format --------------------------------------------------------------------------------- */

/* A copy of the struct as a host of another age gives it: at the very end of what may be read, or with more behind. */
static const void *as_of(struct check *c, const void *args, size_t n, uint32_t extra)
{
    unsigned char *copy = guarded(n + extra, 8, GARBAGE);
    const uint32_t size = (uint32_t)n + extra;
    if (!copy) check_leave(c);
    memcpy(copy, args, n);
    memcpy(copy, &size, sizeof size); /* struct_size comes first in all of them */
    return copy;
}
#define AS_OF(args, extra) as_of(c, &(args), sizeof(args), extra)

/* A hash of what the functions of a type make of one tile. */
static uint64_t make_all(struct check *c, const struct wk_type_cpu *t, uint32_t extra)
{
    const uint32_t k = quant_short_row(t);
    const size_t row = (size_t)quant_row_bytes(t, k), tile_bytes = (size_t)t->tile_bytes(k);
    const struct wk_tensor_params *tensor = AS_OF(format_plain, extra);
    float *x = quant_memory(c, sizeof *x * k), *y = quant_memory(c, sizeof *y * WK_TILE_ROWS);
    char *rows = quant_memory(c, WK_TILE_ROWS * row), *tile = quant_memory(c, tile_bytes);
    void *scratch = quant_memory(c, t->scratch_bytes(k)), *list[WK_TILE_ROWS];
    uint64_t hash = CHECK_HASH;
    struct plugin_call call;
    for (uint32_t i = 0; i < k; i++) x[i] = (float)((int)(i * 5 % 17) - 8);
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        list[r] = rows + r * row;
        const struct wk_quantize q = { sizeof q, k, k, x, NULL, list[r], tensor };
        PLUGIN_CALL(&call, t->quantize, "quantize");
        (void)t->quantize(AS_OF(q, extra), NULL);
        plugin_call_end(&call);
    }
    check_hash(&hash, rows, WK_TILE_ROWS * row);
    const struct wk_dequantize d = { sizeof d, 0, k, rows, x, tensor };
    PLUGIN_CALL(&call, t->dequantize, "dequantize");
    t->dequantize(AS_OF(d, extra));
    plugin_call_end(&call);
    check_hash(&hash, x, sizeof *x * k);
    const struct wk_pack p = { sizeof p, k, (const void *const *)(void *)list, tile, tensor };
    PLUGIN_CALL(&call, t->pack, "pack");
    t->pack(AS_OF(p, extra));
    plugin_call_end(&call);
    for (uint32_t isa = 0; isa < FORMAT_ISAS; isa++) {
        const format_product fn = quant_product_of(c, t, isa);
        if (!fn) continue;
        struct wk_cpu_product product = quant_one_row(k, tile, x, y, scratch);
        product.tensor = tensor;
        PLUGIN_CALL(&call, fn, "product");
        fn(AS_OF(product, extra));
        plugin_call_end(&call);
        check_hash(&hash, y, sizeof *y * WK_TILE_ROWS);
    }
    const struct wk_unpack u = { sizeof u, k, tile, list, tensor };
    PLUGIN_CALL(&call, t->unpack, "unpack");
    t->unpack(AS_OF(u, extra));
    plugin_call_end(&call);
    check_hash(&hash, rows, WK_TILE_ROWS * row);
    (void)fesetenv(FE_DFL_ENV); /* what they did to it is load.floats' */
    return hash;
}

static void run_calls(struct check *c)
{
    if (!check_start(c, NULL)) return;
    for (uint32_t i = 0; i < c->quant->n_types; i++) {
        const struct wk_type_cpu *t = c->quant->types[i];
        if (make_all(c, t, 0) != make_all(c, t, EXTRA))
            check_fail(c,
                       "type %s: its functions make other bits where the structs of their arguments are %d bytes "
                       "longer; read no byte behind what you know, and do not compare struct_size for equality",
                       t->name, EXTRA);
    }
}

/* ---- what is asked of the plugin ----------------------------------------------------------------------- */

static void run_extension(struct check *c)
{
    static const char *const ids[] = { "org.example.no-such-thing/1", "worker.unknown/1", "" };
    struct plugin_call call;
    if (!check_start(c, NULL)) return;
    if (!c->entry.plugin->extension) return;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        PLUGIN_CALL(&call, c->entry.plugin->extension, "extension");
        const void *got = c->entry.plugin->extension(ids[i]);
        plugin_call_end(&call);
        if (got)
            check_fail(c, "extension(\"%s\") gives something; expected NULL for an id that the plugin does not know",
                       ids[i]);
    }
}

static const struct check_def checks[] = {
    { "negotiation.old-host",
      "It starts and works in a host of the oldest minor that it asks for, whose struct wk_host ends where that of 1.0 "
      "ends.",
      CHECK_OF_PLUGIN, false, NULL, run_old },
    { "negotiation.new-host", "It starts and works in a newer host, whose struct wk_host goes on behind what it knows.",
      CHECK_OF_PLUGIN, false, NULL, run_new },
    { "negotiation.recording",
      "open and record do the same in a newer host, whose metadata and builder go on behind what they know.",
      CHECK_OF_ARCH, false, NULL, run_recording },
    { "negotiation.unsupported", "Where wk_supports answers no, record finds another way or refuses the model.",
      CHECK_OF_ARCH, false, NULL, run_unsupported },
    { "negotiation.words", "A text key's word that it does not know refuses the model.", CHECK_OF_ARCH, false, NULL,
      run_words },
    { "negotiation.calls",
      "The functions of a type make the same bits of arguments that a newer host has made longer, and read nothing "
      "behind those of 1.0.",
      CHECK_OF_QUANT, false, NULL, run_calls },
    { "negotiation.extension", "extension gives NULL for an id that it does not know.", CHECK_OF_PLUGIN, false, NULL,
      run_extension },
};
CHECK_LIST(checks_negotiation, CHECK_NEGOTIATION, checks);
