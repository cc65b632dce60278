/* log.c: one line per event on standard error, written with one write(2), but for long ones where nobody may wait.
 *
 * A line is put together in a buffer on the stack; what does not fit is left out as a whole field and the line says so,
 * so every line stays valid JSON. A mutex keeps lines, progress bar and their order whole. */
#include "log/log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 8192,
    TAIL_BYTES = 32, /* kept for `,"truncated":true}` and the newline */
    BAR_CELLS = 30,
    WAIT_MS = 100,  /* for the first line that is not taken; none of those behind it waits */
    AT_ONCE = 4096, /* PIPE_BUF: so much fits into a pipe that poll calls writable */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum log_level lowest_level = LOG_INFO;
static enum log_format line_format = LOG_PLAIN;
static const struct log_field *common; /* of every event, under the lock; NULL: none */
static bool never_waits, torn;         /* torn: the last line was taken in part, under the lock */
static uint64_t lost;                  /* lines since the last that was taken, under the lock */
static _Atomic uint64_t lost_ever;

/* The activity that log_progress was told of last, under the lock. */
static struct {
    char activity[64];
    int percent;      /* shown last; -1: none */
    bool bar_visible; /* the terminal's last line is the bar */
} progress = { .percent = -1 };

struct line {
    char text[LINE_BYTES];
    size_t n, limit; /* n <= limit <= LINE_BYTES */
    bool full;       /* something did not fit */
};

/* ---- putting a line together --------------------------------------------------------------------------- */

static void add(struct line *l, const char *text, size_t n)
{
    if (l->full || n > l->limit - l->n) {
        l->full = true;
        return;
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
}

__attribute__((format(printf, 2, 3))) static void add_format(struct line *l, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        l->full = true;
    else
        add(l, text, (size_t)n);
}

/* Length of the well-formed UTF-8 sequence at s (Unicode 15, table 3-7), 0 if there is none. */
static size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    const unsigned char low = s[0] == 0xe0   ? 0xa0
                              : s[0] == 0xf0 ? 0x90
                                             : 0x80,
                        high = s[0] == 0xed   ? 0x9f
                               : s[0] == 0xf4 ? 0x8f
                                              : 0xbf;
    if (s[1] < low || s[1] > high) return 0;
    const size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    for (size_t i = 2; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0; /* also the terminator */
    }
    return n;
}

/* Bytes that a terminal could obey (C0, DEL, C1) are escaped as \u00XX, bytes that are no UTF-8 as U+FFFD. Only JSON
 * needs its quotes escaped. */
static void add_escaped(struct line *l, const char *text, enum log_format to)
{
    for (const unsigned char *s = (const unsigned char *)text; *s && !l->full;) {
        const size_t n = utf8_length(s);
        if (n == 0)
            add_format(l, "\\ufffd");
        else if (n == 1 && to == LOG_JSON && (*s == '"' || *s == '\\'))
            add_format(l, "\\%c", *s);
        else if (n == 1 && (*s < 0x20 || *s == 0x7f))
            add_format(l, "\\u%04x", *s);
        else if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0)
            add_format(l, "\\u%04x", s[1]);
        else
            add(l, (const char *)s, n);
        s += n ? n : 1;
    }
}

static void add_quoted(struct line *l, const char *text)
{
    if (!text) {
        add(l, "null", 4);
        return;
    }
    add(l, "\"", 1);
    add_escaped(l, text, LOG_JSON);
    add(l, "\"", 1);
}

static void add_number(struct line *l, double value)
{
    char text[40];
    if (!isfinite(value)) {
        add(l, "null", 4);
        return;
    }
    (void)snprintf(text, sizeof text, "%.15g", value);
    if (strtod(text, NULL) != value) (void)snprintf(text, sizeof text, "%.17g", value);
    add(l, text, strlen(text));
}

static void add_value(struct line *l, const struct log_field *f)
{
    switch (f->kind) {
    case LOG_STR: add_quoted(l, f->str); break;
    case LOG_U64: add_format(l, "%" PRIu64, f->u64); break;
    case LOG_F64: add_number(l, f->f64); break;
    case LOG_BOOL: add_format(l, "%s", f->u64 ? "true" : "false"); break;
    default: add(l, "null", 4); break;
    }
}

/* `,"key":value`, whole or not at all. */
static void add_field(struct line *l, const struct log_field *f)
{
    const size_t start = l->n;
    add(l, ",", 1);
    add_quoted(l, f->key);
    add(l, ":", 1);
    add_value(l, f);
    if (l->full) l->n = start;
}

/* RFC 3339, UTC, milliseconds. */
static void add_time(struct line *l)
{
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    add_format(l, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
               utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
}

static const char *level_name(enum log_level level)
{
    static const char *const names[] = { "debug", "info", "warning", "error" };
    return names[level < LOG_DEBUG ? LOG_DEBUG : level > LOG_ERROR ? LOG_ERROR : level];
}

/* False: it was not taken, or not all of it, in wait_ms. */
static bool taken(const struct line *l, int wait_ms)
{
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
    for (size_t done = 0; done < l->n;) {
        if (never_waits && poll(&p, 1, wait_ms) == 0) {
            torn = done > 0;
            return false;
        }
        const size_t left = l->n - done;
        const ssize_t n = write(STDERR_FILENO, l->text + done, never_waits && left > AT_ONCE ? AT_ONCE : left);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return true; /* nobody listens; there is nowhere to say so */
        done += (size_t)n;
    }
    return true;
}

static void begin_json(struct line *l, enum log_level level, const char *event)
{
    add(l, "{\"time\":\"", 9);
    add_time(l);
    add_format(l, "\",\"level\":\"%s\"", level_name(level));
    add_field(l, &log_s("event", event));
}

static void tell_lost(struct line *l)
{
    if (torn) add(l, "\n", 1);
    if (line_format == LOG_JSON) {
        begin_json(l, LOG_WARN, "log_lost");
        add_format(l, ",\"lines\":%" PRIu64 "}\n", lost);
    } else {
        add_format(l, "worker: warning: %" PRIu64 " lines before this one are lost: nobody took them\n", lost);
    }
}

static void write_line(struct line *l)
{
    if (lost) {
        struct line note = { .n = 0, .limit = LINE_BYTES };
        tell_lost(&note);
        if (taken(&note, 0)) {
            lost = 0;
            torn = false;
        }
    }
    if (!lost && taken(l, WAIT_MS)) return;
    lost++;
    lost_ever++;
}

static bool has_key(const struct log_field *fields, const char *key)
{
    for (; fields && fields->kind != LOG_END; fields++)
        if (strcmp(fields->key, key) == 0) return true;
    return false;
}

static void json_line(enum log_level level, const char *event, const char *message, const struct log_field *fields)
{
    struct line l = { .n = 0, .limit = LINE_BYTES - TAIL_BYTES };
    begin_json(&l, level, event);
    if (message) add_field(&l, &log_s("message", message));
    const struct log_field *own = fields;
    for (; fields && fields->kind != LOG_END && !l.full; fields++) add_field(&l, fields);
    for (const struct log_field *f = common; f && f->kind != LOG_END && !l.full; f++)
        if (!has_key(own, f->key)) add_field(&l, f);
    const bool truncated = l.full;
    l.full = false;
    l.limit = LINE_BYTES;
    if (truncated) add_format(&l, ",\"truncated\":true");
    add(&l, "}\n", 2);
    write_line(&l);
}

static void plain_line(enum log_level level, const char *event, const char *message)
{
    struct line l = { .n = 0, .limit = LINE_BYTES - TAIL_BYTES };
    if (progress.bar_visible) add(&l, "\r\033[K", 4);
    progress.bar_visible = false;
    add_format(&l, "worker: %s: ", level_name(level));
    add_escaped(&l, message ? message : event, LOG_PLAIN);
    l.full = false;
    l.limit = LINE_BYTES;
    add(&l, "\n", 1);
    write_line(&l);
}

/* ---- the public half ----------------------------------------------------------------------------------- */

void log_configure(enum log_level lowest, enum log_format format)
{
    lowest_level = lowest;
    line_format = format;
}

void log_common(const struct log_field *fields)
{
    (void)pthread_mutex_lock(&lock);
    common = fields;
    (void)pthread_mutex_unlock(&lock);
}

void log_never_waits(void)
{
    (void)pthread_mutex_lock(&lock);
    never_waits = true;
    (void)pthread_mutex_unlock(&lock);
}

uint64_t log_lost(void) { return lost_ever; }

void log_event(enum log_level level, const char *event, const char *message, const struct log_field *fields)
{
    if (level < lowest_level || (line_format == LOG_PLAIN && level < LOG_WARN)) return;
    (void)pthread_mutex_lock(&lock);
    if (line_format == LOG_JSON)
        json_line(level, event, message, fields);
    else
        plain_line(level, event, message);
    (void)pthread_mutex_unlock(&lock);
}

void log_last_words(const char *event, const char *message, const struct log_field *fields)
{
    const struct timespec moment = { 0, 1000000 };
    for (int i = 0; i < WAIT_MS && pthread_mutex_trylock(&lock) != 0; i++) (void)nanosleep(&moment, NULL);
    if (line_format == LOG_JSON)
        json_line(LOG_ERROR, event, message, fields);
    else
        plain_line(LOG_ERROR, event, message);
}

/* Cells of a bar behind these columns and before " 100 %": a line that wraps is not wiped whole. */
static int bar_cells(size_t before)
{
    struct winsize w;
    const int taken = (int)before + 9;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) || !w.ws_col) return BAR_CELLS;
    return w.ws_col < taken ? 0 : w.ws_col - taken < BAR_CELLS ? w.ws_col - taken : BAR_CELLS;
}

static void draw_bar(const char *activity, int percent)
{
    struct line l = { .n = 0, .limit = LINE_BYTES };
    add(&l, "\r\033[K", 4);
    if (percent < 100) {
        char cells[BAR_CELLS + 1];
        const int all = bar_cells(strlen(activity)), done = percent * all / 100;
        for (int i = 0; i < all; i++) cells[i] = i < done ? '#' : '.';
        cells[all] = 0;
        add_escaped(&l, activity, LOG_PLAIN);
        add_format(&l, " [%s] %3d %%", cells, percent);
    }
    progress.bar_visible = percent < 100;
    write_line(&l);
}

/* Events at each quarter that was reached since `before` (-1: none), so that a reader sees all five. */
static void narrate(const char *event, const char *activity, const char *model_ref, int before, int percent)
{
    for (int quarter = before < 0 ? 0 : before / 25 * 25 + 25; quarter <= percent; quarter += 25) {
        const struct log_field fields[] = { log_s("activity", activity),
                                            log_u("percent", quarter),
                                            log_s("model_ref", model_ref),
                                            { LOG_END, 0, 0, 0, 0 } };
        json_line(LOG_INFO, event, NULL, fields);
    }
}

void log_progress(const char *event, const char *activity, const char *model_ref, double fraction)
{
    const int percent = !(fraction > 0) ? 0 : fraction >= 1 ? 100 : (int)(fraction * 100);
    (void)pthread_mutex_lock(&lock);
    if (percent < progress.percent || strncmp(progress.activity, activity, sizeof progress.activity - 1) != 0) {
        (void)snprintf(progress.activity, sizeof progress.activity, "%s", activity);
        progress.percent = -1;
    }
    if (percent != progress.percent) {
        if (line_format == LOG_JSON) {
            if (lowest_level <= LOG_INFO) narrate(event, activity, model_ref, progress.percent, percent);
        } else if (isatty(STDERR_FILENO)) {
            draw_bar(progress.activity, percent);
        }
        progress.percent = percent;
    }
    (void)pthread_mutex_unlock(&lock);
}
