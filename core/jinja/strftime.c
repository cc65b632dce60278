/* strftime.c: a time as text, in the C locale, from numbers that the caller gave. */
#include "internal.h"

#include <stdio.h>

struct date {
    int64_t year;
    int month, day, hour, minute, second, weekday /* 0: Sunday */, yearday /* 0: January 1st */;
};

static bool leap(int64_t y) { return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0; }

/* Days since 1970 into a date of the Gregorian calendar; years of 400 have 146,097 days. */
static struct date date_of(int64_t seconds)
{
    static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };
    struct date d;
    int64_t days = seconds / 86400, rest = seconds % 86400;
    if (rest < 0) {
        rest += 86400;
        days--;
    }
    d.hour = (int)(rest / 3600);
    d.minute = (int)(rest / 60 % 60);
    d.second = (int)(rest % 60);
    d.weekday = (int)(((days + 4) % 7 + 7) % 7);
    d.year = 1970 + days / 146097 * 400;
    days %= 146097;
    if (days < 0) {
        days += 146097;
        d.year -= 400;
    }
    for (;; d.year++) {
        const int n = leap(d.year) ? 366 : 365;
        if (days < n) break;
        days -= n;
    }
    d.yearday = (int)days;
    for (d.month = 11; d.month > 0 && d.yearday < before[d.month] + (d.month > 1 && leap(d.year)); d.month--) {}
    d.day = d.yearday - before[d.month] - (d.month > 1 && leap(d.year)) + 1;
    return d;
}

/* ISO 8601: the week has its year's number where its Thursday is. */
static int iso_week(const struct date *d, int64_t *year)
{
    const int monday = (d->weekday + 6) % 7;
    int week = (d->yearday - monday + 10) / 7;
    *year = d->year;
    if (week < 1) {
        --*year;
        const int yearday = d->yearday + (leap(*year) ? 366 : 365);
        week = (yearday - monday + 10) / 7;
    } else if (week == 53 && (leap(d->year) ? 366 : 365) - d->yearday + monday <= 3) {
        ++*year;
        week = 1;
    }
    return week;
}

static const char *const days[] = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" };
static const char *const months[] = { "January", "February", "March",     "April",   "May",      "June",
                                      "July",    "August",   "September", "October", "November", "December" };

static void put(struct buf *b, const struct date *d, char c, int64_t now, unsigned origin)
{
    char text[64] = "";
    const int twelve = d->hour % 12 ? d->hour % 12 : 12;
    const int monday = (d->weekday + 6) % 7;
    int64_t year;
    const int week = iso_week(d, &year);
#define AS(...) (void)snprintf(text, sizeof text, __VA_ARGS__)
    switch (c) {
    case 'a': AS("%.3s", days[d->weekday]); break;
    case 'A': AS("%s", days[d->weekday]); break;
    case 'b':
    case 'h': AS("%.3s", months[d->month]); break;
    case 'B': AS("%s", months[d->month]); break;
    case 'c':
        AS("%.3s %.3s %2d %02d:%02d:%02d %lld", days[d->weekday], months[d->month], d->day, d->hour, d->minute,
           d->second, (long long)d->year);
        break;
    case 'C': AS("%02lld", (long long)(d->year / 100)); break;
    case 'd': AS("%02d", d->day); break;
    case 'D':
    case 'x': AS("%02d/%02d/%02d", d->month + 1, d->day, (int)(d->year % 100)); break;
    case 'e': AS("%2d", d->day); break;
    case 'f': AS("000000"); break;
    case 'F': AS("%lld-%02d-%02d", (long long)d->year, d->month + 1, d->day); break;
    case 'g': AS("%02d", (int)(year % 100)); break;
    case 'G': AS("%lld", (long long)year); break;
    case 'H': AS("%02d", d->hour); break;
    case 'I': AS("%02d", twelve); break;
    case 'j': AS("%03d", d->yearday + 1); break;
    case 'k': AS("%2d", d->hour); break;
    case 'l': AS("%2d", twelve); break;
    case 'm': AS("%02d", d->month + 1); break;
    case 'M': AS("%02d", d->minute); break;
    case 'n': AS("\n"); break;
    case 'p': AS("%s", d->hour < 12 ? "AM" : "PM"); break;
    case 'P': AS("%s", d->hour < 12 ? "am" : "pm"); break;
    case 'r': AS("%02d:%02d:%02d %s", twelve, d->minute, d->second, d->hour < 12 ? "AM" : "PM"); break;
    case 'R': AS("%02d:%02d", d->hour, d->minute); break;
    case 's': AS("%lld", (long long)now); break;
    case 'S': AS("%02d", d->second); break;
    case 't': AS("\t"); break;
    case 'T':
    case 'X': AS("%02d:%02d:%02d", d->hour, d->minute, d->second); break;
    case 'u': AS("%d", monday + 1); break;
    case 'U': AS("%02d", (d->yearday + 7 - d->weekday) / 7); break;
    case 'V': AS("%02d", week); break;
    case 'w': AS("%d", d->weekday); break;
    case 'W': AS("%02d", (d->yearday + 7 - monday) / 7); break;
    case 'y': AS("%02d", (int)(d->year % 100)); break;
    case 'Y': AS("%lld", (long long)d->year); break;
    case 'z':
    case 'Z': break; /* a time without a zone, as datetime.now() is */
    case '%': AS("%%"); break;
    default: AS("%%%c", c); break;
    }
#undef AS
    jn_buf_text(b, text, origin);
}

void jn_format_time(struct buf *b, const struct str *format, int64_t now, int32_t utc_offset)
{
    enum { YEARS_10000 = 253402300800 / 86400 };
    const int64_t limit = (int64_t)YEARS_10000 * 86400;
    if (now < -limit / 4 || now >= limit) jn_fail(b->m, "strftime_now: the time is out of range");
    const struct date d = date_of(now + utc_offset);
    uint32_t begin = 0;
    jn_spend_chars(b->m, format->n);
    for (uint32_t i = 0; i + 1 < format->n; i++) {
        if (format->data[i] != '%') continue;
        uint32_t len;
        const uint32_t c = jn_char_at(format, i + 1, &len);
        jn_buf_slice(b, format, begin, i);
        bool bare = format->data[i + 1] == '-' && i + 2 < format->n; /* %-d: without zeros in front */
        if (c >= 0x80) {
            begin = i;
            i += len;
            continue;
        }
        if (bare) {
            struct buf padded;
            jn_buf_open(&padded, b->m);
            put(&padded, &d, format->data[i + 2], now, jn_str_origin(format, i));
            uint32_t skip = 0;
            while (skip + 1 < padded.n && (padded.data[skip] == '0' || padded.data[skip] == ' ')) skip++;
            jn_buf_add(b, padded.data + skip, padded.n - skip, jn_str_origin(format, i));
            i += 2;
        } else {
            put(b, &d, (char)c, now, jn_str_origin(format, i));
            i += 1;
        }
        begin = i + 1;
    }
    jn_buf_slice(b, format, begin, format->n);
}
