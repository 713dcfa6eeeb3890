/*
 * Peer of the benchmark `ipv4-lookup`: DPDK's rte_fib (DIR24_8, next hops of 2 bytes), bulk lookup,
 * one core.
 *
 *   rte_fib ROUTES ADDRESSES...
 *
 * ROUTES     records of 12 bytes: u32 prefix in host order, u32 length, u32 next hop
 * ADDRESSES  u32 in host order
 *
 * The program prints "ready PAGES" and then reads requests "FORM [FILE]" from standard input. FILE
 * is the index of an ADDRESSES file, by default 0. For each request it looks up all addresses of
 * the file once with this form and prints "NANOSECONDS SUM". SUM is the sum of all next hops; a
 * miss counts as 0xffffffff. The benchmark compares SUM with its own, to verify that both did the
 * same work.
 */
#include "peer.h"

#include <rte_fib.h>

#define MISS 0x7fff /* default next hop: the largest one, which no route has */

static const struct {
    const char *name;
    enum rte_fib_lookup_type type;
} forms[] = {
    {"macro", RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO},
    {"inline", RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE},
    {"uni", RTE_FIB_LOOKUP_DIR24_8_SCALAR_UNI},
    {"avx512", RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512},
};

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: rte_fib ROUTES ADDRESSES...\n");
        return 2;
    }
    size_t route_bytes = 0;
    struct peer_list lists[PEER_LISTS_MAX];
    const uint32_t *routes = peer_read_file(argv[1], &route_bytes);
    const unsigned list_count = peer_read_lists(lists, argc - 2, argv + 2);
    const char *pages = peer_start_eal("rte_fib", "1024");

    struct rte_fib_conf config = {
        .type = RTE_FIB_DIR24_8,
        .default_nh = MISS,
        .max_routes = (int)(route_bytes / 12 * 2 + 16),
        .dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = (1 << 15) - 1},
    };
    struct rte_fib *fib = rte_fib_create("peer", SOCKET_ID_ANY, &config);
    if (fib == NULL) {
        fprintf(stderr, "rte_fib: no memory for the table\n");
        return 2;
    }
    for (size_t i = 0; i < route_bytes / 12; i++) {
        const uint32_t *route = routes + 3 * i;
        if (rte_fib_add(fib, route[0], (uint8_t)route[1], route[2]) != 0) {
            fprintf(stderr, "rte_fib: route %zu refused\n", i);
            return 2;
        }
    }
    peer_ready(pages);

    char name[PEER_FORM_MAX];
    for (const struct peer_list *list; (list = peer_next_request(lists, list_count, name)) != NULL;) {
        size_t form = 0;
        while (form < sizeof forms / sizeof *forms && strcmp(name, forms[form].name) != 0) {
            form++;
        }
        if (form == sizeof forms / sizeof *forms || rte_fib_select_lookup(fib, forms[form].type) != 0) {
            printf("refused\n");
            fflush(stdout);
            continue;
        }
        uint64_t sum = 0;
        uint64_t next_hops[BULK];
        const uint64_t started_ns = peer_now_ns();
        for (size_t i = 0; i < list->count; i += BULK) {
            rte_fib_lookup_bulk(fib, list->words + i, next_hops, BULK);
            for (unsigned k = 0; k < BULK; k++)
                sum += next_hops[k] == MISS ? 0xffffffffu : next_hops[k];
        }
        peer_reply(started_ns, sum);
    }
    return 0;
}
