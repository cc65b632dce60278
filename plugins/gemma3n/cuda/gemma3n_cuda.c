/* gemma3n_cuda.c: what gemma3n-cuda.so exports: the plugin's own operations on CUDA. */
#include <worker/plugin_cuda.h>

wk_status gemma3n_image(int32_t device, const struct wk_err *err);
wk_status gemma3n_predict(const struct wk_custom_cuda_call *call, void *stream, const struct wk_err *err);
wk_status gemma3n_correct(const struct wk_custom_cuda_call *call, void *stream, const struct wk_err *err);
wk_status gemma3n_as_long(const struct wk_custom_cuda_call *call, void *stream, const struct wk_err *err);
wk_status gemma3n_above(const struct wk_custom_cuda_call *call, void *stream, const struct wk_err *err);

static const struct wk_custom_cuda customs[] = { { "predict", gemma3n_predict },
                                                 { "correct", gemma3n_correct },
                                                 { "as_long", gemma3n_as_long },
                                                 { "above", gemma3n_above } };

WORKER_ARCH_CUDA("org.worker.gemma3n", "arch:gemma3n", .open = gemma3n_image, .customs = customs,
                 .n_customs = sizeof customs / sizeof *customs);
