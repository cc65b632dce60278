/* jwt.c: see jwt.h. The order is: size and form, header, key, signature, claims: nothing that is said in a token's
 * claims is looked at before its signature is verified. */
#include "jwt.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64url.h"

enum { MOST_PARTS = 3, MOST_SIGNATURE = 1024 /* bytes: RSA of 8192 bits */ };
static const double MOST_DATE = 253402300799.0; /* the last second of the year 9999 */

struct part {
    const char *text;
    size_t n;
};

/* One token on its way through the rules. */
struct check {
    const struct jwt_rules *rules;
    int64_t now;
    struct jwt_claims *out;
    const struct wk_err *err;
    enum jwt_alg alg;
    const char *kid; /* header's; NULL: none */
    size_t kid_len;
};

__attribute__((format(printf, 3, 4))) static enum jwt_result refuse(const struct check *c, enum jwt_result why,
                                                                    const char *format, ...)
{
    if (c->err && c->err->text && c->err->cap) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(c->err->text, (size_t)c->err->cap, format, args);
        va_end(args);
    }
    return why;
}

static bool is_base64url(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'))
            return false;
    }
    return n > 0 && n % 4 != 1;
}

/* Exactly three parts with something in each. */
static bool split(const char *token, size_t n, struct part parts[MOST_PARTS])
{
    const char *at = token, *const end = token + n;
    for (int i = 0; i < MOST_PARTS; i++) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        if ((dot != NULL) != (i < MOST_PARTS - 1)) return false;
        const char *stop = dot ? dot : end;
        if (!is_base64url(at, (size_t)(stop - at))) return false;
        parts[i] = (struct part){ at, (size_t)(stop - at) };
        at = stop + 1;
    }
    return true;
}

/* A part's JSON object; NULL: *why is set. The caller's. */
static json_t *part_object(const struct check *c, const struct part *p, const char *name, enum jwt_result if_wrong,
                           enum jwt_result *why)
{
    uint8_t *bytes = malloc(p->n);
    size_t len = 0;
    json_t *object = NULL;
    json_error_t said;
    if (!bytes) {
        *why = refuse(c, JWT_NO_MEMORY, "out of memory for a token");
    } else if (!base64url_decode(p->text, p->n, bytes, p->n, &len)) {
        *why = refuse(c, JWT_FORM, "the token's %s is not base64url without padding", name);
    } else if (!(object = json_loadb((const char *)bytes, len, JSON_REJECT_DUPLICATES, &said)) ||
               !json_is_object(object)) {
        json_decref(object);
        object = NULL;
        *why = refuse(c, if_wrong, "the token's %s is not one JSON object in which each name stands once", name);
    }
    free(bytes);
    return object;
}

/* ---- the header ------------------------------------------------------------------------------------------------- */

static enum jwt_result check_alg(struct check *c, const json_t *header)
{
    const json_t *alg = json_object_get(header, "alg");
    if (!json_is_string(alg)) return refuse(c, JWT_HEADER, "the token's header has no text \"alg\"");
    const char *name = json_string_value(alg);
    c->alg = strcmp(name, "RS256") == 0 ? JWT_RS256 : JWT_ES256;
    if ((c->alg == JWT_ES256 && strcmp(name, "ES256") != 0) || !(c->alg & c->rules->algs))
        return refuse(c, JWT_ALG, "the token's alg is not one that is accepted here (%s)",
                      c->rules->algs == JWT_ALGS    ? "RS256, ES256"
                      : c->rules->algs == JWT_RS256 ? "RS256"
                                                    : "ES256");
    return JWT_FINE;
}

static enum jwt_result check_typ(const struct check *c, const json_t *header)
{
    static const char prefix[] = "application/";
    const json_t *typ = json_object_get(header, "typ");
    if (typ && !json_is_string(typ)) return refuse(c, JWT_HEADER, "\"typ\" of the token's header is no text");
    if (!c->rules->typ) return JWT_FINE;
    const char *name = typ ? json_string_value(typ) : "";
    if (strncasecmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
    if (strcasecmp(name, c->rules->typ) != 0)
        return refuse(c, JWT_TYP, "the token's typ is not the one that is accepted here");
    return JWT_FINE;
}

/* c->kid: text of `header`. jku, jwk, x5u and x5c are not looked at. */
static enum jwt_result check_header(struct check *c, const json_t *header)
{
    if (json_object_get(header, "crit"))
        return refuse(c, JWT_CRIT, "the token asks for extensions (crit), and none is known here");
    enum jwt_result r = check_alg(c, header);
    if (!r) r = check_typ(c, header);
    if (r) return r;
    const json_t *kid = json_object_get(header, "kid");
    if (!kid) return JWT_FINE;
    c->kid_len = json_string_length(kid);
    if (!json_is_string(kid) || c->kid_len < 1 || c->kid_len > JWKS_MOST_KID)
        return refuse(c, JWT_KID, "the token's kid is no text of 1 to %d bytes", JWKS_MOST_KID);
    c->kid = json_string_value(kid);
    return JWT_FINE;
}

static enum jwt_result check_signature(const struct check *c, const struct jwks *set, const struct part parts[])
{
    const struct jwks_key *key;
    uint8_t signature[MOST_SIGNATURE];
    size_t len = 0;
    const struct part *last = &parts[MOST_PARTS - 1];
    const enum jwks_found found = jwks_find(set, c->alg, c->kid, c->kid_len, &key);
    if (found == JWKS_NONE)
        return refuse(c, JWT_NO_KEY,
                      c->kid ? "the issuer has no key of the token's kid for its alg"
                             : "the token has no kid, and the issuer has no key for its alg");
    if (found == JWKS_SEVERAL)
        return refuse(c, JWT_KEYS,
                      c->kid ? "the issuer has several keys of the token's kid"
                             : "the token has no kid, and the issuer has several keys for its alg");
    if (last->n > MOST_SIGNATURE / 3 * 4 + 4) return refuse(c, JWT_SIGNATURE, "the token's signature is too long");
    if (!base64url_decode(last->text, last->n, signature, sizeof signature, &len))
        return refuse(c, JWT_FORM, "the token's signature is not base64url without padding");
    const size_t signed_len = (size_t)(last->text - 1 - parts[0].text);
    if (!jwks_verify(key, parts[0].text, signed_len, signature, len)) {
        /* Without kid nothing says that this key was meant: the issuer may have another by now. */
        if (!c->kid) return refuse(c, JWT_NO_KEY, "the token has no kid, and the issuer's only key is not its key");
        return refuse(c, JWT_SIGNATURE, "the token's signature is wrong");
    }
    return JWT_FINE;
}

/* ---- the claims ------------------------------------------------------------------------------------------------- */

/* A text of 1 to JWT_MOST_SUBJECT bytes without control characters. */
static bool copy_name(const json_t *value, char out[JWT_MOST_SUBJECT + 1])
{
    const size_t n = json_string_length(value);
    const char *text = json_string_value(value);
    if (!text || n < 1 || n > JWT_MOST_SUBJECT) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) return false;
    memcpy(out, text, n + 1);
    return true;
}

/* Seconds since 1970 of a claim; *there: false: it is absent. False: no such number. */
static bool date(const json_t *claims, const char *name, bool *there, int64_t *out)
{
    const json_t *value = json_object_get(claims, name);
    *there = value != NULL;
    if (!value) return true;
    if (!json_is_number(value)) return false;
    const double seconds = json_number_value(value);
    if (!(seconds >= 0 && seconds <= MOST_DATE)) return false;
    *out = (int64_t)floor(seconds);
    return true;
}

static enum jwt_result check_dates(const struct check *c, const json_t *claims)
{
    int64_t exp = 0, nbf = 0, iat = 0;
    bool has_exp, has_nbf, has_iat;
    if (!date(claims, "exp", &has_exp, &exp) || !date(claims, "nbf", &has_nbf, &nbf) ||
        !date(claims, "iat", &has_iat, &iat))
        return refuse(c, JWT_CLAIMS, "exp, nbf and iat of a token are seconds since 1970, at most of the year 9999");
    if (!has_exp) return refuse(c, JWT_CLAIMS, "the token has no exp: it would never expire");
    if (c->now >= exp) return refuse(c, JWT_EXPIRED, "the token has expired");
    if ((has_nbf && nbf > c->now + JWT_SKEW_S) || (has_iat && iat > c->now + JWT_SKEW_S))
        return refuse(c, JWT_EARLY, "the token's nbf or iat lies in the future, by more than %d s", JWT_SKEW_S);
    c->out->expires = exp;
    return JWT_FINE;
}

static bool says(const json_t *value, const char *word) { return strcmp(json_string_value(value), word) == 0; }

static enum jwt_result check_issuer_and_audience(const struct check *c, const json_t *claims)
{
    const json_t *iss = json_object_get(claims, "iss"), *aud = json_object_get(claims, "aud"), *one;
    size_t i;
    if (!json_is_string(iss)) return refuse(c, JWT_CLAIMS, "the token has no text \"iss\"");
    if (!says(iss, c->rules->issuer))
        return refuse(c, JWT_ISSUER, "the token is of another issuer than the configured one");
    bool ours = false;
    if (json_is_string(aud)) {
        ours = says(aud, c->rules->audience);
    } else if (json_is_array(aud)) {
        json_array_foreach (aud, i, one) {
            if (!json_is_string(one)) return refuse(c, JWT_CLAIMS, "\"aud\" of the token has what is no text");
            ours = ours || says(one, c->rules->audience);
        }
    } else {
        return refuse(c, JWT_CLAIMS, "the token has no \"aud\" that is a text or texts");
    }
    return ours ? JWT_FINE : refuse(c, JWT_AUDIENCE, "the token is for others: its aud has not the configured one");
}

/* azp and client_id: each that is there must be of the list, and one must be there. */
static enum jwt_result check_client(const struct check *c, const json_t *claims)
{
    static const char *const names[] = { "azp", "client_id" };
    bool any = false;
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(claims, names[i]);
        char client[JWT_MOST_SUBJECT + 1];
        if (!value) continue;
        if (!copy_name(value, client))
            return refuse(c, JWT_CLAIMS, "\"%s\" of the token is no text of 1 to %d bytes", names[i], JWT_MOST_SUBJECT);
        bool listed = false;
        for (size_t k = 0; k < c->rules->n_clients; k++) listed = listed || strcmp(c->rules->clients[k], client) == 0;
        if (c->rules->n_clients && !listed)
            return refuse(c, JWT_CLIENT, "the token was issued to a client that is not accepted here");
        if (!any) memcpy(c->out->client, client, sizeof client);
        any = true;
    }
    if (c->rules->n_clients && !any)
        return refuse(c, JWT_CLIENT, "the token does not say to which client it was issued (azp, client_id)");
    return JWT_FINE;
}

/* ---- names: scopes and roles ------------------------------------------------------------------------------------ */

static bool add_name(struct jwt_claims *out, const char *name, size_t n, uint32_t *count)
{
    if (n == 0) return true;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return false;
    if (n >= JWT_NAMES_BYTES - out->names_len) return false;
    memcpy(out->names + out->names_len, name, n);
    out->names[out->names_len + n] = '\0';
    out->names_len += (uint32_t)n + 1;
    ++*count;
    return true;
}

static bool add_words(struct jwt_claims *out, const char *text, uint32_t *count)
{
    while (*text) {
        const size_t n = strcspn(text, " ");
        if (!add_name(out, text, n, count)) return false;
        text += n + (text[n] == ' ');
    }
    return true;
}

/* A text (words: several, with spaces between them) or an array of texts. */
static bool add_names(struct jwt_claims *out, const json_t *value, bool words, uint32_t *count)
{
    const json_t *one;
    size_t i;
    if (json_is_string(value))
        return words ? add_words(out, json_string_value(value), count)
                     : add_name(out, json_string_value(value), json_string_length(value), count);
    if (!json_is_array(value)) return false;
    json_array_foreach (value, i, one)
        if (!json_is_string(one) || !add_name(out, json_string_value(one), json_string_length(one), count))
            return false;
    return true;
}

/* The member that a dotted path leads to; the whole path may be a name, too ("https://example.org/roles"). */
static const json_t *follow(const json_t *claims, const char *path)
{
    const json_t *at = json_object_get(claims, path);
    if (at) return at;
    char name[256];
    for (at = claims; at; path++) {
        const size_t n = strcspn(path, ".");
        if (n >= sizeof name) return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        at = json_object_get(at, name);
        path += n;
        if (!*path) break;
    }
    return at;
}

static enum jwt_result take_names(const struct check *c, const json_t *claims)
{
    const json_t *scope = json_object_get(claims, "scope"), *scp = json_object_get(claims, "scp");
    if (scope && (!json_is_string(scope) || !add_words(c->out, json_string_value(scope), &c->out->n_scopes)))
        return refuse(c, JWT_CLAIMS, "\"scope\" of the token is no text with spaces between its words");
    if (!scope && scp && !add_names(c->out, scp, true, &c->out->n_scopes))
        return refuse(c, JWT_CLAIMS, "\"scp\" of the token is no text and no array of texts");
    const json_t *roles = c->rules->roles_claim ? follow(claims, c->rules->roles_claim) : NULL;
    if (roles && !add_names(c->out, roles, false, &c->out->n_roles))
        return refuse(c, JWT_CLAIMS, "the token's claim of roles is no text and no array of texts");
    return JWT_FINE;
}

const char *jwt_result_name(enum jwt_result result)
{
    static const char *const names[] = { [JWT_FINE] = "fine",
                                         [JWT_SIZE] = "size",
                                         [JWT_FORM] = "form",
                                         [JWT_HEADER] = "header",
                                         [JWT_CRIT] = "crit",
                                         [JWT_ALG] = "alg",
                                         [JWT_TYP] = "typ",
                                         [JWT_KID] = "kid",
                                         [JWT_NO_KEY] = "no_key",
                                         [JWT_KEYS] = "keys",
                                         [JWT_SIGNATURE] = "signature",
                                         [JWT_CLAIMS] = "claims",
                                         [JWT_ISSUER] = "issuer",
                                         [JWT_AUDIENCE] = "audience",
                                         [JWT_EXPIRED] = "expired",
                                         [JWT_EARLY] = "early",
                                         [JWT_CLIENT] = "client",
                                         [JWT_NO_MEMORY] = "no_memory" };
    return names[result];
}

const char *jwt_next_name(const struct jwt_claims *c, const char *name)
{
    const char *next = name ? name + strlen(name) + 1 : c->names;
    return next < c->names + c->names_len ? next : NULL;
}

static enum jwt_result check_claims(const struct check *c, const json_t *claims)
{
    enum jwt_result r = check_issuer_and_audience(c, claims);
    if (!r) r = check_dates(c, claims);
    if (!r && !copy_name(json_object_get(claims, "sub"), c->out->subject))
        r = refuse(c, JWT_CLAIMS, "the token has no \"sub\" of 1 to %d bytes", JWT_MOST_SUBJECT);
    if (!r) r = check_client(c, claims);
    if (!r) r = take_names(c, claims);
    return r;
}

enum jwt_result jwt_check(const char *token, size_t n, const struct jwks *set, const struct jwt_rules *rules,
                          int64_t now, struct jwt_claims *out, const struct wk_err *err)
{
    struct check c = { .rules = rules, .now = now, .out = out, .err = err };
    struct part parts[MOST_PARTS];
    enum jwt_result r = JWT_FINE;
    memset(out, 0, offsetof(struct jwt_claims, names));
    out->names[0] = '\0';
    if (n == 0 || n > JWT_MOST_BYTES)
        return refuse(&c, JWT_SIZE, "a token of 1 to %d bytes is expected", JWT_MOST_BYTES);
    if (!split(token, n, parts))
        return refuse(&c, JWT_FORM,
                      "a signed token is three parts of base64url without padding, with dots between them");
    json_t *header = part_object(&c, &parts[0], "header", JWT_HEADER, &r), *claims = NULL;
    if (!r) r = check_header(&c, header);
    if (!r) r = check_signature(&c, set, parts);
    json_decref(header); /* kid was its text */
    if (!r) claims = part_object(&c, &parts[1], "second part", JWT_CLAIMS, &r);
    if (!r) r = check_claims(&c, claims);
    json_decref(claims);
    if (r) memset(out, 0, offsetof(struct jwt_claims, names));
    return r;
}
