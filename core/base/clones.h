/* clones.h: functions that are compiled for several instruction sets, of which the loader takes the widest that the
 * processor has. For loops whose bits are the same in any: no fused operation, no sum of floats in another order. */
#ifndef CORE_BASE_CLONES_H
#define CORE_BASE_CLONES_H

/* The loader chooses before a sanitizer is ready for the code that chooses. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CLONES_SANITIZED
#endif
#endif

#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(CLONES_SANITIZED)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

#endif
