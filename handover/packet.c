/* packet.c: see packet.h. Every field has one place and is read once, by a cursor that knows its end. */
#include "packet.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "crc32c.h"

enum { HEAD_BYTES = 208, GROUP_BYTES = 32, SUM_BYTES = 4 };
static const uint8_t magic[4] = { 'W', 'K', 'V', 'P' };

/* ---- writing ------------------------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t n)
{
    memcpy(at, bytes, n);
    return at + n;
}

size_t packet_bytes(const struct packet *p)
{
    return HEAD_BYTES + (size_t)p->layout.n_groups * GROUP_BYTES + (size_t)p->n_tokens * 4 + SUM_BYTES;
}

void packet_put_tokens(const uint32_t *tokens, uint32_t n, uint8_t *out)
{
    for (uint32_t i = 0; i < n; i++) out = put(out, tokens[i], 4);
}

static uint8_t *put_group(uint8_t *at, const struct packet *p, uint32_t g)
{
    const uint32_t blocks = p->n_tokens / KV_PAGE, first = engine_first_block(&p->layout, g, blocks);
    at = put(at, p->layout.group[g].window, 4);
    at = put(at, p->layout.group[g].chunk, 4);
    at = put(at, first, 4);
    at = put(at, blocks - first, 4);
    at = put(at, p->layout.group[g].layers, 4);
    at = put(at, 0, 4);
    return put(at, p->layout.group[g].page_bytes, 8);
}

void packet_write(const struct packet *p, uint8_t *out)
{
    const uint32_t blocks = p->n_tokens / KV_PAGE;
    char id[PACKET_ID] = { 0 };
    memcpy(id, p->request_id, strnlen(p->request_id, PACKET_ID));
    uint8_t *at = put_bytes(out, magic, sizeof magic);
    at = put(at, PACKET_VERSION, 2);
    at = put(at, p->sums, 2);
    at = put(at, packet_bytes(p), 4);
    at = put(at, p->n_tokens, 4);
    at = put_bytes(at, id, sizeof id);
    at = put_bytes(at, p->digest, sizeof p->digest);
    at = put_bytes(at, p->fingerprint, sizeof p->fingerprint);
    at = put(at, p->last_id, 4);
    at = put(at, p->generated, 4);
    at = put(at, p->seed, 8);
    at = put(at, p->counter, 8);
    at = put(at, p->layout.kv_type, 4);
    at = put(at, p->layout.version, 4);
    at = put(at, p->rank, 4);
    at = put(at, p->ranks, 4);
    at = put(at, p->first_head, 4);
    at = put(at, p->heads, 4);
    at = put(at, engine_block_bytes(&p->layout, blocks, 0, blocks), 8);
    at = put(at, p->layout.n_groups, 4);
    at = put(at, 0, 4);
    for (uint32_t g = 0; g < p->layout.n_groups; g++) at = put_group(at, p, g);
    if (p->n_tokens) at = put_bytes(at, p->tokens, (size_t)p->n_tokens * 4);
    (void)put(at, crc32c(0, out, (size_t)(at - out)), 4);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* Sizes were checked before: nothing is taken behind the end. */
struct cursor {
    const uint8_t *at;
};

static uint64_t take(struct cursor *c, uint32_t bytes)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++) value |= (uint64_t)c->at[i] << 8 * i;
    c->at += bytes;
    return value;
}

static uint32_t take32(struct cursor *c) { return (uint32_t)take(c, 4); }

static void take_bytes(struct cursor *c, void *out, size_t n)
{
    memcpy(out, c->at, n);
    c->at += n;
}

static wk_status bad(const struct wk_err *err, const char *what, uint64_t found)
{
    return wk_fail(err, WK_INVALID, "the packet is damaged: %s is %" PRIu64, what, found);
}

/* That all of it is there, and as it was written. */
static wk_status check_frame(const uint8_t *in, size_t n, const struct wk_err *err)
{
    if (n < HEAD_BYTES + SUM_BYTES || memcmp(in, magic, sizeof magic))
        return wk_fail(err, WK_INVALID, "%zu bytes that are no packet: expected WKVP and at least %d bytes", n,
                       HEAD_BYTES + SUM_BYTES);
    struct cursor c = { in + sizeof magic };
    const uint32_t version = (uint32_t)take(&c, 2), sums = (uint32_t)take(&c, 2), bytes = take32(&c);
    if (version != PACKET_VERSION)
        return wk_fail(err, WK_UNSUPPORTED, "a packet of version %u: this program reads version %d", version,
                       PACKET_VERSION);
    if (bytes != n) return wk_fail(err, WK_INVALID, "a packet of %u bytes, of which %zu came", bytes, n);
    if (sums > PACKET_SUMS_RUNS) return bad(err, "the kind of sums", sums);
    c.at = in + n - SUM_BYTES;
    if (take32(&c) != crc32c(0, in, n - SUM_BYTES))
        return wk_fail(err, WK_INVALID, "the packet is damaged: its check sum is another");
    return WK_OK;
}

/* Printable, and zeros behind. */
static wk_status take_id(struct cursor *c, struct packet *out, const struct wk_err *err)
{
    take_bytes(c, out->request_id, PACKET_ID);
    out->request_id[PACKET_ID] = 0;
    const size_t n = strlen(out->request_id);
    for (size_t i = 0; i < PACKET_ID; i++) {
        const unsigned char b = (unsigned char)out->request_id[i];
        if (i < n ? b < 0x20 || b > 0x7e : b != 0) return bad(err, "a byte of the request's id", b);
    }
    return WK_OK;
}

static wk_status take_group(struct cursor *c, struct packet *out, uint32_t g, uint64_t *bytes, const struct wk_err *err)
{
    const uint32_t blocks = out->n_tokens / KV_PAGE;
    out->layout.group[g].window = take32(c);
    out->layout.group[g].chunk = take32(c);
    const uint32_t first = take32(c), pages = take32(c);
    out->layout.group[g].layers = take32(c);
    const uint32_t zero = take32(c);
    out->layout.group[g].page_bytes = take(c, 8);
    uint64_t all;
    if (out->layout.group[g].chunk % KV_PAGE) return bad(err, "a group's chunk", out->layout.group[g].chunk);
    if (!out->layout.group[g].layers) return bad(err, "a group's number of layers", 0);
    if (zero) return bad(err, "what is reserved of a group", zero);
    if (first != engine_first_block(&out->layout, g, blocks)) return bad(err, "a group's first block", first);
    if (pages != blocks - first) return bad(err, "a group's number of pages", pages);
    if (!checked_mul_u64(pages, out->layout.group[g].page_bytes, &all) || !checked_add_u64(*bytes, all, bytes))
        return bad(err, "bytes of a page", out->layout.group[g].page_bytes);
    return WK_OK;
}

static wk_status check_values(const struct packet *p, uint64_t zero, const struct wk_err *err)
{
    if (zero) return bad(err, "what is reserved", zero);
    if (p->layout.kv_type != KV_F16 && p->layout.kv_type != KV_F32)
        return bad(err, "the cache type", p->layout.kv_type);
    if (!p->ranks || p->rank >= p->ranks) return bad(err, "the rank", p->rank);
    if (p->heads > UINT32_MAX - p->first_head) return bad(err, "the number of KV heads", p->heads);
    return WK_OK;
}

wk_status packet_read(const uint8_t *in, size_t n, struct packet *out, const struct wk_err *err)
{
    *out = (struct packet){ 0 };
    wk_status s = check_frame(in, n, err);
    if (s) return s;
    struct cursor c = { in + 6 };
    out->sums = (enum packet_sums)take(&c, 2);
    (void)take32(&c);
    out->n_tokens = take32(&c);
    if (out->n_tokens > PACKET_TOKENS || out->n_tokens % KV_PAGE)
        return bad(err, "the number of tokens", out->n_tokens);
    s = take_id(&c, out, err);
    if (s) return s;
    take_bytes(&c, out->digest, sizeof out->digest);
    take_bytes(&c, out->fingerprint, sizeof out->fingerprint);
    out->last_id = take32(&c);
    out->generated = take32(&c);
    out->seed = take(&c, 8);
    out->counter = take(&c, 8);
    out->layout.kv_type = (enum kv_type)take32(&c);
    out->layout.version = take32(&c);
    out->rank = take32(&c);
    out->ranks = take32(&c);
    out->first_head = take32(&c);
    out->heads = take32(&c);
    out->bytes = take(&c, 8);
    const uint32_t groups = take32(&c);
    s = check_values(out, take(&c, 4), err);
    if (!s && groups > TAPE_MAX_GROUPS) s = bad(err, "the number of groups", groups);
    if (s) return s;
    out->layout.n_groups = groups;
    if (packet_bytes(out) != n) return bad(err, "the number of tokens", out->n_tokens);
    uint64_t bytes = 0;
    for (uint32_t g = 0; !s && g < groups; g++) s = take_group(&c, out, g, &bytes, err);
    if (!s && bytes != out->bytes) s = bad(err, "the number of bytes", out->bytes);
    out->tokens = c.at;
    if (s || !out->n_tokens) return s;
    c.at += ((size_t)out->n_tokens - 1) * 4;
    const uint32_t last = take32(&c);
    return last == out->last_id ? WK_OK : bad(err, "the last id", out->last_id);
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static wk_status differ(const struct wk_err *err, const char *what, uint64_t theirs, uint64_t mine)
{
    return wk_fail(err, WK_UNSUPPORTED, "the pages have another %s: %" PRIu64 ", here it is %" PRIu64, what, theirs,
                   mine);
}

static wk_status check_layout(const struct engine_layout *mine, const struct engine_layout *theirs,
                              const struct wk_err *err)
{
    if (theirs->version != mine->version) return differ(err, "version of the layout", theirs->version, mine->version);
    if (theirs->kv_type != mine->kv_type) return differ(err, "cache type", theirs->kv_type, mine->kv_type);
    if (theirs->n_groups != mine->n_groups) return differ(err, "number of groups", theirs->n_groups, mine->n_groups);
    for (uint32_t g = 0; g < mine->n_groups; g++) {
        if (theirs->group[g].window != mine->group[g].window)
            return differ(err, "window", theirs->group[g].window, mine->group[g].window);
        if (theirs->group[g].chunk != mine->group[g].chunk)
            return differ(err, "chunk", theirs->group[g].chunk, mine->group[g].chunk);
        if (theirs->group[g].layers != mine->group[g].layers)
            return differ(err, "number of layers", theirs->group[g].layers, mine->group[g].layers);
        if (theirs->group[g].page_bytes != mine->group[g].page_bytes)
            return differ(err, "size of a page", theirs->group[g].page_bytes, mine->group[g].page_bytes);
    }
    return WK_OK;
}

wk_status packet_check(const struct packet *mine, const struct packet *theirs, const struct wk_err *err)
{
    if (memcmp(mine->digest, theirs->digest, sizeof mine->digest))
        return wk_fail(err, WK_UNSUPPORTED, "the pages are of another model: its weights have another digest");
    if (memcmp(mine->fingerprint, theirs->fingerprint, sizeof mine->fingerprint))
        return wk_fail(err, WK_UNSUPPORTED, "the pages were computed by another program, device or setting");
    wk_status s = check_layout(&mine->layout, &theirs->layout, err);
    if (s) return s;
    if (theirs->ranks != mine->ranks) return differ(err, "number of ranks", theirs->ranks, mine->ranks);
    if (theirs->rank != mine->rank) return differ(err, "rank", theirs->rank, mine->rank);
    if (theirs->first_head != mine->first_head) return differ(err, "first head", theirs->first_head, mine->first_head);
    if (theirs->heads != mine->heads) return differ(err, "number of heads", theirs->heads, mine->heads);
    if (theirs->generated != mine->generated)
        return differ(err, "number of generated ids", theirs->generated, mine->generated);
    if (theirs->n_tokens != mine->n_tokens) return differ(err, "number of tokens", theirs->n_tokens, mine->n_tokens);
    if (mine->n_tokens && memcmp(mine->tokens, theirs->tokens, (size_t)mine->n_tokens * 4))
        return wk_fail(err, WK_UNSUPPORTED, "the pages are of another prompt");
    return WK_OK;
}
