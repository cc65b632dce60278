/* quant-iq/grid.h: how a grid's points become tables, for a C compiler and for nvcc: a list NAME_POINTS(P) of P(entry)
 * is its table of entries, and for products the tables of their lower and of their upper bytes (products.h). */
#ifndef QUANT_IQ_GRID_H
#define QUANT_IQ_GRID_H

#include <stdint.h>

#ifdef __CUDACC__
#define IQ_GRID(name, n) static __device__ const uint16_t name[n]
#else
#define IQ_GRID(name, n) static const uint16_t name[n]
#endif

#define IQ_ENTRY(entry) entry
#define IQ_LOW(entry) (entry) & 255
#define IQ_HIGH(entry) (entry) >> 8

#endif
