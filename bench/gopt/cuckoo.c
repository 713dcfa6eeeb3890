/*
 * Lookup in a 2-8 cuckoo hash table. This plain loop does not hide latency. gopt transforms it into
 * the form that does.
 */
#include "plain.h"
#include "table.h"

void cuckoo_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);

void cuckoo_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count)
{
    const bench_bucket *buckets = (const bench_bucket *)table->memory;
    const uint32_t *keys = (const uint32_t *)queries;
    const uint32_t shift = table->shift;
    foreach(i, count) {
        const uint32_t key = keys[i];
        const bench_bucket *bucket = &buckets[bench_hash_1(key) >> shift];
        uint32_t answer;
        g_expensive(bucket);
        answer = bench_find(bucket, key);
        if (answer == BENCH_NONE) {
            bucket = &buckets[bench_hash_2(key) >> shift];
            g_expensive(bucket);
            answer = bench_find(bucket, key);
        }
        answers[i] = answer;
    }
}
