/* quant-test/quant_test.h: what the checks of a quantization plugin share: the plugin, deterministic noise, rows in a
 * format. */
#ifndef QUANT_TEST_H
#define QUANT_TEST_H

#include <worker/plugin.h> /* before cmocka.h, which makes `fail` a macro */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The plugin named by QUANT_TEST_PLUGIN in WORKER_PLUGIN_PATH, as the host would load it. */
const struct wk_quant *quant_test_plugin(void);

/* xorshift64*; any state but 0. */
struct noise {
    uint64_t state;
};
uint64_t noise_bits(struct noise *s);
float noise_uniform(struct noise *s); /* [0, 1) */
float noise_gauss(struct noise *s);   /* mean 0, sigma 1 */

/* Memory of exactly `bytes` bytes aligned to 64; never NULL. Freed with free. */
void *aligned_bytes(uint64_t bytes);

/* What test matrices hold: Gaussian values (sigma 1, a small mean); the largest and smallest weights a block can have;
 * arbitrary bits. */
enum { ROWS_GAUSS, ROWS_EXTREME, ROWS_BITS };
/* 16 rows of k values in the type's encoding: [16][row bytes]. */
uint8_t *random_rows(const struct wk_type_cpu *type, uint32_t k, uint32_t kind, struct noise *s);
uint64_t row_bytes(const struct wk_type_cpu *type, uint32_t k);

/* Highest instruction set that this machine runs. */
uint32_t machine_isa(void);

/* ---- groups of tests ----------------------------------------------------------------------------------- */
void test_vectors(void **state);
void data_vectors(void **state);
void data_vectors_random(void **state);
void data_encoder(void **state);
void test_round_trip(void **state);
void test_encoder(void **state);
void test_encoder_refuses(void **state);
void test_product(void **state);
void test_product_extremes(void **state);
void test_product_same_bits(void **state);
void test_product_repeats(void **state);
void test_product_nan(void **state);

#endif
