/* test_memory_format.cu: the kernels of the tests' own format. */
#include "device/cuda/test_memory_format.h"

#include "device/cuda/launch.cuh"

static __host__ __device__ uint64_t row_bytes(uint32_t k) { return (uint64_t)k / TEST_BLOCK * TEST_BLOCK_BYTES; }
static uint64_t tile_bytes(uint32_t k) { return (row_bytes(k) * WK_TILE_ROWS + 15) / 16 * 16; }

__global__ static void pack_kernel(uint8_t *tiles, const uint8_t *rows, uint64_t row, uint64_t tile, uint32_t n_rows)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < row * WK_TILE_ROWS;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t r = blockIdx.y * WK_TILE_ROWS + (uint32_t)(i % WK_TILE_ROWS);
        tiles[blockIdx.y * tile + i] = r < n_rows ? rows[r * row + i / WK_TILE_ROWS] : 0;
    }
}

__global__ static void unpack_kernel(const uint8_t *tiles, uint8_t *rows, uint64_t row, uint64_t tile, uint32_t n_rows)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < row * WK_TILE_ROWS;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t r = blockIdx.y * WK_TILE_ROWS + (uint32_t)(i % WK_TILE_ROWS);
        if (r < n_rows) rows[r * row + i / WK_TILE_ROWS] = tiles[blockIdx.y * tile + i];
    }
}

static wk_status pack(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *err)
{
    return cuda_launch("test pack", pack_kernel, dim3(16, t->n_tiles), 256, 0, false, stream, err, (uint8_t *)t->tiles,
                       (const uint8_t *)t->rows, t->row_bytes, tile_bytes(t->k), t->n_rows);
}

static wk_status unpack(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *err)
{
    return cuda_launch("test unpack", unpack_kernel, dim3(16, t->n_tiles), 256, 0, false, stream, err,
                       (const uint8_t *)t->tiles, (uint8_t *)t->rows, t->row_bytes, tile_bytes(t->k), t->n_rows);
}

static void dequantize(const struct wk_dequantize *d)
{
    for (uint64_t i = 0; i < d->n; i++)
        d->y[i] = ((const uint8_t *)d->blocks)[i / TEST_BLOCK * TEST_BLOCK_BYTES + i % TEST_BLOCK];
}

static struct wk_type_cpu make_cpu()
{
    struct wk_type_cpu t = {};
    t.struct_size = sizeof t;
    t.ggml_type = TEST_FORMAT;
    t.block = TEST_BLOCK;
    t.block_bytes = TEST_BLOCK_BYTES;
    t.name = "test";
    t.dequantize = dequantize;
    return t;
}

const struct wk_type_cpu test_format_cpu = make_cpu();
const struct wk_type_cuda test_format_cuda = {
    sizeof(struct wk_type_cuda), TEST_FORMAT, tile_bytes, pack, unpack, nullptr, nullptr
};

__global__ static void poke_kernel(uint8_t *byte, uint8_t x) { *byte ^= x; }
void test_poke(void *byte, uint8_t xor_with) { poke_kernel<<<1, 1>>>((uint8_t *)byte, xor_with); }
