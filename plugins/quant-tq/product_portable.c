/* quant-tq/product_portable.c: the products compiled for one instruction set; the host calls them
 * only where it exists. */
#include <worker/cpu/tile_portable.h>

#include "formats.h"

#define PRODUCT(name) name##_product_portable
#include "products.h"
