/* quant_rules.c: the rules of formats, by group, and which function looks at each. */
#include "check/quant.h"

/* Every check begins with the plugin mapped and started. */
#define STARTED(name, look)                \
    static void name(struct check *c)      \
    {                                      \
        if (check_start(c, NULL)) look(c); \
    }
STARTED(sizes, quant_check_sizes)
STARTED(exact, quant_check_exact)
STARTED(blocks, quant_check_blocks)
STARTED(named, quant_check_index)
STARTED(rows, quant_check_rows)
STARTED(near, quant_check_near)
STARTED(pack, quant_check_pack)
STARTED(product, quant_check_product)
STARTED(row, quant_check_row)
STARTED(finite, quant_check_finite)
STARTED(repeat, quant_check_repeat)
STARTED(values_memory, memory_check_values)
STARTED(encode_memory, memory_check_encode)
STARTED(tiles_memory, memory_check_tiles)
STARTED(product_memory, memory_check_product)
STARTED(state, memory_check_state)
STARTED(speed, performance_check_product)

#define RULE(id, rule, run) { id, rule, CHECK_OF_QUANT, false, NULL, run }
#define WITH_SIZES(id, rule, run) { id, rule, CHECK_OF_QUANT, false, "quant.sizes", run }

static const struct check_def of_quant[] = {
    RULE("quant.sizes",
         "tile_bytes is a multiple of 64, at least 16 rows' bytes and at most 1/8 + 64 more, for rows of every length; "
         "scratch_bytes is at most 64 MiB; both say the same each time.",
         sizes),
    RULE("quant.exact", "dequantize of a type of ggml's gives ggml's values bit for bit.", exact),
    RULE("quant.blocks",
         "A value depends on its own block alone: not on how many are decoded together, nor on their address.", blocks),
    { "quant.index", "quantize names the index of a value that it refuses.", CHECK_OF_QUANT, false, "errors.text",
      named },
    RULE("quant.rows",
         "quantize encodes each row by itself; importance[i] is that of column i of every row, and all may be 0.",
         rows),
    RULE("quant.near", "What quantize encodes decodes to values near those that it was given, zeros to zeros.", near),
    WITH_SIZES("quant.pack", "unpack(pack(rows)) is the rows bit for bit; pack writes all of a tile.", pack),
    WITH_SIZES(
        "quant.product",
        "A product is the sum of dequantize's values times the activations, within (64 + k / 2) 2^-24 of the row's "
        "largest weight times the sum of the activations' magnitudes.",
        product),
    WITH_SIZES("quant.row", "A result depends on its own tile and its own row of activations alone, bit for bit.", row),
    WITH_SIZES("quant.finite",
               "NaN and infinity of a scale or an activation reach the results of their row, and no others.", finite),
    WITH_SIZES(
        "quant.repeat",
        "The same product gives the same bits each time, on any thread, with a stack of 256 KiB, whatever scratch "
        "holds.",
        repeat),
};
CHECK_LIST(checks_quant, CHECK_QUANT, of_quant);

static const struct check_def of_memory[] = {
    RULE("memory.values", "dequantize reads its blocks and writes y, at any address, and nothing else.", values_memory),
    RULE("memory.encode", "quantize reads x and one row of importance, writes its blocks, and nothing else.",
         encode_memory),
    WITH_SIZES("memory.tiles",
               "pack and unpack read and write a tile and its rows, at any address of these, and nothing else.",
               tiles_memory),
    WITH_SIZES(
        "memory.product",
        "A product reads its tiles and activations and writes y and scratch, aligned as worker/quant.h says and no "
        "more, and nothing else.",
        product_memory),
    RULE("memory.state",
         "A format's functions allocate nothing, lock nothing, start no threads and keep nothing in static data.",
         state),
};
CHECK_LIST(checks_memory, CHECK_MEMORY, of_memory);

static const struct check_def of_performance[] = {
    RULE("performance.product", "How fast products are, beside the memory's bandwidth; reported, never judged.", speed),
};
CHECK_LIST(checks_performance, CHECK_PERFORMANCE, of_performance);
