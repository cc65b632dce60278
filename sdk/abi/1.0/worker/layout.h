/* worker/layout.h: made by the build from the structs of the other headers. */
#ifndef WORKER_LAYOUT_H
#define WORKER_LAYOUT_H
#define WK_LAYOUT_ARCH 0xccd251305d460b0eull
#define WK_LAYOUT_QUANT 0xa4864fbc6b3d5c3bull
#define WK_LAYOUT_CUDA 0xc1bfbf680c2ab0eaull
#endif
