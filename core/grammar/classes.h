/* classes.h: the sets of characters that regular expressions have names for. Private to core/grammar. */
#ifndef CORE_GRAMMAR_CLASSES_H
#define CORE_GRAMMAR_CLASSES_H

#include "grammar/lang.h"

lang_id classes_digit(struct langs *x); /* 0-9 */
lang_id classes_word(struct langs *x);  /* letters and digits of ASCII, and _ */
lang_id classes_space(struct langs *x); /* ECMA-262's WhiteSpace and LineTerminator */
lang_id classes_dot(struct langs *x);   /* all but ECMA-262's LineTerminator */
/* All characters but these; a: a set. */
lang_id classes_negated(struct langs *x, lang_id a);
/* Of a Unicode property: a general category by its short or long name, a script. LANG_NOTHING: it is not known. */
lang_id classes_property(struct langs *x, const char *name, size_t n);

#endif
