/* pretokenize.c: the models' pre-tokenizer patterns and a driver that applies them with PCRE2.
 *
 * The patterns are data of the models (their tokenizer.json or tiktoken definition), written so that PCRE2 gives the
 * same cuts as the engines they were made for:
 *  - \s in those engines is Unicode White_Space; PCRE2's, in UCP mode, has U+180E too. S below lists White_Space.
 *  - A quantifier is possessive (++, *+, ?+) wherever giving back could not help, so that a match costs time linear
 *      in what it consumes.
 *    Where backtracking decides the cut (\s+(?!\S), the case classes of gpt-4o) it goes back over one run once, and the
 *    match then consumes that run: a whole text stays linear.
 * Alternatives are tried in order, leftmost first; text that no alternative matches is a piece of its own. */
#include "tokenizer/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/utf8.h"
#include "tokenizer/vocab.h"

/* White_Space, for use inside a class. */
#define S "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACES "[" S "]+(?![^" S "])|[" S "]++" /* a run before a word leaves it its last space */
#define LINES "[" S "]*[\\r\\n]++|" SPACES
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_OF(upper, lower, suffix) \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "++" suffix "|[^\\r\\n\\p{L}\\p{N}]?" upper "++" lower "*+" suffix
#define CASED(suffix) CASED_OF(UPPER, LOWER, suffix)
#define SYMBOLS " ?+[^" S "\\p{L}\\p{N}]++"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?+\\p{L}++| ?+\\p{N}++|" SYMBOLS "|" SPACES
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}+|" SYMBOLS "[\\r\\n]*+|" LINES
#define QWEN2 CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*+|" LINES
#define QWEN35 \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]++|\\p{N}| ?+[^" S "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|" LINES
#define GPT4O CASED(CONTRACTION "?+") "|\\p{N}{1,3}+|" SYMBOLS "[\\r\\n/]*+|" LINES
#define TEKKEN CASED("") "|\\p{N}|" SYMBOLS "[\\r\\n/]*+|" LINES
/* Kimi K2's: the same without Chinese characters, which are pieces of their own. PCRE2's classes know no difference:
 * these name what is not in them. */
#define HAN                                                                                                     \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}\\x{3021}-\\x{3029}"            \
    "\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}\\x{16fe2}" \
    "\\x{16fe3}\\x{16ff0}\\x{16ff1}"                                                                            \
    "\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{323af}"
#define UPPER_NOT_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN "]"
#define LOWER_NOT_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN "]"
#define CASED_NOT_HAN CASED_OF(UPPER_NOT_HAN, LOWER_NOT_HAN, CONTRACTION "?+")
#define KIMI "[" HAN "]++|" CASED_NOT_HAN "|\\p{N}{1,3}+|" SYMBOLS "[\\r\\n]*+|" LINES
/* Tiny Aya's digits in threes from the right, \\d{1,3}(?=(?:\\d{3})*\\b): the whole number first, then its parts, so
 * that a long one costs linear time. IN_WORD: what \\w is there. */
#define IN_WORD                                                                                \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define NUMBER "(?<!\\p{Nd})\\p{Nd}++(?![" IN_WORD "])"
#define THREES "\\A\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*+\\z)|(?!\\A)\\G\\p{Nd}{3}"
/* Youtu's first cut: Korean; punctuation of Chinese; Bopomofo; Chinese and Japanese. */
#define YOUTU_CJK                                                                                                     \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]++"                                                                      \
    "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}" \
    "\\x{fe30}-\\x{fe4f}]++|[\\x{3105}-\\x{312f}]++|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]++"
#define YOUTU CASED(CONTRACTION "?+") "|\\p{N}|" SYMBOLS "[\\r\\n/]*+|" LINES
#define SEED_CODER CONTRACTION "|" WORD "|\\p{N}| ?+[^" S "\\p{L}\\p{N}\\r\\n]++|" LINES
#define BAILING "'(?i:[sdmt]|ll|ve|re)|" WORD "|\\p{N}|" SYMBOLS "[\\r\\n]*+|[" S "]*[\\r\\n]|" SPACES
#define BLOOM " ?[^(" S "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]++"
#define DEEPSEEK3                                                                                         \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++" \
    "| ?+[\\p{P}\\p{S}]++[\\r\\n]*+|" LINES
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]++"
/* deepseek-llm's letters: Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee, Coptic, Deseret, Osage and others with
 * case. */
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"   \
    "\\x{370}-\\x{373}"                                                                                                \
    "\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{" \
    "3f7}-\\x{481}"                                                                                                    \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}"   \
    "\\x{1cbd}-\\x{1cbf}"                                                                                              \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{"    \
    "1f45}\\x{1f48}-\\x{1f4d}"                                                                                         \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
    "\\x{1fc2}-\\x{1fc4}"                                                                                              \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{"    \
    "1ffc}\\x{2102}\\x{2107}"                                                                                          \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}" \
    "\\x{2139}"                                                                                                        \
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}" \
    "-\\x{2cee}\\x{2cf2}"                                                                                              \
    "\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{"     \
    "ab70}-\\x{abbf}"                                                                                                  \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{" \
    "104d3}"                                                                                                           \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

/* superbpe cuts digits, and nothing else, before each three that are left of their run. The published expression is an
 * empty match that looks ahead, (?=(\d{3})+(?!\d)), once at every place; here what lies between two cuts is one match,
 * and a run is looked over at its beginning alone: one or two digits, if threes follow, else three. Numbers that are no
 * digits (U+00BD) are of a run's text, too. */
#define FIRST_DIGITS "\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})*+(?!\\p{Nd}))"
#define OTHERS "[^\\p{Nd}]++(?:" FIRST_DIGITS ")?"
#define SUPERBPE "(?:(?<!\\p{Nd})" FIRST_DIGITS "|\\p{Nd}{3})(?:" OTHERS ")*+|(?:" OTHERS ")++"

enum { IGNORE_MERGES = 1, ADD_BOS = 2 };

static const struct definition {
    const char *names; /* values of tokenizer.ggml.pre, separated by spaces */
    unsigned flags;
    const char *steps[PRETOKENIZER_MAX_STEPS];
} definitions[] = {
    { "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo jais "
      "trillion granite-docling",
      0,
      { GPT2 } },
    { "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", IGNORE_MERGES | ADD_BOS, { LLAMA3 } },
    { "dbrx smaug-bpe chatglm-bpe", 0, { LLAMA3 } },
    { "glm4", IGNORE_MERGES, { LLAMA3 } },
    { "qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan grok-2 solar-open", 0, { QWEN2 } },
    { "qwen35", 0, { QWEN35 } },
    { "gpt-4o llama4 kanana2 minimax-m2", 0, { GPT4O } },
    { "tiny_aya", 0, { NUMBER, THREES, GPT4O } },
    { "kimi-k2", IGNORE_MERGES, { KIMI } }, /* as tiktoken, which it was made with, does */
    { "youtu", IGNORE_MERGES, { YOUTU_CJK, YOUTU } },
    { "tekken", IGNORE_MERGES | ADD_BOS, { TEKKEN } },
    { "default", 0, { "[\\p{P}\\$\\+<=>\\^~\\|]++", GPT2, "\\p{N}++", "[0-9][0-9][0-9]" } },
    { "starcoder refact command-r smollm codeshell exaone minerva-7b", 0, { "\\p{N}", GPT2 } },
    { "falcon", 0, { "[\\p{P}\\$\\+<=>\\^~\\|`]++", GPT2, "[0-9][0-9][0-9]" } },
    { "bloom poro-chat gpt3-finnish", 0, { BLOOM } },
    { "viking", 0, { BLOOM, "\\p{N}" } },
    { "superbpe", 0, { "\\p{N}++", SUPERBPE } },
    { "seed-coder", 0, { SEED_CODER } },
    { "bailingmoe bailingmoe2 llada-moe", 0, { BAILING } },
    { "deepseek-llm",
      0,
      { "[\\r\\n]", "[" S "]?[" DEEPSEEK_LETTERS "]++",
        "[" S "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]++",
        "(?<![" S "])[" S "]++\\z", /* \s+$ from the start of the run only: the same cut, but linear */
        DEEPSEEK_CJK, "\\p{N}++" } },
    { "deepseek-coder", 0, { "[\\r\\n]", "[" S "]?\\p{L}++", "[" S "]?\\p{P}++", DEEPSEEK_CJK, "\\p{N}" } },
    { "deepseek-v3 hunyuan-dense joyai-llm",
      0,
      { "\\p{N}{1,3}+", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]++", DEEPSEEK3 } },
};

/* Is `name` one of the words of `names`? */
static bool names_include(const char *names, const char *name, size_t len)
{
    while (*names) {
        const size_t word = strcspn(names, " ");
        if (word == len && memcmp(names, name, len) == 0) return true;
        names += word + (names[word] == ' ');
    }
    return false;
}

static wk_status refuse_name(const char *name, size_t len, const struct wk_err *err)
{
    char known[1024];
    size_t n = 0;
    for (size_t i = 0; i < sizeof definitions / sizeof *definitions; i++) {
        const int put = snprintf(known + n, sizeof known - n, "%s%s", i ? " " : "", definitions[i].names);
        if (put < 0 || (size_t)put >= sizeof known - n) break;
        n += (size_t)put;
    }
    return wk_fail(err, WK_UNSUPPORTED, "tokenizer.ggml.pre: unknown pre-tokenizer '%.*s'; known ones: %s",
                   (int)(len < 64 ? len : 64), name, known);
}

/* JIT is an acceleration: where the platform has none, or forbids new executable pages, PCRE2 interprets. */
static wk_status compile(const char *pattern, void **out, const struct wk_err *err)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!re)
        return wk_fail(err, WK_INTERNAL, "PCRE2 refuses a pre-tokenizer pattern (error %d at %zu)", code, (size_t)at);
    (void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
    *out = re;
    return WK_OK;
}

static wk_status add(struct pretokenizer *p, const char *pattern, const struct wk_err *err)
{
    if (p->n_steps == PRETOKENIZER_MAX_STEPS)
        return wk_fail(err, WK_UNSUPPORTED, "more than %d steps are not supported", PRETOKENIZER_MAX_STEPS);
    const wk_status status = compile(pattern, &p->step[p->n_steps], err);
    if (!status) p->n_steps++;
    return status;
}

wk_status pretokenizer_open(struct pretokenizer *p, const char *name, size_t len, const struct wk_err *err)
{
    memset(p, 0, sizeof *p);
    const struct definition *d = definitions, *end = definitions + sizeof definitions / sizeof *definitions;
    while (d < end && !names_include(d->names, name, len)) d++;
    if (d == end) return refuse_name(name, len, err);
    p->ignore_merges = d->flags & IGNORE_MERGES;
    p->add_bos = d->flags & ADD_BOS;
    wk_status status = WK_OK;
    for (size_t i = 0; !status && i < PRETOKENIZER_MAX_STEPS && d->steps[i]; i++) status = add(p, d->steps[i], err);
    return status;
}

/* ---- steps of a tokenizer.json ------------------------------------------------------------------------- */

/* Regular expressions as published, beside what is run for them. */
#define AS_SPACES "\\s+(?!\\S)|\\s+"
#define AS_LINES "\\s*[\\r\\n]+|" AS_SPACES
#define AS_SYMBOLS " ?[^\\s\\p{L}\\p{N}]+"
#define AS_WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define AS_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define AS_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define AS_CASED(suffix) \
    "[^\\r\\n\\p{L}\\p{N}]?" AS_UPPER "*" AS_LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" AS_UPPER "+" AS_LOWER "*" suffix
static const struct known_regex {
    const char *regex, *pattern;
    bool total;
} known_regexes[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" AS_SYMBOLS "|" AS_SPACES, GPT2, true },
    { CONTRACTION "|" AS_WORD "|\\p{N}{1,3}|" AS_SYMBOLS "[\\r\\n]*|" AS_LINES, LLAMA3, true },
    { CONTRACTION "|" AS_WORD "|\\p{N}|" AS_SYMBOLS "[\\r\\n]*|" AS_LINES, QWEN2, true },
    { CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" AS_LINES,
      QWEN35, true },
    { AS_CASED(CONTRACTION "?") "|\\p{N}{1,3}|" AS_SYMBOLS "[\\r\\n/]*|" AS_LINES, GPT4O, true },
    { AS_CASED("") "|\\p{N}|" AS_SYMBOLS "[\\r\\n/]*|" AS_LINES, TEKKEN, true },
    { "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\\r\\n]*|" AS_LINES,
      DEEPSEEK3, false },
    { "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
      "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]++", false },
    { "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+", DEEPSEEK_CJK, false },
    { "[\\r\\n]", "[\\r\\n]", false },
    { "\\s?\\p{L}+", "[" S "]?\\p{L}++", false },
    { "\\s?\\p{P}+", "[" S "]?\\p{P}++", false },
    { "\\p{N}{1,3}", "\\p{N}{1,3}+", false },
    { "\\p{N}+", "\\p{N}++", false },
    { "\\p{N}", "\\p{N}", false },
    { "[0-9][0-9][0-9]", "[0-9][0-9][0-9]", false },
};

/* Is the text the published one? Some files have line breaks where others have \r and \n. */
static bool same_regex(const char *published, const char *text, size_t len)
{
    size_t i = 0;
    for (; i < len && *published; i++) {
        const char name = text[i] == '\r' ? 'r' : text[i] == '\n' ? 'n' : '\0';
        if (name ? published[0] != '\\' || published[1] != name : *published != text[i]) return false;
        published += name ? 2 : 1;
    }
    return i == len && !*published;
}

wk_status pretokenizer_add_regex(struct pretokenizer *p, const char *regex, size_t len, bool *total,
                                 const struct wk_err *err)
{
    for (size_t i = 0; i < sizeof known_regexes / sizeof *known_regexes; i++)
        if (same_regex(known_regexes[i].regex, regex, len)) {
            *total = known_regexes[i].total;
            return add(p, known_regexes[i].pattern, err);
        }
    return wk_fail(err, WK_UNSUPPORTED,
                   "unknown regular expression '%.*s'%s; only published ones are run (GPT-2, Llama 3, Qwen, GPT-4o, "
                   "Tekken, DeepSeek)",
                   (int)(len < 160 ? len : 160), regex, len > 160 ? "..." : "");
}

wk_status pretokenizer_add_step(struct pretokenizer *p, enum pretokenizer_step step, const struct wk_err *err)
{
    static const char *const patterns[] = { [STEP_GPT2] = GPT2,
                                            [STEP_DIGIT] = "\\p{N}",
                                            [STEP_DIGITS] = "\\p{N}++",
                                            [STEP_PUNCTUATION] = "[\\p{P}\\$\\+<=>\\^`\\|~]",
                                            [STEP_PUNCTUATION_RUN] = "[\\p{P}\\$\\+<=>\\^`\\|~]++" };
    return add(p, patterns[step], err);
}

wk_status pretokenizer_add_literal(struct pretokenizer *p, const char *text, size_t len, enum pretokenizer_merge merge,
                                   const struct wk_err *err)
{
    char literal[12 * PRETOKENIZER_MAX_LITERAL + 1], pattern[2 * sizeof literal + 64];
    size_t n = 0;
    if (!len || len > PRETOKENIZER_MAX_LITERAL)
        return wk_fail(err, WK_UNSUPPORTED, "a text to cut at must have 1 to %d bytes, found %zu",
                       PRETOKENIZER_MAX_LITERAL, len);
    for (size_t i = 0; i < len;) {
        const size_t sequence = utf8_sequence((const unsigned char *)text + i, len - i);
        if (!sequence) return wk_fail(err, WK_INVALID, "a text to cut at is not UTF-8");
        n += (size_t)snprintf(literal + n, sizeof literal - n, "\\x{%x}",
                              (unsigned)utf8_decode((const unsigned char *)text + i, sequence));
        i += sequence;
    }
    if (merge != LITERAL_ISOLATED && utf8_sequence((const unsigned char *)text, len) != len)
        return wk_fail(err, WK_UNSUPPORTED,
                       "a text of several characters can be a piece of its own only, not part of a neighbour");
    if (merge == LITERAL_ISOLATED)
        (void)snprintf(pattern, sizeof pattern, "%s", literal);
    else if (merge == LITERAL_WITH_PREVIOUS)
        (void)snprintf(pattern, sizeof pattern, "[^%s]*+%s?+", literal, literal);
    else
        (void)snprintf(pattern, sizeof pattern, "%s?+[^%s]*+", literal, literal);
    return add(p, pattern, err);
}

void pretokenizer_close(struct pretokenizer *p)
{
    for (size_t i = 0; i < p->n_steps; i++) pcre2_code_free(p->step[i]);
}

/* ---- splitting ----------------------------------------------------------------------------------------- */

/* Limits bound what a pattern may cost; none of the patterns above comes near them (see the hostile-input test). */
static wk_status scratch_ready(struct pretokenizer_scratch *s, const struct wk_err *err)
{
    if (s->stack) return WK_OK;
    if (!s->match) s->match = pcre2_match_data_create(1, NULL);
    if (!s->context) s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(32 << 10, 8 << 20, NULL); /* address space; pages are touched only if needed */
    if (!s->match || !s->context || !s->stack)
        return wk_fail(err, WK_NO_MEMORY, "no memory for matching the pre-tokenizer's patterns");
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    pcre2_set_match_limit(s->context, 16 * (uint32_t)TOKENIZER_MAX_TEXT);
    pcre2_set_heap_limit(s->context, 64 << 10); /* KiB */
    return WK_OK;
}

static bool put(struct pretokenizer_scratch *s, uint32_t at, uint32_t end)
{
    if (at == end) return true;
    if (!array_reserve((void **)&s->spare, &s->spare_cap, s->n_spare + 1, sizeof *s->spare)) return false;
    s->spare[s->n_spare++] = (struct piece){ at, end - at };
    return true;
}

/* Cuts one piece by one pattern into s->spare. The piece is a subject of its own: lookahead sees its end as the end of
 * the text. */
static wk_status split_piece(const pcre2_code *re, struct pretokenizer_scratch *s, const char *text, struct piece p,
                             const struct wk_err *err)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
    uint32_t done = 0; /* cut so far; no pattern matches the empty text, so every match moves it */
    while (done < p.len) {
        const int rc = pcre2_match(re, (PCRE2_SPTR)text + p.at, p.len, done, PCRE2_NO_UTF_CHECK, s->match, s->context);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0)
            return wk_fail(err, WK_INTERNAL, "the pre-tokenizer's pattern gave PCRE2 error %d on %u bytes of text", rc,
                           p.len);
        const uint32_t begin = (uint32_t)at[0], end = (uint32_t)at[1];
        if (!put(s, p.at + done, p.at + begin) || !put(s, p.at + begin, p.at + end)) goto no_memory;
        done = end;
    }
    if (put(s, p.at + done, p.at + p.len)) return WK_OK;
no_memory:
    return wk_fail(err, WK_NO_MEMORY, "no memory for the pieces of %u bytes of text", p.len);
}

static void take_spare(struct pretokenizer_scratch *s)
{
    struct piece *piece = s->piece;
    const size_t cap = s->cap;
    s->piece = s->spare;
    s->n = s->n_spare;
    s->cap = s->spare_cap;
    s->spare = piece;
    s->spare_cap = cap;
    s->n_spare = 0;
}

/* Well-formed runs, and single stray bytes between them. */
static bool split_runs(struct pretokenizer_scratch *s, const char *text, uint32_t n)
{
    const unsigned char *bytes = (const unsigned char *)text;
    uint32_t run = 0, i = 0;
    while (i < n) {
        const size_t len = utf8_sequence(bytes + i, n - i);
        if (!len) {
            if (!put(s, run, i) || !put(s, i, i + 1)) return false;
            run = i + 1;
        }
        i += len ? (uint32_t)len : 1;
    }
    return put(s, run, n);
}

/* A piece of one byte >= 0x80 is never text: PCRE2 must not see it. */
static bool is_stray(const char *text, struct piece p) { return p.len == 1 && (unsigned char)text[p.at] >= 0x80; }

wk_status pretokenizer_split(const struct pretokenizer *p, struct pretokenizer_scratch *s, const char *text, size_t n,
                             const struct wk_err *err)
{
    wk_status status = scratch_ready(s, err);
    if (status) return status;
    s->n_spare = 0;
    if (!split_runs(s, text, (uint32_t)n))
        return wk_fail(err, WK_NO_MEMORY, "no memory for the pieces of %zu bytes of text", n);
    take_spare(s);
    for (size_t step = 0; step < p->n_steps; step++) {
        for (size_t i = 0; i < s->n; i++) {
            if (is_stray(text, s->piece[i])) {
                if (!put(s, s->piece[i].at, s->piece[i].at + 1))
                    return wk_fail(err, WK_NO_MEMORY, "no memory for the pieces of %zu bytes of text", n);
            } else if ((status = split_piece(p->step[step], s, text, s->piece[i], err)))
                return status;
        }
        take_spare(s);
    }
    return WK_OK;
}

void pretokenizer_scratch_free(struct pretokenizer_scratch *s)
{
    free(s->piece);
    free(s->spare);
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
}
