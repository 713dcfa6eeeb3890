/* Longest prefix match of IPv6 addresses in a trie with 8 bits per level. */
#include "ipv6.h"

void route(const table_t *table, const address_t *addresses, uint32_t *hops, int n);

/* Returns the next hop of an address. */
static uint32_t lookup(const table_t *table, const address_t *address)
{
    const uint32_t index = (uint32_t)(address->bytes[0] << 8 | address->bytes[1]) >> (16 - FIRST_BITS);
    g_expensive(&table->first[index]);
    uint32_t entry = table->first[index];
    for (int depth = 2; depth < 16; depth++) {
        if (!(entry & EXTENDED)) {
            return entry;
        }
        const uint32_t *group = table->groups[entry & ~EXTENDED];
        g_expensive(&group[address->bytes[depth]]);
        entry = group[address->bytes[depth]];
    }
    return NO_ROUTE;
}

void route(const table_t *table, const address_t *addresses, uint32_t *hops, int n)
{
    for (int i = 0; i < n; i++) {
        if (addresses[i].bytes[0] == 0xff) { /* multicast has no next hop */
            hops[i] = NO_ROUTE;
            continue;
        }
        hops[i] = lookup(table, &addresses[i]);
    }
}
