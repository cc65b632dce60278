/* vocab_check.h: a vocabulary of vocab_builder.h that opens, and the tokens that a text becomes, for tests of one kind
 * of tokenizer. */
#ifndef TESTS_SUPPORT_VOCAB_CHECK_H
#define TESTS_SUPPORT_VOCAB_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "vocab_builder.h"

static struct builder builder;
static char text_of_error[512];
static const struct wk_err err = { text_of_error, sizeof text_of_error };

static struct tokenizer *must_open(void)
{
    struct tokenizer *t;
    if (builder_open(&builder, &t, &err)) fail_msg("%s", text_of_error);
    return t;
}

/* The tokens of a text as the file spells them, with spaces between; U+2581 is _. */
static void check(const struct tokenizer *t, const char *text, size_t n, bool special, const char *want)
{
    char got[4096] = "";
    size_t at = 0;
    struct tokens ids = { 0 };
    assert_int_equal(tokenizer_encode(t, text, n, false, special, &ids, &err), WK_OK);
    for (size_t i = 0; i < ids.n; i++) {
        const struct token_bytes s = tokenizer_text(t, ids.ids[i]);
        const bool begins = s.len >= 3 && memcmp(s.data, "\xE2\x96\x81", 3) == 0;
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%s%.*s", i ? " " : "", begins ? "_" : "",
                               (int)(s.len - 3 * begins), s.data + 3 * begins);
    }
    assert_string_equal(got, want);
    tokens_free(&ids);
}
#define CHECK(t, text, want) check(t, text, sizeof text - 1, false, want)

#endif
