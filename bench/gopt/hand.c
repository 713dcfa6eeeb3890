/*
 * The same look-ups with their latency hidden by hand: group prefetching (Chen, Ailamaki, Gibbons, Mowry, Improving
 * Hash Join Performance Through Prefetching, TODS 2007). Where reads are dependent and little is done with them, a
 * group's reads side by side are enough: the core overlaps them itself.
 */
#include "hand.h"
#include "table.h"

#define GROUP_MAX 64
#define INLINE    static inline __attribute__((always_inline))

/*
 * Stage 1 hashes and fetches, stage 2 searches first buckets and fetches second ones of those that found nothing, stage
 * 3 searches these. The next group's stage 1 runs within stage 2, so that its buckets come while this one is searched.
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
    uint32_t places[GROUP_MAX];
    uint64_t start = 0;
    for (; start + group <= count; start += group) {
        for (uint64_t i = 0; i < group; i++) {
            places[i] = starts[start + i];
        }
        for (uint32_t read = 0; read < table->depth; read++) {
            for (uint64_t i = 0; i < group; i++) {
                places[i] = entries[places[i]];
            }
        }
        for (uint64_t i = 0; i < group; i++) {
            answers[start + i] = places[i];
        }
    }
    for (; start < count; start++) {
        uint32_t place = starts[start];
        for (uint32_t read = 0; read < table->depth; read++) {
            place = entries[place];
        }
        answers[start] = place;
    }
}

/* A group's look-ups go down together; those that have ended leave it. */
INLINE void ipv6_hand(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count,
                      const uint64_t group)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint8_t *addresses = (const uint8_t *)queries;
    uint64_t places[GROUP_MAX];
    uint32_t left[GROUP_MAX];
    for (uint64_t start = 0; start < count; start += group) {
        const uint64_t size = count - start < group ? count - start : group;
        uint64_t pending = size;
        for (uint64_t i = 0; i < size; i++) {
            const uint8_t *address = addresses + (start + i) * BENCH_ADDRESS;
            places[i] = (uint64_t)address[0] << 16 | (uint64_t)address[1] << 8 | address[2];
            left[i] = (uint32_t)(start + i);
            __builtin_prefetch(&entries[places[i]]);
        }
        for (uint32_t byte = 3; pending != 0; byte++) {
            uint64_t kept = 0;
            for (uint64_t i = 0; i < pending; i++) {
                const uint32_t entry = entries[places[i]];
                const uint32_t query = left[i];
                if (entry & BENCH_GROUP) {
                    places[kept] = BENCH_TBL24 + (uint64_t)(entry & ~BENCH_GROUP) * 256 +
                                   addresses[(uint64_t)query * BENCH_ADDRESS + byte];
                    __builtin_prefetch(&entries[places[kept]]);
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

/* One function for each size of a group: a constant in its loops. */
#define DEFINE(kind, group)                                                                                            \
    void kind##_hand_##group(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count)         \
    {                                                                                                                  \
        kind##_hand(table, queries, answers, count, group);                                                            \
    }
BENCH_GROUPS(DEFINE, cuckoo)
BENCH_GROUPS(DEFINE, chase)
BENCH_GROUPS(DEFINE, ipv6)
BENCH_GROUPS(DEFINE, dial)
