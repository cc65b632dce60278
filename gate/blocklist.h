/* blocklist.h: finds phrases of a list in a prompt, or in an answer while it is written, before a byte of them leaves.
 *
 * Text and phrases are compared as NFKC with case folding (Unicode's NFKC_Casefold, by libutf8proc): fullwidth letters,
 * ligatures, decomposed accents and letters of either case are one; code points that show nothing (zero-width joiners,
 * soft hyphens) are not there. No language is known: the Turkish dotted capital I is i with a dot above, not i. Each
 * run of white space is one space. A byte that is no UTF-8 is U+FFFD.
 *
 * Words. A phrase that begins (ends) with a letter or digit of a script with case, or a digit of any, is found only
 * where no such one stands before (after) it: "sex" is not found in "Essex" or "sexton", but in "sex-" and "_sex_".
 * Marks go with what they follow. Other scripts (Chinese, Thai, Hangul, Arabic...) write no spaces, or add endings to
 * words, so their letters count as no part of a word: such a phrase is found anywhere. A phrase marked `anywhere` is,
 * too.
 *
 * Aho-Corasick over the bytes of the folded text, in which a symbol of its own stands wherever a word begins or ends:
 * so a word match is a plain match, and a scan takes at most two steps a symbol, whatever the list. */
#ifndef GATE_BLOCKLIST_H
#define GATE_BLOCKLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum {
    BLOCKLIST_PHRASES = 10000,    /* at most */
    BLOCKLIST_PHRASE_BYTES = 256, /* of one, at most; UTF-8 */
    BLOCKLIST_SYMBOLS = 4u << 20, /* of all phrases when folded, at most: 13 bytes of memory each */
};
#define BLOCKLIST_NONE UINT32_MAX

struct blocklist_phrase {
    const char *bytes;
    size_t len;
    bool anywhere; /* also within words */
};

struct blocklist;
struct blocklist_scan;

/* A list; phrases are copied. n 0 is a list that finds nothing. WK_INVALID: too many, a length, no UTF-8, nothing left
 * when folded, or too much in all; the text names the phrase by its number, counted from 1, and does not show it.
 * Freed by the last blocklist_free. [any thread] */
wk_status blocklist_build(const struct blocklist_phrase *phrases, size_t n, struct blocklist **out,
                          const struct wk_err *err);
/* One more user of a list, so that it can be replaced while scans go on; each is ended by blocklist_free. [any thread]
 */
struct blocklist *blocklist_share(struct blocklist *b);
void blocklist_free(struct blocklist *b); /* NULL is allowed */

/* Where a scan stands. Offsets count the bytes given since it began. */
struct blocklist_seen {
    uint32_t
        phrase;    /* BLOCKLIST_NONE; else the index of the phrase that was found: for the audit, not for the client */
    uint64_t safe; /* bytes before this may be shown: they are no part of a match, and will be of none */
};

/* Keeps the list as a user of its own. WK_NO_MEMORY. [any thread]; then one scan by one thread at a time. */
wk_status blocklist_scan_begin(struct blocklist *b, struct blocklist_scan **out, const struct wk_err *err);
/* The next n bytes, split anywhere. After a match nothing changes any more. What is not yet safe is for the caller to
 * keep: the longest end of the text that may become a match, at least its last letter with its marks. */
struct blocklist_seen blocklist_scan_feed(struct blocklist_scan *s, const void *bytes, size_t n);
/* The text has ended: without a match, all of it is safe. */
struct blocklist_seen blocklist_scan_end(struct blocklist_scan *s);
/* Steps of the automaton so far, to bound the work by. */
uint64_t blocklist_scan_steps(const struct blocklist_scan *s);
void blocklist_scan_free(struct blocklist_scan *s); /* NULL is allowed */

/* All at once, for a prompt. *phrase: BLOCKLIST_NONE or an index. [any thread] */
wk_status blocklist_find(struct blocklist *b, const void *bytes, size_t n, uint32_t *phrase, const struct wk_err *err);

#endif
