/* product_avx512.c: the product for AVX-512 with VNNI; compiled with these, and called only where they exist. */
#if defined(__x86_64__)
#include <worker/cpu/tile_avx512.h>

#include "format.h"

#define PRODUCT format_product_avx512
#include "products.h"
#else
extern const int other_processors_have_none_of_it;
#endif
