/* bench_handover.c: what it takes until a prompt that one process has read can be gone on from in another, on one host:
 *
 *     bench_handover DEVICE MODEL [TOKENS [GIVES TAKES]]
 *
 * DEVICE: cpu or cuda. TOKENS: of the prompt, 2,048. GIVES, TAKES: the GPUs, 0 and 1; with one GPU alone the program
 * ends with 77 if they are not given. Two processes open the model. For each way (peer: straight from the other's
 * memory; shm: through pinned shared memory that both have mapped before; tcp: through a connection) the taker begins
 * with the prompt, or when it is read. Printed: milliseconds from the prompt's end to the import's, best and median of
 * ROUNDS; whether the ids behind are those of one process; and the taker's milliseconds to its first id. */
#include "test_jobs.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/handover.h"
#include "handover/peer.h"

enum { ROUNDS = 5, IDS = 24, ROWS = 512, MOST_TOKENS = 1 << 17 };
enum way { PEER = 0, SHM, TCP, WAYS };
static const char *const way_names[] = { "peer", "shm", "tcp" };

struct segment {
    _Atomic uint32_t ready, round; /* blocks of round `round` that are there */
    alignas(64) uint8_t bytes[];
};

static struct {
    struct test_model t;
    struct engine *e;
    struct engine_layout layout;
    struct packet is;
    uint32_t n, blocks, *tokens;
    uint64_t bytes;
    struct segment *segment;
    uint64_t segment_bytes;
    bool pinned;
} b;

static void must(bool good, const char *what)
{
    if (good) return;
    (void)fprintf(stderr, "bench_handover: %s: %s\n", what, test_text[0] ? test_text : strerror(errno));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- both processes ------------------------------------------------------------------------------------ */

static void set_up(const char *device, const char *path, uint32_t n, uint32_t gpu, int segment)
{
    const struct device_ops *ops = device_cpu();
    if (!strcmp(device, "cuda")) must(!device_cuda(&ops, &test_err), "the CUDA module");
    must(!test_open_plugins(), "plugins");
    const struct device_options dev = { .gpu = gpu,
                                        .hand_over = true,
                                        .context = n + 2 * KV_PAGE,
                                        .max_sequences = 4,
                                        .kv_sequences = 4,
                                        .max_rows = ROWS,
                                        .max_logits_rows = 8 };
    b.t = test_file(ops, path, dev);
    b.e = test_engine(b.t.m, (struct engine_options){ .prefix_cache = true });
    must(!engine_layout(b.e, &b.layout, &test_err), "layout");
    b.n = n;
    b.blocks = engine_blocks(n);
    b.bytes = engine_block_bytes(&b.layout, b.blocks, 0, b.blocks);
    b.is = (struct packet){ .ranks = 1, .layout = b.layout };
    b.tokens = malloc(n * sizeof *b.tokens);
    must(b.tokens != NULL, "memory");
    for (uint32_t i = 0; i < n; i++) b.tokens[i] = (i * 7 + i * i % 11) % b.t.m->program->n_vocab;
    b.segment_bytes = (sizeof *b.segment + b.bytes + 4095) / 4096 * 4096;
    if (segment < 0) return;
    must(!ftruncate(segment, (off_t)b.segment_bytes), "shared memory");
    b.segment = mmap(NULL, b.segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, segment, 0);
    must(b.segment != MAP_FAILED, "shared memory");
    b.pinned = !engine_pin(b.e, b.segment, b.segment_bytes, &test_err);
    if (!b.pinned) (void)fprintf(stderr, "shared memory is not pinned: %s\n", test_text);
}

static void tear_down(void)
{
    if (b.pinned) engine_unpin(b.e, b.segment);
    if (b.segment) (void)munmap(b.segment, b.segment_bytes);
    engine_close(b.e);
    test_unload(&b.t);
    test_close_plugins();
    free(b.tokens);
}

static struct engine_job spec_of(uint64_t round, const struct sampler_params *params)
{
    return (struct engine_job){ .id = "j",
                                .prompt = b.tokens,
                                .n_prompt = b.n,
                                .max_tokens = IDS,
                                .params = params,
                                .salt = { { round + 1, 0 } } };
}

static struct sampler_params params_of(uint64_t round)
{
    return (struct sampler_params){
        .temperature = round % 2 ? 0.8f : 0, .top_p = 1, .repetition_penalty = 1, .seed = round
    };
}

/* ---- the giver ----------------------------------------------------------------------------------------- */

static struct engine_lease *_Atomic lease; /* the taker asks for it when it was told that there is one */

static struct engine_lease *find(void *user, const char *ticket)
{
    (void)user, (void)ticket;
    struct engine_lease *l = lease;
    engine_lease_ref(l);
    return l;
}
static void done(void *user, const char *ticket, struct engine_lease *l, bool taken)
{
    (void)user, (void)ticket, (void)taken;
    engine_lease_release(l);
}

static uint32_t run_of(uint32_t from, uint32_t ready) /* about 8 MB */
{
    const uint64_t block = b.bytes / b.blocks, most = block < 8 << 20 ? (8 << 20) / block : 1;
    return ready - from > most ? from + (uint32_t)most : ready;
}

static void give_shm(uint32_t round)
{
    uint32_t from = 0, ready;
    atomic_store(&b.segment->ready, 0);
    atomic_store(&b.segment->round, round + 1);
    while (from < b.blocks) {
        (void)engine_lease_wait(lease, from, -1, &ready);
        for (; from < ready; atomic_store(&b.segment->ready, from)) {
            const uint32_t to = run_of(from, ready);
            must(!engine_lease_read(lease, from, to,
                                    b.segment->bytes + engine_block_bytes(&b.layout, b.blocks, 0, from), &test_err),
                 "read");
            from = to;
        }
    }
}

static void send_all(int s, const uint8_t *at, size_t n)
{
    for (ssize_t sent; n; at += sent, n -= (size_t)sent) must((sent = send(s, at, n, 0)) > 0, "send");
}

static void give_tcp(int listener)
{
    uint32_t from = 0, ready;
    const int s = accept(listener, NULL, NULL);
    must(s >= 0, "accept");
    uint8_t *run = malloc(b.bytes / b.blocks + (16 << 20));
    must(run != NULL, "memory");
    while (from < b.blocks) {
        (void)engine_lease_wait(lease, from, -1, &ready);
        while (from < ready) {
            const uint32_t to = run_of(from, ready);
            must(!engine_lease_read(lease, from, to, run, &test_err), "read");
            send_all(s, run, engine_block_bytes(&b.layout, b.blocks, from, to));
            from = to;
        }
    }
    free(run);
    (void)close(s);
}

struct giving {
    uint32_t round;
    enum way way;
    int listener;
};
static void *give_bytes(void *arg)
{
    const struct giving *g = arg;
    if (g->way == SHM)
        give_shm(g->round);
    else
        give_tcp(g->listener);
    return NULL;
}

static int listen_anywhere(uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    must(s >= 0 && !bind(s, (struct sockaddr *)&a, n) && !listen(s, 1) && !getsockname(s, (struct sockaddr *)&a, &n),
         "a socket");
    *port = ntohs(a.sin_port);
    return s;
}

static void read_ids(struct job *j, uint32_t *ids, uint64_t *first)
{
    struct job_event e;
    uint32_t n = 0;
    while (must(job_next(j, &e, -1), "an event"), e.kind != EVENT_END) {
        if (e.kind != EVENT_TOKEN) continue;
        if (!n) *first = now();
        ids[n++] = e.id;
    }
    must(e.end == JOB_LENGTH && n, "the job ended early");
}

/* Commands come by stdin, answers go to stdout. */
static void give(void)
{
    struct peer_giver *giver = NULL;
    const struct peer_leases leases = { .find = find, .done = done };
    uint16_t port;
    uint32_t round, way, ids[IDS];
    uint64_t first;
    const int listener = listen_anywhere(&port);
    if (peer_giver_open(b.e, &b.is, &leases, &giver, &test_err)) (void)fprintf(stderr, "no peer: %s\n", test_text);
    (void)printf("%s %u\n", giver ? peer_giver_name(giver) : "none", port);
    (void)fflush(stdout);
    while (scanf("%u %u", &round, &way) == 2) {
        const struct sampler_params params = params_of(round);
        struct engine_job spec = spec_of(round, &params);
        spec.keep = true;
        spec.max_tokens = 1;
        pthread_t thread;
        struct giving g = { round, (enum way)way, listener };
        const uint64_t began = now();
        struct job *j = test_submit_spec(b.e, &spec);
        lease = job_lease(j);
        if (way != PEER) must(!pthread_create(&thread, NULL, give_bytes, &g), "a thread");
        (void)printf("begun\n");
        (void)fflush(stdout);
        read_ids(j, ids, &first);
        (void)printf("%" PRIu64 " %" PRIu64 "\n", first - began, first);
        (void)fflush(stdout);
        job_release(j);
        if (way != PEER) (void)pthread_join(thread, NULL);
        must(scanf("%u", &round) == 1, "a command"); /* taken */
        engine_lease_release(lease);
        spec.keep = false;
        spec.max_tokens = IDS;
        j = test_submit_spec(b.e, &spec);
        read_ids(j, ids, &first);
        job_release(j);
        for (uint32_t i = 0; i < IDS; i++) (void)printf("%u ", ids[i]);
        (void)printf("\n");
        (void)fflush(stdout);
    }
    peer_giver_close(giver);
}

/* ---- the taker ----------------------------------------------------------------------------------------- */

static struct {
    FILE *to, *from;
    char name[PEER_NAME];
    unsigned port;
    struct peer_taker *taker;
    uint8_t *run;
} x;

static void take_shm(struct engine_import *i, uint32_t round)
{
    for (uint32_t from = 0; from < b.blocks;) {
        while (atomic_load(&b.segment->round) != round + 1 || atomic_load(&b.segment->ready) <= from) {}
        const uint32_t to = run_of(from, atomic_load(&b.segment->ready));
        must(!engine_import_write(i, from, to, b.segment->bytes + engine_block_bytes(&b.layout, b.blocks, 0, from),
                                  &test_err),
             "write");
        from = to;
    }
}

static void take_tcp(struct engine_import *i)
{
    const struct sockaddr_in a = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)x.port) };
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    must(s >= 0 && !connect(s, (const struct sockaddr *)&a, sizeof a), "connect");
    for (uint32_t from = 0; from < b.blocks;) {
        const uint32_t to = run_of(from, b.blocks);
        const size_t n = engine_block_bytes(&b.layout, b.blocks, from, to);
        for (size_t at = 0; at < n;) {
            const ssize_t got = recv(s, x.run + at, n - at, 0);
            must(got > 0, "receive");
            at += (size_t)got;
        }
        must(!engine_import_write(i, from, to, x.run, &test_err), "write");
        from = to;
    }
    (void)close(s);
}

static bool take(struct engine_import *i, enum way way, uint32_t round)
{
    if (way == SHM) take_shm(i, round);
    if (way == TCP) take_tcp(i);
    if (way != PEER) return true;
    uint8_t *raw = malloc(b.blocks * KV_PAGE * 4);
    must(raw != NULL, "memory");
    struct packet mine = b.is;
    mine.n_tokens = b.blocks * KV_PAGE;
    mine.last_id = b.tokens[mine.n_tokens - 1];
    mine.tokens = raw;
    packet_put_tokens(b.tokens, mine.n_tokens, raw);
    const wk_status s = peer_take(x.taker, x.name, "t", &mine, i, NULL, &test_err);
    free(raw);
    if (s) (void)fprintf(stderr, "peer: %s\n", test_text);
    return !s;
}

struct figures {
    double prefill, open, first;
    bool same, came;
};

/* One hand-over: from the prompt's beginning on, or once it is read. */
static struct figures hand_over(enum way way, uint32_t round, bool streamed)
{
    struct figures f = { 0 };
    const struct sampler_params params = params_of(round);
    struct engine_job spec = spec_of(round, &params);
    struct engine_import *i;
    uint64_t took = 0, whole = 0, first;
    uint32_t ids[IDS], ready, id;
    (void)fprintf(x.to, "%u %u\n", round, (unsigned)way);
    (void)fflush(x.to);
    must(fscanf(x.from, " begun") == 0, "the giver");
    if (!streamed) must(fscanf(x.from, "%" SCNu64 " %" SCNu64, &took, &whole) == 2, "the giver");
    must(!engine_import_begin(b.e, spec.prompt, spec.n_prompt, &spec.salt, &i, &test_err), "import");
    f.came = take(i, way, round);
    struct engine_lease *l = f.came ? engine_import_commit(i) : NULL;
    if (l)
        while (engine_lease_wait(l, UINT32_MAX, -1, &ready) == LEASE_GROWING) {}
    else
        engine_import_abort(i);
    const uint64_t end = now();
    struct job *j = test_submit_spec(b.e, &spec);
    if (streamed) must(fscanf(x.from, "%" SCNu64 " %" SCNu64, &took, &whole) == 2, "the giver");
    read_ids(j, ids, &first);
    job_release(j);
    engine_lease_release(l);
    (void)fprintf(x.to, "1\n");
    (void)fflush(x.to);
    f.same = true;
    for (uint32_t k = 0; k < IDS; k++) {
        must(fscanf(x.from, "%u", &id) == 1, "the giver");
        f.same = f.same && id == ids[k];
    }
    f.prefill = (double)took * 1e-6;
    f.open = ((double)end - (double)whole) * 1e-6;
    f.first = (double)(first - end) * 1e-6;
    return f;
}

static int by_open(const void *p, const void *q)
{
    const double a = ((const struct figures *)p)->open, c = ((const struct figures *)q)->open;
    return (a > c) - (a < c);
}

static bool measure(enum way way, bool streamed, uint32_t *round)
{
    struct figures f[ROUNDS];
    bool same = true;
    (void)hand_over(way, (*round)++, streamed); /* opens what is opened once */
    for (uint32_t i = 0; i < ROUNDS; i++) {
        f[i] = hand_over(way, (*round)++, streamed);
        same = same && f[i].same;
        if (!f[i].came) return same;
    }
    qsort(f, ROUNDS, sizeof *f, by_open);
    (void)printf("%-4s %-12s prompt %7.2f ms, behind it %7.2f ms (best %.2f), then first id %6.2f ms, ids %s\n",
                 way_names[way], streamed ? "streamed" : "when read", f[ROUNDS / 2].prefill, f[ROUNDS / 2].open,
                 f[0].open, f[ROUNDS / 2].first, same ? "equal" : "DIFFERENT");
    (void)fflush(stdout);
    return same;
}

/* Nobody waits for a giver that has ended; what it says is on the screen. */
static void giver_ended(int signal)
{
    (void)signal;
    _exit(1);
}

/* The giver is this program again. */
static pid_t begin_giver(char **argv, const char *n, const char *gpu, int segment)
{
    int to[2], from[2];
    char fd[16];
    must(!pipe(to) && !pipe(from), "pipes");
    (void)snprintf(fd, sizeof fd, "%d", segment);
    const pid_t child = fork();
    must(child >= 0, "fork");
    if (!child) {
        (void)dup2(to[0], 0);
        (void)dup2(from[1], 1);
        for (int i = 0; i < 2; i++) (void)close(to[i]), (void)close(from[i]);
        (void)execl("/proc/self/exe", argv[0], "give", argv[1], argv[2], n, gpu, fd, (char *)NULL);
        _exit(127);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    x.to = fdopen(to[1], "w");
    x.from = fdopen(from[0], "r");
    must(x.to && x.from, "pipes");
    return child;
}

int main(int argc, char **argv)
{
    if (argc == 7 && !strcmp(argv[1], "give")) {
        set_up(argv[2], argv[3], (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]), atoi(argv[6]));
        give();
        tear_down();
        return 0;
    }
    const char *n = argc > 3 ? argv[3] : "2048";
    if (argc < 3 || atoi(n) < 64 || atoi(n) > MOST_TOKENS || argc == 5) {
        (void)fprintf(stderr, "usage: bench_handover cpu|cuda MODEL [TOKENS [GIVES TAKES]]\n");
        return 2;
    }
    const struct device_ops *ops;
    struct device_info info;
    const bool cuda = !strcmp(argv[1], "cuda");
    if (cuda && argc < 6 && (device_cuda(&ops, &test_err) || ops->probe(1, &info, &test_err))) {
        (void)fprintf(stderr, "no two GPUs here: skipped (%s)\n", test_text);
        return 77;
    }
    const char *gives = argc > 5 ? argv[4] : "0", *takes = argc > 5 ? argv[5] : cuda ? "1" : "0";
    const int segment = memfd_create("bench", 0);
    must(segment >= 0, "shared memory");
    (void)signal(SIGCHLD, giver_ended);
    const pid_t child = begin_giver(argv, n, gives, segment);
    set_up(argv[1], argv[2], (uint32_t)atoi(n), (uint32_t)atoi(takes), segment);
    x.run = malloc(b.bytes / b.blocks + (16 << 20));
    must(x.run && !peer_taker_open(b.e, &x.taker, &test_err), "memory");
    must(fscanf(x.from, "%63s %u", x.name, &x.port) == 2, "the giver");
    (void)printf("%u tokens, %u blocks, %.1f MB, %s %s -> %s\n", b.n, b.blocks, (double)b.bytes * 1e-6, argv[1], gives,
                 takes);
    bool same = true;
    uint32_t round = 0;
    for (enum way way = PEER; way < WAYS; way++)
        for (uint32_t streamed = 0; streamed < 2; streamed++) same &= measure(way, streamed, &round);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)fclose(x.to);
    int status = 1;
    (void)waitpid(child, &status, 0);
    peer_taker_close(x.taker);
    (void)fclose(x.from);
    free(x.run);
    tear_down();
    return !same || status;
}
