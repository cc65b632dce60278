/* options.h: the command line as data: one table of subcommands and one of options.
 *
 * Parsing, ranges, defaults, names of environment variables and of keys in a configuration file, --help, the man page
 * and the completions are all read from these two tables. A value comes from the flag, else from the environment, else
 * from the file that --config names, else from the table's default, and is checked against its range wherever it came
 * from. [main thread] */
#ifndef WORKER_OPTIONS_H
#define WORKER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum command {
    CMD_RUN = 0,
    CMD_COMPLETE,
    CMD_CHAT,
    CMD_RENDER,
    CMD_TOKENIZE,
    CMD_DETOKENIZE,
    CMD_SCORE,
    CMD_EMBED,
    CMD_INSPECT,
    CMD_PLAN,
    CMD_CAPABILITIES,
    CMD_PLUGIN,
    CMD_QUANTIZE,
    CMD_IMATRIX,
    CMD_VERIFY,
    CMD_BENCH,
    CMD_DEBUG,
    CMD_GRAMMAR,
    CMD_AUDIT,
    CMD_SERVE,
    CMD_ADMIN,
    CMD_STATUS,
    CMD_JOBS,
    CMD_CANCEL,
    CMD_MODELS,
    CMD_METRICS,
    CMD_PULL,
    CMD_LIST,
    CMD_DOCTOR,
    CMD_HELP,
    CMD_COUNT
};

enum option_id {
    OPT_MODEL = 0,
    OPT_PROMPT,
    OPT_FILE,
    OPT_TEXT,
    OPT_IDS,
    OPT_MAX_TOKENS,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_REPETITION_PENALTY,
    OPT_PRESENCE_PENALTY,
    OPT_FREQUENCY_PENALTY,
    OPT_LOGIT_BIAS,
    OPT_SEED,
    OPT_STOP,
    OPT_CHAT,
    OPT_RAW,
    OPT_PARSE_SPECIAL,
    OPT_REASONING,
    OPT_REASONING_EFFORT,
    OPT_CHAT_TEMPLATE,
    OPT_TEMPLATE_DATE,
    OPT_TOOL_FORMAT,
    OPT_TEMPLATE,
    OPT_MESSAGES,
    OPT_TOOLS,
    OPT_KWARGS,
    OPT_CONTEXT_FILE,
    OPT_AS_IS,
    OPT_NOW,
    OPT_RUNS,
    OPT_TOKENIZER,
    OPT_ACCEPT_KEY,
    OPT_LORA,
    OPT_PRINT_IDS,
    OPT_SPECIAL,
    OPT_NO_BOS,
    OPT_QUERY,
    OPT_LOGITS,
    OPT_TAP,
    OPT_OUT,
    OPT_IMATRIX_OUT,
    OPT_IMATRIX,
    OPT_DEVICE_LIKE,
    OPT_SCHEMA,
    OPT_JSON_SCHEMA,
    OPT_GRAMMAR,
    OPT_REGEX,
    OPT_ACCEPTS,
    OPT_DEVICE,
    OPT_GPU_DEVICE,
    OPT_FLASH_ATTENTION,
    OPT_FLASH_TILE,
    OPT_DIGEST,
    OPT_UPLOAD_CHUNK,
    OPT_THREADS,
    OPT_ISA,
    OPT_EXACT,
    OPT_CONTEXT,
    OPT_MAX_SEQUENCES,
    OPT_BENCH_PROMPT,
    OPT_BENCH_GENERATE,
    OPT_BENCH_REPEAT,
    OPT_BENCH_DEPTH,
    OPT_BENCH_SEQUENCES,
    OPT_BENCH_CONSTRAINED,
    OPT_BENCH_KERNELS,
    OPT_WORKER_ID,
    OPT_HOST,
    OPT_ADMIN_HOST,
    OPT_PORT,
    OPT_ADMIN_PORT,
    OPT_TLS_CERT,
    OPT_TLS_KEY,
    OPT_TLS_CLIENT_CA,
    OPT_MODEL_DIR,
    OPT_MODEL_ID,
    OPT_MODEL_ALIAS,
    OPT_WAIT_FOR_COMMIT,
    OPT_ROLE,
    OPT_KV_TRANSPORT,
    OPT_PREFILL_POOL,
    OPT_DECODE_POOL,
    OPT_HANDOVER_PEER,
    OPT_HANDOVER_HOST,
    OPT_HANDOVER_CA,
    OPT_CALLBACK_URL,
    OPT_ORIGIN,
    OPT_ALLOWED_HOST,
    OPT_MAX_TOKENS_IN,
    OPT_MAX_TOKENS_OUT,
    OPT_MAX_PROMPT_CHARS,
    OPT_MAX_PRIORITY,
    OPT_MAX_STREAMS,
    OPT_INFERENCE_TIMEOUT,
    OPT_SHUTDOWN_TIMEOUT,
    OPT_DRAIN_GRACE,
    OPT_RESIDENCY,
    OPT_KV_CACHE_SIZE,
    OPT_SERVE_SEQUENCES,
    OPT_BATCH_TOKENS,
    OPT_MAX_QUEUE,
    OPT_NO_PREFIX_CACHE,
    OPT_KV_EVICTION,
    OPT_COMPLETION_CACHE,
    OPT_KV_EVENTS,
    OPT_KV_EVENTS_REPLAY,
    OPT_KV_EVENTS_TOPIC,
    OPT_MATRYOSHKA,
    OPT_POOLING,
    OPT_FAIRNESS_PREEMPT,
    OPT_FAIRNESS_HIGH_PRI,
    OPT_FAIRNESS_TIMESLICE,
    OPT_OTLP,
    OPT_INSECURE,
    OPT_POLICY_FILE,
    OPT_POLICY_PASSPHRASE,
    OPT_POLICY_PASSPHRASE_FILE,
    OPT_PREFIX_SHARE,
    OPT_OPEN_METRICS,
    OPT_OIDC_ISSUER,
    OPT_OIDC_AUDIENCE,
    OPT_OIDC_CA,
    OPT_OIDC_CLIENT,
    OPT_OIDC_TYPE,
    OPT_OIDC_ROLES,
    OPT_AUDIT_LOG,
    OPT_AUDIT_REQUIRED,
    OPT_AUDIT_SYNC,
    OPT_AUDIT_RAW,
    OPT_AUDIT_ROTATE,
    OPT_AUDIT_SIGNING_KEY,
    OPT_AUDIT_KEY,
    OPT_PLAIN_SHA256,
    OPT_URL,
    OPT_SERVED_URL,
    OPT_API_KEY,
    OPT_API_KEY_FILE,
    OPT_CA,
    OPT_HUB_CA,
    OPT_BODY,
    OPT_SET,
    OPT_KEY_FILE,
    OPT_PUBLIC_KEY,
    OPT_CONFIG,
    OPT_JSON,
    OPT_PLUGIN_DIR,
    OPT_PREFER,
    OPT_PLUGIN_OPTION,
    OPT_PLUGIN_DIGEST,
    OPT_PLUGIN_ID,
    OPT_LIST,
    OPT_ONLY,
    OPT_LOG,
    OPT_HELP,
    OPT_COUNT
};

enum option_type {
    OPTION_FLAG = 0,
    OPTION_SWITCH /* on or off */,
    OPTION_INTEGER,
    OPTION_REAL,
    OPTION_TEXT,
    OPTION_LIST /* text, repeatable */,
    OPTION_CHOICE
};

struct option_def {
    const char *name; /* long name; unique among the options of one command */
    char letter;      /* short name, 0: none */
    enum option_type type;
    bool environment;     /* also taken from WORKER_<NAME> */
    uint32_t commands;    /* mask of 1 << enum command */
    const char *argument; /* "FILE", a CHOICE's words as "cpu|cuda", a SWITCH's as "on|off"; NULL for a flag */
    double min, max;      /* INTEGER, REAL: inclusive (0x1p64: all 64 bits); LIST: max entries; TEXT: max bytes */
    const char *preset;   /* default, as one would write it; NULL: none */
    const char *help;
};
/* Keys of a configuration file that are not their option's name with _ for -; ends with OPT_COUNT. */
struct option_key {
    enum option_id option;
    const char *key;
};
extern const struct option_key option_keys[];
extern const struct option_def option_table[OPT_COUNT];

struct command_def {
    const char *name, *operands; /* operands: "TEXT", "list | info FILE"; "" for none */
    int min_operands, max_operands;
    const char *summary;     /* one line */
    const char *description; /* for the man page and the command's own help; plain sentences */
};
extern const struct command_def command_table[CMD_COUNT];

struct option_value {
    bool given;       /* by flag or environment */
    bool filed;       /* by --config's file, and not given */
    bool flag;        /* by flag */
    uint64_t integer; /* INTEGER; FLAG, SWITCH: 0 or 1 */
    double real;      /* REAL */
    const char *text; /* TEXT, CHOICE; NULL: absent */
};

struct option_entry {
    enum option_id option;
    const char *text;
};

struct options {
    enum command command;
    struct option_value value[OPT_COUNT];
    struct option_entry *list;
    uint32_t n_list; /* repeatable options in the order given */
    char *const *operands;
    int n_operands; /* argv's */
    bool help;
    char **kept;
    uint32_t n_kept;  /* texts from a configuration file */
    uint32_t n_links; /* variables of Kubernetes' service links that were passed over */
    char link[64];    /* the first of them */
};

static inline bool option_flag(const struct options *o, enum option_id id) { return o->value[id].integer != 0; }
static inline uint64_t option_u64(const struct options *o, enum option_id id) { return o->value[id].integer; }
static inline uint32_t option_u32(const struct options *o, enum option_id id)
{
    return (uint32_t)o->value[id].integer;
} /* the table's max is below 2^32 */
static inline double option_real(const struct options *o, enum option_id id) { return o->value[id].real; }
static inline const char *option_text(const struct options *o, enum option_id id) { return o->value[id].text; }
/* By flag, environment or file: not the default. */
static inline bool option_given(const struct options *o, enum option_id id)
{
    return o->value[id].given || o->value[id].filed;
}
/* Entries of a LIST in the order given, at most cap; returns how many. */
uint32_t option_list(const struct options *o, enum option_id id, const char **out, uint32_t cap);

/* Reads argv[1..]. False: a usage error has been printed on standard error. On true, options_free afterwards. */
bool options_parse(int argc, char **argv, struct options *out);
void options_free(struct options *o);

/* Takes a configuration file's values for what neither flag nor environment gave (config_file.c). False: an unknown key
 * or a bad value has been said with its line. */
bool config_read(struct options *o, const char *path);
/* Is text a value of an option that another command has? c: whose usage the message names. False: it has been said. */
bool option_check(enum command c, enum option_id id, const char *text, const char *where);
/* Takes one value from it. where: "worker.ini:7: max_queue". False: it has been said. For config_read. */
bool option_from_file(struct options *o, enum option_id id, const char *text, const char *where);

/* The key of an option in a configuration file: "max_queue", "scheduler.fairness.enable_preemption". */
void option_file_key(enum option_id id, char out[64]);
/* The environment variable of an option: "WORKER_MAX_TOKENS". */
void option_environment(const struct option_def *def, char out[64]);
/* A variable that Kubernetes sets for a service whose name begins with "worker", as it does in every pod. */
bool environment_is_link(const char *name, const char *value);
/* Refuses a WORKER_* variable that nobody knows, by name, and counts service links (environment.c). False: it has been
 * said. */
bool environment_check(struct options *o);

/* The option whose variable is nearest to a mistyped name (without WORKER_); NULL: none is near. */
const struct option_def *option_of_near_variable(const char *name);
bool option_is_secret(enum option_id id); /* no message shows its value */
/* "0 to 2, default 1": "" when there is nothing to say. */
void option_limits(const struct option_def *def, char *out, size_t cap);
static inline bool option_of(const struct option_def *def, enum command c) { return def->commands >> c & 1; }

void help_overview(FILE *out);
void help_command(enum command c, FILE *out);
enum command command_named(const char *name); /* CMD_COUNT: none */
/* The candidate nearest to a mistyped name, or NULL if none is near. */
const char *command_nearest(const char *name);

#endif
