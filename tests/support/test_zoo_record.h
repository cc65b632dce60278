/* test_zoo_record.h: what recordings of the zoo and the tensors of their files have in common. */
#ifndef TESTS_SUPPORT_TEST_ZOO_RECORD_H
#define TESTS_SUPPORT_TEST_ZOO_RECORD_H

#include "test_zoo.h"

enum { E = 256, V = ZOO_VOCAB, F = 320, X = 6, K = 3, L = 2, WINDOWS = 4, ROUTES = 7, RX = 8, RF = 64 };

/* A layer of attention, from which the shapes of its tensors follow. reuse: keys and values are those of the layer
 * `source`. */
struct attend_layer {
    uint32_t heads, kv_heads, head, window, chunk, flags, value_in_key;
    float softcap;
    bool slopes, sinks, reuse;
    uint32_t source;
};
struct attend_layers {
    const struct attend_layer *layer; /* [n] */
    uint32_t n;
};
extern const struct attend_layers zoo_chunks, zoo_latent, zoo_both;

/* Has the route of this layer of ZOO_ROUTES a bias? */
bool zoo_biased(uint32_t layer);

extern const struct wk_arch zoo_archs[ZOO_KINDS];

#endif
