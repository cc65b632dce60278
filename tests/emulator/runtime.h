/* runtime.h: what the emulated runtime's files share. */
#ifndef TESTS_EMULATOR_RUNTIME_H
#define TESTS_EMULATOR_RUNTIME_H

#include <cuda_runtime_api.h>

#include "emulator.h"

/* Work of a stream: done at once, or kept while the stream is captured. */
struct work {
    enum { WORK_LAUNCH, WORK_COPY, WORK_FILL, WORK_MATMUL } kind;
    struct launch launch; /* params: its own memory */
    unsigned char *to;
    const unsigned char *from;
    size_t bytes, to_pitch, from_pitch, rows;
    int value;
    void (*call)(const void *); /* a function of the emulator's, and what it is told */
    void *told;
};
/* Takes what w owns. */
cudaError_t enqueue(cudaStream_t stream, struct work w);

/* driver.c: device memory by handles. */
void *driver_entry(const char *symbol);
bool driver_pointer(uint64_t at, bool *host);
uint64_t driver_used(void);
uint64_t device_total(void), device_left(void);

/* Code comes into device memory when it is first launched, as the driver does it, and stays. */
void code_loaded(uint64_t bytes);

#endif
