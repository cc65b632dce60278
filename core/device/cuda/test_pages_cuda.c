/* test_pages_cuda.c: bytes of pages from the device and to it, through slots, through pinned memory, from another
 * mapping of the same memory: a sequence goes on from another's pages with the same logits. */
#include "device/cuda/test_executor.h"

#include <unistd.h>

enum { N = 130, BLOCKS = N / KV_PAGE, MOST_PAGES = BLOCKS * TAPE_MAX_GROUPS };
static const enum zoo_kind paged[] = { ZOO_DENSE, ZOO_WINDOWS, ZOO_CHUNKS, ZOO_LATENT };

/* Sequence 0 has read N tokens and one more; sequence `to` shall go on behind its whole pages. Returns how many pages
 * there are of both. */
static uint32_t both(struct bench *b, uint32_t to, struct device_page *from, struct device_page *into)
{
    struct sequence *a = &b->s[0], *q = &b->s[to];
    uint32_t n = 0;
    memcpy(q->tokens, a->tokens, sizeof q->tokens);
    q->position = BLOCKS * KV_PAGE;
    zoo_hold(&b->pages, &q->kv, q->position, N - q->position, 0);
    for (uint32_t i = 0; i < BLOCKS; i++)
        for (uint32_t g = 0; g < b->z.program->n_groups; g++) {
            if (q->kv.pages[g][i] == KV_NO_PAGE) continue;
            assert_int_not_equal(a->kv.pages[g][i], KV_NO_PAGE);
            from[n] = (struct device_page){ g, a->kv.pages[g][i] };
            into[n++] = (struct device_page){ g, q->kv.pages[g][i] };
        }
    return n;
}

static uint64_t bytes_of(const struct bench *b, const struct device_page *pages, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes += b->plan.kv_page_bytes[pages[i].group];
    return bytes;
}

static void goes_on(struct bench *b, uint32_t s, const char *how)
{
    prompt(b, s, N - b->s[s].position, 0);
    add(b, &t, s, 1, ROW_GENERATED, 0), run(b, &t);
    same_bits(b->s[0].logits + (size_t)(N - 1) * V, b->s[s].logits + (size_t)(N - 1) * V, 2 * (size_t)V, how, s);
}

static void begin(struct bench *b, enum zoo_kind kind)
{
    hand_over = true;
    bench_open(b, kind, FUSE_ALL, true, NULL, 0);
    hand_over = false;
    prompt(b, 0, N, 0);
    add(b, &t, 0, 1, ROW_GENERATED, 0), run(b, &t);
}

static void test_through_the_host(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < sizeof paged / sizeof *paged; k++) {
        struct bench b;
        struct device_page from[MOST_PAGES], into[MOST_PAGES];
        begin(&b, paged[k]);
        for (uint32_t pinned = 0; pinned < 2; pinned++) {
            const uint32_t n = both(&b, 1 + pinned, from, into);
            const uint64_t bytes = bytes_of(&b, from, n), whole = (bytes + 4095) / 4096 * 4096 + 4096;
            uint8_t *host = aligned_alloc(4096, whole), *again = malloc(bytes + 1);
            assert_true(n && host && again);
            if (pinned && cuda->pin(b.x, host, whole, &err)) fail_msg("%s", text);
            if (cuda->pages_read(b.x, from, n, host, &err) || cuda->pages_write(b.x, into, n, host, &err))
                fail_msg("%s", text);
            if (cuda->pages_read(b.x, into, n, again, &err)) fail_msg("%s", text);
            assert_memory_equal(host, again, bytes);
            /* What has no page is passed over, both ways. */
            memset(again, 0xee, bytes);
            into[0].page = KV_NO_PAGE;
            if (cuda->pages_read(b.x, into, n, again, &err)) fail_msg("%s", text);
            const uint64_t first = bytes_of(&b, into, 1);
            for (uint64_t i = 0; i < first; i++) assert_int_equal(again[i], 0xee);
            assert_memory_equal(host + first, again + first, bytes - first);
            if (pinned) cuda->unpin(b.x, host);
            free(host);
            free(again);
            goes_on(&b, 1 + pinned, zoo_name(paged[k]));
        }
        bench_close(&b);
    }
}

/* More than all slots hold at once. */
static void test_many(void **state)
{
    (void)state;
    enum { MANY = 6000 };
    struct bench b;
    begin(&b, ZOO_DENSE);
    static struct device_page pages[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        pages[i] =
            (struct device_page){ i % b.z.program->n_groups, i * 7 % b.plan.kv_pages[i % b.z.program->n_groups] };
    const uint64_t bytes = bytes_of(&b, pages, MANY);
    uint8_t *host = malloc(bytes), *one = malloc(bytes_of(&b, pages, 1) + bytes_of(&b, pages + 1, 1));
    assert_true(host && one);
    if (cuda->pages_read(b.x, pages, MANY, host, &err)) fail_msg("%s", text);
    uint64_t at = 0;
    for (uint32_t i = 0; i < MANY; at += bytes_of(&b, pages + i, 1), i++) {
        if (i % 997) continue;
        if (cuda->pages_read(b.x, pages + i, 1, one, &err)) fail_msg("%s", text);
        assert_memory_equal(host + at, one, bytes_of(&b, pages + i, 1));
    }
    pages[MANY - 1].page = b.plan.kv_pages[pages[MANY - 1].group];
    assert_int_equal(cuda->pages_read(b.x, pages, MANY, host, &err), WK_INVALID);
    pages[0].group = b.z.program->n_groups;
    assert_int_equal(cuda->pages_write(b.x, pages, 1, host, &err), WK_INVALID);
    free(host);
    free(one);
    bench_close(&b);
}

/* The same memory at another address, as another process would have it. */
static void test_shared(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < sizeof paged / sizeof *paged; k++) {
        struct bench b;
        struct device_page from[MOST_PAGES], into[MOST_PAGES];
        struct device_share share;
        struct device_peer *peer;
        begin(&b, paged[k]);
        const wk_status s = cuda->share(b.x, &share, &err);
        if (s) {
            assert_int_equal(s, WK_UNSUPPORTED);
            print_message("not shared: %s\n", text);
            bench_close(&b);
            continue;
        }
        const uint32_t n = both(&b, 1, from, into);
        const uint64_t all = share.bytes;
        share.bytes = 0;
        assert_int_equal(cuda->peer_open(b.x, &share, &peer, &err), WK_INVALID);
        share.bytes = all;
        if (cuda->peer_open(b.x, &share, &peer, &err)) fail_msg("%s", text);
        (void)close(share.fd);
        if (cuda->peer_read(b.x, peer, from, into, n, &err)) fail_msg("%s", text);
        goes_on(&b, 1, zoo_name(paged[k]));
        from[0].page = share.kv_pages[from[0].group];
        assert_int_equal(cuda->peer_read(b.x, peer, from, into, n, &err), WK_INVALID);
        cuda->peer_close(b.x, peer);
        bench_close(&b);
    }
}

static void test_not_asked_for(void **state)
{
    (void)state;
    struct bench b;
    struct device_share share;
    const struct device_page page = { 0, 0 };
    bench_open(&b, ZOO_DENSE, FUSE_ALL, false, NULL, 0);
    uint8_t *host = malloc(b.plan.kv_page_bytes[0]);
    assert_non_null(host);
    assert_int_equal(cuda->pages_read(b.x, &page, 1, host, &err), WK_UNSUPPORTED);
    assert_non_null(strstr(text, "hand_over"));
    assert_int_equal(cuda->share(b.x, &share, &err), WK_UNSUPPORTED);
    free(host);
    bench_close(&b);
}

static int tests(int argc, char **argv)
{
    (void)argc, (void)argv;
    const struct CMUnitTest all[] = { cmocka_unit_test(test_through_the_host), cmocka_unit_test(test_many),
                                      cmocka_unit_test(test_shared), cmocka_unit_test(test_not_asked_for) };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return test_main(tests, argc, argv); }
