/* quant-iq/grid.h: how a table of a grid's points is declared, for a C compiler and for nvcc. */
#ifndef QUANT_IQ_GRID_H
#define QUANT_IQ_GRID_H

#include <stdint.h>

#ifdef __CUDACC__
#define IQ_GRID(name, n) static __device__ const uint16_t name[n]
#else
#define IQ_GRID(name, n) static const uint16_t name[n]
#endif

#endif
