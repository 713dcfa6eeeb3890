/* Lookup in a 2-8 cuckoo hash table (MemC3): a key has two buckets of eight entries. */
#include "cuckoo.h"

void find(const bucket_t *table, const uint32_t *keys, uint32_t *values, int n);

void find(const bucket_t *table, const uint32_t *keys, uint32_t *values, int n)
{
    foreach (i, n) {
        const uint32_t key = keys[i];
        uint32_t value = NOT_FOUND;
        for (int choice = 0; choice < 2; choice++) {
            const bucket_t *bucket = &table[bucket_of(key, choice)];
            g_expensive(bucket);
            int slot = 0;
            while (slot < SLOTS && bucket->entries[slot].key != key) {
                slot++;
            }
            if (slot < SLOTS) {
                value = bucket->entries[slot].value;
                break;
            }
        }
        values[i] = value;
    }
}
