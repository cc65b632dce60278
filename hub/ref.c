/* ref.c: see ref.h. */
#include "ref.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

enum { SPLIT_TAIL = 20 /* bytes of -00001-of-00003.gguf */, MOST_LISTED = 40, LINES = 3072 };

bool ref_is_hub(const char *text) { return strncmp(text, "hf:", 3) == 0; }

/* ---- names of files ------------------------------------------------------------------------------------ */

static bool is_plain(const char *part, size_t n)
{
    if (n < 1 || n > 255 || part[0] == '.') return false;
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_sequence((const unsigned char *)part + i, n - i);
        if (!len || (unsigned char)part[i] < 0x20 || part[i] == 0x7f || part[i] == '\\') return false;
    }
    return true;
}

bool ref_is_path(const char *path)
{
    if (strlen(path) >= REF_FILE) return false;
    for (const char *at = path;; at++) {
        const size_t n = strcspn(at, "/");
        if (!is_plain(at, n)) return false;
        at += n;
        if (!*at) return true;
    }
}

static bool is_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && strcasecmp(path + n - 5, ".gguf") == 0;
}

bool ref_part(const char *path, uint32_t *part, uint32_t *parts, size_t *stem)
{
    const size_t n = strlen(path);
    if (n <= SPLIT_TAIL || !is_gguf(path)) return false;
    const char *tail = path + n - SPLIT_TAIL;
    uint32_t number[2] = { 0, 0 };
    if (tail[0] != '-' || strncmp(tail + 6, "-of-", 4) != 0) return false;
    for (int i = 0; i < 10; i++) {
        const char c = tail[i < 5 ? 1 + i : 5 + i];
        if (!isdigit((unsigned char)c)) return false;
        number[i / 5] = number[i / 5] * 10 + (uint32_t)(c - '0');
    }
    if (number[0] < 1 || number[0] > number[1]) return false;
    *part = number[0];
    *parts = number[1];
    *stem = n - SPLIT_TAIL;
    return true;
}

bool ref_begins_model(const char *path)
{
    uint32_t part, parts;
    size_t stem;
    return is_gguf(path) && (!ref_part(path, &part, &parts, &stem) || part == 1);
}

const char *ref_stem(const char *path, size_t *n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    uint32_t part, parts;
    size_t stem;
    if (ref_part(path, &part, &parts, &stem))
        *n = stem - (size_t)(name - path);
    else
        *n = strlen(name) - (is_gguf(name) ? 5 : 0);
    return name;
}

/* Does a quantization begin here? Q4_K_M, IQ2_XXS, TQ1_0, F16, BF16, FP8, MXFP4. */
static bool quant_begins(const char *at)
{
    static const char *const words[] = { "F16", "F32", "BF16", "FP16", "FP32", "MXFP4", "NVFP4" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncasecmp(at, words[i], strlen(words[i])) == 0) return true;
    if (strchr("ITit", *at)) at++;
    return (*at == 'Q' || *at == 'q') && isdigit((unsigned char)at[1]);
}

void ref_quant(const char *path, char out[REF_QUANT])
{
    uint32_t part, parts;
    size_t end, n = 0;
    if (!ref_part(path, &part, &parts, &end)) end = strlen(path) - (is_gguf(path) ? 5 : 0);
    out[0] = '\0';
    for (size_t i = 0; i < end; i++) { /* the last one counts: a folder's name may tell it, too */
        if ((i && isalnum((unsigned char)path[i - 1])) || !path[i] || !quant_begins(path + i)) continue;
        for (n = 0; i + n < end && (isalnum((unsigned char)path[i + n]) || path[i + n] == '_'); n++) {}
        const size_t from = i >= 3 && strncasecmp(path + i - 3, "UD-", 3) == 0 ? i - 3 : i;
        const size_t len = i + n - from;
        if (len >= REF_QUANT) continue;
        for (size_t k = 0; k < len; k++) out[k] = (char)toupper((unsigned char)path[from + k]);
        out[len] = '\0';
        i += n - 1;
    }
}

bool ref_is_companion(const char *path)
{
    size_t n;
    const char *name = ref_stem(path, &n);
    for (size_t i = 0; i < n; i++)
        if (strncasecmp(name + i, "mmproj", 6) == 0 || strncasecmp(name + i, "imatrix", 7) == 0) return true;
    return false;
}

/* ---- references ---------------------------------------------------------------------------------------- */

static bool is_name(const char *text, size_t n)
{
    if (n < 1 || n >= REF_NAME || text[0] == '.' || text[0] == '-') return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i])) return false;
    return true;
}

static bool is_quant(const char *text)
{
    const size_t n = strlen(text);
    return n > 0 && n < REF_QUANT &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.") == n;
}

wk_status ref_read(const char *text, struct hub_ref *out, const struct wk_err *err)
{
    *out = (struct hub_ref){ 0 };
    const char *org = ref_is_hub(text) ? text + 3 : "", *name = org + strcspn(org, "/");
    const size_t org_len = (size_t)(name - org), name_len = *name ? strcspn(name + 1, "/:") : 0;
    if (*name && is_name(org, org_len) && is_name(name + 1, name_len)) {
        const char *rest = name + 1 + name_len;
        (void)snprintf(out->org, sizeof out->org, "%.*s", (int)org_len, org);
        (void)snprintf(out->name, sizeof out->name, "%.*s", (int)name_len, name + 1);
        if (!*rest) return WK_OK;
        if (*rest == ':' && is_quant(rest + 1)) {
            (void)snprintf(out->quant, sizeof out->quant, "%s", rest + 1);
            return WK_OK;
        }
        if (*rest == '/' && ref_is_path(rest + 1)) {
            (void)snprintf(out->file, sizeof out->file, "%s", rest + 1);
            return WK_OK;
        }
    }
    return wk_fail(err, WK_INVALID,
                   "%.200s: expected hf:ORG/NAME, hf:ORG/NAME:QUANTIZATION or hf:ORG/NAME/FILE.gguf, such as "
                   "hf:ORG/NAME:Q4_K_M",
                   text);
}

/* ---- the choice ---------------------------------------------------------------------------------------- */

/* FILE, FILE.gguf, or FILE-00001-of-N.gguf. */
static bool file_is(const char *path, const char *file)
{
    const size_t n = strlen(file);
    uint32_t part, parts;
    size_t stem;
    if (strncmp(path, file, n) != 0) return false;
    if (!path[n] || strcasecmp(path + n, ".gguf") == 0) return true;
    return ref_part(path, &part, &parts, &stem) && stem == n;
}

/* How well a file is what was asked for: 2: exactly; 1: but for a leading UD-; 0: no. */
static int fits(const struct hub_ref *ref, const char *path)
{
    char quant[REF_QUANT];
    uint32_t part, parts;
    size_t stem;
    if (ref->file[0]) {
        if (!file_is(path, ref->file)) return 0;
        return !ref_part(path, &part, &parts, &stem) || part == 1 ? 2 : 0;
    }
    if (!ref_begins_model(path) || ref_is_companion(path)) return 0;
    if (!ref->quant[0]) return 2;
    ref_quant(path, quant);
    if (strcasecmp(quant, ref->quant) == 0) return 2;
    return strncmp(quant, "UD-", 3) == 0 && strcasecmp(quant + 3, ref->quant) == 0 ? 1 : 0;
}

static void add_line(char *lines, size_t *len, const char *line)
{
    const int n = snprintf(lines + *len, LINES - *len, "  %s\n", line);
    if (n > 0 && (size_t)n < LINES - *len)
        *len += (size_t)n;
    else
        lines[*len] = '\0';
}

/* The models that there are, or those that fit as well as `rank`, as they are named. */
static void list(const struct hub_ref *ref, const char *const *files, size_t n, int rank, char lines[LINES])
{
    size_t len = 0, listed = 0;
    lines[0] = '\0';
    for (size_t i = 0; i < n && listed < MOST_LISTED; i++) {
        char line[REF_FILE + 2 * REF_NAME + 8];
        if (!ref_begins_model(files[i]) || ref_is_companion(files[i]) || !ref_is_path(files[i])) continue;
        if (rank && fits(ref, files[i]) != rank) continue;
        (void)snprintf(line, sizeof line, "hf:%s/%s/%s", ref->org, ref->name, files[i]);
        add_line(lines, &len, line);
        listed++;
    }
}

wk_status ref_choose(const struct hub_ref *ref, const char *const *files, size_t n, size_t *out,
                     const struct wk_err *err)
{
    size_t found[3] = { 0 }, first[3] = { 0 }, models = 0;
    uint32_t part, parts;
    size_t stem;
    char lines[LINES];
    for (size_t i = 0; i < n; i++) {
        if (!ref_is_path(files[i])) continue;
        models += ref_begins_model(files[i]) && !ref_is_companion(files[i]);
        /* A later part that is named means the whole model. */
        const bool later =
            ref->file[0] && strcmp(files[i], ref->file) == 0 && ref_part(files[i], &part, &parts, &stem) && part > 1;
        if (later) {
            char whole[REF_FILE];
            (void)snprintf(whole, sizeof whole, "%.*s-00001-of-%05u.gguf", (int)stem, files[i], parts);
            struct hub_ref from_first = *ref;
            memcpy(from_first.file, whole, sizeof whole);
            return ref_choose(&from_first, files, n, out, err);
        }
        const int rank = fits(ref, files[i]);
        if (!found[rank]++) first[rank] = i;
    }
    const int best = found[2] ? 2 : 1;
    *out = first[best];
    if (found[best] == 1) return WK_OK;
    list(ref, files, n, found[best] ? best : 0, lines);
    char asked[REF_FILE + 64] = "";
    if (ref->file[0]) (void)snprintf(asked, sizeof asked, " called %s", ref->file);
    if (ref->quant[0]) (void)snprintf(asked, sizeof asked, " in %s", ref->quant);
    if (!models)
        return wk_fail(err, WK_UNSUPPORTED, "hf:%s/%s: no GGUF model is there; look for a repository with .gguf files",
                       ref->org, ref->name);
    if (!found[best])
        return wk_fail(err, WK_UNSUPPORTED,
                       "%shf:%s/%s: no GGUF model%s is there: name one of those above, or its quantization", lines,
                       ref->org, ref->name, asked);
    return wk_fail(err, WK_INVALID, "%shf:%s/%s: %zu GGUF models%s are there: name one of those above%s%s%s%s%s", lines,
                   ref->org, ref->name, found[best], asked,
                   ref->quant[0] ? "" : ", or its quantization, as hf:", ref->quant[0] ? "" : ref->org,
                   ref->quant[0] ? "" : "/", ref->quant[0] ? "" : ref->name, ref->quant[0] ? "" : ":Q4_K_M");
}
