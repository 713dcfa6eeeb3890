#include FORM
#include "../main.h"

int main(void)
{
    static bucket_t table[BUCKETS];
    static uint32_t keys[QUERIES], values[QUERIES];
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        const uint32_t key = next_random(&random) | 1;
        bucket_t *bucket = &table[bucket_of(key, i & 1)];
        for (int slot = 0; slot < SLOTS; slot++) {
            if (bucket->entries[slot].key == 0) {
                bucket->entries[slot] = (entry_t){key, (uint32_t)i + 1};
                break;
            }
        }
        keys[i % QUERIES] = i % 7 == 0 ? key + 1 : key;
    }
    find(table, keys, values, QUERIES);
    print_digest(values, QUERIES);
    find(table, keys, values, 3);
    print_digest(values, 3);
    return 0;
}
