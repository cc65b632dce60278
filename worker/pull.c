/* pull.c: `worker pull`: a model of the hub into the model folder, and how far it is: a bar on a terminal, elsewhere a
 * line for every tenth, with --log json events. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "commands.h"
#include "errors.h"
#include "hub/catalog.h"
#include "hub/pull.h"
#include "json_out.h"
#include "log/log.h"
#include "setup.h"
#include "text.h"

enum { CELLS = 24, NAME = 256 };

struct shown {
    bool events;   /* --log json: nothing but these */
    bool bar;      /* standard error is a terminal */
    bool line;     /* its last line is the bar */
    int part;      /* shown last: of 10 parts, on a terminal of 1000 */
    double began;  /* seconds_now when the file's first byte came */
    uint64_t from; /* bytes that were there then */
};

/* ---- how far it is ------------------------------------------------------------------------------------- */

static void wipe(struct shown *s)
{
    if (s->line) (void)fputs("\r\033[K", stderr);
    s->line = false;
}

static void say(struct shown *s, const struct pull_news *n, const char *text)
{
    char name[NAME];
    wipe(s);
    (void)fprintf(stderr, "worker: %s: %s\n", text_printable(n->path, name, sizeof name), text);
}

static double share_of(const struct pull_news *n)
{
    return n->bytes && n->bytes != HUB_UNKNOWN && n->done <= n->bytes ? (double)n->done / (double)n->bytes : 0;
}

/* A line that is longer than the terminal is wide could not be wiped. */
static void cut_to_terminal(char *line)
{
    struct winsize w = { 0 };
    size_t most = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col - 1u : 79;
    if (strlen(line) <= most) return;
    while (most && ((unsigned char)line[most] & 0xc0) == 0x80) most--; /* not within a character */
    line[most] = '\0';
}

/* "fetches [====>     ]  42 %  1.2 of 3.4 GB, 45 MB/s, 0:48 left  FILE" */
static void draw(struct shown *s, const struct pull_news *n, const char *what)
{
    char done[SIZE_TEXT], all[SIZE_TEXT], rate[SIZE_TEXT], bar[CELLS + 1], name[NAME], left[96] = "", line[NAME + 256];
    const double seconds = seconds_now() - s->began;
    const int full = (int)(share_of(n) * CELLS);
    for (int i = 0; i < CELLS; i++) bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    bar[CELLS] = '\0';
    if (n->event == PULL_BYTES && seconds > 0 && n->done > s->from) {
        const double speed = (double)(n->done - s->from) / seconds;
        const uint64_t rest = (uint64_t)((double)(n->bytes - n->done) / speed);
        (void)snprintf(left, sizeof left, ", %s/s, %" PRIu64 ":%02" PRIu64 " left", size_text((uint64_t)speed, rate),
                       rest / 60, rest % 60);
    }
    (void)snprintf(line, sizeof line, "%s [%s] %3.0f %%  %s of %s%s  %s", what, bar, 100 * share_of(n),
                   size_text(n->done, done), size_text(n->bytes, all), left,
                   text_printable(n->path, name, sizeof name));
    cut_to_terminal(line);
    (void)fprintf(stderr, "\r\033[K%s", line);
    s->line = true;
}

static void show_bytes(struct shown *s, const struct pull_news *n)
{
    char text[128], done[SIZE_TEXT], all[SIZE_TEXT];
    const char *what = n->event == PULL_CHECKS ? "checks" : "fetches";
    if (s->bar) {
        draw(s, n, what);
        return;
    }
    (void)snprintf(text, sizeof text, "%s, %d %% (%s of %s)", what, 10 * s->part, size_text(n->done, done),
                   size_text(n->bytes, all));
    say(s, n, text);
}

static void show(struct shown *s, const struct pull_news *n)
{
    char text[64], size[SIZE_TEXT];
    switch (n->event) {
    case PULL_BEGINS:
        (void)snprintf(text, sizeof text, n->done ? "goes on after %s" : "%s",
                       size_text(n->done ? n->done : n->bytes, size));
        if (!s->bar || n->done) say(s, n, text);
        break;
    case PULL_BYTES:
    case PULL_CHECKS: show_bytes(s, n); break;
    case PULL_WAITS: say(s, n, "another process fetches it: waits for that"); break;
    case PULL_BREAKS: wipe(s); break; /* the warning says it */
    case PULL_PRESENT: say(s, n, "is there already, with the right SHA-256"); break;
    case PULL_DONE: say(s, n, "is there, with the right SHA-256"); break;
    }
}

static void on_news(void *user, const struct pull_news *n)
{
    static const char *const names[] = {
        [PULL_BEGINS] = "pull_begins", [PULL_BYTES] = "pull_progress", [PULL_CHECKS] = "pull_checks",
        [PULL_WAITS] = "pull_waits",   [PULL_BREAKS] = "pull_breaks",  [PULL_PRESENT] = "pull_present",
        [PULL_DONE] = "pull_done"
    };
    struct shown *s = user;
    const int part = (int)(share_of(n) * (s->bar ? 1000 : 10));
    const bool often = n->event == PULL_BYTES || n->event == PULL_CHECKS;
    if (n->event == PULL_BEGINS) {
        s->began = seconds_now();
        s->from = n->done;
    }
    if (often && part == s->part) return;
    s->part = part;
    if (!s->events) show(s, n);
    char why[1024] = "";
    if (n->why) (void)snprintf(why, sizeof why, "%s; another try follows", n->why);
    LOG(n->event == PULL_BREAKS ? LOG_WARN : LOG_INFO, names[n->event], why[0] ? why : NULL, log_s("file", n->path),
        log_u("file_index", n->file), log_u("files", n->files), log_u("bytes_done", n->done),
        log_u("bytes", n->bytes == HUB_UNKNOWN ? 0 : n->bytes));
}

/* ---- the result ---------------------------------------------------------------------------------------- */

static int print_json(const char *name, const struct pulled *p)
{
    json_t *files = json_array();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct pulled_file *f = &p->files[i];
        bytes += f->bytes;
        (void)json_array_append_new(
            files, json_pack("{s:o, s:o, s:I, s:s, s:I}", "file", json_bytes(f->path, strlen(f->path)), "path",
                             json_bytes(f->local, strlen(f->local)), "bytes", (json_int_t)f->bytes, "sha256", f->sha256,
                             "bytes_fetched", (json_int_t)f->fetched));
    }
    return json_print(json_pack("{s:o, s:o, s:I, s:o}", "model", json_bytes(name, strlen(name)), "path",
                                json_bytes(p->files[0].local, strlen(p->files[0].local)), "bytes", (json_int_t)bytes,
                                "files", files));
}

static int print_text(const char *name, const struct pulled *p)
{
    char shown[MODEL_PATH], size[SIZE_TEXT];
    (void)printf("%-14s %s\n", "model", text_printable(name, shown, sizeof shown));
    for (uint32_t i = 0; i < p->n; i++)
        (void)printf("%-14s %s (%s)\n%-14s %s\n", "file", text_printable(p->files[i].local, shown, sizeof shown),
                     size_text(p->files[i].bytes, size), "sha256", p->files[i].sha256);
    return EXIT_DONE;
}

static int print(const struct options *o, const struct hub_ref *ref, const struct pulled *p)
{
    char name[REF_FILE + 2 * REF_NAME + 8];
    (void)snprintf(name, sizeof name, "hf:%s/%s/%s", ref->org, ref->name, p->files[0].path);
    return option_flag(o, OPT_JSON) ? print_json(name, p) : print_text(name, p);
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int fetch(const struct options *o, struct hub *hub, const struct hub_ref *ref, const char *folder)
{
    struct shown s = { .events = log_is_json(o), .part = -1 };
    struct pulled p;
    ERROR_TEXT(err);
    s.bar = !s.events && isatty(STDERR_FILENO);
    const struct pull_options options = {
        .hub = hub, .folder = folder, .stop = interrupted, .news = on_news, .user = &s
    };
    const wk_status status = pull_model(&options, ref, &p, &err);
    int result;
    wipe(&s);
    if (status == WK_CANCELLED) {
        LOG(LOG_WARN, "pull_stopped", "stopped; what came is kept, and the same command goes on from there",
            log_u("files", p.n));
        result = EXIT_INTERRUPTED;
    } else if (status) {
        result = fail(status == WK_NO_MEMORY ? CODE_INSUFFICIENT_MEMORY : CODE_PULL_FAILED, "%s", err_text);
    } else {
        result = print(o, ref, &p);
    }
    pulled_free(&p);
    return result;
}

int command_pull(const struct options *o)
{
    struct hub_ref ref;
    struct hub *hub = NULL;
    ERROR_TEXT(err);
    const struct hub_options options = { .endpoint = getenv("HF_ENDPOINT"),
                                         .token = getenv("HF_TOKEN"),
                                         .ca_file = option_text(o, OPT_HUB_CA),
                                         .stop = interrupted };
    if (ref_read(o->operands[0], &ref, &err)) return fail_usage("pull", "%s", err_text);
    char *folder = catalog_folder(option_text(o, OPT_MODEL_DIR));
    if (!folder) return fail_usage("pull", "HOME is not set: name the folder of models with --model-dir");
    interrupts_catch();
    const wk_status status = hub_open(&options, &hub, &err);
    const int result = status ? fail(CODE_PULL_FAILED, "%s", err_text) : fetch(o, hub, &ref, folder);
    hub_close(hub);
    free(folder);
    return result;
}
