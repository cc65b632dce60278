/* peers.c: see peers.h. */
#include "peers.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum {
    LOOPBACK_BITS = 8,
    BITS_OF_FOUR = 32,
    BITS_OF_SIX = 128,
    MAPPED = 12 /* bytes before an IPv4 address in IPv6 */
};

static const char *const names[HANDOVER_WAYS] = { "channel", "shm", "peer" };

const char *handover_way_name(enum handover_way way) { return names[way]; }

enum handover_way handover_way_named(const char *name)
{
    int way = 0;
    while (way < HANDOVER_WAYS && strcmp(names[way], name) != 0) way++;
    return (enum handover_way)way;
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

struct address {
    uint8_t bytes[16];
    unsigned bits; /* 32, 128 */
};

/* IPv4 in IPv6 is IPv4. */
static bool read_address(const char *text, struct address *out)
{
    static const uint8_t mapped[MAPPED] = { [10] = 0xff, [11] = 0xff };
    *out = (struct address){ .bits = BITS_OF_FOUR };
    if (inet_pton(AF_INET, text, out->bytes) == 1) return true;
    if (inet_pton(AF_INET6, text, out->bytes) != 1) return false;
    out->bits = BITS_OF_SIX;
    if (memcmp(out->bytes, mapped, sizeof mapped) == 0) {
        memmove(out->bytes, out->bytes + MAPPED, 4);
        out->bits = BITS_OF_FOUR;
    }
    return true;
}

/* "10.1.0.0/16", or an address, all of whose bits count. */
static bool read_network(const char *text, struct address *out, unsigned *counts)
{
    char address[INET6_ADDRSTRLEN];
    const size_t n = strcspn(text, "/");
    if (n >= sizeof address) return false;
    memcpy(address, text, n);
    address[n] = '\0';
    if (!read_address(address, out)) return false;
    *counts = out->bits;
    if (!text[n]) return true;
    const char *digits = text + n + 1;
    const size_t n_digits = strspn(digits, "0123456789");
    if (!n_digits || n_digits > 3 || digits[n_digits]) return false;
    *counts = 0;
    for (size_t i = 0; i < n_digits; i++) *counts = *counts * 10 + (unsigned)(digits[i] - '0');
    return *counts <= out->bits;
}

static bool is_in(const struct address *a, const struct address *network, unsigned counts)
{
    if (a->bits != network->bits) return false;
    for (unsigned i = 0; i < counts; i++)
        if ((a->bytes[i / 8] ^ network->bytes[i / 8]) >> (7 - i % 8) & 1) return false;
    return true;
}

static bool is_loopback(const struct address *a)
{
    static const struct address four = { { 127 }, BITS_OF_FOUR }, six = { { [15] = 1 }, BITS_OF_SIX };
    return is_in(a, &four, LOOPBACK_BITS) || is_in(a, &six, BITS_OF_SIX);
}

/* ---- hosts --------------------------------------------------------------------------------------------- */

static bool is_name(const char *host)
{
    const size_t n = strlen(host);
    const char *last = strrchr(host, '.');
    if (!n || n > HANDOVER_HOST_MAX || host[0] == '-' || host[0] == '.') return false;
    if (strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") != n) return false;
    /* a last part of digits alone is an address in one of its other forms */
    last = last ? last + 1 : host;
    return last[strspn(last, "0123456789")] != '\0' && strncasecmp(last, "0x", 2) != 0;
}

bool handover_is_host(const char *host)
{
    struct address a;
    return read_address(host, &a) || is_name(host);
}

bool handover_is_peer(const char *entry)
{
    struct address a;
    unsigned counts;
    return read_network(entry, &a, &counts) || is_name(entry);
}

bool handover_may_ask(const char *host, const char *const *entries, uint32_t n)
{
    struct address a, network;
    unsigned counts;
    const bool literal = read_address(host, &a);
    if (literal ? is_loopback(&a) : strcasecmp(host, "localhost") == 0) return true;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_network = read_network(entries[i], &network, &counts);
        if (literal ? is_network && is_in(&a, &network, counts) : !is_network && strcasecmp(entries[i], host) == 0)
            return true;
    }
    return false;
}
