/* config_file.c: the file that --config names: lines of `key = value`, sections in brackets whose names stand before
 * the keys in them, comments after # or ;
 *     port = 7531
 *     [scheduler.fairness]
 *     enable_preemption = true
 * One file serves every command: keys that only others have are checked and passed over. Quotes around a value are
 * taken off, so simple TOML reads as well. A reader of our own: Debian's libinih cuts lines at 200 bytes and goes on,
 * and its callbacks do not know the line; here whatever is wrong is refused with its line, and nothing is ever cut. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/private_file.h"

enum { CONFIG_MAX_BYTES = 1 << 20, KEY_MAX = 64 };

static const char byte_order_mark[] = "\xef\xbb\xbf"; /* some editors put it before the first line */

struct config {
    struct options *o;
    const char *path;
    unsigned line;
    char section[KEY_MAX];
    bool set[OPT_COUNT]; /* by this file */
    bool is_private;     /* nobody else may read it */
};

static bool complain(const struct config *c, const char *what, const char *word)
{
    (void)fprintf(stderr, "worker %s: %s:%u: %s%.80s; see worker %s --help\n", command_table[c->o->command].name,
                  c->path, c->line, what, word, command_table[c->o->command].name);
    return false;
}

/* What stands behind the first word may be a value, and that a secret. */
static bool unknown_key(const struct config *c, const char *key)
{
    char word[2 * KEY_MAX];
    (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(key, ": \t"), key);
    return complain(c, "unknown key ", word);
}

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    for (size_t n = strlen(text); n && isspace((unsigned char)text[n - 1]); n--) text[n - 1] = '\0';
    return text;
}

/* Takes quotes off, or a comment that a space sets apart. False: quotes that do not match. */
static bool bare_value(char **value)
{
    char *v = *value;
    if (*v == '"' || *v == '\'') {
        char *end = strchr(v + 1, *v);
        if (!end) return false;
        char *rest = end + 1;
        while (isspace((unsigned char)*rest)) rest++;
        if (*rest && *rest != '#' && *rest != ';') return false;
        *end = '\0';
        *value = v + 1;
        return true;
    }
    for (char *p = v; *p; p++)
        if ((*p == '#' || *p == ';') && (p == v || isspace((unsigned char)p[-1]))) {
            *p = '\0';
            break;
        }
    *value = trimmed(v);
    return true;
}

static bool keep(struct options *o, const char *text, const char **kept)
{
    char **more = realloc(o->kept, (o->n_kept + 1) * sizeof *more);
    if (!more) return false;
    o->kept = more;
    *kept = o->kept[o->n_kept] = strdup(text);
    if (!*kept) return false;
    o->n_kept++;
    return true;
}

/* A key of another command, so that one file serves them all: its value must be one, but nobody takes it. */
static bool pass_over(const struct config *c, const char *key, const char *text, const char *where)
{
    enum option_id known = OPT_COUNT;
    char own[KEY_MAX];
    for (int i = 0; i < OPT_COUNT; i++) {
        option_file_key((enum option_id)i, own);
        if (i == OPT_CONFIG || i == OPT_HELP || strcmp(own, key) != 0) continue;
        known = (enum option_id)i;
        if (option_table[i].type == OPTION_TEXT) break; /* a name that means more than one thing: the laxest */
    }
    return known == OPT_COUNT ? unknown_key(c, key) : option_check(c->o->command, known, text, where);
}

static bool take(struct config *c, const char *name, const char *text)
{
    char key[2 * KEY_MAX], own[KEY_MAX], where[4352];
    const char *value;
    if (strlen(name) >= KEY_MAX) return unknown_key(c, name);
    (void)snprintf(key, sizeof key, "%s%s%s", c->section, c->section[0] ? "." : "", name);
    (void)snprintf(where, sizeof where, "%s:%u: %s", c->path, c->line, key);
    for (int i = 0; i < OPT_COUNT; i++) {
        const struct option_def *def = &option_table[i];
        option_file_key((enum option_id)i, own);
        if (!option_of(def, c->o->command) || i == OPT_CONFIG || i == OPT_HELP || strcmp(own, key) != 0) continue;
        if (c->set[i] && def->type != OPTION_LIST) return complain(c, "given twice: ", key);
        c->set[i] = true;
        if (option_is_secret((enum option_id)i) && !c->is_private)
            return complain(c, "others than its owner may use this file: chmod 600 it, since it has ", key);
        return keep(c->o, text, &value) ? option_from_file(c->o, (enum option_id)i, value, where)
                                        : complain(c, "out of memory", "");
    }
    return pass_over(c, key, text, where);
}

static bool read_line(struct config *c, char *line)
{
    char *text = trimmed(line);
    if (!*text || *text == '#' || *text == ';') return true;
    if (*text == '[') {
        char *end = strchr(text, ']'), *rest = end ? trimmed(end + 1) : NULL;
        if (!end || (*rest && *rest != '#' && *rest != ';')) return complain(c, "expected [section], got ", text);
        *end = '\0';
        char *name = trimmed(text + 1);
        if (!*name || strlen(name) >= sizeof c->section) return complain(c, "unknown section ", name);
        (void)snprintf(c->section, sizeof c->section, "%s", name);
        return true;
    }
    char *equals = strchr(text, '=');
    if (!equals) return complain(c, "expected key = value", "");
    *equals = '\0';
    char *name = trimmed(text), *value = trimmed(equals + 1);
    if (!bare_value(&value)) return complain(c, "quotes that do not match in the value of ", name);
    return take(c, name, value);
}

bool config_read(struct options *o, const char *path)
{
    struct config c = { .o = o, .path = path };
    struct stat st;
    char *line = NULL;
    size_t cap = 0, total = 0;
    bool ok = true;
    FILE *f = fopen(path, "re");
    if (!f) {
        (void)fprintf(stderr, "worker %s: --config %s: %s\n", command_table[o->command].name, path, strerror(errno));
        return false;
    }
    c.is_private = fstat(fileno(f), &st) == 0 && file_is_private(&st);
    errno = 0;
    for (ssize_t n; ok && (n = getline(&line, &cap, f)) >= 0;) {
        c.line++;
        total += (size_t)n;
        if (total > CONFIG_MAX_BYTES)
            ok = complain(&c, "longer than a mebibyte: not a configuration file", "");
        else if (strlen(line) != (size_t)n)
            ok = complain(&c, "a NUL byte: not a text file", "");
        else
            ok = read_line(&c, c.line == 1 && strncmp(line, byte_order_mark, 3) == 0 ? line + 3 : line);
    }
    if (ok && ferror(f)) {
        (void)fprintf(stderr, "worker %s: --config %s: %s\n", command_table[o->command].name, path, strerror(errno));
        ok = false;
    }
    free(line);
    (void)fclose(f);
    return ok;
}
