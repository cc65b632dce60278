/* clock.c: see clock.h. */
#include "chat/clock.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

struct jinja_options chat_clock_now(void)
{
    const time_t now = time(NULL);
    struct tm local;
    const bool known = localtime_r(&now, &local) != NULL;
    return (struct jinja_options){ .now = (int64_t)now, .utc_offset = known ? (int32_t)local.tm_gmtoff : 0 };
}

/* n digits at *at, which moves behind them; -1: there are none. */
static int digits(const char **at, int n)
{
    int value = 0;
    for (; n--; (*at)++) {
        if (!isdigit((unsigned char)**at)) return -1;
        value = value * 10 + (**at - '0');
    }
    return value;
}

static bool skip(const char **at, const char *any)
{
    if (!**at || !strchr(any, **at)) return false;
    (*at)++;
    return true;
}

static bool read_zone(const char **at, int32_t *offset)
{
    *offset = 0;
    if (!**at || skip(at, "Zz")) return true;
    const int sign = **at == '-' ? -1 : 1;
    if (!skip(at, "+-")) return false;
    const int hours = digits(at, 2);
    if (hours < 0 || hours > 23 || !skip(at, ":")) return false;
    const int minutes = digits(at, 2);
    *offset = sign * (hours * 3600 + minutes * 60);
    return minutes >= 0 && minutes < 60;
}

static int days_of(int year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

bool chat_clock_read(const char *text, struct jinja_options *out)
{
    const char *at = text;
    struct tm t = { 0 };
    int32_t offset = 0;
    const int year = digits(&at, 4);
    if (year < 1 || !skip(&at, "-")) return false;
    const int month = digits(&at, 2);
    if (month < 1 || month > 12 || !skip(&at, "-")) return false;
    const int day = digits(&at, 2);
    if (day < 1 || day > days_of(year, month)) return false;
    if (*at) {
        if (!skip(&at, "Tt ")) return false;
        t.tm_hour = digits(&at, 2);
        if (t.tm_hour < 0 || t.tm_hour > 23 || !skip(&at, ":")) return false;
        t.tm_min = digits(&at, 2);
        if (t.tm_min < 0 || t.tm_min > 59 || !skip(&at, ":")) return false;
        t.tm_sec = digits(&at, 2);
        if (t.tm_sec < 0 || t.tm_sec > 59) return false;
        if (skip(&at, ".")) {
            if (digits(&at, 1) < 0) return false;
            while (isdigit((unsigned char)*at)) at++;
        }
        if (!read_zone(&at, &offset) || *at) return false;
    }
    t.tm_year = year - 1900;
    t.tm_mon = month - 1;
    t.tm_mday = day;
    *out = (struct jinja_options){ .now = (int64_t)timegm(&t) - offset, .utc_offset = offset };
    return true;
}
