/* vet.c: decides from a file's bytes alone whether a plugin may be mapped. No plugin code runs here. */
#include "plugin/vet.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "plugin/elf.h"
#include "plugin/growth.h"

enum { FILE_LIMIT = 1 << 30 };

/* ---- path and file ------------------------------------------------------------------------------------- */

/* A group of the user's own name without other members: with it umask 002 makes what only the user writes to.
 * Never for root, whose group others may be in by other ways. */
static bool is_own_group(gid_t gid)
{
    char names[2][1024];
    struct group group, *g = NULL;
    struct passwd user, *u = NULL;
    if (geteuid() == 0 || gid != getegid()) return false;
    if (getgrgid_r(gid, &group, names[0], sizeof names[0], &g) != 0 || !g) return false;
    if (getpwuid_r(geteuid(), &user, names[1], sizeof names[1], &u) != 0 || !u) return false;
    return strcmp(group.gr_name, user.pw_name) == 0 &&
           (!group.gr_mem[0] || (strcmp(group.gr_mem[0], user.pw_name) == 0 && !group.gr_mem[1]));
}

static bool others_write(const struct stat *st)
{
    return (st->st_mode & S_IWOTH) || ((st->st_mode & S_IWGRP) && !is_own_group(st->st_gid));
}

wk_status vet_owner(const struct stat *st, const char *noun, const struct wk_err *err)
{
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return wk_fail(err, WK_INVALID,
                       "%s is owned by user %u, neither root nor the user running this worker (%u); change the owner "
                       "or run as that user",
                       noun, st->st_uid, geteuid());
    if (others_write(st))
        return wk_fail(err, WK_INVALID, "%s is writable by others (mode %03o); run chmod go-w on it", noun,
                       st->st_mode & 0777);
    return WK_OK;
}

/* Whoever may rename a folder above can put another in its place. In a sticky folder (/tmp) that is who owns what lies
 * there, and that has been looked at one step below. */
static wk_status check_above(const struct stat *st, int folder, const struct wk_err *err)
{
    char path[PATH_MAX], link[40];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return wk_fail(
            err, WK_INVALID,
            "the folder %s above it is owned by user %u, neither root nor the user running this worker (%u); "
            "change the owner or put the plugin elsewhere",
            path, st->st_uid, geteuid());
    if (others_write(st) && !(st->st_mode & S_ISVTX))
        return wk_fail(
            err, WK_INVALID,
            "the folder %s above it is writable by others (mode %03o); run chmod go-w on it or put the plugin "
            "elsewhere",
            path, st->st_mode & 0777);
    return WK_OK;
}

/* All folders above `folder`, by "..": no link leads astray. */
static wk_status check_all_above(int folder, const struct wk_err *err)
{
    struct stat here, above;
    wk_status status = fstat(folder, &here) == 0 ? WK_OK : WK_IO;
    int fd = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    while (status == WK_OK && fd >= 0) {
        const int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || fstat(up, &above) != 0)
            status = wk_fail(err, WK_IO, "cannot examine the folders above it: %s", strerror(errno));
        (void)close(fd);
        fd = up;
        if (status != WK_OK || (above.st_dev == here.st_dev && above.st_ino == here.st_ino)) break; /* "/" */
        status = check_above(&above, fd, err);
        here = above;
    }
    if (fd >= 0) (void)close(fd);
    return status;
}

/* Opens the file through its folder's descriptor, so that what is tested is what is read. */
wk_status vet_open(const char *path, int *fd, const struct wk_err *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || !slash[1])
        return wk_fail(err, WK_INVALID,
                       "not an absolute path to a file; plugins are never looked up by name or in the current folder");
    const size_t n = slash == path ? 1 : (size_t)(slash - path);
    if (n >= sizeof folder) return wk_fail(err, WK_INVALID, "the path is longer than %d bytes", PATH_MAX - 1);
    memcpy(folder, path, n);
    folder[n] = '\0';

    struct stat st;
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return wk_fail(err, WK_IO, "cannot open its folder: %s", strerror(errno));
    wk_status status = fstat(dir, &st) == 0 ? vet_owner(&st, "its folder", err)
                                            : wk_fail(err, WK_IO, "cannot examine its folder: %s", strerror(errno));
    if (status == WK_OK) status = check_all_above(dir, err);
    if (status == WK_OK) {
        *fd = openat(dir, slash + 1,
                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); /* NONBLOCK: a pipe must not hold us */
        if (*fd < 0) {
            if (errno == ELOOP)
                status = wk_fail(err, WK_INVALID, "a symbolic link; put the plugin itself into the folder");
            else
                status = wk_fail(err, WK_IO, "cannot open: %s", strerror(errno));
        }
    }
    (void)close(dir);
    if (status != WK_OK) return status;
    if (fstat(*fd, &st) != 0) return wk_fail(err, WK_IO, "cannot examine: %s", strerror(errno));
    if (!S_ISREG(st.st_mode)) return wk_fail(err, WK_INVALID, "not a regular file");
    return vet_owner(&st, "it", err);
}

static wk_status copy_sealed(int from, int memfd, uint64_t *size, const struct wk_err *err)
{
    uint8_t buffer[1 << 16];
    for (*size = 0;;) {
        ssize_t n = read(from, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return wk_fail(err, WK_IO, "cannot read: %s", strerror(errno));
        if (n == 0) break;
        *size += (uint64_t)n;
        if (*size > FILE_LIMIT) return wk_fail(err, WK_INVALID, "larger than %d bytes", FILE_LIMIT);
        for (ssize_t done = 0; done < n;) {
            ssize_t m = write(memfd, buffer + done, (size_t)(n - done));
            if (m < 0 && errno != EINTR)
                return wk_fail(err, WK_NO_MEMORY, "cannot copy to memory: %s%s", strerror(errno),
                               errno == EFBIG ? "; raise the limit on file sizes (ulimit -f), which counts here" : "");
            if (m > 0) done += m;
        }
    }
    if (fcntl(memfd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        return wk_fail(err, WK_IO, "cannot seal the copy in memory: %s", strerror(errno));
    return WK_OK;
}

wk_status vet_file(const char *path, struct vetted *out, const struct wk_err *err)
{
    memset(out, 0, sizeof *out);
    out->memfd = -1;
    out->rule = "static.file";
    int fd = -1;
    uint64_t size = 0;
    wk_status status = vet_open(path, &fd, err);
    if (status == WK_OK) {
        const char *name = strrchr(path, '/') + 1;
        char shown[64];
        (void)snprintf(shown, sizeof shown, "%.63s", name); /* /proc/PID/maps shows it as /memfd:NAME */
        out->memfd = memfd_create(shown, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        status = out->memfd < 0 ? wk_fail(err, WK_IO, "cannot make a copy in memory: %s", strerror(errno))
                                : copy_sealed(fd, out->memfd, &size, err);
    }
    if (fd >= 0) (void)close(fd);
    if (status != WK_OK) return status;
    if (size == 0) return wk_fail(err, WK_INVALID, "empty file; copy the plugin again");

    void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, out->memfd, 0);
    if (map == MAP_FAILED) return wk_fail(err, WK_NO_MEMORY, "cannot map %" PRIu64 " bytes: %s", size, strerror(errno));
    if (!sha256_hex(map, (size_t)size, out->digest)) status = wk_fail(err, WK_INTERNAL, "cannot compute its SHA-256");
    if (status == WK_OK) out->rule = "static.digest";
    if (status == WK_OK) status = allowed_check(out->digest, err); /* before anything of it is read as a plugin */
    if (status == WK_OK) status = vet_bytes(map, size, out, err);
    (void)munmap(map, (size_t)size);
    return status;
}

void vet_release(struct vetted *v)
{
    if (v->memfd >= 0) (void)close(v->memfd);
    v->memfd = -1;
}

/* ---- note ---------------------------------------------------------------------------------------------- */

bool plugin_id_ok(const char *id)
{
    if (!(id[0] >= 'a' && id[0] <= 'z') || strlen(id) >= sizeof((struct wk_note_desc *)0)->id) return false;
    for (const char *c = id; *c; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9');
        if (!letter && *c != '.' && *c != '-') return false;
        if (*c == '.' && (c[1] == '.' || c[1] == '\0')) return false;
    }
    return true;
}

static bool text_is_plain(const char *text)
{
    while (*text >= ' ' && *text <= '~') text++;
    return *text == '\0';
}

/* Exact: the interface of CUDA modules has not settled. */
static wk_status check_cuda_version(const struct wk_note_desc *n, const struct wk_err *err)
{
    if (n->abi_major != WK_CUDA_ABI_MAJOR || n->abi_minor_min != WK_CUDA_ABI_MINOR)
        return wk_fail(err, WK_UNSUPPORTED,
                       "was built for the CUDA interface %u.%u, this worker has %d.%d; rebuild it against the SDK of "
                       "this worker",
                       n->abi_major, n->abi_minor_min, WK_CUDA_ABI_MAJOR, WK_CUDA_ABI_MINOR);
    const uint64_t layout = (uint64_t)n->layout[1] << 32 | n->layout[0];
    if (layout == WK_LAYOUT_CUDA) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED,
                   "was built with other structs in worker/quant_cuda.h: layout %016" PRIx64 ", this worker has "
                   "%016" PRIx64 "; rebuild it against the SDK of this worker",
                   layout, (uint64_t)WK_LAYOUT_CUDA);
}

static wk_status check_versions(const struct wk_note_desc *n, const struct wk_err *err)
{
    if (kind_is_cuda(n->kind)) return check_cuda_version(n, err);
    if (n->abi_major != WK_ABI_MAJOR)
        return wk_fail(
            err, WK_UNSUPPORTED,
            "was built for plugin ABI %u.%u, this worker has %d.%d; rebuild it against the SDK of this worker",
            n->abi_major, n->abi_minor_built, WK_ABI_MAJOR, WK_ABI_MINOR);
    if (n->abi_minor_min > WK_ABI_MINOR)
        return wk_fail(err, WK_UNSUPPORTED,
                       "needs plugin ABI %u.%u or later, this worker has %d.%d; use a newer worker", n->abi_major,
                       n->abi_minor_min, WK_ABI_MAJOR, WK_ABI_MINOR);
    return WK_OK;
}

/* Copies the fixed part and the claims; what is between them is of a newer ABI, and zeros fill up the end. */
static wk_status read_note(const uint8_t *desc, uint32_t bytes, struct vetted *out, const struct wk_err *err)
{
    struct wk_note_desc *n = &out->note;
    const uint32_t least = WK_NOTE_DESC_SIZE_1_0;
    memcpy(n, desc, bytes < least ? bytes : least);
    if (bytes < least || n->desc_size != bytes || n->claims_at < least || n->claims_at >= bytes)
        return wk_fail(err, WK_INVALID,
                       "damaged note: %u bytes that say %u with claims at %u, at least %u and claims within expected",
                       bytes, n->desc_size, n->claims_at, least);
    memcpy(n, desc, n->claims_at < sizeof *n ? n->claims_at : sizeof *n);
    const char *claims = (const char *)desc + n->claims_at;
    const size_t room = bytes - n->claims_at, length = strnlen(claims, room);
    if (length == room || length >= sizeof out->claims)
        return wk_fail(err, WK_INVALID, "its claims are not a terminated text of at most %zu bytes",
                       sizeof out->claims - 1);
    memcpy(out->claims, claims, length + 1);
    for (uint32_t i = n->claims_at < sizeof *n ? n->claims_at : (uint32_t)sizeof *n; i < bytes; i++)
        if (desc[i] && (i < n->claims_at || i > n->claims_at + length))
            return wk_fail(err, WK_UNSUPPORTED, "byte %u of its note is set, which this host (ABI %d.%d) does not know",
                           i, WK_ABI_MAJOR, WK_ABI_MINOR);
    return WK_OK;
}

static wk_status check_note(const struct elf_view *elf, struct vetted *out, const struct wk_err *err)
{
    const uint8_t *desc = NULL;
    uint32_t bytes = 0, count = 0;
    out->rule = "static.note";
    wk_status status = elf_find_note(elf, WK_NOTE_NAME, WK_NOTE_TYPE, &desc, &bytes, &count, err);
    if (status != WK_OK) return status;
    out->foreign = count == 0;
    if (count == 0) return wk_fail(err, WK_INVALID, "not a worker plugin: no note");
    if (count > 1) return wk_fail(err, WK_INVALID, "has %u notes; use WORKER_PLUGIN once in a plugin", count);
    struct wk_note_desc *n = &out->note;
    status = read_note(desc, bytes, out, err);
    /* The note is shown to people even when it is refused: no text that is not one. */
    const bool id_ok = memchr(n->id, 0, sizeof n->id) && plugin_id_ok(n->id);
    const bool claims_ok = text_is_plain(out->claims);
    if (!id_ok) memset(n->id, 0, sizeof n->id);
    if (!claims_ok) out->claims[0] = '\0';
    if (status != WK_OK) return status;
    out->rule = "static.version";
    if ((status = check_versions(n, err)) != WK_OK) return status;
    out->rule = "static.kind";
    if (n->kind != WK_KIND_ARCH && n->kind != WK_KIND_QUANT && !kind_is_cuda(n->kind))
        return wk_fail(
            err, WK_INVALID,
            "plugin kind %u is unknown; %d is an architecture, %d a quantization, %d and %d are CUDA modules of theirs",
            n->kind, WK_KIND_ARCH, WK_KIND_QUANT, WK_KIND_ARCH_CUDA, WK_KIND_QUANT_CUDA);
    if ((status = growth_flags(n->flags, 0, "its note", err)) != WK_OK) return status;
    if ((status = growth_reserved(n->reserved, "its note's field reserved", err)) != WK_OK) return status;
    out->rule = "static.id";
    if (!id_ok)
        return wk_fail(
            err, WK_INVALID,
            "its id is not of the form \"org.example.name\" (lower-case letters, digits, '.', '-'; at most 63)");
    out->rule = "static.claims";
    if (!claims_ok) return wk_fail(err, WK_INVALID, "its claims are not a line of plain text");
    struct claims claims;
    return claims_parse(n->kind, out->claims, &claims, err);
}

/* ---- claims -------------------------------------------------------------------------------------------- */

static bool parse_type(const char *text, size_t n, uint32_t *type)
{
    *type = 0;
    if (n == 0 || n > 5 || (n > 1 && text[0] == '0')) return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *type = *type * 10 + (uint32_t)(text[i] - '0');
    }
    return *type <= UINT16_MAX;
}

static bool parse_name(const char *text, size_t n, char name[64])
{
    if (n == 0 || n > 63) return false;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
              c == '_'))
            return false;
    }
    memcpy(name, text, n);
    name[n] = '\0';
    return true;
}

wk_status claims_parse(uint16_t kind, const char *text, struct claims *out, const struct wk_err *err)
{
    const bool arch = kind == WK_KIND_ARCH || kind == WK_KIND_ARCH_CUDA;
    const char *prefix = arch ? "arch:" : "ggml:";
    out->n = 0;
    if (strncmp(text, prefix, 5) != 0)
        return wk_fail(err, WK_INVALID, "claims \"%s\" do not begin with \"%s\"", text, prefix);
    for (const char *p = text + 5;; p++) {
        const size_t n = strcspn(p, ",");
        const uint32_t i = out->n;
        if (i == VET_MAX_CLAIMS) return wk_fail(err, WK_INVALID, "claims more than %d things", VET_MAX_CLAIMS);
        out->type[i] = 0;
        out->name[i][0] = '\0';
        if (arch ? !parse_name(p, n, out->name[i]) : !parse_type(p, n, &out->type[i]))
            return wk_fail(err, WK_INVALID, "claims \"%s\": \"%.*s\" is not %s", text, (int)n, p,
                           arch ? "an architecture's name" : "a ggml type (0..65535)");
        for (uint32_t j = 0; j < i; j++)
            if (out->type[j] == out->type[i] && strcmp(out->name[j], out->name[i]) == 0)
                return wk_fail(err, WK_INVALID, "claims \"%s\": \"%.*s\" twice", text, (int)n, p);
        out->n++;
        p += n;
        if (!*p) return WK_OK;
    }
}

/* ---- imports ------------------------------------------------------------------------------------------- */

/* Libraries that a plugin may ask for; '*' at the end: any version. */
static const char *const allowed_libraries[] = {
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libpthread.so.0",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libcudart.so.*",
    "libcublas.so.*",
    "libcublasLt.so.*",
#ifdef PLUGIN_SANITIZED /* the host has these mapped already */
    "libasan.so.*",
    "libubsan.so.*",
    "libtsan.so.*",
    "libclang_rt.*",
#endif
};
/* What a CUDA runtime that was linked in asks for besides, where these are not parts of libc. */
static const char *const runtime_libraries[] = { "libdl.so.2", "librt.so.1" };

/* Device memory, streams and synchronization are the host's (sdk/rules.md, static.device). */
static const char *const refused_symbols[] = {
    "cudaMalloc*",           "cudaFree*",         "cudaHostAlloc",
    "cudaHostRegister",      "cudaStreamCreate*", "cudaStreamSynchronize",
    "cudaDeviceSynchronize", "cudaDeviceReset",   "cudaSetDevice",
};
/* Ways out of the process that nobody would hear of (sdk/rules.md, static.process). Not looked for in CUDA modules: a
 * CUDA runtime that was linked in may bring them. */
static const char *const silent_symbols[] = { "_exit", "_Exit" };
/* Legal to link, against the rules to call unasked (sdk/rules.md, static.process). Not looked for in CUDA modules: a
 * CUDA runtime that was linked in brings them. */
static const char *const doubtful_symbols[] = {
    "exit", "quick_exit", "abort", "fork", "sigaction", "signal", "pthread_create", "setenv", "setlocale", "chdir",
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool matches(const char *name, const char *pattern)
{
    const size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(name, pattern, n - 1) == 0 : strcmp(name, pattern) == 0;
}

struct import_check {
    bool doubtful[COUNT(doubtful_symbols)];
    uint16_t kind;
    const char **rule;
    const struct wk_err *err;
};

static wk_status check_library(void *user, const char *name)
{
    const struct import_check *c = user;
    for (size_t i = 0; i < COUNT(allowed_libraries); i++)
        if (matches(name, allowed_libraries[i])) return WK_OK;
    for (size_t i = 0; kind_is_cuda(c->kind) && i < COUNT(runtime_libraries); i++)
        if (matches(name, runtime_libraries[i])) return WK_OK;
    return wk_fail(c->err, WK_INVALID,
                   "needs the library \"%s\", which plugins may not bring in; link it statically or do without", name);
}

static wk_status check_symbol(void *user, const char *name)
{
    struct import_check *c = user;
    *c->rule = "static.device";
    for (size_t i = 0; i < COUNT(refused_symbols); i++)
        if (matches(name, refused_symbols[i]))
            return wk_fail(c->err, WK_INVALID,
                           "imports %s; device memory, streams and synchronization belong to the host", name);
    *c->rule = "static.process";
    for (size_t i = 0; !kind_is_cuda(c->kind) && i < COUNT(silent_symbols); i++)
        if (matches(name, silent_symbols[i]))
            return wk_fail(c->err, WK_INVALID, "imports %s, which ends the process without a word; return a status",
                           name);
    for (size_t i = 0; !kind_is_cuda(c->kind) && i < COUNT(doubtful_symbols); i++)
        if (matches(name, doubtful_symbols[i])) c->doubtful[i] = true;
    return WK_OK;
}

static wk_status check_imports(const struct elf_view *elf, struct vetted *out, const struct wk_err *err)
{
    struct import_check c = { { false }, out->note.kind, &out->rule, err };
    out->rule = "static.libraries";
    wk_status status = elf_each_needed(elf, check_library, &c);
    if (status == WK_OK) status = elf_each_import(elf, check_symbol, &c);
    size_t used = 0;
    for (size_t i = 0; i < COUNT(doubtful_symbols); i++)
        if (c.doubtful[i])
            used += (size_t)snprintf(out->warnings + used, sizeof out->warnings - used, "%s%s",
                                     used ? ", " : "imports ", doubtful_symbols[i]); /* all of them fit */
    return status;
}

wk_status vet_bytes(const uint8_t *bytes, uint64_t size, struct vetted *out, const struct wk_err *err)
{
    struct elf_view elf;
    wk_status status = elf_check(bytes, size, &elf, err);
    out->rule = elf.rule;
    if (status == WK_OK) status = check_note(&elf, out, err);
    if (status == WK_OK) status = check_imports(&elf, out, err);
    return status;
}
