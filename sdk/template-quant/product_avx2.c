/* product_avx2.c: the product for AVX2, FMA and F16C; compiled with these, and called only where they exist. */
#if defined(__x86_64__)
#include <worker/cpu/tile_avx2.h>

#include "format.h"

#define PRODUCT format_product_avx2
#include "products.h"
#else
extern const int other_processors_have_none_of_it;
#endif
