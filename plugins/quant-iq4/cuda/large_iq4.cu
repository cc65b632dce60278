/* quant-iq4/cuda/large_iq4.cu: products of IQ4_NL and IQ4_XS for experts with many items each. */
#include <worker/cuda/product_large.cuh>

#include "iq4_nl.cuh"
#include "iq4_xs.cuh"

WK_LARGE_FAMILY(quant_iq4_large, iq4_nl, iq4_xs);
