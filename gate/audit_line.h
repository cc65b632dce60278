/* audit_line.h: one line of the audit log as bytes: how it is made, and how it is read again. Inside the log's own
 * files (audit.c, audit_verify.c) alone.
 *
 *     {"seq":12,"time":"2026-11-27T11:49:11.123456Z","kind":"request",...,"prev":"64 digits","mac":"64 digits"}
 *
 * The mac is that of all bytes before ,"mac". What stands at a fixed place is read from there, so that whoever reads
 * depends on no JSON parser. */
#ifndef GATE_AUDIT_LINE_H
#define GATE_AUDIT_LINE_H

#include <openssl/evp.h>

#include "audit.h"

enum { AUDIT_MAC = 64 /* digits */, AUDIT_TAIL = 148 /* bytes from ,"prev" to the end of the line, without it */ };

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

struct audit_bytes {
    char *at;
    size_t len, cap;
    bool failed; /* no memory, now or before */
};

void audit_put(struct audit_bytes *b, const char *bytes, size_t n);
__attribute__((format(printf, 2, 3))) void audit_print(struct audit_bytes *b, const char *format, ...);
/* A JSON string with its quotes. */
void audit_put_string(struct audit_bytes *b, const char *text, size_t n);

/* ---- macs ------------------------------------------------------------------------------------------------------- */

/* The key of the chain is derived from the given one, which also makes the digests of texts: none of these is a mac of
 * a line. [one thread at a time] */
struct audit_mac {
    EVP_MAC_CTX *ctx;
};

wk_status audit_mac_open(struct audit_mac *m, const void *key, size_t len, const struct wk_err *err);
void audit_mac_close(struct audit_mac *m);
/* hex: AUDIT_MAC digits, terminated. False: libcrypto fails. */
bool audit_mac_of(struct audit_mac *m, const void *bytes, size_t n, char hex[AUDIT_MAC + 1]);

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* Makes the line in *line, with its end. body: "\"kind\":..." without a comma at its ends. mac is that of the new line.
 * False: no memory, or libcrypto fails. */
bool audit_line_make(struct audit_mac *m, uint64_t seq, const char prev[AUDIT_MAC + 1], const struct audit_bytes *body,
                     struct audit_bytes *line, char mac[AUDIT_MAC + 1]);

struct audit_line {
    uint64_t seq;
    char kind[16];
    char prev[AUDIT_MAC + 1], mac[AUDIT_MAC + 1];
};

/* A line without its end. False: it has not the form of one, or another mac. */
bool audit_line_read(struct audit_mac *m, const char *bytes, size_t n, struct audit_line *out);
/* The number behind "name": in a line that is right; 0: there is none. For lines in which nothing that a caller chose
 * stands before it, and so could look like it. */
uint64_t audit_line_number(const char *bytes, size_t n, const char *name);

/* ---- FILE.head -------------------------------------------------------------------------------------------------- */

enum { AUDIT_HEAD_BYTES = 180 };

bool audit_head_make(struct audit_mac *m, uint64_t seq, const char mac[AUDIT_MAC + 1], char out[AUDIT_HEAD_BYTES + 1]);
/* False: it has not the form of one, or another mac. */
bool audit_head_read(struct audit_mac *m, const char *bytes, size_t n, uint64_t *seq, char mac[AUDIT_MAC + 1]);

/* What a checkpoint's signature is of. Returns its length. */
size_t audit_signed_text(uint64_t seq, const char prev[AUDIT_MAC + 1], char out[160]);

#endif
