/* read_memory.h: ways of reading memory in order, to measure how fast it can be read. Which one is the fastest differs:
 * some processors prefetch one stream as fast as memory is, others leave half of it unused, and asking ahead of use
 * helps the one and hinders the other. */
#ifndef CORE_BASE_READ_MEMORY_H
#define CORE_BASE_READ_MEMORY_H

#include <stdint.h>

enum { READ_WAYS = 7, READ_UNIT = 1024 /* bytes: a buffer has whole units */ };

/* Reads p [bytes], 64-byte aligned, way 0 .. READ_WAYS - 1. What it returns has all of them in it, so that no load is
 * left out. [any thread] */
uint64_t read_memory(uint32_t way, const void *p, uint64_t bytes);

#endif
