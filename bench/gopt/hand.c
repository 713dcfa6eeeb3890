/*
 * Lookups whose latency is hidden by hand, with group prefetching (Chen, Ailamaki, Gibbons, Mowry,
 * Improving Hash Join Performance Through Prefetching, TODS 2007). The lookup `chase` needs no
 * prefetch instructions: the reads of a group are independent, and the core overlaps them.
 */
#include "hand.h"
#include "table.h"

#define GROUP_MAX 64
#define INLINE    static inline __attribute__((always_inline))

/*
 * Cuckoo lookup in three stages. Stage 1 hashes a key and prefetches its first bucket. Stage 2
 * searches the first bucket, and prefetches the second bucket if the key is not found. Stage 3
 * searches the second bucket. Stage 1 of the next group runs inside stage 2 of this group, so that
 * the buckets arrive during the search.
 */
INLINE void cuckoo_hand(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count,
                        const uint64_t group)
{
    const bench_bucket *buckets = (const bench_bucket *)table->memory;
    const uint32_t *keys = (const uint32_t *)queries;
    const uint32_t shift = table->shift;
    const bench_bucket *first[GROUP_MAX];
    const bench_bucket *second[GROUP_MAX];
    uint32_t left[GROUP_MAX];
    for (uint64_t i = 0; i < group && i < count; i++) {
        first[i] = &buckets[bench_hash_1(keys[i]) >> shift];
        __builtin_prefetch(first[i]);
    }
    for (uint64_t start = 0; start < count; start += group) {
        const uint64_t size = count - start < group ? count - start : group;
        uint32_t pending = 0;
        for (uint64_t i = 0; i < size; i++) {
            const uint32_t key = keys[start + i];
            const bench_bucket *bucket = first[i];
            if (start + group + i < count) {
                first[i] = &buckets[bench_hash_1(keys[start + group + i]) >> shift];
                __builtin_prefetch(first[i]);
            }
            const uint32_t answer = bench_find(bucket, key);
            answers[start + i] = answer;
            if (answer == BENCH_NONE) {
                second[pending] = &buckets[bench_hash_2(key) >> shift];
                __builtin_prefetch(second[pending]);
                left[pending++] = (uint32_t)(start + i);
            }
        }
        for (uint32_t i = 0; i < pending; i++) {
            answers[left[i]] = bench_find(second[i], keys[left[i]]);
        }
    }
}

INLINE void chase_hand(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count,
                       const uint64_t group)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint32_t *starts = (const uint32_t *)queries;
    uint32_t indices[GROUP_MAX];
    uint64_t start = 0;
    for (; start + group <= count; start += group) {
        for (uint64_t i = 0; i < group; i++) {
            indices[i] = starts[start + i];
        }
        for (uint32_t read = 0; read < table->depth; read++) {
            for (uint64_t i = 0; i < group; i++) {
                indices[i] = entries[indices[i]];
            }
        }
        for (uint64_t i = 0; i < group; i++) {
            answers[start + i] = indices[i];
        }
    }
    for (; start < count; start++) {
        uint32_t index = starts[start];
        for (uint32_t read = 0; read < table->depth; read++) {
            index = entries[index];
        }
        answers[start] = index;
    }
}

/* IPv6 lookup with group prefetching. In each step, all pending lookups of a group descend one
 * level. A finished lookup leaves the group. */
INLINE void ipv6_hand(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count,
                      const uint64_t group)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint8_t *addresses = (const uint8_t *)queries;
    uint64_t indices[GROUP_MAX];
    uint32_t left[GROUP_MAX];
    for (uint64_t start = 0; start < count; start += group) {
        const uint64_t size = count - start < group ? count - start : group;
        uint64_t pending = size;
        for (uint64_t i = 0; i < size; i++) {
            const uint8_t *address = addresses + (start + i) * BENCH_ADDRESS;
            indices[i] = (uint64_t)address[0] << 16 | (uint64_t)address[1] << 8 | address[2];
            left[i] = (uint32_t)(start + i);
            __builtin_prefetch(&entries[indices[i]]);
        }
        for (uint32_t byte = 3; pending != 0; byte++) {
            uint64_t kept = 0;
            for (uint64_t i = 0; i < pending; i++) {
                const uint32_t entry = entries[indices[i]];
                const uint32_t query = left[i];
                if (entry & BENCH_GROUP) {
                    indices[kept] = BENCH_TBL24 + (uint64_t)(entry & ~BENCH_GROUP) * 256 +
                                   addresses[(uint64_t)query * BENCH_ADDRESS + byte];
                    __builtin_prefetch(&entries[indices[kept]]);
                    left[kept++] = query;
                } else {
                    answers[query] = entry - 1;
                }
            }
            pending = kept;
        }
    }
}

INLINE void dial_hand(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count,
                      const uint64_t group)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint32_t *starts = (const uint32_t *)queries;
    uint32_t values[GROUP_MAX];
    for (uint64_t start = 0; start < count; start += group) {
        const uint64_t size = count - start < group ? count - start : group;
        for (uint64_t i = 0; i < size; i++) {
            values[i] = starts[start + i];
            __builtin_prefetch(&entries[values[i] & table->mask]);
        }
        for (uint32_t read = 0; read < table->depth; read++) {
            for (uint64_t i = 0; i < size; i++) {
                values[i] = bench_work(values[i] ^ entries[values[i] & table->mask], table->dial);
                __builtin_prefetch(&entries[values[i] & table->mask]);
            }
        }
        for (uint64_t i = 0; i < size; i++) {
            answers[start + i] = values[i];
        }
    }
}

/* One function per group size, so that the size is a constant in its loops. */
#define DEFINE(kind, group)                                                                                            \
    void kind##_hand_##group(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count)         \
    {                                                                                                                  \
        kind##_hand(table, queries, answers, count, group);                                                            \
    }
BENCH_GROUPS(DEFINE, cuckoo)
BENCH_GROUPS(DEFINE, chase)
BENCH_GROUPS(DEFINE, ipv6)
BENCH_GROUPS(DEFINE, dial)
