/* log.h: narration events as JSON lines, and the progress bar.
 *
 * An event is a name, a level and fields; it goes to standard error as one line of JSON when narration is on (--log
 * json), as one plain line when it is a warning or worse, and nowhere otherwise. Never prompts, never text: counts,
 * lengths, digests. [any thread] */
#ifndef CORE_LOG_LOG_H
#define CORE_LOG_LOG_H

#include <stdint.h>

enum log_level { LOG_DEBUG = 0, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_NOTHING /* of log_configure */ };
enum log_format { LOG_PLAIN = 0, LOG_JSON };

enum log_kind { LOG_END = 0, LOG_STR, LOG_U64, LOG_F64, LOG_BOOL };
struct log_field {
    enum log_kind kind;
    const char *key;
    const char *str; /* LOG_STR; any bytes, escaped on the way out */
    uint64_t u64;
    double f64;
};
#define log_s(k, v) ((struct log_field){ LOG_STR, k, v, 0, 0 })
#define log_u(k, v) ((struct log_field){ LOG_U64, k, 0, (uint64_t)(v), 0 })
#define log_f(k, v) ((struct log_field){ LOG_F64, k, 0, 0, (double)(v) })
#define log_b(k, v) ((struct log_field){ LOG_BOOL, k, 0, (uint64_t) !!(v), 0 })

void log_configure(enum log_level lowest, enum log_format format); /* [main thread], before other threads start */
/* From here on nobody who logs waits for whoever reads standard error: a pipe whose reader has stopped would stop
 * everything. Lines that are not taken in time are lost, and counted in the next one that is. [main thread] */
void log_never_waits(void);
uint64_t log_lost(void); /* lines, so far [any thread] */
/* message: for people, may be NULL; fields: terminated by an entry of kind LOG_END. */
void log_event(enum log_level level, const char *event, const char *message, const struct log_field *fields);
#define LOG(level, event, message, ...) \
    log_event(level, event, message, (const struct log_field[]){ __VA_ARGS__ __VA_OPT__(, ){ LOG_END, 0, 0, 0, 0 } })

/* The last line of a process that ends now, in a signal's handler: an error, written without waiting for a thread that
 * may never let go. */
void log_last_words(const char *event, const char *message, const struct log_field *fields);
/* Fields that every event carries besides its own, unless it has one of that key itself: terminated, the caller's, who
 * leaves them as they are. [any thread] */
void log_common(const struct log_field *fields);

/* Progress of one long activity, 0..1. On a terminal: a bar on standard error that is wiped at the end; in JSON: events
 * called EVENT at 0, 25, 50, 75 and 100 %, with model_ref, which may be NULL. Only one activity at a time. [one thread
 * at a time] */
void log_progress(const char *event, const char *activity, const char *model_ref, double fraction);

#endif
