/* peers.c: see peers.h. */
#include "peers.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"

static const char *const names[HANDOVER_WAYS] = { "channel", "shm", "peer" };

const char *handover_way_name(enum handover_way way) { return names[way]; }

enum handover_way handover_way_named(const char *name)
{
    int way = 0;
    while (way < HANDOVER_WAYS && strcmp(names[way], name) != 0) way++;
    return (enum handover_way)way;
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

/* "10.1.0.0/16", or an address, all of whose bits count. */
static bool read_network(const char *text, struct address *out, unsigned *counts)
{
    char address[INET6_ADDRSTRLEN];
    const size_t n = strcspn(text, "/");
    if (n >= sizeof address) return false;
    memcpy(address, text, n);
    address[n] = '\0';
    if (!address_read(address, out)) return false;
    *counts = out->bits;
    if (!text[n]) return true;
    const char *digits = text + n + 1;
    const size_t n_digits = strspn(digits, "0123456789");
    if (!n_digits || n_digits > 3 || digits[n_digits]) return false;
    *counts = 0;
    for (size_t i = 0; i < n_digits; i++) *counts = *counts * 10 + (unsigned)(digits[i] - '0');
    return *counts <= out->bits;
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
    return address_read(host, &a) || is_name(host);
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
    const bool literal = address_read(host, &a);
    if (address_is_local_host(host)) return true;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_network = read_network(entries[i], &network, &counts);
        if (literal ? is_network && address_is_in(&a, &network, counts)
                    : !is_network && strcasecmp(entries[i], host) == 0)
            return true;
    }
    return false;
}
