/*
 * Peer of the bench `ipv4-lookup`: DPDK's rte_lpm, bulk lookup, one core.
 *
 *   rte_lpm ROUTES ADDRESSES
 *
 * ROUTES: records of 12 bytes (u32 prefix in host order, u32 length, u32 next hop).
 * ADDRESSES: u32 in host order. Says "ready PAGES" and then, for each line on standard input, looks all addresses up
 * once and says "NANOSECONDS SUM", SUM being the sum of all next hops (a miss counts as 0xffffffff).
 * The bench compares SUM with its own: both did the same work.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_lpm.h>

#define BULK 64

static void *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    *bytes = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*bytes + 1);
    if (data == NULL || fread(data, 1, *bytes, file) != *bytes) {
        perror(path);
        exit(2);
    }
    fclose(file);
    return data;
}

/* Hugepages where the machine has them, as for ourselves; ordinary pages else. */
static const char *start_eal(void)
{
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "r");
    unsigned pages = 0;
    if (file != NULL) {
        if (fscanf(file, "%u", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    char *huge[] = {"rte_lpm", "--in-memory", "--no-pci", "--no-telemetry", "-l", "0", "--log-level=1", NULL};
    char *small[] = {"rte_lpm", "--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "-l", "0", "--log-level=1",
                     "-m", "512", NULL};
    const int count = pages > 0 ? 7 : 10;
    if (rte_eal_init(count, pages > 0 ? huge : small) < 0) {
        fprintf(stderr, "rte_lpm: EAL does not start\n");
        exit(2);
    }
    return pages > 0 ? "hugepages" : "small-pages";
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rte_lpm ROUTES ADDRESSES\n");
        return 2;
    }
    size_t route_bytes = 0, address_bytes = 0;
    const uint32_t *routes = read_file(argv[1], &route_bytes);
    const uint32_t *addresses = read_file(argv[2], &address_bytes);
    const size_t count = address_bytes / sizeof(uint32_t) / BULK * BULK;
    const char *pages = start_eal();

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
    printf("ready %s\n", pages);
    fflush(stdout);

    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        struct timespec start, end;
        uint64_t sum = 0;
        uint32_t next_hops[BULK];
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (size_t i = 0; i < count; i += BULK) {
            rte_lpm_lookup_bulk(lpm, addresses + i, next_hops, BULK);
            for (unsigned k = 0; k < BULK; k++)
                sum += (next_hops[k] & RTE_LPM_LOOKUP_SUCCESS) ? (next_hops[k] & 0xffffff) : 0xffffffffu;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        const int64_t elapsed =
            (end.tv_sec - start.tv_sec) * INT64_C(1000000000) + (end.tv_nsec - start.tv_nsec);
        printf("%" PRId64 " %" PRIu64 "\n", elapsed, sum);
        fflush(stdout);
    }
    return 0;
}
