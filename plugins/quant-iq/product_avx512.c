/* quant-iq/product_avx512.c: the products compiled for one instruction set; the host calls them
 * only where it exists. */
#include <worker/cpu/tile_avx512.h>

#include "formats.h"

#define PRODUCT(name) name##_product_avx512
#include "products.h"
