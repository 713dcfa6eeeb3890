/* The lookup optimised by hand: all pending lookups of a group descend one level per step. */
#include "ipv6.h"

#define GROUP 16

void route(const table_t *table, const address_t *addresses, uint32_t *hops, int n);

void route(const table_t *table, const address_t *addresses, uint32_t *hops, int n)
{
    for (int first = 0; first < n; first += GROUP) {
        const int group = n - first < GROUP ? n - first : GROUP;
        const uint32_t *entries[GROUP];
        int under_way[GROUP], left = 0;
        for (int i = 0; i < group; i++) {
            const uint8_t *bytes = addresses[first + i].bytes;
            hops[first + i] = NO_ROUTE;
            if (bytes[0] != 0xff) {
                entries[i] = &table->first[(uint32_t)(bytes[0] << 8 | bytes[1]) >> (16 - FIRST_BITS)];
                __builtin_prefetch(entries[i]);
                under_way[left++] = i;
            }
        }
        for (int depth = 2; depth <= 16 && left > 0; depth++) {
            int still = 0;
            for (int index = 0; index < left; index++) {
                const int i = under_way[index];
                const uint32_t entry = *entries[i];
                if (!(entry & EXTENDED)) {
                    hops[first + i] = entry;
                } else if (depth < 16) {
                    entries[i] = &table->groups[entry & ~EXTENDED][addresses[first + i].bytes[depth]];
                    __builtin_prefetch(entries[i]);
                    under_way[still++] = i;
                }
            }
            left = still;
        }
    }
}
