/* filters.h: what the filters' files share. Private to core/jinja. */
#ifndef CORE_JINJA_FILTERS_H
#define CORE_JINJA_FILTERS_H

#include "internal.h"

typedef val (*filter)(struct vm *m, val v, const struct args *a);

/* Parts of str's methods that filters need as well: methods.c */
val jn_str_capitalize(struct vm *m, const struct str *s);
val jn_str_strip(struct vm *m, const struct str *s, const struct str *set, bool left, bool right); /* set NULL: space */
val jn_str_replace(struct vm *m, const struct str *s, const struct str *old, const struct str *new, int64_t max);
val jn_str_pad(struct vm *m, const struct str *s, int64_t width, const struct str *fill, bool left, bool right);
struct list *jn_str_lines(struct vm *m, const struct str *s, bool ends);
bool jn_str_is_case(const struct str *s, bool upper);
val jn_str_wrap(struct vm *m, const struct str *s, int64_t width, bool break_long, const struct str *line_end,
                bool hyphens);
val jn_str_strip_tags(struct vm *m, const struct str *s);

val jn_f_pprint(struct vm *m, val v, const struct args *a); /* pprint.c */
val jn_f_urlize(struct vm *m, val v, const struct args *a); /* urlize.c */

/* Of texts and numbers: filters_text.c */
val jn_f_capitalize(struct vm *m, val v, const struct args *a);
val jn_f_center(struct vm *m, val v, const struct args *a);
val jn_f_escape(struct vm *m, val v, const struct args *a);
val jn_f_filesizeformat(struct vm *m, val v, const struct args *a);
val jn_f_float(struct vm *m, val v, const struct args *a);
val jn_f_forceescape(struct vm *m, val v, const struct args *a);
val jn_f_format(struct vm *m, val v, const struct args *a);
val jn_f_indent(struct vm *m, val v, const struct args *a);
val jn_f_int(struct vm *m, val v, const struct args *a);
val jn_f_lower(struct vm *m, val v, const struct args *a);
val jn_f_replace(struct vm *m, val v, const struct args *a);
val jn_f_round(struct vm *m, val v, const struct args *a);
val jn_f_safe(struct vm *m, val v, const struct args *a);
val jn_f_string(struct vm *m, val v, const struct args *a);
val jn_f_striptags(struct vm *m, val v, const struct args *a);
val jn_f_title(struct vm *m, val v, const struct args *a);
val jn_f_tojson(struct vm *m, val v, const struct args *a);
val jn_f_trim(struct vm *m, val v, const struct args *a);
val jn_f_truncate(struct vm *m, val v, const struct args *a);
val jn_f_upper(struct vm *m, val v, const struct args *a);
val jn_f_urlencode(struct vm *m, val v, const struct args *a);
val jn_f_wordcount(struct vm *m, val v, const struct args *a);
val jn_f_wordwrap(struct vm *m, val v, const struct args *a);
val jn_f_xmlattr(struct vm *m, val v, const struct args *a);

#endif
