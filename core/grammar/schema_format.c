/* schema_format.c: the formats that are enforced, as languages: all that JSON Schema defines but regex and
 * idn-hostname, which are no regular languages. Dates know leap years and leap seconds (RFC 3339); a duration is what
 * RFC 3339's appendix says.
 *
 * Fractions of seconds and the numbers of a duration have at most 12 and 10 digits, as other digit runs are bounded. A
 * leap second is taken at offsets of whole quarters of an hour, which all time zones have. */
#include "grammar/schema_form.h"

#include <string.h>

#define HEX "[0-9A-Fa-f]"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 BYTE "\\." BYTE "\\." BYTE "\\." BYTE
#define GROUP HEX "{1,4}"
#define GROUPS(n) "(?:" GROUP ":){" n "}"
#define LAST "(?:" GROUP ":" GROUP "|" IPV4 ")"
#define IPV6                                                                                                      \
    "(?:" GROUPS("6") LAST "|::" GROUPS("5") LAST "|(?:" GROUP ")?::" GROUPS("4") LAST "|(?:" GROUPS("0,1") GROUP \
        ")?::" GROUPS("3") LAST "|(?:" GROUPS("0,2") GROUP ")?::" GROUPS("2") LAST "|(?:" GROUPS("0,3") GROUP     \
        ")?::" GROUP ":" LAST "|(?:" GROUPS("0,4") GROUP ")?::" LAST "|(?:" GROUPS("0,5") GROUP                   \
        ")?::" GROUP "|(?:" GROUPS("0,6") GROUP ")?::)"
#define LABEL(more) "[A-Za-z0-9" more "](?:[A-Za-z0-9" more "-]{0,61}[A-Za-z0-9" more "])?"
#define HOSTNAME(more) LABEL(more) "(?:\\." LABEL(more) ")*"
#define ATOM_TEXT(more) "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" more "-]+"
#define EMAIL(more)                                                                                                   \
    "(?:" ATOM_TEXT(more) "(?:\\." ATOM_TEXT(more) ")*|\"(?:[ !#-\\[\\]-~" more                                       \
                                                   "]|\\\\[ -~])*\")@(?:" HOSTNAME(more) "|\\[(?:" IPV4 "|IPv6:" IPV6 \
                                                                                         ")\\])"
#define BEYOND_ASCII "\\u{80}-\\u{10FFFF}"
#define DATE                                                                                             \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)" \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"                                                                      \
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define FRACTION "(?:\\.[0-9]{1,12})?"
#define HOUR "(?:[01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9]" FRACTION "(?:[Zz]|[+-]" HOUR ":[0-5][0-9])"
#define N "[0-9]{1,10}"
#define DURATION_TIME "T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S)"
#define DURATION_DATE "(?:" N "D|" N "M(?:" N "D)?|" N "Y(?:" N "M(?:" N "D)?)?)"
#define DURATION "P(?:" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME "|" N "W)"
#define UUID HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"
#define ESCAPED "%" HEX HEX
/* RFC 3986, and RFC 3987 with UCS for `more`. */
#define UCS                                                                                                        \
    "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-" \
    "\\u{3FFFD}"
#define PLAIN(more) "A-Za-z0-9._~!$&'()*+,;=\\-" more
#define PATH_CHAR(more) "(?:[" PLAIN(more) ":@]|" ESCAPED ")"
#define SEGMENTS(more) "(?:/" PATH_CHAR(more) "*)*"
#define AUTHORITY(more)                                                     \
    "//(?:(?:[" PLAIN(more) ":]|" ESCAPED ")*@)?(?:\\[(?:" IPV6 "|[vV]" HEX \
                            "+\\.[" PLAIN("") ":]+)\\]|(?:[" PLAIN(more) "]|" ESCAPED ")*)(?::[0-9]*)?" SEGMENTS(more)
#define ABSOLUTE_PATH(more) "/(?:" PATH_CHAR(more) "+" SEGMENTS(more) ")?"
#define TAIL(more) "(?:\\?(?:" PATH_CHAR(more) "|[/?])*)?(?:#(?:" PATH_CHAR(more) "|[/?])*)?"
#define FULL(more)                                                                                             \
    "[A-Za-z][A-Za-z0-9+.-]*:(?:" AUTHORITY(more) "|" ABSOLUTE_PATH(more) "|(?:" PATH_CHAR(more) "+" SEGMENTS( \
        more) ")?)" TAIL(more)
#define RELATIVE(more)                                                                 \
    "(?:" AUTHORITY(more) "|" ABSOLUTE_PATH(more) "|(?:(?:[" PLAIN(more) "@]|" ESCAPED \
                                                                         ")+" SEGMENTS(more) ")?)" TAIL(more)
#define POINTER "(?:/(?:[^/~]|~[01])*)*"
#define VARIABLE "(?:[A-Za-z0-9_]|" ESCAPED ")(?:\\.?(?:[A-Za-z0-9_]|" ESCAPED "))*(?:\\*|:[1-9][0-9]{0,3})?"
#define TEMPLATE "(?:[!#$&(-;=?-\\[\\]_a-z~" UCS "]|" ESCAPED "|\\{[+#./;?&=,!@|]?" VARIABLE "(?:," VARIABLE ")*\\})*"

enum { HOSTNAME_MAX = 253, DAY = 24 * 60, LEAP_ENTRY = 96 };

/* The second 60, where it is 23:59 in UTC: each local minute that a quarter-hour offset can give has its own offset. */
static lang_id leap_second(struct schema_ctx *c)
{
    const size_t cap = (size_t)DAY / 15 * LEAP_ENTRY + 1;
    char *pattern = sch_take(c, cap, 1);
    size_t n = 0;
    if (!pattern) return LANG_NONE;
    for (int local = 14; local < DAY; local += 15) {
        const int ahead = (local + 1) % DAY, behind = (DAY - 1 - local) % DAY;
        const int put =
            snprintf(pattern + n, cap - n, "%s%02d:%02d:60" FRACTION "(?:\\+%02d:%02d|-%02d:%02d%s)", n ? "|" : "",
                     local / 60, local % 60, ahead / 60, ahead % 60, behind / 60, behind % 60, behind ? "" : "|[Zz]");
        if (put < 0 || (size_t)put >= cap - n) break;
        n += (size_t)put;
    }
    return own_language(c, pattern);
}

static lang_id time_language(struct schema_ctx *c) { return lang_or(c->langs, own_language(c, TIME), leap_second(c)); }

static lang_id hostname_language(struct schema_ctx *c)
{
    return lang_and(c->langs, own_language(c, HOSTNAME("")), lang_length(c->langs, 1, HOSTNAME_MAX));
}

static lang_id date_time_language(struct schema_ctx *c)
{
    return lang_concat(c->langs, own_language(c, DATE "[Tt]"), time_language(c));
}

lang_id format_language(struct schema_ctx *c, struct json_text name)
{
    static const struct {
        const char *name, *pattern;
        lang_id (*make)(struct schema_ctx *c);
    } formats[SCHEMA_FORMATS] = { { "date", DATE, NULL },
                                  { "time", NULL, time_language },
                                  { "date-time", NULL, date_time_language },
                                  { "duration", DURATION, NULL },
                                  { "email", EMAIL(""), NULL },
                                  { "idn-email", EMAIL(BEYOND_ASCII), NULL },
                                  { "hostname", NULL, hostname_language },
                                  { "ipv4", IPV4, NULL },
                                  { "ipv6", IPV6, NULL },
                                  { "uuid", UUID, NULL },
                                  { "uri", FULL(""), NULL },
                                  { "iri", FULL(UCS), NULL },
                                  { "uri-reference", "(?:" FULL("") "|" RELATIVE("") ")", NULL },
                                  { "iri-reference", "(?:" FULL(UCS) "|" RELATIVE(UCS) ")", NULL },
                                  { "uri-template", TEMPLATE, NULL },
                                  { "json-pointer", POINTER, NULL },
                                  { "relative-json-pointer", "(?:0|[1-9][0-9]{0,9})(?:#|" POINTER ")", NULL } };
    for (size_t i = 0; i < SCHEMA_FORMATS; i++) {
        if (!jr_is(name, formats[i].name)) continue;
        if (c->formats[i]) return c->formats[i];
        c->formats[i] = formats[i].make ? formats[i].make(c) : own_language(c, formats[i].pattern);
        if (c->formats[i] == LANG_NONE) (void)sch_lang_failed(c, NULL, "format");
        return c->formats[i];
    }
    return LANG_NONE;
}
