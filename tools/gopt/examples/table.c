/* A batch of lookups in a hash table: the plain loop that gopt transforms.
 *
 *     gopt -Iinclude examples/table.c -o table.gopt.c
 *     cc -O2 -Iinclude -DGOPT_GROUP=1 table.gopt.c -o plain && ./plain
 *     cc -O2 -Iinclude -DGOPT_GROUP=auto table.gopt.c -o interleaved && ./interleaved
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gopt.h"

#define BUCKETS (1u << 24)
#define KEYS    (1 << 22)

typedef struct {
    uint32_t key, value;
} bucket_t;

static uint32_t hash(uint32_t key)
{
    key = (key ^ key >> 16) * 0x85ebca6bu;
    key = (key ^ key >> 13) * 0xc2b2ae35u;
    return key ^ key >> 16;
}

void find(const bucket_t *table, const uint32_t *keys, uint32_t *values, int n)
{
    for (int i = 0; i < n; i++) {
        const bucket_t *bucket = &table[hash(keys[i]) % BUCKETS];
        g_expensive(bucket);
        values[i] = bucket->key == keys[i] ? bucket->value : 0;
    }
}

int main(void)
{
    bucket_t *table = calloc(BUCKETS, sizeof *table);
    uint32_t *keys = malloc(KEYS * sizeof *keys), *values = malloc(KEYS * sizeof *values);
    if (!table || !keys || !values) {
        return 1;
    }
    for (uint32_t i = 0; i < BUCKETS; i++) {
        const uint32_t key = i * 0x9e3779b1u;
        table[hash(key) % BUCKETS] = (bucket_t){key, i};
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = (i * 2654435761u % BUCKETS) * 0x9e3779b1u;
    }
    const clock_t start = clock();
    uint64_t sum = 0;
    for (int repetition = 0; repetition < 4; repetition++) {
        find(table, keys, values, KEYS);
    }
    const double ns = (double)(clock() - start) * 1e9 / CLOCKS_PER_SEC / KEYS / 4;
    for (int i = 0; i < KEYS; i++) {
        sum += values[i];
    }
    printf("sum %llu, %.1f ns per lookup\n", (unsigned long long)sum, ns);
    free(table);
    free(keys);
    free(values);
    return 0;
}
