/* audit_file.h: files of the audit log: how they are opened, where their whole lines end, and what a crash left. For
 * audit.c alone. [serialised by the caller] */
#ifndef GATE_AUDIT_FILE_H
#define GATE_AUDIT_FILE_H

#include "audit_line.h"

enum { AUDIT_PATH = 4096 };

/* Where a chain stands. */
struct audit_end {
    uint64_t seq; /* 0: no line */
    char mac[AUDIT_MAC + 1];
    uint64_t whole, torn; /* bytes of whole lines, and behind them */
};

/* Opens or makes a regular file, 0600, for appending, or (fresh) makes one that must not be there. WK_IO; WK_INVALID:
 * others than the owner may use it, or it is no regular file. */
wk_status audit_file_open(const char *path, bool fresh, int *fd, const struct wk_err *err);
/* Opens FILE.head and locks it for as long as it is open. WK_IO: another process has it. */
wk_status audit_file_lock(const char *path, int *fd, const struct wk_err *err);
/* Reads the end of a log. WK_INVALID: its last whole line is none of this key. */
wk_status audit_file_end(int fd, const char *path, struct audit_mac *m, struct audit_end *out,
                         const struct wk_err *err);
/* Moves the torn bytes into PATH.torn-SEQ. */
wk_status audit_file_cut(int fd, const char *path, const struct audit_end *end, const struct wk_err *err);
/* All of it, or false with errno. */
bool audit_file_write(int fd, const char *bytes, size_t n);
/* The folder of path is on disk. */
void audit_file_sync_folder(const char *path);

#endif
