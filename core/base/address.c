/* address.c: see address.h. */
#include "base/address.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { LOOPBACK_BITS = 8, MAPPED = 12 /* bytes before an IPv4 address in IPv6 */ };

bool address_read(const char *text, struct address *out)
{
    static const uint8_t mapped[MAPPED] = { [10] = 0xff, [11] = 0xff };
    uint8_t six[sizeof out->bytes];
    *out = (struct address){ .bits = ADDRESS_BITS_4 };
    if (inet_pton(AF_INET, text, out->bytes) == 1) return true;
    if (inet_pton(AF_INET6, text, six) != 1) return false;
    if (memcmp(six, mapped, sizeof mapped) == 0) {
        memcpy(out->bytes, six + MAPPED, sizeof six - MAPPED);
        return true;
    }
    memcpy(out->bytes, six, sizeof six);
    out->bits = ADDRESS_BITS_6;
    return true;
}

bool address_is_in(const struct address *a, const struct address *network, unsigned counts)
{
    if (a->bits != network->bits) return false;
    for (unsigned i = 0; i < counts; i++)
        if ((a->bytes[i / 8] ^ network->bytes[i / 8]) >> (7 - i % 8) & 1) return false;
    return true;
}

bool address_is_loopback(const struct address *a)
{
    static const struct address four = { { 127 }, ADDRESS_BITS_4 }, six = { { [15] = 1 }, ADDRESS_BITS_6 };
    return address_is_in(a, &four, LOOPBACK_BITS) || address_is_in(a, &six, ADDRESS_BITS_6);
}

bool address_is_local_host(const char *host)
{
    struct address a;
    return address_read(host, &a) ? address_is_loopback(&a) : strcasecmp(host, "localhost") == 0;
}
