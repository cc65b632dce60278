/* test_rank.c: a reranker's prompt: templates in either order, what of the texts is no template, and files that are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_build.h"
#include "model/rank.h"

static const char key[] = "tokenizer.chat_template.rerank";
static char text[512];
static const struct wk_err err = { text, sizeof text };

static struct token_bytes bytes(const char *s) { return (struct token_bytes){ s, strlen(s) }; }

/* The prompt that the template makes: what is the template's between < and >. */
static void makes(const char *template, const char *query, const char *document, const char *want)
{
    struct gguf_build *g = gguf_build_new("bert");
    struct rank_form form;
    struct tokenizer_part parts[RANK_PARTS];
    char got[512] = "";
    gguf_build_str(g, key, template);
    struct gguf *file = gguf_build_open(g);
    if (rank_form_open(file, &form, &err)) fail_msg("%s", text);
    const size_t n = rank_form_parts(&form, bytes(query), bytes(document), parts);
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, parts[i].parse_special ? "<%.*s>" : "%.*s", (int)parts[i].len,
                               (const char *)parts[i].bytes);
    assert_string_equal(got, want);
    gguf_close(file);
    gguf_build_free(g);
}

static void templates(void **state)
{
    (void)state;
    makes("q: {query}\nd: {document}\n", "Q", "D", "<q: >Q<\nd: >D<\n>");
    makes("d: {document}\nq: {query}", "Q", "D", "<d: >D<\nq: >Q<>");
    makes("{query}{document}", "{document}", "{query}", "<>{document}<>{query}<>");
    makes("{{query}} {documents} {document}", "", "D", "<{><} {documents} >D<>");
}

static void refused(const char *template, const char *words)
{
    struct gguf_build *g = gguf_build_new("bert");
    struct rank_form form;
    gguf_build_str(g, key, template);
    struct gguf *file = gguf_build_open(g);
    text[0] = '\0';
    assert_int_equal(rank_form_open(file, &form, &err), WK_INVALID);
    if (!strstr(text, words)) fail_msg("\"%s\" does not say %s", text, words);
    gguf_close(file);
    gguf_build_free(g);
}

static void files(void **state)
{
    (void)state;
    refused("", "{query} is missing");
    refused("{query}", "{document} is missing");
    refused("{document} {query", "{query} is missing");
    refused("{query} {document} {query}", "{query} is there twice");
    struct gguf_build *g = gguf_build_new("bert");
    struct rank_form form;
    struct tokenizer_part parts[RANK_PARTS];
    struct gguf *file = gguf_build_open(g);
    assert_int_equal(rank_form_open(file, &form, &err), WK_OK);
    assert_int_equal(rank_form_parts(&form, bytes("Q"), bytes("D"), parts), 0);
    gguf_close(file);
    gguf_build_u32(g, key, 5);
    file = gguf_build_open(g);
    assert_int_equal(rank_form_open(file, &form, &err), WK_INVALID);
    assert_non_null(strstr(text, key));
    gguf_close(file);
    gguf_build_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(templates), cmocka_unit_test(files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
