/* sealed.h: the form of an encrypted policy file: bytes to bytes, without a file.
 *
 *   0  "WKPOLICY"          32  generation, u64              80  nonce, 12 bytes
 *   8  version, u32: 1     40  bytes of ciphertext, u64     92  ciphertext
 *  12  KDF, u32: 1 scrypt  48  salt of the master, 16       ..  tag of AES-256-GCM, 16
 *  16  log2 N, r, p, 0: u32    64  salt of this write, 16
 *
 * Numbers are little-endian. All 92 bytes before the ciphertext are authenticated with it.
 *
 * Keys. A master key of 32 bytes = scrypt(passphrase, salt of the master) is derived once, so that the passphrase need
 * not be kept; its salt stays for the life of the file. Each write has a key of its own: HKDF-SHA256(master, a new
 * random salt, "worker policy file"), and a new random nonce: no key encrypts twice. The file's parameters are bounded
 * before they are used: scrypt takes 128 * N * r bytes, 32 MiB for ours and 128 MiB at most. [any thread] */
#ifndef GATE_SEALED_H
#define GATE_SEALED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { SEALED_HEADER = 92, SEALED_TAG = 16, SEALED_MASTER = 32, SEALED_SALT = 16, SEALED_MAC = 32 };

/* How the master key comes from the passphrase. */
struct sealed_kdf {
    uint32_t log2_n, r, p;
    uint8_t salt[SEALED_SALT];
};

/* Do the bytes begin as an encrypted file? */
bool sealed_is(const void *bytes, size_t n);
/* WK_INVALID: no header, or parameters out of bounds. */
wk_status sealed_read_kdf(const void *bytes, size_t n, struct sealed_kdf *kdf, const struct wk_err *err);
/* Ours, with a new salt. WK_IO: the system gives no random bytes. */
wk_status sealed_new_kdf(struct sealed_kdf *kdf, const struct wk_err *err);
/* scrypt: takes about 0.1 s. WK_NO_MEMORY, WK_INTERNAL; master is then zero. */
wk_status sealed_derive(const struct sealed_kdf *kdf, const void *passphrase, size_t n, uint8_t master[SEALED_MASTER],
                        const struct wk_err *err);

/* *out: the caller's, for free. WK_IO: no random bytes; WK_NO_MEMORY, WK_INTERNAL. */
wk_status sealed_make(const struct sealed_kdf *kdf, const uint8_t master[SEALED_MASTER], uint64_t generation,
                      const void *plain, size_t n, uint8_t **out, size_t *out_n, const struct wk_err *err);
/* *plain: the caller's, for free, terminated. WK_INVALID: damaged, another passphrase, or not of this kdf. */
wk_status sealed_open(const struct sealed_kdf *kdf, const uint8_t master[SEALED_MASTER], const void *bytes, size_t n,
                      char **plain, size_t *plain_n, uint64_t *generation, const struct wk_err *err);
/* HMAC-SHA256 under a key that HKDF makes of the master for this alone. WK_INTERNAL */
wk_status sealed_mac(const uint8_t master[SEALED_MASTER], const void *bytes, size_t n, uint8_t mac[SEALED_MAC],
                     const struct wk_err *err);

#endif
