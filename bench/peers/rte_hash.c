/*
 * Peer of the benchmark `l2-lookup`: DPDK's rte_hash with keys of 8 bytes and CRC-32, bulk lookup
 * with data of 64 keys, the maximum, one core.
 *
 *   rte_hash ENTRIES KEYS
 *
 * ENTRIES  records of 16 bytes: u64 key, u64 port
 * KEYS     u64
 *
 * The program prints "ready PAGES" and then reads requests from standard input. For each line it
 * looks up all keys once and prints "NANOSECONDS SUM". SUM is the sum of all ports; a miss counts
 * as 0xffffffff.
 */
#include "peer.h"

#include <rte_hash.h>
#include <rte_hash_crc.h>

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rte_hash ENTRIES KEYS\n");
        return 2;
    }
    size_t entry_bytes = 0, key_bytes = 0;
    const uint64_t *entries = peer_read_file(argv[1], &entry_bytes);
    const uint64_t *keys = peer_read_file(argv[2], &key_bytes);
    const size_t count = key_bytes / sizeof(uint64_t) / BULK * BULK;
    const size_t entries_max = entry_bytes / 16;
    const char *pages = peer_start_eal("rte_hash", "1024");

    struct rte_hash_parameters parameters = {
        .name = "peer",
        /* rte_hash refuses keys when its table is nearly full, so the table has spare entries. */
        .entries = (uint32_t)(entries_max + entries_max / 8 + 64),
        .key_len = sizeof(uint64_t),
        .hash_func = rte_hash_crc,
        .socket_id = SOCKET_ID_ANY,
    };
    struct rte_hash *hash = rte_hash_create(&parameters);
    if (hash == NULL) {
        fprintf(stderr, "rte_hash: no memory for the table\n");
        return 2;
    }
    for (size_t i = 0; i < entries_max; i++) {
        if (rte_hash_add_key_data(hash, &entries[2 * i], (void *)(uintptr_t)entries[2 * i + 1]) != 0) {
            fprintf(stderr, "rte_hash: key %zu refused\n", i);
            return 2;
        }
    }
    peer_ready(pages);

    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        uint64_t sum = 0;
        const void *requested[RTE_HASH_LOOKUP_BULK_MAX];
        void *data[RTE_HASH_LOOKUP_BULK_MAX];
        const uint64_t started_ns = peer_now_ns();
        for (size_t i = 0; i < count; i += RTE_HASH_LOOKUP_BULK_MAX) {
            uint64_t hits = 0;
            for (unsigned k = 0; k < RTE_HASH_LOOKUP_BULK_MAX; k++)
                requested[k] = &keys[i + k];
            rte_hash_lookup_bulk_data(hash, requested, RTE_HASH_LOOKUP_BULK_MAX, &hits, data);
            for (unsigned k = 0; k < RTE_HASH_LOOKUP_BULK_MAX; k++)
                sum += hits >> k & 1 ? (uint64_t)(uintptr_t)data[k] : 0xffffffffu;
        }
        peer_reply(started_ns, sum);
    }
    return 0;
}
