/* start.c: maps and starts the plugin in a check's process. */
#include "check/quant.h"

bool check_start(struct check *c, const struct wk_host *host)
{
    char text[CHECK_TEXT] = "";
    const wk_status status = plugin_try(c->options->path, host, &c->entry, &(struct wk_err){ text, sizeof text });
    if (status == WK_OK) {
        c->arch = c->entry.plugin->arch;
        c->quant = c->entry.plugin->quant;
        return true;
    }
    const char *reason = c->entry.reason ? c->entry.reason : text;
    const char *rule = c->entry.rule ? c->entry.rule : "load.map";
    const uint32_t mine = check_find(c->def->id), broken = check_find(rule);
    if (mine == broken)
        check_fail(c, "%s", reason);
    else if (check_group_of(mine) <= CHECK_LOAD && broken < check_count() && check_group_of(broken) <= CHECK_LOAD)
        check_skip(c, "not looked at: the file is refused before, by %s: %.400s", rule, reason);
    else
        check_fail(c, "it cannot be started, by %s: %.500s", rule, reason);
    return false;
}

/* ---- plain use ----------------------------------------------------------------------------------------- */

static void exercise_arch(struct check *c)
{
    struct check_metadata m;
    char text[256] = "";
    struct check_recorder *r = recorder_make(c, 0);
    if (r && metadata_make(&m, c->arch, plugin_host(c->entry.plugin), UINT32_MAX, METADATA_PLAIN, 0, 0))
        (void)metadata_open(&m, r, false, &(struct wk_err){ text, sizeof text });
}

/* What a product touches beside its memory is another rule's. */
static void exercise_products(struct check *c, const struct wk_type_cpu *t, struct wk_cpu_product p)
{
    for (uint32_t isa = 0; isa < FORMAT_ISAS; isa++) {
        struct plugin_call call;
        const format_product product = quant_product_of(c, t, isa);
        if (!product) continue;
        PLUGIN_CALL(&call, product, "product");
        product(&p);
        plugin_call_end(&call);
    }
}

/* One tile of small numbers, there and back, times one row. */
static void exercise_type(struct check *c, const struct wk_type_cpu *t)
{
    const uint32_t k = quant_short_row(t);
    const uint64_t row = quant_row_bytes(t, k);
    float *x = quant_memory(c, sizeof *x * k), *y = quant_memory(c, sizeof *y * WK_TILE_ROWS);
    char *rows = quant_memory(c, WK_TILE_ROWS * row), *tile = quant_memory(c, t->tile_bytes(k));
    void *scratch = quant_memory(c, t->scratch_bytes(k)), *list[WK_TILE_ROWS];
    const void *each[WK_TILE_ROWS];
    for (uint32_t i = 0; i < k; i++) x[i] = (float)((int)(i % 17) - 8);
    struct plugin_call call;
    PLUGIN_CALL(&call, t->quantize, "quantize");
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) {
        each[r] = list[r] = rows + r * row;
        (void)format_quantize(t, list[r], x, k, NULL);
    }
    plugin_call_end(&call);
    PLUGIN_CALL(&call, t->dequantize, "dequantize");
    format_dequantize(t, x, rows, k);
    plugin_call_end(&call);
    PLUGIN_CALL(&call, t->pack, "pack");
    format_pack(t, tile, each, k);
    plugin_call_end(&call);
    PLUGIN_CALL(&call, t->unpack, "unpack");
    format_unpack(t, list, tile, k);
    plugin_call_end(&call);
    exercise_products(c, t, quant_one_row(k, tile, x, y, scratch));
}

void check_exercise(struct check *c)
{
    if (c->arch) exercise_arch(c);
    for (uint32_t i = 0; c->quant && i < c->quant->n_types; i++) exercise_type(c, c->quant->types[i]);
}
