/* test_tokens.h: keys and tokens of the tests' own making: what an issuer has and this worker does not, private keys.
 * Texts are malloc's. */
#ifndef GATE_TEST_TOKENS_H
#define GATE_TEST_TOKENS_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

static inline void tokens_need(int promise)
{
    if (!promise) abort();
}

__attribute__((format(printf, 1, 2))) static inline char *tokens_text(const char *format, ...)
{
    char *out = NULL;
    va_list args;
    va_start(args, format);
    tokens_need(vasprintf(&out, format, args) >= 0);
    va_end(args);
    return out;
}

static inline char *tokens_base64(const void *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *in = bytes;
    char *out = malloc(n * 4 / 3 + 4), *at = out;
    tokens_need(out != NULL);
    uint32_t bits = 0;
    unsigned have = 0;
    for (size_t i = 0; i < n; i++) {
        bits = bits << 8 | in[i];
        for (have += 8; have >= 6; have -= 6) *at++ = digits[bits >> (have - 6) & 63];
    }
    if (have) *at++ = digits[bits << (6 - have) & 63];
    *at = '\0';
    return out;
}

static inline EVP_PKEY *tokens_rsa(unsigned bits, unsigned long e)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    BIGNUM *exponent = BN_new();
    tokens_need(ctx && exponent && BN_set_word(exponent, e) == 1 && EVP_PKEY_keygen_init(ctx) == 1 &&
                EVP_PKEY_CTX_set_rsa_keygen_bits(ctx, (int)bits) == 1 &&
                EVP_PKEY_CTX_set1_rsa_keygen_pubexp(ctx, exponent) == 1 && EVP_PKEY_generate(ctx, &key) == 1);
    BN_free(exponent);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static inline EVP_PKEY *tokens_ec(const char *curve)
{
    EVP_PKEY *key = EVP_EC_gen(curve);
    tokens_need(key != NULL);
    return key;
}

/* A number of a key in base64url, as long as it is, or `len` bytes. */
static inline char *tokens_number(const EVP_PKEY *key, const char *name, int len)
{
    uint8_t bytes[1200];
    BIGNUM *n = NULL;
    tokens_need(EVP_PKEY_get_bn_param(key, name, &n) == 1);
    const int size = len ? len : BN_num_bytes(n);
    tokens_need(size <= (int)sizeof bytes && BN_bn2binpad(n, bytes, size) == size);
    BN_free(n);
    return tokens_base64(bytes, (size_t)size);
}

/* The key as a JWK; more: further members with a comma behind each, or "". */
static inline char *tokens_jwk(const EVP_PKEY *key, const char *more)
{
    char *a, *b, *out;
    if (EVP_PKEY_is_a(key, "RSA")) {
        a = tokens_number(key, OSSL_PKEY_PARAM_RSA_N, 0);
        b = tokens_number(key, OSSL_PKEY_PARAM_RSA_E, 0);
        out = tokens_text("{%s\"kty\":\"RSA\",\"n\":\"%s\",\"e\":\"%s\"}", more, a, b);
    } else {
        a = tokens_number(key, OSSL_PKEY_PARAM_EC_PUB_X, 32);
        b = tokens_number(key, OSSL_PKEY_PARAM_EC_PUB_Y, 32);
        out = tokens_text("{%s\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"%s\",\"y\":\"%s\"}", more, a, b);
    }
    free(a);
    free(b);
    return out;
}

/* What OpenSSL signs; r and s in 32 bytes each for EC. */
static inline uint8_t *tokens_sign(EVP_PKEY *key, const char *digest, int pss, const char *text, size_t *len)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *how = NULL;
    tokens_need(ctx && EVP_DigestSignInit_ex(ctx, &how, digest, NULL, NULL, key, NULL) == 1);
    if (pss) tokens_need(EVP_PKEY_CTX_set_rsa_padding(how, RSA_PKCS1_PSS_PADDING) == 1);
    tokens_need(EVP_DigestSign(ctx, NULL, len, (const uint8_t *)text, strlen(text)) == 1);
    uint8_t *out = malloc(*len < 64 ? 64 : *len);
    tokens_need(out && EVP_DigestSign(ctx, out, len, (const uint8_t *)text, strlen(text)) == 1);
    EVP_MD_CTX_free(ctx);
    if (EVP_PKEY_is_a(key, "EC")) {
        const uint8_t *at = out;
        ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &at, (long)*len);
        tokens_need(sig && BN_bn2binpad(ECDSA_SIG_get0_r(sig), out, 32) == 32 &&
                    BN_bn2binpad(ECDSA_SIG_get0_s(sig), out + 32, 32) == 32);
        ECDSA_SIG_free(sig);
        *len = 64;
    }
    return out;
}

static inline uint8_t *tokens_hmac(const void *secret, size_t secret_len, const char *text, size_t *len)
{
    unsigned n = 0;
    uint8_t *out = malloc(EVP_MAX_MD_SIZE);
    tokens_need(out && HMAC(EVP_sha256(), secret, (int)secret_len, (const uint8_t *)text, strlen(text), out, &n));
    *len = n;
    return out;
}

/* "header.claims" in base64url, of two texts. */
static inline char *tokens_unsigned(const char *header, const char *claims)
{
    char *h = tokens_base64(header, strlen(header)), *c = tokens_base64(claims, strlen(claims));
    char *out = tokens_text("%s.%s", h, c);
    free(h);
    free(c);
    return out;
}

/* Takes `text` and `signature` over. */
static inline char *tokens_join(char *text, uint8_t *signature, size_t len)
{
    char *s = tokens_base64(signature, len), *out = tokens_text("%s.%s", text, s);
    free(s);
    free(text);
    free(signature);
    return out;
}

static inline char *tokens_make(const char *header, const char *claims, EVP_PKEY *key)
{
    char *text = tokens_unsigned(header, claims);
    size_t len = 0;
    uint8_t *signature = tokens_sign(key, "SHA256", 0, text, &len);
    return tokens_join(text, signature, len);
}

#endif
