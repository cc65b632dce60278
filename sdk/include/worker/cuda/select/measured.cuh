/* worker/cuda/select/measured.cuh: numbers in the choice of kernels that were measured, by GPU. None of them changes a
 * bit of a result.
 *
 * There is one set, of an H200, used for all devices, since no other one was measured. The command that measures, on a
 * GPU with nothing beside it:
 *     bench_product_cuda shapes all 1 2 4 8 16 32 64
 * times the kernels that are chosen; with a number here changed so that another kernel is chosen, that one. A cost is
 * fitted to such times. */
#ifndef WORKER_CUDA_SELECT_MEASURED_CUH
#define WORKER_CUDA_SELECT_MEASURED_CUH

#include <stdint.h>

struct wk_measured {
    struct {
        /* Bytes that a multiprocessor asks for before any has arrived: of several rows; of one row half of what a
         * launch gives it, within these bounds. What is more than memory needs is a queue in which all small loads
         * wait, and small launches stand beside those that do nothing else: attention, routers, combinations. The upper
         * bound may be rounded up to two stages. */
        uint32_t in_flight, one_least, one_most;
        /* Of one row: most bytes of a warp's part of a stage that is several rounds of K steps. */
        uint32_t one_rounds;
        /* gemv_tall: tiles of a pair of warps, at least. */
        uint32_t tall_tiles;
        /* One more block a multiprocessor is not worth it where the last round of two costs more than 1 / heavy_part of
         * all (matrices of two bytes a weight and more). */
        uint32_t heavy_part;
    } gemv;
    /* moe_one: bytes that a multiprocessor asks for before any has arrived: more would only be a longer queue, in which
     * all else that is read stands, too. */
    uint32_t moe_one_in_flight;

    /* resident: least shared memory of a block: launches that stand too far ahead load weights beside the activations
     * of others. */
    uint32_t resident_least;
    /* resident: rows whose norm each block makes for itself, where a multiprocessor has several blocks: with more rows
     * a launch of its own costs less. */
    uint32_t norm_rows_beside;

    /* lm_head: more tiles than this a multiprocessor. For gate and up of Q5_0 and 896 values: 8.3 -> 6.5 and
     * 14.0 -> 9.0 us at 32 and 64 rows (at 8 rows 5.9 for resident's 4.5); fewer tiles are better by resident or
     * stream. */
    uint32_t lm_head_tiles;
    /* lm_head_wgmma: the same. In a model, for Q8_0 of 151936 x 896: 40 -> 33 us at 8 rows, 53 -> 41 at 32, 89 -> 61 at
     * 64. */
    uint32_t lm_head_wgmma_tiles;

    /* stream at 17 to 32 rows: where wgmma is there, too, at most so many tiles times k. A launch that is mostly
     * beginning and end gains more by two blocks a multiprocessor and what stream does before it waits: at 32 rows 15 %
     * at 4096 x 4096 of Q8_0, nothing from 12288 x 4096 on. */
    uint64_t short_launch;
    /* stream, clocks of the multiplying warps of the busiest multiprocessor, as measured for the products of four
     * models. A stage of 256 values: stage_alone, stage_beside more for each warp there, stage_fixed for any; at least
     * stage_latency where few stages are under way. A round of STREAM32, a launch whose clusters of 8 want all places.
     */
    struct {
        uint32_t stage_alone, stage_beside, stage_fixed, stage_latency, round32, full8;
    } stream;
    /* stream_wgmma, clocks: of 64 values, more for each tile of columns; of a round, the same; of a round and of a
     * launch in clusters. */
    struct {
        uint32_t piece, piece_tile, round, round_tile, round_cluster, cluster;
    } stream_wgmma;
    /* multistage, clocks, estimated for an A100 and an H100 from their data sheets, not measured: of 32 values of k of
     * each block, at least run_alone, and more for each tile of columns; of a stage besides; at least `latency` where
     * two stages are under way. Bytes a clock of a multiprocessor: its share of memory's where all are at work, and
     * what it gets from L2. Of a round of items, and more for each tile of columns. */
    struct {
        uint32_t run, run_alone, run_tile, stage, latency, memory, l2, round, round_tile;
    } multistage;
    /* int8, fitted to 1,900 measured times of both formats, within 1.3 % of the best choice on average. Nanoseconds
     * times 100 of a K step of two blocks that share a multiprocessor, of one alone in hundredths of that; k_step:
     * fixed, and for each record; of a launch, for each record; of each further round of clusters, and for each record.
     */
    struct {
        uint32_t shared, alone, k_step, k_step_record, record, round, round_record;
    } int8;
};

static constexpr wk_measured wk_measured_h200 = { { 104 << 10, 40 << 10, 76 << 10, 3500, 4, 10 },
                                                  36 << 10,
                                                  60000,
                                                  4,
                                                  2,
                                                  16,
                                                  1u << 20,
                                                  { 400, 50, 300, 4200, 600, 700 },
                                                  { 300, 40, 500, 100, 600, 1000 },
                                                  { 60, 110, 28, 250, 1500, 12, 32, 800, 150 },
                                                  { 200, 146, 272, 67, 235, 1000, 487 } };

#endif
