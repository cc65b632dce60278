/* test_opa.c: what a policy server's answer may be: everything but a clear yes is a no, by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "opa.h"

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t status;
        const char *body;
        enum opa_kind kind;
        const char *reason; /* in it */
    } rows[] = {
        { 200, "{\"result\":true}", OPA_ALLOWED, "" },
        { 200, "{\"result\":{\"allow\":true}}", OPA_ALLOWED, "" },
        { 200, "{\"result\":{\"allow\":true,\"reason\":\"fine\"},\"metrics\":{}}", OPA_ALLOWED, "" },
        { 200, "{\"result\":false}", OPA_DENIED, "says no" },
        { 200, "{\"result\":{\"allow\":false}}", OPA_DENIED, "says no" },
        { 200, "{\"result\":{\"allow\":false,\"reason\":\"not today\"}}", OPA_DENIED, "not today" },
        { 200, "{\"result\":{\"allow\":false,\"reason\":\"a\\nb\"}}", OPA_DENIED, "a b" },
        { 200, "{\"result\":{\"allow\":false,\"reason\":\"%s%n\"}}", OPA_DENIED, "%s%n" },
        { 200, "{}", OPA_UNDEFINED, "undefined" },
        { 200, "{\"decision_id\":\"1\"}", OPA_UNDEFINED, "undefined" },
        { 200, "{\"Result\":true}", OPA_UNDEFINED, "undefined" },
        { 200, "", OPA_WRONG, "not JSON" },
        { 200, "true", OPA_WRONG, "not JSON" },
        { 200, "[true]", OPA_WRONG, "not a JSON object" },
        { 200, "{\"result\":true", OPA_WRONG, "not JSON" },
        { 200, "{\"result\":true}{}", OPA_WRONG, "not JSON" },
        { 200, "{\"result\":false,\"result\":true}", OPA_WRONG, "not JSON" },
        { 200, "{\"result\":{\"allow\":false,\"allow\":true}}", OPA_WRONG, "not JSON" },
        { 200, "<html>true</html>", OPA_WRONG, "not JSON" },
        { 200, "{\"result\":null}", OPA_WRONG, "neither a boolean" },
        { 200, "{\"result\":\"true\"}", OPA_WRONG, "neither a boolean" },
        { 200, "{\"result\":1}", OPA_WRONG, "neither a boolean" },
        { 200, "{\"result\":[true]}", OPA_WRONG, "neither a boolean" },
        { 200, "{\"result\":{}}", OPA_WRONG, "no \"allow\"" },
        { 200, "{\"result\":{\"reason\":\"x\"}}", OPA_WRONG, "no \"allow\"" },
        { 200, "{\"result\":{\"allow\":\"true\"}}", OPA_WRONG, "\"allow\"" },
        { 200, "{\"result\":{\"allow\":1}}", OPA_WRONG, "\"allow\"" },
        { 200, "{\"result\":{\"allow\":null}}", OPA_WRONG, "\"allow\"" },
        { 200, "{\"result\":{\"allow\":true,\"deny\":[]}}", OPA_WRONG, "not known" },
        { 200, "{\"result\":{\"allow\":true,\"reason\":1}}", OPA_WRONG, "\"reason\"" },
        { 200, "{\"result\":{\"allow\":true,\"max_tokens\":\"5\"}}", OPA_WRONG, "\"max_tokens\"" },
        { 200, "{\"result\":{\"allow\":true,\"max_tokens\":-1}}", OPA_WRONG, "\"max_tokens\"" },
        { 200, "{\"result\":{\"allow\":true,\"max_tokens\":1.5}}", OPA_WRONG, "\"max_tokens\"" },
        { 200, "{\"result\":{\"allow\":true,\"max_tokens\":1e12}}", OPA_WRONG, "\"max_tokens\"" },
        { 200, "{\"result\":{\"allow\":true,\"max_tokens\":null}}", OPA_WRONG, "\"max_tokens\"" },
        { 200, "{\"result\":{\"allow\":true,\"obligations\":\"log\"}}", OPA_WRONG, "\"obligations\"" },
        { 200, "{\"result\":true,\"decision_id\":7}", OPA_WRONG, "decision_id" },
        { 400, "{\"result\":true}", OPA_STATUS, "400" },
        { 404, "{\"result\":true}", OPA_STATUS, "404" },
        { 500, "{\"result\":true}", OPA_STATUS, "500" },
        { 301, "{\"result\":true}", OPA_STATUS, "301" },
        { 204, "", OPA_STATUS, "204" },
        { 201, "{\"result\":true}", OPA_STATUS, "201" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct opa_decision d;
        const size_t n = strlen(rows[i].body);
        char *exact = malloc(n ? n : 1);
        assert_non_null(exact);
        memcpy(exact, rows[i].body, n);
        const bool allowed = opa_read(rows[i].status, exact, n, &d);
        free(exact);
        if (d.kind != rows[i].kind || allowed != (rows[i].kind == OPA_ALLOWED) || !strstr(d.reason, rows[i].reason))
            fail_msg("%u %s: %s: %s", rows[i].status, rows[i].body, opa_kind_name(d.kind), d.reason);
        assert_true(allowed ? d.reason[0] == '\0' : d.reason[0] != '\0' && d.max_tokens == -1 && !d.obligations);
        opa_decision_free(&d);
    }
}

static void test_members(void **state)
{
    (void)state;
    static const char all[] = "{\"decision_id\":\"4ca636c1-55e4\",\"result\":{\"allow\":true,\"max_tokens\":64.0,"
                              "\"obligations\":[\"mask\"]}}";
    struct opa_decision d;
    assert_true(opa_read(200, all, sizeof all - 1, &d));
    assert_true(d.max_tokens == 64 && json_array_size(d.obligations) == 1);
    assert_string_equal(d.decision_id, "4ca636c1-55e4");
    opa_decision_free(&d);
    static const char no[] =
        "{\"decision_id\":\"x\",\"result\":{\"allow\":false,\"max_tokens\":64,\"obligations\":{}}}";
    assert_false(opa_read(200, no, sizeof no - 1, &d));
    assert_true(d.max_tokens == -1 && !d.obligations);
    assert_string_equal(d.decision_id, "x"); /* for the audit, of a no as well */
    /* a long reason is cut at a whole character */
    char body[2000] = "{\"result\":{\"allow\":false,\"reason\":\"a";
    for (int i = 0; i < 600; i++) strcat(body, "\xc3\xa4");
    strcat(body, "\"}}");
    assert_false(opa_read(200, body, strlen(body), &d));
    assert_int_equal(d.kind, OPA_DENIED);
    const size_t n = strlen(d.reason);
    assert_true(n == sizeof d.reason - 1 && (unsigned char)d.reason[n - 1] == 0xa4);
}

static void test_configuration(void **state)
{
    (void)state;
    static const struct {
        const char *url, *path;
        bool good;
    } rows[] = { { "http://127.0.0.1:8181", "worker/allow", true },
                 { "http://[::1]:8181/", "a", true },
                 { "https://opa.test", "a.b/c-d/e_f", true },
                 { "unix:/run/opa.sock", "worker/allow", true },
                 { "unix:run/opa.sock", "worker/allow", false },
                 { "unix:", "worker/allow", false },
                 { "ftp://opa.test", "worker/allow", false },
                 { "http://", "worker/allow", false },
                 { "http://opa.test/v1", "worker/allow", false },
                 { "http://user@opa.test", "worker/allow", false },
                 { "http://opa.test?x", "worker/allow", false },
                 { "", "worker/allow", false },
                 { NULL, "worker/allow", false },
                 { "http://opa.test", "", false },
                 { "http://opa.test", "/worker", false },
                 { "http://opa.test", "worker/", false },
                 { "http://opa.test", "worker//allow", false },
                 { "http://opa.test", "../config", false },
                 { "http://opa.test", "a?pretty", false },
                 { "http://opa.test", "a%2fb", false },
                 { "http://opa.test", NULL, false } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct opa *p = NULL;
        char text[400] = "";
        const wk_status s = opa_open(&(struct opa_config){ rows[i].url, rows[i].path, NULL }, NULL, &p,
                                     &(struct wk_err){ text, sizeof text });
        if ((s == WK_OK) != rows[i].good || (p != NULL) != rows[i].good)
            fail_msg("%s %s: %s", rows[i].url, rows[i].path, text);
        assert_true(rows[i].good || text[0]);
        opa_close(p);
    }
    struct opa *p = NULL;
    assert_int_equal(opa_open(&(struct opa_config){ "https://opa.test", "a", "/nowhere.pem" }, NULL, &p, NULL),
                     WK_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_answers), cmocka_unit_test(test_members),
                                        cmocka_unit_test(test_configuration) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
