/*
 * Peer of the benchmark `ipv4-lookup`: DPDK's rte_lpm, bulk lookup, one core.
 *
 *   rte_lpm ROUTES ADDRESSES...
 *
 * ROUTES     records of 12 bytes: u32 prefix in host order, u32 length, u32 next hop
 * ADDRESSES  u32 in host order
 *
 * The program prints "ready PAGES" and then reads requests "go [FILE]" from standard input. FILE is
 * the index of an ADDRESSES file, by default 0. For each request it looks up all addresses of the
 * file once and prints "NANOSECONDS SUM". SUM is the sum of all next hops; a miss counts as
 * 0xffffffff. The benchmark compares SUM with its own, to verify that both did the same work.
 */
#include "peer.h"

#include <rte_lpm.h>

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: rte_lpm ROUTES ADDRESSES...\n");
        return 2;
    }
    size_t route_bytes = 0;
    struct peer_list lists[PEER_LISTS_MAX];
    const uint32_t *routes = peer_read_file(argv[1], &route_bytes);
    const unsigned list_count = peer_read_lists(lists, argc - 2, argv + 2);
    const char *pages = peer_start_eal("rte_lpm", "512");

    struct rte_lpm_config config = {.max_rules = route_bytes / 12 + 16, .number_tbl8s = 1 << 16, .flags = 0};
    struct rte_lpm *lpm = rte_lpm_create("peer", SOCKET_ID_ANY, &config);
    if (lpm == NULL) {
        fprintf(stderr, "rte_lpm: no memory for the table\n");
        return 2;
    }
    for (size_t i = 0; i < route_bytes / 12; i++) {
        const uint32_t *route = routes + 3 * i;
        if (rte_lpm_add(lpm, route[0], (uint8_t)route[1], route[2]) != 0) {
            fprintf(stderr, "rte_lpm: route %zu refused\n", i);
            return 2;
        }
    }
    peer_ready(pages);

    char form[PEER_FORM_MAX];
    for (const struct peer_list *list; (list = peer_next_request(lists, list_count, form)) != NULL;) {
        uint64_t sum = 0;
        uint32_t next_hops[BULK];
        const uint64_t started_ns = peer_now_ns();
        for (size_t i = 0; i < list->count; i += BULK) {
            rte_lpm_lookup_bulk(lpm, list->words + i, next_hops, BULK);
            for (unsigned k = 0; k < BULK; k++)
                sum += (next_hops[k] & RTE_LPM_LOOKUP_SUCCESS) ? (next_hops[k] & 0xffffff) : 0xffffffffu;
        }
        peer_reply(started_ns, sum);
    }
    return 0;
}
