/* segment.h: pages in POSIX shared memory, from one process of a host to another one of the same user.
 *
 * A segment is `/worker_kv_ID_N`: the hand-over's id and a number of this process. Mode 0600. Who reads it takes its
 * name away before the first byte is read, so nobody reads it twice and nothing is left when both are gone. Who writes
 * it holds a lock on it for as long as it lives: a segment whose lock can be had is of a process that is dead. Both
 * copy with write(2) and read(2), and map nothing: a segment that somebody cuts off is an error and no signal, memory
 * that is missing is told by who writes, and the kernel neither clears a page before it is written nor is asked for
 * each. */
#ifndef HANDOVER_SEGMENT_H
#define HANDOVER_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { SEGMENT_NAME = 64 /* bytes, terminated */ };

struct segment {
    char name[SEGMENT_NAME];
    int fd;
};

/* A segment of these bytes [n], n > 0. WK_IO: it cannot be had, and why. [any thread] */
wk_status segment_create(const char *id, const void *bytes, size_t n, struct segment *out, const struct wk_err *err);
/* Has the other side taken its name away? */
bool segment_is_read(const struct segment *s);
/* Closes it; the name goes, if it is still there. */
void segment_close(struct segment *s);

/* Reads a segment of exactly `bytes` bytes into out, and takes its name away, whatever comes of it. WK_INVALID: it is
 * none of ours, or of another hand-over than `id`: its name, its owner, its mode or its size; WK_IO: it is not there,
 * or cannot be read. Nobody is waited for, whatever lies under that name. [any thread] */
wk_status segment_read(const char *id, const char *name, void *out, size_t bytes, const struct wk_err *err);

/* Removes what dead processes of this user have left; returns how many. [main thread, at the start] */
uint32_t segment_sweep(void);

/* Two processes with the same text see the same segments: of one boot of one machine, one mount, one user. False: there
 * is no shared memory here. */
enum { SEGMENT_PLACE = 65 };
bool segment_place(char out[SEGMENT_PLACE]);

#endif
