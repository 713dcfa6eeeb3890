#include FORM
#include "../main.h"

int main(void)
{
    static table_t table;
    static address_t addresses[QUERIES];
    static uint32_t hops[QUERIES];
    uint32_t random = 1, groups = 0;
    for (int i = 0; i < 1 << FIRST_BITS; i++) {
        const int extends = next_random(&random) % 8 == 0 && groups < GROUPS / 2;
        table.first[i] = extends ? EXTENDED | groups++ : next_random(&random) % 100;
    }
    /* A group refers only to later groups, so every lookup ends. The last group refers to none. */
    for (uint32_t group = 0; group < GROUPS; group++) {
        for (int byte = 0; byte < 256; byte++) {
            const uint32_t deeper = group + 1 + next_random(&random) % 40;
            const int extends = next_random(&random) % 2 == 0 && deeper < GROUPS;
            table.groups[group][byte] = extends ? EXTENDED | deeper : next_random(&random) % 100;
        }
    }
    for (int i = 0; i < QUERIES; i++) {
        for (int byte = 0; byte < 16; byte++) {
            addresses[i].bytes[byte] = (uint8_t)(next_random(&random) >> 8);
        }
        if (i % 50 == 0) {
            addresses[i].bytes[0] = 0xff;
        }
    }
    route(&table, addresses, hops, QUERIES);
    print_digest(hops, QUERIES);
    route(&table, addresses, hops, 31);
    print_digest(hops, 31);
    return 0;
}
