/* gate.c: see gate.h. */
#include "gate.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/private_file.h"
#include "errors.h"
#include "log/log.h"
#include "log/words.h"

enum { MAX_CLIENTS = 16 };

static const char *flag_of(enum option_id id) { return option_table[id].name; }

/* A secret's file: without its last line end, and private. */
static int read_secret(const char *command, const char *flag, const char *path, size_t least, size_t most, char *out,
                       size_t *n)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    *n = f ? fread(out, 1, most + 1, f) : 0;
    const bool failed = !f || ferror(f) || fstat(fileno(f), &st);
    if (f) (void)fclose(f);
    if (failed) return fail_usage(command, "--%s: %s: cannot be read", flag, path);
    if (!file_is_private(&st))
        return fail_usage(command, "--%s: %s: others than its owner may use it (mode %04o): chmod 600 it", flag, path,
                          (unsigned)st.st_mode & 07777);
    if (*n && out[*n - 1] == '\n') --*n;
    if (*n && out[*n - 1] == '\r') --*n;
    if (*n < least || *n > most || memchr(out, 0, *n))
        return fail_usage(command, "--%s: %s: expected %zu to %zu bytes, none of them zero", flag, path, least, most);
    out[*n] = 0;
    return EXIT_DONE;
}

int secret_option(const struct options *o, enum option_id text, enum option_id file, size_t most, char *out, size_t *n)
{
    const char *command = command_table[o->command].name, *given = option_text(o, text), *path = option_text(o, file);
    out[0] = 0;
    *n = 0;
    if (given && path) return fail_usage(command, "--%s and --%s exclude each other", flag_of(text), flag_of(file));
    if (given && o->value[text].flag)
        return fail_usage(command, "--%s: others can see a command line: use the environment, or --%s", flag_of(text),
                          flag_of(file));
    if (path) return read_secret(command, flag_of(file), path, (size_t)option_table[text].min, most, out, n);
    if (!given) return EXIT_DONE;
    *n = strlen(given);
    if (*n > most) return fail_usage(command, "--%s: expected at most %zu bytes", flag_of(text), most);
    memcpy(out, given, *n + 1);
    return EXIT_DONE;
}

int gate_passphrase(const struct options *o, char out[PASSPHRASE_MOST], size_t *n)
{
    const int result = secret_option(o, OPT_POLICY_PASSPHRASE, OPT_POLICY_PASSPHRASE_FILE, PASSPHRASE_MOST - 1, out, n);
    if (!result && *n && !option_text(o, OPT_POLICY_FILE)) {
        OPENSSL_cleanse(out, PASSPHRASE_MOST);
        return fail_usage(command_table[o->command].name, "a passphrase is of --policy-file, which is not given");
    }
    return result;
}

/* ---- worker serve -------------------------------------------------------------------------------------- */

/* Options that mean nothing without another one. */
static int check_companions(const struct options *o)
{
    static const struct {
        enum option_id option, needs;
    } rows[] = {
        { OPT_OIDC_AUDIENCE, OPT_OIDC_ISSUER }, { OPT_OIDC_CA, OPT_OIDC_ISSUER },
        { OPT_OIDC_TYPE, OPT_OIDC_ISSUER },     { OPT_AUDIT_REQUIRED, OPT_AUDIT_LOG },
        { OPT_AUDIT_SYNC, OPT_AUDIT_LOG },      { OPT_AUDIT_RAW, OPT_AUDIT_LOG },
        { OPT_AUDIT_ROTATE, OPT_AUDIT_LOG },    { OPT_AUDIT_SIGNING_KEY, OPT_AUDIT_LOG },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (option_given(o, rows[i].option) && !option_given(o, rows[i].needs))
            return fail_usage("serve", "--%s is of --%s, which is not given", flag_of(rows[i].option),
                              flag_of(rows[i].needs));
    if (option_text(o, OPT_OIDC_ISSUER) && !option_text(o, OPT_OIDC_AUDIENCE))
        return fail_usage("serve", "--oidc-issuer needs --oidc-audience: tokens for others must not be taken");
    return EXIT_DONE;
}

/* --audit-key, or the key beside the log, which also makes the digests of events. */
static int choose_chain_key(const struct options *o, const char *log, char key[AUDIT_KEY_MOST], size_t *n)
{
    char path[4096];
    ERROR_TEXT(err);
    const char *given = option_text(o, OPT_AUDIT_KEY);
    wk_status status;
    if (given && given[0] != '@') {
        *n = strlen(given); /* choose_audit_key has measured it */
        memcpy(key, given, *n);
        return EXIT_DONE;
    }
    (void)snprintf(path, sizeof path, "%s.key", log);
    status = audit_key_read(given ? given + 1 : path, !given, key, n, &err);
    if (status) return fail(CODE_INTERNAL, "--audit-log: %s", err_text);
    if (!given) log_key(key, *n);
    return EXIT_DONE;
}

static enum gate_share share_of(const struct options *o)
{
    const char *share = option_text(o, OPT_PREFIX_SHARE);
    return strcmp(share, "global") == 0 ? SHARE_GLOBAL : strcmp(share, "tenant") == 0 ? SHARE_TENANT : SHARE_KEY;
}

static int open_gate(const struct options *o, char *passphrase, size_t passphrase_n, struct fetch *fetch,
                     struct gate **out)
{
    const char *clients[MAX_CLIENTS];
    char key[AUDIT_KEY_MOST];
    size_t key_n = 0;
    ERROR_TEXT(err);
    const struct oidc_config oidc = { .issuer = option_text(o, OPT_OIDC_ISSUER),
                                      .audience = option_text(o, OPT_OIDC_AUDIENCE),
                                      .ca_file = option_text(o, OPT_OIDC_CA),
                                      .typ = option_text(o, OPT_OIDC_TYPE),
                                      .clients = clients,
                                      .n_clients = option_list(o, OPT_OIDC_CLIENT, clients, MAX_CLIENTS),
                                      .roles_claim = option_text(o, OPT_OIDC_ROLES) };
    const char *log = option_text(o, OPT_AUDIT_LOG);
    int result = log ? choose_chain_key(o, log, key, &key_n) : EXIT_DONE;
    const struct audit_options audit = { .path = log,
                                         .key = key,
                                         .key_len = key_n,
                                         .required = option_flag(o, OPT_AUDIT_REQUIRED),
                                         .sync = option_flag(o, OPT_AUDIT_SYNC),
                                         .raw = option_flag(o, OPT_AUDIT_RAW),
                                         .plain_sha256 = option_flag(o, OPT_PLAIN_SHA256),
                                         .rotate_bytes = option_u64(o, OPT_AUDIT_ROTATE) << 20,
                                         .signing_key = option_text(o, OPT_AUDIT_SIGNING_KEY) };
    const struct gate_options options = { .policy_file = option_text(o, OPT_POLICY_FILE),
                                          .passphrase = passphrase,
                                          .passphrase_n = passphrase_n,
                                          .fetch = fetch,
                                          .oidc = oidc.issuer ? &oidc : NULL,
                                          .audit = log ? &audit : NULL,
                                          .share = share_of(o),
                                          .open_metrics = option_flag(o, OPT_OPEN_METRICS),
                                          .version = WORKER_VERSION };
    if (!result && gate_open(&options, out, &err)) result = fail(CODE_GATE_FAILED, "%s", err_text);
    OPENSSL_cleanse(key, sizeof key);
    return result;
}

int fetch_start_for(const struct options *o, struct fetch **out)
{
    ERROR_TEXT(err);
    *out = NULL;
    if (!option_text(o, OPT_POLICY_FILE) && !option_text(o, OPT_OIDC_ISSUER) && !option_text(o, OPT_OTLP))
        return EXIT_DONE;
    return fetch_open(NULL, out, &err) ? fail(CODE_GATE_FAILED, "%s", err_text) : EXIT_DONE;
}

/* A worker that asks for keys has one, since nobody can make the first while it has the policy's file open; at an
 * address beyond this machine it asks. */
static int check_keys(const struct options *o, bool exposed, struct gate *g)
{
    const bool asks = g && gate_asks(g);
    if (!asks && exposed && !option_flag(o, OPT_INSECURE))
        return fail_usage("serve",
                          "an address beyond this machine needs keys or tokens (--policy-file, --oidc-issuer): without "
                          "them everybody who reaches it could use the worker, and shut it down; --insecure serves it "
                          "all the same");
    if (asks && !gate_has_keys(g))
        return fail_usage("serve",
                          "%s has no key: nobody could use the worker; worker admin api-keys create NAME --policy-file "
                          "FILE --set scopes=admin,inference makes the first one",
                          option_text(o, OPT_POLICY_FILE));
    if (!asks && exposed)
        LOG(LOG_WARN, "exposed", "everybody who can reach this address can use this worker: it asks for no key");
    return EXIT_DONE;
}

int gate_start(const struct options *o, bool exposed, struct fetch *fetch, struct gate **out)
{
    char passphrase[PASSPHRASE_MOST];
    size_t n;
    *out = NULL;
    int result = check_companions(o);
    if (!result) result = gate_passphrase(o, passphrase, &n);
    if (!result &&
        (option_text(o, OPT_POLICY_FILE) || option_text(o, OPT_OIDC_ISSUER) || option_text(o, OPT_AUDIT_LOG)))
        result = open_gate(o, passphrase, n, fetch, out);
    OPENSSL_cleanse(passphrase, sizeof passphrase);
    if (!result) result = check_keys(o, exposed, *out);
    if (result) {
        gate_close(*out);
        *out = NULL;
    }
    return result;
}
