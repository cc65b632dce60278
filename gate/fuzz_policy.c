/* fuzz_policy.c: libFuzzer target: any bytes, by the first, as an encrypted file (0), as the document (1), or as what
 * an administrator asks for (2 and up: a key, a change of one, a section). What is accepted is within its ranges, is
 * written and read again as the same; what is refused says why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gate/policy_internal.h"
#include "gate/sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char text[512];
static const struct wk_err err = { text, sizeof text };

static void require(bool promise)
{
    if (!promise) abort();
}

static void refused(wk_status status)
{
    require(status == WK_INVALID && text[0] && memchr(text, 0, sizeof text));
    for (const char *c = text; *c; c++) require((uint8_t)*c >= ' ' && *c != 0x7f);
}

/* ---- an encrypted file ------------------------------------------------------------------------------------------- */

static void fuzz_sealed(const uint8_t *data, size_t n)
{
    static const uint8_t master[SEALED_MASTER] = { 1 };
    struct sealed_kdf kdf;
    uint64_t generation;
    uint8_t *file;
    char *plain;
    size_t file_n, plain_n;
    const wk_status status = sealed_read_kdf(data, n, &kdf, &err);
    if (status != WK_OK) {
        refused(status);
        require(sealed_new_kdf(&kdf, &err) == WK_OK);
    }
    require(kdf.log2_n <= 17 && kdf.r == 8 && kdf.p <= 4);
    refused(sealed_open(&kdf, master, data, n, &plain, &plain_n, &generation, &err)); /* nobody forges a tag */
    require(!plain);
    require(sealed_make(&kdf, master, n, data, n, &file, &file_n, &err) == WK_OK);
    require(sealed_open(&kdf, master, file, file_n, &plain, &plain_n, &generation, &err) == WK_OK);
    require(plain_n == n && generation == n && (n == 0 || memcmp(plain, data, n) == 0));
    free(plain);
    file[n ? data[0] % file_n : 0] ^= 1;
    require(sealed_open(&kdf, master, file, file_n, &plain, &plain_n, &generation, &err) == WK_INVALID);
    free(file);
}

/* ---- a document ---------------------------------------------------------------------------------------------------
 */

static void check_key(const struct policy *p, const struct policy_key *k)
{
    require(k->id && strlen(k->id) <= POLICY_ID_BYTES && k->id[0] && k->tenant[0]);
    require(strlen(k->tenant) <= POLICY_ID_BYTES && strlen(k->name) <= POLICY_NAME_BYTES);
    require(!(k->scopes & ~(uint32_t)SCOPE_ALL) && k->n_secrets <= POLICY_SECRETS);
    require(k->max_priority >= -1 && k->max_priority <= 1000 && k->expires >= 0 && policy_last_used(k) >= 0);
    require(policy_key_of(p, k->id) == k);
    for (uint32_t i = 0; i < k->n_secrets; i++) {
        uint32_t key;
        require(policy_find_hash(p, k->secrets[i].hash, 0, &key) != POLICY_UNKNOWN && &p->keys[key] == k);
    }
    json_t *shown = policy_key_json(p, k);
    require(shown != NULL);
    for (size_t i = 0; i < json_array_size(json_object_get(shown, "secrets")); i++)
        require(!json_object_get(json_array_get(json_object_get(shown, "secrets"), i), "hash"));
    json_decref(shown);
}

static void check_policy(const struct policy *p)
{
    for (uint32_t i = 0; i < p->n_keys; i++) check_key(p, &p->keys[i]);
    for (uint32_t i = 0; i < p->n_roles; i++) {
        const struct policy_role *r = &p->roles[i];
        require(policy_role_of(p, r->name, strlen(r->name)) == r && !(r->scopes & ~(uint32_t)SCOPE_ALL));
    }
    for (uint32_t i = 0; i < p->guardrails.n_phrases; i++)
        require(p->guardrails.blocklist[i][0] && strlen(p->guardrails.blocklist[i]) <= POLICY_PHRASE_BYTES);
    require(!p->guardrails.opa_url == !p->guardrails.opa_path);
    require(p->scheduler.high_priority >= 0 && p->scheduler.high_priority <= 1000);
}

static void fuzz_document(const char *json, size_t n)
{
    const struct policy *p, *q;
    char *one, *two;
    size_t one_n, two_n;
    wk_status status = policy_read(json, n, &p, &err);
    if (status != WK_OK) {
        refused(status);
        return;
    }
    check_policy(p);
    require(snapshot_write(snapshot_of(p), &one, &one_n, &err) == WK_OK);
    require(policy_read(one, one_n, &q, &err) == WK_OK);
    require(snapshot_write(snapshot_of(q), &two, &two_n, &err) == WK_OK);
    require(one_n == two_n && memcmp(one, two, one_n) == 0 && p->generation == q->generation);
    policy_release(p);
    policy_release(q);
    free(one);
    free(two);
}

/* ---- what an administrator asks for ---------------------------------------------------------------------------------
 */

/* A store in memory, which reads what it is given as a start would. */
static wk_status load(void *self, char **json, size_t *n, uint64_t *generation, const struct wk_err *why)
{
    (void)self, (void)n, (void)why;
    *json = NULL;
    *generation = 0;
    return WK_OK;
}

static wk_status save(void *self, const char *json, size_t n, uint64_t generation, const struct wk_err *why)
{
    const struct policy *p;
    (void)self;
    require(policy_read(json, n, &p, why) == WK_OK && p->generation == generation);
    check_policy(p);
    policy_release(p);
    return WK_OK;
}

static void close_store(void *self) { (void)self; }

static void expect(wk_status status, const struct policy_done *done)
{
    require((status == WK_OK) == (done->why == POLICY_DONE));
    if (status != WK_OK) refused(status);
    require(done->why != POLICY_NOT_STORED);
}

static void fuzz_changes(uint8_t what, const char *json, size_t n)
{
    static const struct store store = { NULL, load, save, close_store };
    struct policies *p;
    struct policy_done done;
    json_t *body = json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!body) return;
    require(policies_open(&store, &p, &err) == WK_OK);
    json_t *first = json_pack("{s:s}", "id", "first");
    expect(policies_create_key(p, first, 1, &done, &err), &done);
    json_decref(first);
    if (what % 6 == 0)
        expect(policies_create_key(p, body, 2, &done, &err), &done);
    else if (what % 6 == 1)
        expect(policies_update_key(p, "first", body, 2, &done, &err), &done);
    else
        expect(policies_replace(p, (enum policy_section)(what % 6 - 2), body, 2, &done, &err), &done);
    const struct policy *s = policies_now(p);
    check_policy(s);
    policy_release(s);
    require(policies_close(p, &err) == WK_OK);
    json_decref(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    text[0] = '\0';
    if (data[0] == 0)
        fuzz_sealed(data + 1, size - 1);
    else if (data[0] == 1)
        fuzz_document((const char *)data + 1, size - 1);
    else
        fuzz_changes(data[0], (const char *)data + 1, size - 1);
    return 0;
}
