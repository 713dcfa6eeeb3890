/*
 * Peer of the benchmark `ipv6-lookup`: DPDK's rte_fib6 (TRIE, next hops of 4 bytes), bulk lookup,
 * one core.
 *
 *   rte_fib6 ROUTES ADDRESSES
 *
 * ROUTES     records of 24 bytes: 16 bytes of prefix in network order, u32 length, u32 next hop
 * ADDRESSES  records of 16 bytes in network order
 *
 * The program prints "ready PAGES" and then reads requests from standard input. A request is a form
 * of the lookup. For each request the program looks up all addresses once and prints "NANOSECONDS
 * SUM". SUM is the sum of all next hops; a miss counts as 0xffffffff.
 */
#include "peer.h"

#include <rte_fib6.h>

#define MISS        0x7fffffff /* default next hop: the largest one, which no route has */
#define ROUTE_BYTES 24

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rte_fib6 ROUTES ADDRESSES\n");
        return 2;
    }
    size_t route_bytes = 0, address_bytes = 0;
    const uint8_t *routes = peer_read_file(argv[1], &route_bytes);
    uint8_t(*addresses)[16] = peer_read_file(argv[2], &address_bytes);
    const size_t count = address_bytes / 16 / BULK * BULK;
    const char *pages = peer_start_eal("rte_fib6", "3072");

    const uint32_t routes_max = (uint32_t)(route_bytes / ROUTE_BYTES);
    struct rte_fib6_conf config = {
        .type = RTE_FIB6_TRIE,
        .default_nh = MISS,
        .max_routes = (int)(routes_max * 2 + 16),
        /* A random prefix of 48 to 64 bits needs at most five groups. */
        .trie = {.nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = routes_max * 5 + 1024},
    };
    struct rte_fib6 *fib = rte_fib6_create("peer", SOCKET_ID_ANY, &config);
    if (fib == NULL) {
        fprintf(stderr, "rte_fib6: no memory for the table\n");
        return 2;
    }
    for (size_t i = 0; i < routes_max; i++) {
        uint8_t prefix[16];
        uint32_t rest[2];
        memcpy(prefix, routes + ROUTE_BYTES * i, sizeof prefix);
        memcpy(rest, routes + ROUTE_BYTES * i + 16, sizeof rest);
        if (rte_fib6_add(fib, prefix, (uint8_t)rest[0], rest[1]) != 0) {
            fprintf(stderr, "rte_fib6: route %zu refused\n", i);
            return 2;
        }
    }
    peer_ready(pages);

    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        const enum rte_fib6_lookup_type type =
            strcmp(line, "avx512\n") == 0 ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 : RTE_FIB6_LOOKUP_TRIE_SCALAR;
        if (rte_fib6_select_lookup(fib, type) != 0) {
            printf("refused\n");
            fflush(stdout);
            continue;
        }
        uint64_t sum = 0;
        uint64_t next_hops[BULK];
        const uint64_t started_ns = peer_now_ns();
        for (size_t i = 0; i < count; i += BULK) {
            rte_fib6_lookup_bulk(fib, addresses + i, next_hops, BULK);
            for (unsigned k = 0; k < BULK; k++)
                sum += next_hops[k] == MISS ? 0xffffffffu : next_hops[k];
        }
        peer_reply(started_ns, sum);
    }
    return 0;
}
