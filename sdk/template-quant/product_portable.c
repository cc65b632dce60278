/* product_portable.c: the product for every processor, in plain C. */
#include <worker/cpu/tile_portable.h>

#include "format.h"

#define PRODUCT format_product_portable
#include "products.h"
