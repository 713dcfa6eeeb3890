/*
 * Longest prefix match of an IPv6 address, with the algorithm of DPDK's rte_lpm6. This plain loop
 * does not hide latency. gopt transforms it into the form that does.
 */
#include "plain.h"
#include "table.h"

void ipv6_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);

void ipv6_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint8_t *addresses = (const uint8_t *)queries;
    foreach(i, count) {
        const uint8_t *address = addresses + i * BENCH_ADDRESS;
        uint64_t index = (uint64_t)address[0] << 16 | (uint64_t)address[1] << 8 | address[2];
        uint32_t byte = 3;
        uint32_t entry;
        g_expensive(&entries[index]);
        entry = entries[index];
        while (entry & BENCH_GROUP) {
            index = BENCH_TBL24 + (uint64_t)(entry & ~BENCH_GROUP) * 256 + address[byte];
            byte++;
            g_expensive(&entries[index]);
            entry = entries[index];
        }
        answers[i] = entry - 1;
    }
}
