/* test_policy.c: the policy document: what is read, what is refused by which path, and what is found in it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gate/policy_internal.h"

static char text[512];
static const struct wk_err err = { text, sizeof text };

#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeef"
#define HEAD "{\"format\":1,\"generation\":3"
#define SECRET(last) "{\"hash\":\"" HASH last "\",\"hint\":\"AbCd\"}"
#define ID64 "a123456789012345678901234567890123456789012345678901234567890123"

static const struct policy *reads(const char *json)
{
    const struct policy *p = NULL;
    text[0] = '\0';
    const wk_status status = policy_read(json, strlen(json), &p, &err);
    if (status != WK_OK) fail_msg("%s: %s", json, text);
    return p;
}

static void test_whole(void **state)
{
    (void)state;
    const struct policy *p = reads(
        HEAD ",\"keys\":[{\"id\":\"b.2\",\"name\":\"B\xc3\xa9\",\"tenant\":\"t\",\"scopes\":[\"inference\",\"admin\"],"
             "\"secrets\":[" SECRET(
                 "1") ",{\"hash\":\"" HASH "2\",\"hint\":\"wxyz\",\"created\":5,\"expires\":9}],"
                      "\"created\":4,\"expires\":100,\"disabled\":false,\"limits\":{\"requests_per_minute\":7,"
                      "\"tokens_per_minute\":\"none\"},\"max_priority\":9,\"last_used\":60},{\"id\":\"a\"}],"
                      "\"roles\":{\"z\":{},\"ML team\":{\"scopes\":[\"embed\"],\"tenant\":\"ml\",\"max_priority\":0,"
                      "\"limits\":{\"tokens_per_minute\":50}}},\"limits\":{\"requests_per_minute\":0,\"tokens_per_"
                      "minute\":99},"
                      "\"guardrails\":{\"blocklist\":[\"x\",\"\xe6\x97\xa5\"],\"block_output\":true,\"opa\":{\"url\":"
                      "\"http://127.0.0.1:8181\",\"path\":\"worker/allow\",\"send_text\":true}},"
                      "\"scheduler\":{\"preempt\":false,\"timeslice_tokens\":64}}");
    assert_int_equal(p->generation, 3);
    assert_int_equal(p->guardrails_since, 3);
    assert_int_equal(p->n_keys, 2);
    const struct policy_key *a = &p->keys[0], *b = &p->keys[1];
    assert_string_equal(a->id, "a");
    assert_string_equal(a->name, "");
    assert_string_equal(a->tenant, "a");
    assert_true(a->scopes == 0 && a->n_secrets == 0 && a->max_priority == -1 && !a->expires && !a->disabled);
    assert_string_equal(b->tenant, "t");
    assert_string_equal(b->name, "B\xc3\xa9");
    assert_int_equal(b->scopes, SCOPE_INFERENCE | SCOPE_ADMIN);
    assert_true(b->n_secrets == 2 && b->secrets[1].created == 5 && b->secrets[1].expires == 9);
    assert_string_equal(b->secrets[1].hint, "wxyz");
    assert_true(b->secrets[0].hash[1] == 0x11 && b->secrets[0].hash[31] == 0xf1 && b->secrets[1].hash[31] == 0xf2);
    assert_true(b->created == 4 && b->expires == 100 && b->max_priority == 9 && policy_last_used(b) == 60);
    struct policy_limits limits = policy_limits_of(p, &b->limits);
    assert_true(limits.requests_per_minute == 7 && limits.tokens_per_minute == 0);
    limits = policy_limits_of(p, &a->limits);
    assert_true(limits.requests_per_minute == 0 && limits.tokens_per_minute == 99);
    const struct policy_role *role = policy_role_of(p, "ML team!", 7);
    assert_non_null(role);
    assert_true(role->scopes == SCOPE_EMBED && role->max_priority == 0 && role->limits.tokens_per_minute == 50);
    assert_string_equal(role->tenant, "ml");
    assert_null(policy_role_of(p, "ML team!", 8));
    assert_null(policy_role_of(p, "ML", 2));
    assert_null(policy_role_of(p, "z", 1)->tenant);
    assert_int_equal(p->guardrails.n_phrases, 2);
    assert_string_equal(p->guardrails.blocklist[1], "\xe6\x97\xa5");
    assert_true(p->guardrails.block_output && p->guardrails.opa_send_text);
    assert_string_equal(p->guardrails.opa_path, "worker/allow");
    assert_true(p->scheduler.has_preempt && !p->scheduler.preempt && !p->scheduler.has_high_priority);
    assert_true(p->scheduler.has_timeslice && p->scheduler.timeslice_tokens == 64);
    assert_ptr_equal(policy_key_of(p, "b.2"), b);
    assert_null(policy_key_of(p, "b"));
    policy_release(p);
}

/* What is written is read as the same, with the uses of now. */
static void test_round(void **state)
{
    (void)state;
    const struct policy *p =
        reads(HEAD ",\"keys\":[{\"id\":\"b\",\"secrets\":[" SECRET("1") "]},{\"id\":\"a\","
                                                                        "\"last_used\":60}],\"roles\":{\"r\":{}}}");
    char *json, *again;
    size_t n, again_n;
    policy_used(&p->keys[1], 100 * 60 + 59);
    policy_used(&p->keys[1], 99 * 60); /* a clock that went back */
    assert_int_equal(policy_last_used(&p->keys[1]), 6000);
    assert_int_equal(snapshot_write(snapshot_of(p), &json, &n, &err), WK_OK);
    const struct policy *q = reads(json);
    assert_int_equal(policy_last_used(policy_key_of(q, "b")), 6000);
    assert_int_equal(policy_last_used(policy_key_of(q, "a")), 60);
    assert_int_equal(snapshot_write(snapshot_of(q), &again, &again_n, &err), WK_OK);
    assert_string_equal(json, again);
    free(json);
    free(again);
    policy_release(p);
    policy_release(q);
}

/* Documents that are refused, and what is said of each. */
#define KEY(members) HEAD ",\"keys\":[{\"id\":\"x\"},{\"id\":\"a\"," members "}]}"
#define KEY_SECRET(members) KEY("\"secrets\":[{\"hash\":\"" HASH "1\",\"hint\":\"AbCd\"},{" members "}]")
#define RAILS(members) HEAD ",\"guardrails\":{" members "}}"
static const struct {
    const char *json, *says;
} refused[] = {
    { "", "line 1, column 0: is no JSON" },
    { "[]", "the document: an object is expected, found an array" },
    { HEAD "} x", "is no JSON, or goes on" },
    { HEAD ",\"generation\":4}", "duplicate object key near '\"generation\"'" },
    { HEAD ",\"keys\":[{\"id\":\"a\",\"id\":\"b\"}]}", "duplicate object key near '\"id\"'" },
    { HEAD ",\"keys\":\"\xff\"}", "is no UTF-8" },
    { "{\"format\":99999999999999999999}", "a number is out of range" },
    { "{\"format\":1}", "the member \"generation\" is missing" },
    { "{\"generation\":1}", "the member \"format\" is missing" },
    { "{\"format\":2,\"generation\":1}", "format: 2 is not from 1 to 1" },
    { "{\"format\":1,\"generation\":-1}", "generation: -1 is not from 0" },
    { "{\"format\":1,\"generation\":1.0}", "generation: a whole number from 0" },
    { HEAD ",\"key\":[]}", "there is no member \"key\" here, only format, generation, keys" },
    { HEAD ",\"a\x7f\\u0007\\u0085\":[]}", "there is no member \"a????\" here" },
    { HEAD ",\"keys\":{}}", "keys: an array of keys is expected, found an object" },
    { HEAD ",\"keys\":[1]}", "keys[0]: an object is expected, found a whole number" },
    { HEAD ",\"keys\":[{}]}", "keys[0]: the member \"id\" is missing" },
    { HEAD ",\"keys\":[{\"id\":\"\"}]}", "keys[0].id: has 0 bytes; 1 to 64 are allowed" },
    { HEAD ",\"keys\":[{\"id\":\"" ID64 "4\"}]}", "keys[0].id: has 65 bytes" },
    { HEAD ",\"keys\":[{\"id\":\"A\"}]}", "keys[0].id: \"A\" is not of the form ^[a-z0-9]" },
    { HEAD ",\"keys\":[{\"id\":\"-a\"}]}", "keys[0].id: \"-a\" is not" },
    { HEAD ",\"keys\":[{\"id\":\"a b\"}]}", "keys[0].id: \"a b\" is not" },
    { HEAD ",\"keys\":[{\"id\":null}]}", "keys[0].id: a string is expected, found null" },
    { HEAD ",\"keys\":[{\"id\":\"a\"},{\"id\":\"b\"},{\"id\":\"a\"}]}", "keys: two keys have the id \"a\"" },
    { KEY("\"scope\":[]"), "keys[1]: there is no member \"scope\" here, only id, name, tenant, scopes, secrets" },
    { KEY("\"name\":\"a\\nb\""), "keys[1].name: has control characters" },
    { KEY("\"name\":\"a\\u0085b\""), "keys[1].name: has control characters" },
    { KEY("\"tenant\":\"\""), "keys[1].tenant: has 0 bytes" },
    { KEY("\"scopes\":\"admin\""), "keys[1].scopes: an array of scopes is expected, found a string" },
    { KEY("\"scopes\":[\"embed\",\"admn\"]"), "keys[1].scopes[1]: \"admn\" is not a scope; there are inference" },
    { KEY("\"scopes\":[\"embed\",\"embed\"]"), "keys[1].scopes[1]: \"embed\" stands here twice" },
    { KEY("\"scopes\":[null]"), "keys[1].scopes[0]: the name of a scope is expected, found null" },
    { KEY("\"expires\":-1"), "keys[1].expires: -1 is not from 0 to 253402300799" },
    { KEY("\"expires\":253402300800"), "keys[1].expires: 253402300800 is not" },
    { KEY("\"expires\":\"never\""), "keys[1].expires: a whole number from" },
    { KEY("\"disabled\":1"), "keys[1].disabled: true or false is expected, found a whole number" },
    { KEY("\"max_priority\":1001"), "keys[1].max_priority: 1001 is not from 0 to 1000" },
    { KEY("\"limits\":[]"), "keys[1].limits: an object is expected, found an array" },
    { KEY("\"limits\":{\"tokens\":1}"), "keys[1].limits: there is no member \"tokens\" here" },
    { KEY("\"limits\":{\"tokens_per_minute\":\"nil\"}"), "keys[1].limits.tokens_per_minute: a whole number or" },
    { KEY("\"limits\":{\"tokens_per_minute\":1e3}"), "keys[1].limits.tokens_per_minute: a whole number from" },
    { KEY("\"limits\":{\"requests_per_minute\":1000000001}"), "requests_per_minute: 1000000001 is not" },
    { KEY("\"secrets\":[{},{},{}]"), "keys[1].secrets: has 3 secrets; at most 2" },
    { KEY_SECRET("\"hint\":\"AbCd\""), "keys[1].secrets[1]: the member \"hash\" is missing" },
    { KEY_SECRET("\"hash\":\"" HASH "2\""), "keys[1].secrets[1]: the member \"hint\" is missing" },
    { KEY_SECRET("\"hash\":\"" HASH "\""), "keys[1].secrets[1].hash: has 63 bytes" },
    { KEY_SECRET("\"hash\":\"" HASH "A\""), "keys[1].secrets[1].hash: 64 hexadecimal digits" },
    { KEY_SECRET("\"hash\":\"" HASH "2\",\"hint\":\"AbC\""), "keys[1].secrets[1].hint: has 3 bytes" },
    { KEY_SECRET("\"hash\":\"" HASH "1\",\"hint\":\"AbCd\""), "\"a\" and \"a\" have the same secret" },
    { HEAD ",\"keys\":[{\"id\":\"a\",\"secrets\":[" SECRET("1") "]},{\"id\":\"b\",\"secrets\":[" SECRET("1") "]}]}",
      "keys: \"a\" and \"b\" have the same secret" },
    { HEAD ",\"roles\":[]}", "roles: an object of roles is expected" },
    { HEAD ",\"roles\":{\"\":{}}}", "roles: the name of a role has 1 to 128 bytes" },
    { HEAD ",\"roles\":{\"a\\u0001\":{}}}", "roles: the name of a role" },
    { HEAD ",\"roles\":{\"r\":{\"scopes\":[\"x\"]}}}", "roles.r.scopes[0]: \"x\" is not a scope" },
    { HEAD ",\"roles\":{\"r\":{\"id\":1}}}", "roles.r: there is no member \"id\" here" },
    { HEAD ",\"limits\":{\"requests_per_minute\":true}}", "limits.requests_per_minute: a whole number" },
    { RAILS("\"blocklist\":[\"a\",\"\"]"), "guardrails.blocklist[1]: has 0 bytes; 1 to 256 are allowed" },
    { RAILS("\"blocklist\":[\"a\\u0000b\"]"), "is no JSON" },
    { RAILS("\"block_output\":null"), "guardrails.block_output: true or false is expected, found null" },
    { RAILS("\"opa\":{\"path\":\"a\"}"), "guardrails.opa: the member \"url\" is missing" },
    { RAILS("\"opa\":{\"url\":\"http://a\"}"), "guardrails.opa: the member \"path\" is missing" },
    { RAILS("\"opa\":{\"url\":\"ftp://a\",\"path\":\"a\"}"), "guardrails.opa.url: is no URL that begins" },
    { RAILS("\"opa\":{\"url\":\"http://a b\",\"path\":\"a\"}"), "guardrails.opa.url: is no URL" },
    { RAILS("\"opa\":{\"url\":\"http://a\",\"path\":\"/a\"}"), "guardrails.opa.path: is no path" },
    { RAILS("\"opa\":{\"url\":\"http://a\",\"path\":\"a?b\"}"), "guardrails.opa.path: is no path" },
    { HEAD ",\"scheduler\":{\"high_priority\":1001}}", "scheduler.high_priority: 1001 is not" },
    { HEAD ",\"scheduler\":{\"timeslice_tokens\":-1}}", "scheduler.timeslice_tokens: -1 is not" },
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct policy *p = NULL;
        text[0] = '\0';
        if (policy_read(refused[i].json, strlen(refused[i].json), &p, &err) != WK_INVALID || p)
            fail_msg("accepted: %s", refused[i].json);
        if (!strstr(text, refused[i].says)) fail_msg("%s\n says  %s\n  not %s", refused[i].json, text, refused[i].says);
    }
}

/* n items, each made of its number, between a head and a tail. */
static char *many(const char *head, const char *item, size_t n, const char *tail)
{
    const size_t cap = strlen(head) + n * (strlen(item) + 16) + strlen(tail) + 1;
    char *json = malloc(cap);
    assert_non_null(json);
    size_t at = (size_t)snprintf(json, cap, "%s", head);
    for (size_t i = 0; i < n; i++) {
        if (i) json[at++] = ',';
        for (const char *c = item; *c; c++) /* # is the number */
            if (*c == '#')
                at += (size_t)snprintf(json + at, cap - at, "%05zu", i);
            else
                json[at++] = *c;
    }
    (void)snprintf(json + at, cap - at, "%s", tail);
    return json;
}

static void test_counts(void **state)
{
    (void)state;
    static const struct {
        const char *head, *item, *tail, *says;
        size_t most;
    } cases[] = {
        { HEAD ",\"keys\":[", "{\"id\":\"k#\"}", "]}", "keys: has 10001 keys; at most 10000", POLICY_MOST_KEYS },
        { HEAD ",\"roles\":{", "\"k#\":{}", "}}", "roles: has 1001 roles; at most 1000", POLICY_MOST_ROLES },
        { HEAD ",\"guardrails\":{\"blocklist\":[", "\"k#\"", "]}}", "blocklist: has 10001 phrases; at most 10000",
          POLICY_MOST_PHRASES },
        { HEAD ",\"guardrails\":{\"blocklist\":[\"", "#", "\"]}}", "blocklist[0]: has 257 bytes", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct policy *p = NULL;
        const size_t most =
            cases[i].most ? cases[i].most : 42; /* 42 numbers, 41 commas: 251 bytes; with one more 257 */
        char *json = many(cases[i].head, cases[i].item, most, cases[i].tail);
        policy_release(reads(json));
        free(json);
        json = many(cases[i].head, cases[i].item, most + 1, cases[i].tail);
        assert_int_equal(policy_read(json, strlen(json), &p, &err), WK_INVALID);
        assert_non_null(strstr(text, cases[i].says));
        free(json);
    }
    const size_t n = POLICY_MOST_BYTES;
    char *json = malloc(n + 2);
    assert_non_null(json);
    memset(json, ' ', n + 1);
    memcpy(json, HEAD "}", sizeof HEAD);
    json[n + 1] = '\0';
    const struct policy *p = NULL;
    assert_int_equal(policy_read(json, n + 1, &p, &err), WK_INVALID);
    assert_non_null(strstr(text, "at most 16777216"));
    assert_int_equal(policy_read(json, n, &p, &err), WK_OK);
    policy_release(p);
    free(json);
}

/* ---- look-ups ---------------------------------------------------------------------------------------------------- */

static void hash_hex(const char *secret, char hex[2 * SECRET_HASH + 1])
{
    uint8_t hash[SECRET_HASH];
    assert_true(secret_hash(secret, hash));
    for (size_t i = 0; i < sizeof hash; i++) (void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
}

static void test_find(void **state)
{
    (void)state;
    char secret[3][SECRET_TEXT], hex[3][2 * SECRET_HASH + 1], json[1024];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(secret_make(secret[i], &err), WK_OK);
        hash_hex(secret[i], hex[i]);
    }
    static const char form[] = HEAD ",\"keys\":[{\"id\":\"a\",%s\"secrets\":[{\"hash\":\"%s\",\"hint\":\"AbCd\","
                                    "\"expires\":50},{\"hash\":\"%s\",\"hint\":\"AbCd\"}]},{\"id\":\"b\"}]}";
    static const struct {
        const char *members;
        int64_t now;
        enum policy_found old, new;
    } cases[] = {
        { "", 49, POLICY_FOUND, POLICY_FOUND },
        { "", 50, POLICY_EXPIRED, POLICY_FOUND },
        { "\"expires\":40,", 39, POLICY_FOUND, POLICY_FOUND },
        { "\"expires\":40,", 40, POLICY_EXPIRED, POLICY_EXPIRED },
        { "\"disabled\":true,", 1, POLICY_DISABLED, POLICY_DISABLED },
        { "\"disabled\":true,\"expires\":40,", 60, POLICY_DISABLED, POLICY_DISABLED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t key;
        (void)snprintf(json, sizeof json, form, cases[i].members, hex[0], hex[1]);
        const struct policy *p = reads(json);
        assert_int_equal(policy_find(p, secret[0], SECRET_CHARS, cases[i].now, &key), cases[i].old);
        assert_int_equal(key, 0);
        assert_int_equal(policy_find(p, secret[1], SECRET_CHARS, cases[i].now, &key), cases[i].new);
        assert_int_equal(key, 0);
        assert_int_equal(policy_find(p, secret[2], SECRET_CHARS, cases[i].now, &key), POLICY_UNKNOWN);
        assert_true(key == UINT32_MAX);
        assert_int_equal(policy_find(p, secret[0], SECRET_CHARS - 1, cases[i].now, &key), POLICY_MALFORMED);
        assert_true(key == UINT32_MAX);
        policy_release(p);
    }
    const struct policy *p = reads(HEAD "}");
    static const uint8_t zeros[SECRET_HASH];
    uint32_t key;
    assert_int_equal(policy_find_hash(p, zeros, 1, &key), POLICY_UNKNOWN); /* as a free place has */
    assert_int_equal(policy_find(p, secret[0], SECRET_CHARS, 1, &key), POLICY_UNKNOWN);
    policy_release(p);
}

/* The most keys that there can be, many of which begin at the same place: each is found, and no other. */
static void test_find_many(void **state)
{
    (void)state;
    static const char zeros[] = "00000000000000000000000000000000000000000000000000000000000",
                      ones[] = "11111111111111111111111111111111111111111111111111111111111";
    char item[256];
    (void)snprintf(item, sizeof item,
                   "{\"id\":\"k#\",\"secrets\":[{\"hash\":\"%s#\",\"hint\":\"AbCd\"},{\"hash\":\"#%s\",\"hint\":"
                   "\"AbCd\"}]}",
                   zeros, ones);
    char *json = many(HEAD ",\"keys\":[", item, 1500, "]}");
    const struct policy *p = reads(json);
    free(json);
    for (uint32_t i = 0; i < 100000; i += i < 3000 ? 1 : 97) {
        char hex[2 * SECRET_HASH + 6];
        uint8_t hash[SECRET_HASH];
        for (int form = 0; form < 2; form++) {
            uint32_t key;
            (void)snprintf(hex, sizeof hex, form ? "%2$05u%1$s" : "%1$s%2$05u", form ? ones : zeros, i);
            for (size_t j = 0; j < sizeof hash; j++) {
                unsigned byte;
                assert_int_equal(sscanf(hex + 2 * j, "%2x", &byte), 1);
                hash[j] = (uint8_t)byte;
            }
            const enum policy_found found = policy_find_hash(p, hash, 1, &key);
            if (i < 1500) {
                assert_int_equal(found, POLICY_FOUND);
                assert_int_equal(key, i);
            } else {
                assert_int_equal(found, POLICY_UNKNOWN);
            }
        }
    }
    policy_release(p);
}

/* ---- for the administrator ----------------------------------------------------------------------------------------
 */

static void test_shown(void **state)
{
    (void)state;
    const struct policy *p = reads(HEAD ",\"keys\":[{\"id\":\"a\",\"scopes\":[\"embed\"],\"secrets\":[" SECRET(
        "1") "]}],"
             "\"scheduler\":{\"preempt\":true}}");
    policy_used(&p->keys[0], 125);
    json_t *o = policy_key_json(p, &p->keys[0]);
    char *json = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(json, "{\"id\":\"a\",\"last_used\":120,\"scopes\":[\"embed\"],"
                              "\"secrets\":[{\"created\":0,\"hint\":\"AbCd\"}]}");
    free(json);
    (void)json_array_clear(json_object_get(o, "scopes")); /* the caller's own */
    json_decref(o);
    char *written;
    size_t n;
    assert_int_equal(snapshot_write(snapshot_of(p), &written, &n, &err), WK_OK);
    assert_non_null(strstr(written, "embed"));
    assert_non_null(strstr(written, HASH));
    free(written);
    o = policy_section_json(p, POLICY_SCHEDULER);
    assert_true(json_is_true(json_object_get(o, "preempt")));
    json_decref(o);
    o = policy_section_json(p, POLICY_ROLES);
    assert_true(json_is_object(o) && json_object_size(o) == 0);
    json_decref(o);
    policy_release(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),  cmocka_unit_test(test_round), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_counts), cmocka_unit_test(test_find),  cmocka_unit_test(test_find_many),
        cmocka_unit_test(test_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
