/*
 * Peer of the benchmark `ipv6-lookup`: DPDK's rte_lpm6, bulk lookup, one core.
 *
 *   rte_lpm6 ROUTES ADDRESSES
 *
 * The files, requests and replies have the format of rte_fib6.c.
 */
#include "peer.h"

#include <rte_lpm6.h>

#define ROUTE_BYTES 24

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rte_lpm6 ROUTES ADDRESSES\n");
        return 2;
    }
    size_t route_bytes = 0, address_bytes = 0;
    const uint8_t *routes = peer_read_file(argv[1], &route_bytes);
    uint8_t(*addresses)[16] = peer_read_file(argv[2], &address_bytes);
    const size_t count = address_bytes / 16 / BULK * BULK;
    const char *pages = peer_start_eal("rte_lpm6", "3072");

    const uint32_t routes_max = (uint32_t)(route_bytes / ROUTE_BYTES);
    struct rte_lpm6_config config = {.max_rules = routes_max + 16, .number_tbl8s = routes_max * 5 + 1024, .flags = 0};
    struct rte_lpm6 *lpm = rte_lpm6_create("peer", SOCKET_ID_ANY, &config);
    if (lpm == NULL) {
        fprintf(stderr, "rte_lpm6: no memory for the table\n");
        return 2;
    }
    for (size_t i = 0; i < routes_max; i++) {
        uint8_t prefix[16];
        uint32_t rest[2];
        memcpy(prefix, routes + ROUTE_BYTES * i, sizeof prefix);
        memcpy(rest, routes + ROUTE_BYTES * i + 16, sizeof rest);
        if (rte_lpm6_add(lpm, prefix, (uint8_t)rest[0], rest[1]) != 0) {
            fprintf(stderr, "rte_lpm6: route %zu refused\n", i);
            return 2;
        }
    }
    peer_ready(pages);

    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        uint64_t sum = 0;
        int32_t next_hops[BULK];
        const uint64_t started_ns = peer_now_ns();
        for (size_t i = 0; i < count; i += BULK) {
            rte_lpm6_lookup_bulk_func(lpm, addresses + i, next_hops, BULK);
            for (unsigned k = 0; k < BULK; k++)
                sum += next_hops[k] < 0 ? 0xffffffffu : (uint32_t)next_hops[k];
        }
        peer_reply(started_ns, sum);
    }
    return 0;
}
