/* kv_wire.c: see kv_wire.h. Of msgpack what is needed: nil, numbers, strings, arrays, maps, each in its shortest form.
 *
 * extra_keys say what else than tokens a page's hash depends on: a digest of the salt under which a prompt is kept,
 * with its first page; so a router that hashes tokens alone does not take a key's pages for everybody's. */
#include "kv_wire.h"

#include <string.h>

#include "base/sha256.h"

static void put_bytes(struct http_text *out, uint8_t kind, uint64_t value, uint32_t bytes)
{
    char b[9] = { (char)kind };
    for (uint32_t i = 0; i < bytes; i++) b[1 + i] = (char)(value >> 8 * (bytes - 1 - i));
    http_text_add(out, b, 1 + bytes);
}

static void put_nil(struct http_text *out) { put_bytes(out, 0xc0, 0, 0); }

static void put_number(struct http_text *out, uint64_t x)
{
    if (x < 128)
        put_bytes(out, (uint8_t)x, 0, 0);
    else if (x <= UINT8_MAX)
        put_bytes(out, 0xcc, x, 1);
    else if (x <= UINT16_MAX)
        put_bytes(out, 0xcd, x, 2);
    else if (x <= UINT32_MAX)
        put_bytes(out, 0xce, x, 4);
    else
        put_bytes(out, 0xcf, x, 8);
}

static void put_real(struct http_text *out, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_bytes(out, 0xcb, bits, 8);
}

static void put_array(struct http_text *out, uint32_t n)
{
    if (n < 16)
        put_bytes(out, (uint8_t)(0x90 | n), 0, 0);
    else if (n <= UINT16_MAX)
        put_bytes(out, 0xdc, n, 2);
    else
        put_bytes(out, 0xdd, n, 4);
}

static void put_map(struct http_text *out, uint32_t n) { put_bytes(out, (uint8_t)(0x80 | n), 0, 0); } /* below 16 */

static void put_text(struct http_text *out, const char *text) /* below 256 bytes */
{
    const size_t n = strlen(text);
    if (n < 32)
        put_bytes(out, (uint8_t)(0xa0 | n), 0, 0);
    else
        put_bytes(out, 0xd9, n, 1);
    http_text_add(out, text, n);
}

/* ---- events -------------------------------------------------------------------------------------------- */

static bool has_salt(const struct page_event *v) { return v->salt.word[0] || v->salt.word[1]; }

static void put_extra_keys(struct http_text *out, const struct page_event *v)
{
    enum { DIGITS = 32 };
    char hex[65] = "";
    if (!v->first || !has_salt(v)) {
        put_nil(out);
        return;
    }
    if (!sha256_hex(&v->salt, sizeof v->salt, hex)) out->failed = true;
    hex[DIGITS] = '\0';
    put_array(out, 1);
    put_text(out, hex);
}

static void put_hashes(struct http_text *out, const struct page_event *v, uint32_t n)
{
    put_text(out, "block_hashes");
    put_array(out, n);
    for (uint32_t i = 0; i < n; i++) put_number(out, v[i].hash);
}

static void put_medium(struct http_text *out)
{
    put_text(out, "medium");
    put_text(out, "GPU"); /* where the engine computes from, as opposed to slower copies */
}

static void put_stored(struct http_text *out, const struct page_event *v, uint32_t n)
{
    put_map(out, 9);
    put_text(out, "type");
    put_text(out, "BlockStored");
    put_hashes(out, v, n);
    put_text(out, "parent_block_hash");
    if (v->first)
        put_nil(out);
    else
        put_number(out, v->parent);
    put_text(out, "token_ids");
    put_array(out, n * KV_PAGE);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < KV_PAGE; k++) put_number(out, v[i].tokens[k]);
    put_text(out, "block_size");
    put_number(out, KV_PAGE);
    put_text(out, "lora_id");
    put_nil(out);
    put_medium(out);
    put_text(out, "lora_name");
    put_nil(out);
    put_text(out, "extra_keys");
    put_array(out, n);
    for (uint32_t i = 0; i < n; i++) put_extra_keys(out, &v[i]);
}

static void put_removed(struct http_text *out, const struct page_event *v, uint32_t n)
{
    put_map(out, 3);
    put_text(out, "type");
    put_text(out, "BlockRemoved");
    put_hashes(out, v, n);
    put_medium(out);
}

static void put_cleared(struct http_text *out)
{
    put_map(out, 1);
    put_text(out, "type");
    put_text(out, "AllBlocksCleared");
}

/* How many of n records the first event says. */
static uint32_t together(const struct page_event *v, uint32_t n)
{
    uint32_t i = 1;
    if (v->kind == PAGE_STORED)
        while (i < n && v[i].kind == PAGE_STORED && !v[i].first && v[i].parent == v[i - 1].hash) i++;
    else if (v->kind == PAGE_REMOVED)
        while (i < n && v[i].kind == PAGE_REMOVED) i++;
    return i;
}

void kv_wire_batch(struct http_text *out, const struct page_event *v, uint32_t n, double at)
{
    uint32_t events = 0;
    for (uint32_t i = 0; i < n; i += together(v + i, n - i)) events++;
    put_array(out, 3);
    put_real(out, at);
    put_array(out, events);
    for (uint32_t i = 0, k; i < n; i += k) {
        k = together(v + i, n - i);
        if (v[i].kind == PAGE_STORED)
            put_stored(out, v + i, k);
        else if (v[i].kind == PAGE_REMOVED)
            put_removed(out, v + i, k);
        else
            put_cleared(out);
    }
    put_number(out, 0); /* the rank among workers that share a model's data: there is one */
}
