/* base/address.h: IPv4 and IPv6 addresses as texts have them, and which of them are of this machine alone. Only the
 * usual forms are addresses: four decimal numbers, or what RFC 4291 has; "127.1", "0x7f000001" and "2130706433", which
 * some programs take for 127.0.0.1, are none. Nothing is looked up. [any thread] */
#ifndef CORE_BASE_ADDRESS_H
#define CORE_BASE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

enum { ADDRESS_BITS_4 = 32, ADDRESS_BITS_6 = 128 };

/* In network order; IPv4 in IPv6 (::ffff:10.1.2.3) is IPv4. */
struct address {
    uint8_t bytes[16]; /* [bits / 8], zeros behind */
    unsigned bits;     /* ADDRESS_BITS_4, ADDRESS_BITS_6 */
};

/* False: it is no address; out is undefined. */
bool address_read(const char *text, struct address *out);
/* Of one kind, and are the first `counts` bits the same? counts: at most network->bits. */
bool address_is_in(const struct address *a, const struct address *network, unsigned counts);
/* 127.0.0.0/8 and ::1. 0.0.0.0 and :: are not: who listens there is reached from everywhere. */
bool address_is_loopback(const struct address *a);
/* Is it an address of the loopback, or "localhost", in whatever case? */
bool address_is_local_host(const char *host);

#endif
