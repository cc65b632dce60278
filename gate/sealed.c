/* sealed.c: see sealed.h. */
#include "gate/sealed.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

enum { VERSION = 1, KDF_SCRYPT = 1, NONCE = 12, KEY = 32 };
enum { LOG2_N = 15, MOST_LOG2_N = 17, R = 8, P = 1, MOST_P = 4 };
enum { AT_VERSION = 8, AT_KDF = 12, AT_LOG2_N = 16, AT_R = 20, AT_P = 24, AT_ZERO = 28, AT_GENERATION = 32 };
enum { AT_LENGTH = 40, AT_MASTER_SALT = 48, AT_SALT = 64, AT_NONCE = 80 };
static const char magic[8] = { 'W', 'K', 'P', 'O', 'L', 'I', 'C', 'Y' };

static void put_u64(uint8_t *at, uint64_t v)
{
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(v >> 8 * i);
}

static void put_u32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get_u64(const uint8_t *at)
{
    uint64_t v = 0;
    for (int i = 8; i-- > 0;) v = v << 8 | at[i];
    return v;
}

static uint32_t get_u32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static wk_status random_bytes(void *out, size_t n, const struct wk_err *err)
{
    if (getrandom(out, n, 0) == (ssize_t)n) return WK_OK; /* up to 256 bytes come whole */
    return wk_fail(err, WK_IO, "the system gives no random bytes: %s", strerror(errno));
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

bool sealed_is(const void *bytes, size_t n) { return n >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0; }

wk_status sealed_read_kdf(const void *bytes, size_t n, struct sealed_kdf *kdf, const struct wk_err *err)
{
    const uint8_t *b = bytes;
    if (!sealed_is(bytes, n)) return wk_fail(err, WK_INVALID, "is no encrypted policy file: it does not begin as one");
    if (n < SEALED_HEADER + SEALED_TAG)
        return wk_fail(err, WK_INVALID, "is cut off: %zu bytes, and an encrypted policy file has at least %d", n,
                       SEALED_HEADER + SEALED_TAG);
    const uint32_t version = get_u32(b + AT_VERSION), kdf_id = get_u32(b + AT_KDF);
    if (version != VERSION)
        return wk_fail(err, WK_INVALID, "has version %u of the encrypted form; this worker reads version %d", version,
                       VERSION);
    *kdf = (struct sealed_kdf){ .log2_n = get_u32(b + AT_LOG2_N), .r = get_u32(b + AT_R), .p = get_u32(b + AT_P) };
    memcpy(kdf->salt, b + AT_MASTER_SALT, SEALED_SALT);
    if (kdf_id != KDF_SCRYPT || kdf->log2_n < LOG2_N || kdf->log2_n > MOST_LOG2_N || kdf->r != R || kdf->p < P ||
        kdf->p > MOST_P || get_u32(b + AT_ZERO) != 0)
        return wk_fail(err, WK_INVALID,
                       "asks for KDF %u with log2 N %u, r %u, p %u; allowed are scrypt (1) with log2 N %d to %d, r %d, "
                       "p %d to %d: the file is damaged or not of a worker",
                       kdf_id, kdf->log2_n, kdf->r, kdf->p, LOG2_N, MOST_LOG2_N, R, P, MOST_P);
    return WK_OK;
}

wk_status sealed_new_kdf(struct sealed_kdf *kdf, const struct wk_err *err)
{
    *kdf = (struct sealed_kdf){ .log2_n = LOG2_N, .r = R, .p = P };
    return random_bytes(kdf->salt, sizeof kdf->salt, err);
}

wk_status sealed_derive(const struct sealed_kdf *kdf, const void *passphrase, size_t n, uint8_t master[SEALED_MASTER],
                        const struct wk_err *err)
{
    const uint64_t N = UINT64_C(1) << kdf->log2_n, memory = 128 * N * kdf->r * 2; /* libcrypto counts more than N * r */
    if (EVP_PBE_scrypt(passphrase, n, kdf->salt, SEALED_SALT, N, kdf->r, kdf->p, memory, master, SEALED_MASTER) == 1)
        return WK_OK;
    OPENSSL_cleanse(master, SEALED_MASTER);
    return wk_fail(err, WK_NO_MEMORY, "no key can be derived of the passphrase: scrypt needs %llu MiB",
                   (unsigned long long)(128 * N * kdf->r >> 20));
}

/* HKDF-SHA256 of the master; salt NULL: none. */
static wk_status derive(const uint8_t master[SEALED_MASTER], const uint8_t *salt, const char *purpose, uint8_t key[KEY],
                        const struct wk_err *err)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[5];
    size_t n = 0;
    params[n++] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
    params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)master, SEALED_MASTER);
    params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)purpose, strlen(purpose));
    if (salt)
        params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt, SEALED_SALT);
    params[n] = OSSL_PARAM_construct_end();
    EVP_KDF *hkdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = hkdf ? EVP_KDF_CTX_new(hkdf) : NULL;
    const bool ok = ctx && EVP_KDF_derive(ctx, key, KEY, params) == 1;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(hkdf);
    if (ok) return WK_OK;
    OPENSSL_cleanse(key, KEY);
    return wk_fail(err, WK_INTERNAL, "libcrypto has no HKDF-SHA256, or no memory");
}

wk_status sealed_mac(const uint8_t master[SEALED_MASTER], const void *bytes, size_t n, uint8_t mac[SEALED_MAC],
                     const struct wk_err *err)
{
    uint8_t key[KEY];
    unsigned int len = 0;
    wk_status status = derive(master, NULL, "worker policy generation", key, err);
    if (status != WK_OK) return status;
    if (!HMAC(EVP_sha256(), key, KEY, bytes, n, mac, &len) || len != SEALED_MAC)
        status = wk_fail(err, WK_INTERNAL, "libcrypto has no HMAC-SHA256, or no memory");
    OPENSSL_cleanse(key, sizeof key);
    return status;
}

/* ---- AES-256-GCM ----------------------------------------------------------------------------------------------- */

/* Encrypts or decrypts n bytes; header: SEALED_HEADER bytes, authenticated. False: libcrypto failed, or the tag is
 * wrong. */
static bool gcm(bool encrypt, const uint8_t key[KEY], const uint8_t *header, const uint8_t *in, size_t n, uint8_t *out,
                uint8_t tag[SEALED_TAG])
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int done = 0, rest = 0;
    bool ok = ctx && n <= INT_MAX && EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, NULL, NULL, encrypt) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_IVLEN, NONCE, NULL) == 1 &&
              EVP_CipherInit_ex(ctx, NULL, NULL, key, header + AT_NONCE, encrypt) == 1 &&
              (encrypt || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, SEALED_TAG, tag) == 1) &&
              EVP_CipherUpdate(ctx, NULL, &done, header, SEALED_HEADER) == 1 &&
              EVP_CipherUpdate(ctx, out, &done, in, (int)n) == 1 && (size_t)done == n &&
              EVP_CipherFinal_ex(ctx, out + n, &rest) == 1 && rest == 0;
    if (ok && encrypt) ok = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, SEALED_TAG, tag) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok;
}

static void write_header(uint8_t *b, const struct sealed_kdf *kdf, uint64_t generation, uint64_t n,
                         const uint8_t random[SEALED_SALT + NONCE])
{
    memcpy(b, magic, sizeof magic);
    put_u32(b + AT_VERSION, VERSION);
    put_u32(b + AT_KDF, KDF_SCRYPT);
    put_u32(b + AT_LOG2_N, kdf->log2_n);
    put_u32(b + AT_R, kdf->r);
    put_u32(b + AT_P, kdf->p);
    put_u32(b + AT_ZERO, 0);
    put_u64(b + AT_GENERATION, generation);
    put_u64(b + AT_LENGTH, n);
    memcpy(b + AT_MASTER_SALT, kdf->salt, SEALED_SALT);
    memcpy(b + AT_SALT, random, SEALED_SALT);
    memcpy(b + AT_NONCE, random + SEALED_SALT, NONCE);
}

wk_status sealed_make(const struct sealed_kdf *kdf, const uint8_t master[SEALED_MASTER], uint64_t generation,
                      const void *plain, size_t n, uint8_t **out, size_t *out_n, const struct wk_err *err)
{
    uint8_t random[SEALED_SALT + NONCE], key[KEY];
    *out = NULL;
    wk_status status = random_bytes(random, sizeof random, err);
    if (status == WK_OK) status = derive(master, random, "worker policy file", key, err);
    if (status != WK_OK) return status;
    uint8_t *b = n <= INT_MAX ? malloc(SEALED_HEADER + n + SEALED_TAG) : NULL;
    if (!b) {
        status = wk_fail(err, WK_NO_MEMORY, "no memory for an encrypted policy of %zu bytes", n);
    } else {
        write_header(b, kdf, generation, n, random);
        if (!gcm(true, key, b, plain, n, b + SEALED_HEADER, b + SEALED_HEADER + n))
            status = wk_fail(err, WK_INTERNAL, "libcrypto has no AES-256-GCM, or no memory");
    }
    OPENSSL_cleanse(key, sizeof key);
    if (status != WK_OK) {
        free(b);
        return status;
    }
    *out = b;
    *out_n = SEALED_HEADER + n + SEALED_TAG;
    return WK_OK;
}

wk_status sealed_open(const struct sealed_kdf *kdf, const uint8_t master[SEALED_MASTER], const void *bytes, size_t n,
                      char **plain, size_t *plain_n, uint64_t *generation, const struct wk_err *err)
{
    const uint8_t *b = bytes;
    struct sealed_kdf own;
    uint8_t key[KEY], tag[SEALED_TAG];
    *plain = NULL;
    wk_status status = sealed_read_kdf(bytes, n, &own, err);
    if (status != WK_OK) return status;
    const size_t length = n - SEALED_HEADER - SEALED_TAG;
    if (get_u64(b + AT_LENGTH) != length)
        return wk_fail(err, WK_INVALID, "has %zu bytes of ciphertext, and its header says %llu: it is damaged", length,
                       (unsigned long long)get_u64(b + AT_LENGTH));
    if (own.log2_n != kdf->log2_n || own.r != kdf->r || own.p != kdf->p || memcmp(own.salt, kdf->salt, SEALED_SALT))
        return wk_fail(err, WK_INVALID, "was replaced by a file of another key while it was open");
    char *text = malloc(length + 1);
    if (!text) return wk_fail(err, WK_NO_MEMORY, "no memory for a policy of %zu bytes", length);
    status = derive(master, b + AT_SALT, "worker policy file", key, err);
    memcpy(tag, b + SEALED_HEADER + length, SEALED_TAG);
    if (status == WK_OK && !gcm(false, key, b, b + SEALED_HEADER, length, (uint8_t *)text, tag))
        status = wk_fail(err, WK_INVALID, "cannot be decrypted: the passphrase is wrong, or the file is damaged");
    OPENSSL_cleanse(key, sizeof key);
    if (status != WK_OK) {
        OPENSSL_cleanse(text, length); /* decrypted, but not proven */
        free(text);
        return status;
    }
    text[length] = '\0';
    *plain = text;
    *plain_n = length;
    *generation = get_u64(b + AT_GENERATION);
    return WK_OK;
}
