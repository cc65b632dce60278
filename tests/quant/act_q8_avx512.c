/* act_q8_avx512.c: the SDK's inline for one instruction set, compiled for it. */
#include <worker/cpu/act_q8_avx512.h>

void act_q8_avx512(const float *x, uint32_t k, struct wk_activation_q8 *y);
void act_q8_avx512(const float *x, uint32_t k, struct wk_activation_q8 *y) { wk_quantize_act_q8_avx512(x, k, y); }
