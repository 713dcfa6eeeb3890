/* The lookup optimised by hand: first buckets of a group, then second buckets of missing keys. */
#include "cuckoo.h"

#define GROUP 16

void find(const bucket_t *table, const uint32_t *keys, uint32_t *values, int n);

static int slot_of(const bucket_t *bucket, uint32_t key)
{
    int slot = 0;
    while (slot < SLOTS && bucket->entries[slot].key != key) {
        slot++;
    }
    return slot;
}

void find(const bucket_t *table, const uint32_t *keys, uint32_t *values, int n)
{
    for (int first = 0; first < n; first += GROUP) {
        const int group = n - first < GROUP ? n - first : GROUP;
        const bucket_t *buckets[GROUP];
        int missing[GROUP], misses = 0;
        for (int i = 0; i < group; i++) {
            buckets[i] = &table[bucket_of(keys[first + i], 0)];
            __builtin_prefetch(buckets[i]);
        }
        for (int i = 0; i < group; i++) {
            const int slot = slot_of(buckets[i], keys[first + i]);
            if (slot < SLOTS) {
                values[first + i] = buckets[i]->entries[slot].value;
            } else {
                buckets[i] = &table[bucket_of(keys[first + i], 1)];
                __builtin_prefetch(buckets[i]);
                missing[misses++] = i;
            }
        }
        for (int miss = 0; miss < misses; miss++) {
            const int i = missing[miss];
            const int slot = slot_of(buckets[i], keys[first + i]);
            values[first + i] = slot < SLOTS ? buckets[i]->entries[slot].value : NOT_FOUND;
        }
    }
}
