/* gguf.c: opens, maps and closes GGUF files, and puts the shards of a split file together.
 *
 * A file is mapped whole, read-only. Before the parser looks at a byte, the pages that hold it are replaced, in place,
 * by private memory filled with pread: what was validated cannot change when the file does, and a file that is cut
 * while it is parsed gives an ordinary short read. Only tensor data stay backed by the file; guard.h tells how to read
 * those. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/file.h"

#define MAX_METADATA_BYTES (UINT64_C(256) << 20) /* the largest vocabularies in use take 30 MiB */
#define LOAD_BYTES (UINT64_C(256) << 10)         /* at least so much at a time: a multiple of every page size */

/* ---- one file ------------------------------------------------------------------------------------------ */

static uint64_t page_round_up(uint64_t n)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) / page * page; /* n is at most a file's size, below 2^63 */
}

/* Fills n bytes from the file, or fails. */
static wk_status read_fully(struct cursor *c, uint8_t *to, uint64_t n, uint64_t at)
{
    while (n) {
        const ssize_t got = pread(c->fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cursor_fail(c, at, WK_IO, "the file cannot be read: %s", strerror(errno));
        if (got == 0) return cursor_fail(c, at, WK_IO, "the file became shorter while it was read");
        to += got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return WK_OK;
}

/* struct cursor's load: turns the pages up to `end` of the file's mapping into private memory with the file's bytes. */
static wk_status load_pages(struct cursor *c, uint64_t end)
{
    uint64_t upto = end - c->loaded < LOAD_BYTES ? c->loaded + LOAD_BYTES : page_round_up(end);
    if (upto > c->size) upto = c->size;
    uint8_t *to =
        (uint8_t *)(uintptr_t)c->base + c->loaded; /* a multiple of the page size, as long as bytes are left */
    const uint64_t n = upto - c->loaded;
    if (mmap(to, page_round_up(n), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return cursor_fail(c, c->loaded, WK_NO_MEMORY, "no memory for the metadata: %s", strerror(errno));
    if (read_fully(c, to, n, c->loaded) != WK_OK) return c->status;
    if (mprotect(to, page_round_up(n), PROT_READ) != 0)
        return cursor_fail(c, c->loaded, WK_IO, "the metadata cannot be protected: %s", strerror(errno));
    c->loaded = upto;
    return WK_OK;
}

/* Refuses a folder, and says which of its files is the one to name. */
static wk_status fail_folder(const char *path, const struct wk_err *err)
{
    char first[NAME_MAX + 1] = "";
    bool safetensors = false;
    DIR *folder = opendir(path);
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && strcmp(dot, ".safetensors") == 0) safetensors = true;
        if (!dot || strcmp(dot, ".gguf") != 0 || (first[0] && strcmp(e->d_name, first) > 0)) continue;
        (void)snprintf(first, sizeof first, "%s", e->d_name);
    }
    if (folder) (void)closedir(folder);
    if (first[0])
        return wk_fail(err, WK_INVALID, "%s: is a directory, expected a GGUF file, such as the %s in it", path, first);
    return wk_fail(err, WK_INVALID, "%s: is a directory, expected a GGUF file%s", path,
                   safetensors ? "; it holds safetensors: convert the model to GGUF, or download it as such" : "");
}

/* Maps the regular file behind fd. */
static wk_status map_file(struct shard *s, int fd, const struct wk_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return wk_fail(err, WK_IO, "%s: cannot be examined: %s", s->path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return fail_folder(s->path, err);
    if (!S_ISREG(st.st_mode)) return wk_fail(err, WK_INVALID, "%s: is not a regular file", s->path);
    s->size = (uint64_t)st.st_size;
    if (s->size == 0) return WK_OK; /* nothing to map; the parser says what is missing */
    void *map = mmap(NULL, s->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        return wk_fail(err, WK_IO, "%s: cannot be mapped (%" PRIu64 " bytes): %s", s->path, s->size, strerror(errno));
    s->map = map;
    s->base = map;
    return WK_OK;
}

/* Opens, maps and parses the file s->path. Symbolic links are followed (model caches are made of them); O_NONBLOCK
 * keeps a FIFO from blocking the open, and map_file then refuses it. */
static wk_status open_shard(struct gguf *file, struct shard *s, uint32_t index, const struct wk_err *err)
{
    const int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return wk_fail(err, WK_IO, "%s: cannot be opened: %s", s->path, strerror(errno));
    wk_status status = map_file(s, fd, err);
    if (status == WK_OK) {
        struct cursor c = { .base = s->base,
                            .size = s->size,
                            .limit = s->size < MAX_METADATA_BYTES ? s->size : MAX_METADATA_BYTES,
                            .load = load_pages,
                            .fd = fd,
                            .name = s->path,
                            .err = err };
        status = gguf_parse(file, s, index, &c);
        s->loaded = c.loaded;
    }
    (void)close(fd);
    return status;
}

static void close_shard(struct shard *s)
{
    if (s->map) (void)munmap(s->map, s->size);
    names_free(&s->keys);
    free(s->kv);
    free(s->path);
}

/* Room for one more shard, named. Takes over `path`, which may be NULL for want of memory. */
static struct shard *add_shard(struct gguf *file, char *path)
{
    struct shard *shards = path ? realloc(file->shards, (file->n_shards + 1) * sizeof *shards) : NULL;
    if (!shards) {
        free(path);
        return NULL;
    }
    file->shards = shards;
    shards[file->n_shards] = (struct shard){ .path = path };
    return &shards[file->n_shards++];
}

/* ---- split files --------------------------------------------------------------------------------------- */

/* What one shard says about the split. count 0: it is not part of one. */
struct split {
    uint64_t no, count, tensors;
};

static wk_status read_split(const struct shard *s, struct split *out, const struct wk_err *err)
{
    bool has_no, has_count, has_tensors;
    wk_status status = gguf_shard_u64(s, "split.no", &has_no, &out->no, err);
    if (status == WK_OK) status = gguf_shard_u64(s, "split.count", &has_count, &out->count, err);
    if (status == WK_OK) status = gguf_shard_u64(s, "split.tensors.count", &has_tensors, &out->tensors, err);
    if (status != WK_OK || (!has_no && !has_count && !has_tensors)) return status;
    if (!has_no || !has_count || !has_tensors)
        return wk_fail(
            err, WK_INVALID,
            "%s: of split.no, split.count and split.tensors.count some are missing: a split file has all three",
            s->path);
    if (out->count < 1 || out->count > UINT16_MAX || out->no >= out->count)
        return wk_fail(err, WK_INVALID,
                       "%s: split.no %" PRIu64 " and split.count %" PRIu64
                       " do not fit together, expected 0 <= no < count <= %d",
                       s->path, out->no, out->count, UINT16_MAX);
    return WK_OK;
}

static char *shard_path(const char *path, size_t prefix, uint64_t no, uint64_t count)
{
    char *out = NULL;
    if (asprintf(&out, "%.*s-%05u-of-%05u.gguf", (int)prefix, path, (unsigned)(no + 1), (unsigned)count) < 0)
        return NULL;
    return out;
}

/* Length of <prefix> if `path` is <prefix>-%05d-of-%05d.gguf with these numbers, else 0. */
static size_t split_prefix(const char *path, const struct split *split)
{
    char tail[32];
    const int n = snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", (unsigned)(split->no + 1), (unsigned)split->count);
    const size_t len = strlen(path);
    if (n <= 0 || len <= (size_t)n || len > INT32_MAX || strcmp(path + len - (size_t)n, tail) != 0) return 0;
    return len - (size_t)n;
}

/* A shard other than the first was opened: says which file to open. */
static wk_status fail_not_first(const char *path, const struct split *split, const struct wk_err *err)
{
    const size_t prefix = split_prefix(path, split);
    char *first = prefix ? shard_path(path, prefix, 0, split->count) : NULL;
    const wk_status status =
        wk_fail(err, WK_INVALID, "%s: is shard %" PRIu64 " of %" PRIu64 ": open the first, %s", path, split->no + 1,
                split->count, first ? first : "whose name ends in -00001-of-...");
    free(first);
    return status;
}

static wk_status open_next_shard(struct gguf *file, size_t prefix, uint32_t index, const struct split *first,
                                 const struct wk_err *err)
{
    struct shard *s = add_shard(file, shard_path(file->shards[0].path, prefix, index, first->count));
    if (!s) return wk_fail(err, WK_NO_MEMORY, "%s: no memory for shard %" PRIu32, gguf_path(file), index + 1);
    struct split split = { 0 };
    wk_status status = open_shard(file, s, index, err);
    if (status == WK_OK) status = read_split(s, &split, err);
    if (status != WK_OK) return status;
    if (split.no != index || split.count != first->count || split.tensors != first->tensors)
        return wk_fail(err, WK_INVALID,
                       "%s: says it is shard %" PRIu64 " of %" PRIu64 " with %" PRIu64
                       " tensors in all, expected %" PRIu32 " of %" PRIu64 " with %" PRIu64
                       ": the shards do not belong together",
                       s->path, split.count ? split.no + 1 : 0, split.count, split.tensors, index + 1, first->count,
                       first->tensors);
    return WK_OK;
}

/* After the first file: opens the others, if it is one of several. Their names come from our caller's path and from
 * nothing in the file but the count. */
static wk_status open_split(struct gguf *file, bool in_memory, const struct wk_err *err)
{
    struct split split = { 0 };
    wk_status status = read_split(&file->shards[0], &split, err);
    if (status != WK_OK || split.count == 0) return status;
    const char *path = gguf_path(file);
    if (in_memory && split.count > 1)
        return wk_fail(err, WK_UNSUPPORTED, "%s: is one of %" PRIu64 " shards, which only a path can open", path,
                       split.count);
    if (split.no != 0) return fail_not_first(path, &split, err);
    const size_t prefix = split_prefix(path, &split);
    if (split.count > 1 && !prefix)
        return wk_fail(err, WK_INVALID,
                       "%s: is the first of %" PRIu64
                       " shards; its name must end in -00001-of-%05u.gguf so that the others can be found",
                       path, split.count, (unsigned)split.count);
    for (uint32_t i = 1; i < split.count && status == WK_OK; i++)
        status = open_next_shard(file, prefix, i, &split, err);
    if (status == WK_OK && file->n_tensors != split.tensors)
        return wk_fail(err, WK_INVALID, "%s: split.tensors.count is %" PRIu64 ", the shards have %" PRIu64 " tensors",
                       gguf_path(file), split.tensors, file->n_tensors);
    return status;
}

/* ---- the public half ----------------------------------------------------------------------------------- */

static wk_status open_any(const char *name, const void *bytes, uint64_t size, struct gguf **out,
                          const struct wk_err *err)
{
    *out = NULL;
    struct gguf *file = calloc(1, sizeof *file);
    struct shard *s = file ? add_shard(file, strdup(name)) : NULL;
    if (!s) {
        free(file);
        return wk_fail(err, WK_NO_MEMORY, "%s: no memory to open it", name);
    }
    wk_status status;
    if (bytes) {
        s->base = bytes;
        s->size = size;
        struct cursor c = { .base = bytes,
                            .size = size,
                            .limit = size < MAX_METADATA_BYTES ? size : MAX_METADATA_BYTES,
                            .loaded = size,
                            .fd = -1,
                            .name = s->path,
                            .err = err };
        status = gguf_parse(file, s, 0, &c);
    } else {
        status = open_shard(file, s, 0, err);
    }
    if (status == WK_OK) status = open_split(file, bytes != NULL, err);
    if (status != WK_OK) {
        gguf_close(file);
        return status;
    }
    *out = file;
    return WK_OK;
}

wk_status gguf_open(const char *path, struct gguf **out, const struct wk_err *err)
{
    return open_any(path, NULL, 0, out, err);
}

wk_status gguf_open_memory(const void *bytes, uint64_t size, const char *name, struct gguf **out,
                           const struct wk_err *err)
{
    return open_any(name, bytes ? bytes : "", bytes ? size : 0, out, err);
}

void gguf_close(struct gguf *file)
{
    if (!file) return;
    for (uint32_t i = 0; i < file->n_shards; i++) close_shard(&file->shards[i]);
    names_free(&file->tensor_names);
    free(file->shards);
    free(file->tensors);
    free(file);
}

/* The addresses stay reserved, without access: a stray read is a fault, and gguf_close unmaps what it mapped. By
 * pieces, since whatever else in the process wants memory waits for one to end: a whole model at once stops it for tens
 * of milliseconds. */
void gguf_release_tensors(const struct gguf *file)
{
    enum { PIECE = 16 << 20 };
    for (uint32_t i = 0; i < file->n_shards; i++) {
        const struct shard *s = &file->shards[i];
        const uint64_t end = s->map && s->loaded < s->size ? s->loaded + page_round_up(s->size - s->loaded) : 0;
        for (uint64_t at = s->loaded, n; at < end; at += n) {
            n = end - at < PIECE ? end - at : PIECE;
            (void)mmap((uint8_t *)s->map + at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                       -1, 0);
        }
    }
}

const char *gguf_path(const struct gguf *file) { return file->shards[0].path; }

uint32_t gguf_version(const struct gguf *file) { return file->shards[0].version; }

uint64_t gguf_alignment(const struct gguf *file) { return file->shards[0].alignment; }

uint64_t gguf_file_bytes(const struct gguf *file)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < file->n_shards; i++) sum += file->shards[i].size; /* at most 65535 sizes below 2^47 */
    return sum;
}

uint32_t gguf_shard_count(const struct gguf *file) { return file->n_shards; }

const void *gguf_header(const struct gguf *file, uint32_t shard, uint64_t *bytes)
{
    const struct shard *s = &file->shards[shard];
    *bytes = s->data_start < s->size ? s->data_start : s->size;
    return s->base;
}
