/* main.c: finds the subcommand and returns its exit status. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <worker/plugin.h>

#include "commands.h"
#include "errors.h"
#include "gguf/guard.h"
#include "log/log.h"
#include "plugin/call.h"
#include "setup.h"

static int command_help(const struct options *o)
{
    if (o->n_operands == 0) {
        help_overview(stdout);
        return EXIT_DONE;
    }
    enum command c = command_named(o->operands[0]);
    const char *nearest = c == CMD_COUNT ? command_nearest(o->operands[0]) : NULL;
    if (c == CMD_COUNT)
        return fail_usage("help", "%.80s: unknown command%s%s%s", o->operands[0], nearest ? "; did you mean " : "",
                          nearest ? nearest : "", nearest ? "?" : "");
    help_command(c, stdout);
    return EXIT_DONE;
}

static int (*const commands[CMD_COUNT])(const struct options *) = {
    [CMD_RUN] = command_run,
    [CMD_COMPLETE] = command_complete,
    [CMD_CHAT] = command_chat,
    [CMD_RENDER] = command_render,
    [CMD_TOKENIZE] = command_tokenize,
    [CMD_DETOKENIZE] = command_detokenize,
    [CMD_SCORE] = command_score,
    [CMD_EMBED] = command_embed,
    [CMD_INSPECT] = command_inspect,
    [CMD_PLAN] = command_plan,
    [CMD_CAPABILITIES] = command_capabilities,
    [CMD_PLUGIN] = command_plugin,
    [CMD_QUANTIZE] = command_quantize,
    [CMD_IMATRIX] = command_imatrix,
    [CMD_VERIFY] = command_verify,
    [CMD_BENCH] = command_bench,
    [CMD_DEBUG] = command_debug,
    [CMD_GRAMMAR] = command_grammar,
    [CMD_AUDIT] = command_audit,
    [CMD_SERVE] = command_serve,
    [CMD_ADMIN] = command_admin,
    [CMD_STATUS] = command_status,
    [CMD_JOBS] = command_jobs,
    [CMD_CANCEL] = command_cancel,
    [CMD_MODELS] = command_models,
    [CMD_METRICS] = command_metrics,
    [CMD_PULL] = command_pull,
    [CMD_LIST] = command_list,
    [CMD_DOCTOR] = command_doctor,
    [CMD_HELP] = command_help,
};

static int print_version(void)
{
    (void)printf("worker %s (plugin ABI %d.%d, compiled with " WORKER_COMPILER ")\n", WORKER_VERSION, WK_ABI_MAJOR,
                 WK_ABI_MINOR);
    return EXIT_DONE;
}

/* A pod is told of every service of its namespace; one called worker-something looks like our options. */
static void warn_of_links(const struct options *o)
{
    char text[256];
    if (!o->n_links) return;
    (void)snprintf(text, sizeof text,
                   "%u variables of Kubernetes' service links are ignored (%s, ...); enableServiceLinks: false leaves "
                   "them out of the pod",
                   o->n_links, o->link);
    LOG(LOG_WARN, "service_links_ignored", text, log_u("variables", o->n_links));
}

/* Standard output was closed when we were started. */
static bool output_closed;

static int refuse_output(void)
{
    return fail(CODE_OUTPUT_FAILED, "standard output is closed; give it a file, a pipe or /dev/null");
}

static void plugin_ended_us(const char *text) { fail_in_handler(CODE_INTERNAL, text); }

/* What the command was asked to work on, for its last line should it fail. */
static void tell_errors(const struct options *o)
{
    const char *model = option_text(o, OPT_MODEL), *device = option_text(o, OPT_DEVICE);
    const bool cuda = (device && strcmp(device, "cuda") == 0) || o->value[OPT_GPU_DEVICE].given;
    if (!model && o->n_operands && option_of(&option_table[OPT_DEVICE], o->command) &&
        !option_of(&option_table[OPT_MODEL], o->command))
        model = o->operands[0]; /* where there is --model operands are other things, a prompt among them */
    errors_about(model, cuda ? (int)option_u32(o, OPT_GPU_DEVICE) : -1);
}

static int run_command(int argc, char **argv)
{
    struct options o;
    if (argc < 2) {
        help_overview(stderr);
        return EXIT_USAGE;
    }
    const bool version = strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0;
    if (version || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        if (output_closed) return refuse_output();
        if (version) return print_version();
        help_overview(stdout);
        return EXIT_DONE;
    }
    if (!options_parse(argc, argv, &o)) return EXIT_USAGE;
    int result = EXIT_DONE;
    const bool json = !o.help && log_is_json(&o);
    log_configure(LOG_INFO, json ? LOG_JSON : LOG_PLAIN);
    if (json) errors_as_json();
    /* A service answers elsewhere; some supervisors start it like that. */
    if (output_closed && (o.help || o.command != CMD_SERVE)) {
        result = refuse_output();
    } else if (o.help) {
        help_command(o.command, stdout);
    } else {
        tell_errors(&o);
        warn_of_links(&o);
        ERROR_TEXT(err);
        wk_status status = plugin_calls_watch(plugin_ended_us, &err);
        /* A model's file that is cut short under us becomes an error. */
        if (!status) status = gguf_guard_install(&err);
        result = status ? fail_status(STAGE_MODEL, status, &err) : commands[o.command](&o);
    }
    options_free(&o);
    return result;
}

/* Whoever starts us with a standard stream closed must not find what we say in the file or the connection that would
 * get its number. */
static bool open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        output_closed = output_closed || fd == STDOUT_FILENO;
        if (open("/dev/null", O_RDWR) != fd) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (!open_standard_streams()) return EXIT_FAILED;
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write, like a full disk */
    int result = run_command(argc, argv);
    /* A full disk or a closed pipe behind standard output is a failure too; some file systems say so when it is closed.
     */
    const bool broken = fflush(stdout) != 0 || ferror(stdout), lost = fclose(stdout) != 0 || broken;
    if (lost && result == EXIT_DONE) result = fail(CODE_OUTPUT_FAILED, "standard output cannot be written");
    if (result == EXIT_DEVICE_LOST)
        _exit(result); /* the driver may hang or crash in what runs at the end of a process */
    return result;
}
