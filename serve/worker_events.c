/* worker_events.c: the program that publishes the worker's cache events: reads batches from its standard input, a
 * socket whose other end the worker holds, and sends them to whoever subscribes by ZeroMQ (PUB: topic, sequence,
 * payload), and again to who asks a second socket (ROUTER) for those from a sequence number on. It alone links libzmq,
 * which brings some twenty libraries, so that what speaks to subscribers is not in the process that has the model.
 *
 * Nobody who subscribes can hold it up: who reads too slowly misses batches, sees it by the sequence numbers, and asks
 * for them again. It ends with the worker: by a signal when the thread that started it is gone, and at the end of the
 * socket. usage: worker-events ENDPOINT [ENDPOINT]: of PUB, of ROUTER */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <zmq.h>

#include "kv_frame.h"

enum {
    WORKER = 0,       /* the socket */
    KEPT = 10000,     /* batches that can be asked for again */
    FILES = 1024,     /* descriptors: about as many subscribers */
    QUESTION_MAX = 64 /* bytes of a part of a question, and of a subscription beyond its topic */
};
static const size_t KEPT_BYTES = (size_t)64 << 20;

struct batch {
    uint64_t sequence;
    zmq_msg_t payload; /* what is sent shares its bytes */
};

struct helper {
    void *zmq, *publish, *replay; /* replay NULL: not asked for */
    struct batch *kept;           /* [KEPT] a ring */
    uint32_t first, n;
    size_t bytes;
    char topic[KV_TOPIC_MAX]; /* of the last batch: the worker has one */
    size_t topic_bytes;
    struct kv_frame head; /* of the frame that comes in */
    char text[KV_TOPIC_MAX + KV_PAYLOAD_MAX];
    size_t have; /* bytes of head and text */
};

/* ---- sending ------------------------------------------------------------------------------------------- */

static void sequence_bytes(uint64_t x, char out[8])
{
    for (int i = 0; i < 8; i++) out[i] = (char)(x >> 8 * (7 - i));
}

/* A part of a message; nobody waits: whose queue is full does not get it. */
static bool part(void *socket, const void *bytes, size_t n, bool more)
{
    return zmq_send(socket, bytes, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

static bool last_part(void *socket, zmq_msg_t *payload)
{
    zmq_msg_t copy;
    (void)zmq_msg_init(&copy);
    if (zmq_msg_copy(&copy, payload) == 0 && zmq_msg_send(&copy, socket, ZMQ_DONTWAIT) >= 0) return true;
    (void)zmq_msg_close(&copy);
    return false;
}

static void forget_oldest(struct helper *h)
{
    struct batch *b = &h->kept[h->first];
    h->bytes -= zmq_msg_size(&b->payload);
    (void)zmq_msg_close(&b->payload);
    h->first = (h->first + 1) % KEPT;
    h->n--;
}

/* False: no memory. */
static bool publish(struct helper *h)
{
    const struct kv_frame *f = &h->head;
    char sequence[8];
    while (h->n && (h->n == KEPT || h->bytes + f->payload > KEPT_BYTES)) forget_oldest(h);
    struct batch *b = &h->kept[(h->first + h->n) % KEPT];
    b->sequence = f->sequence;
    if (zmq_msg_init_size(&b->payload, f->payload) != 0) return false;
    memcpy(zmq_msg_data(&b->payload), h->text + f->topic, f->payload);
    h->n++;
    h->bytes += f->payload;
    memcpy(h->topic, h->text, f->topic);
    h->topic_bytes = f->topic;
    sequence_bytes(f->sequence, sequence);
    if (part(h->publish, h->text, f->topic, true) && part(h->publish, sequence, sizeof sequence, true))
        (void)last_part(h->publish, &b->payload);
    return true;
}

/* ---- what is asked for again --------------------------------------------------------------------------- */

/* A message's parts, of which the first n are kept; how many there were. */
static uint32_t receive(void *socket, zmq_msg_t *parts, uint32_t most)
{
    uint32_t n = 0;
    for (bool more = true; more; n++) {
        zmq_msg_t spare, *at = n < most ? &parts[n] : &spare;
        (void)zmq_msg_init(at);
        if (zmq_msg_recv(at, socket, ZMQ_DONTWAIT) < 0) {
            (void)zmq_msg_close(at);
            return n;
        }
        more = zmq_msg_more(at);
        if (at == &spare) (void)zmq_msg_close(at);
    }
    return n;
}

static void answer(struct helper *h, const void *who, size_t who_bytes, uint64_t sequence, zmq_msg_t *payload)
{
    char bytes[8];
    sequence_bytes(sequence, bytes);
    if (!part(h->replay, who, who_bytes, true) || !part(h->replay, "", 0, true) ||
        !part(h->replay, h->topic, payload ? h->topic_bytes : 0, true) || !part(h->replay, bytes, sizeof bytes, true))
        return;
    if (payload)
        (void)last_part(h->replay, payload);
    else
        (void)part(h->replay, "", 0, false);
}

/* The question of a REQ or DEALER socket: who, nothing, the first sequence number. Each answer is who, nothing, topic,
 * number, payload; behind the last batch comes one of number -1 without topic and payload. The worker hears of who asks
 * for what is no longer there. */
static void serve_question(struct helper *h)
{
    zmq_msg_t q[3];
    const uint32_t n = receive(h->replay, q, 3), held = n < 3 ? n : 3;
    if (n == 3 && zmq_msg_size(&q[1]) == 0 && zmq_msg_size(&q[2]) == 8) {
        const unsigned char *from = zmq_msg_data(&q[2]);
        const void *who = zmq_msg_data(&q[0]);
        const size_t who_bytes = zmq_msg_size(&q[0]);
        uint64_t first = 0;
        for (int i = 0; i < 8; i++) first = first << 8 | from[i];
        for (uint32_t i = 0; i < h->n; i++) {
            struct batch *b = &h->kept[(h->first + i) % KEPT];
            if (b->sequence >= first) answer(h, who, who_bytes, b->sequence, &b->payload);
        }
        answer(h, who, who_bytes, UINT64_MAX, NULL);
        if (h->n && h->kept[h->first].sequence > first) (void)send(WORKER, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    for (uint32_t i = 0; i < held; i++) (void)zmq_msg_close(&q[i]);
}

/* ---- the worker ---------------------------------------------------------------------------------------- */

/* What of the socket is there, without waiting. False: its end, a frame that cannot be, or no memory. */
static bool hear(struct helper *h)
{
    for (;;) {
        const struct kv_frame *f = &h->head;
        const size_t head = sizeof *f, whole = h->have < head ? head : head + f->topic + f->payload;
        char *to = h->have < head ? (char *)&h->head + h->have : h->text + (h->have - head);
        const ssize_t n = recv(WORKER, to, whole - h->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        if (n == 0) return false;
        h->have += (size_t)n;
        if (h->have == head && (f->topic > KV_TOPIC_MAX || f->payload > KV_PAYLOAD_MAX || !f->payload)) return false;
        if (h->have < head || h->have < head + f->topic + f->payload) continue;
        h->have = 0;
        if (!publish(h)) return false;
    }
}

static void run(struct helper *h)
{
    zmq_pollitem_t items[2] = { { .fd = WORKER, .events = ZMQ_POLLIN }, { .socket = h->replay, .events = ZMQ_POLLIN } };
    const int n = h->replay ? 2 : 1;
    for (;;) {
        if (zmq_poll(items, n, -1) < 0 && errno != EINTR) return;
        if (items[0].revents && !hear(h)) return;
        if (n == 2 && items[1].revents) serve_question(h); /* one at a time: batches go first */
    }
}

/* ---- start --------------------------------------------------------------------------------------------- */

static bool set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/* tcp://HOST:PORT as the worker writes it: numbers, an IPv6 address in brackets, or * for all of both kinds. */
static bool read_address(const char *endpoint, struct sockaddr_storage *out, socklen_t *bytes)
{
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)out;
    char host[64] = "", end;
    unsigned port;
    *out = (struct sockaddr_storage){ 0 };
    if (sscanf(endpoint, "tcp://[%63[0-9a-fA-F:.]]:%u%c", host, &port, &end) == 2 ||
        (sscanf(endpoint, "tcp://*:%u%c", &port, &end) == 1 && strcpy(host, "::"))) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        *bytes = sizeof *six;
        return inet_pton(AF_INET6, host, &six->sin6_addr) == 1;
    }
    four->sin_family = AF_INET;
    *bytes = sizeof *four;
    if (sscanf(endpoint, "tcp://%63[0-9.]:%u%c", host, &port, &end) != 2) return false;
    four->sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &four->sin_addr) == 1;
}

/* A socket that listens there; -1: errno. libzmq would first look whether HOST is a network interface's name, and ends
 * the process where it may not ask the kernel for these (the systemd unit's RestrictAddressFamilies). */
static int listen_at(const char *endpoint)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    const int on = 1;
    if (!read_address(endpoint, &address, &bytes)) {
        errno = EINVAL;
        return -1;
    }
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (const struct sockaddr *)&address, bytes) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int e = errno;
    (void)close(fd);
    errno = e;
    return -1;
}

/* Bounds for what strangers send and for what waits for them. */
static bool set_bounds(void *s)
{
    const int64_t most = KV_TOPIC_MAX + QUESTION_MAX;
    return set(s, ZMQ_LINGER, 500) && set(s, ZMQ_SNDHWM, KEPT + 1) && set(s, ZMQ_RCVHWM, 16) &&
           set(s, ZMQ_HANDSHAKE_IVL, 5000) && zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &most, sizeof most) == 0;
}

static void *open_socket(struct helper *h, int kind, const char *endpoint)
{
    void *s = zmq_socket(h->zmq, kind);
    const int fd = s ? listen_at(endpoint) : -1;
    if (fd >= 0 && set_bounds(s) && set(s, ZMQ_USE_FD, fd) && zmq_bind(s, endpoint) == 0) return s;
    const int e = errno;
    if (s) (void)zmq_close(s);
    errno = e;
    return NULL;
}

static bool open_all(struct helper *h, const char *publish_at, const char *replay_at, struct kv_hello *hello)
{
    const char *failed = "no memory";
    h->zmq = zmq_ctx_new();
    h->kept = h->zmq ? calloc(KEPT, sizeof *h->kept) : NULL;
    if (h->kept) {
        failed = publish_at;
        h->publish = open_socket(h, ZMQ_PUB, publish_at);
    }
    if (h->publish && replay_at) {
        failed = replay_at;
        h->replay = open_socket(h, ZMQ_ROUTER, replay_at);
    }
    if (h->publish && (h->replay || !replay_at)) return true;
    hello->failed = 1;
    (void)snprintf(hello->text, sizeof hello->text, "%.200s: %.200s", failed, zmq_strerror(errno));
    return false;
}

int main(int argc, char **argv)
{
    static struct helper h;
    static const int quiet[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2 };
    struct kv_hello hello = { 0 };
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++) (void)signal(quiet[i], SIG_IGN);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); /* batches have prompts */
    (void)setrlimit(RLIMIT_NOFILE, &(struct rlimit){ FILES, FILES });
    if (argc < 2 || argc > 3) return 2;
    const bool good = open_all(&h, argv[1], argc > 2 ? argv[2] : NULL, &hello);
    if (send(WORKER, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello || !good) return 1;
    run(&h);
    while (h.n) forget_oldest(&h);
    (void)zmq_close(h.publish);
    if (h.replay) (void)zmq_close(h.replay);
    (void)zmq_ctx_term(h.zmq); /* what is under way to subscribers has ZMQ_LINGER */
    free(h.kept);
    return 0;
}
