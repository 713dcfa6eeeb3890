/* Fills the tables of the benchmark `gopt` and generates queries. */
#include "table.h"

#include <string.h>

/* Bijection of 32-bit numbers that maps 0 to 0 (Wellons, hash prospector). Distinct inputs give
 * distinct keys. */
static uint32_t scatter(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Returns element `number` of the random sequence splitmix64. */
static uint64_t draw(uint64_t number)
{
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t log2_of(uint64_t value)
{
    uint32_t bits = 0;
    while (value > 1) {
        value >>= 1;
        bits++;
    }
    return bits;
}

static uint32_t key_of(uint32_t index)
{
    return scatter(index + 1);
}

static uint32_t value_of(uint32_t key)
{
    return key * 0x01000193u >> 1;
}

static int put(bench_bucket *bucket, uint32_t key)
{
    for (int slot = 0; slot < BENCH_SLOTS; slot++) {
        if (bucket->keys[slot] == 0) {
            bucket->keys[slot] = key;
            bucket->values[slot] = value_of(key);
            return 1;
        }
    }
    return 0;
}

/* Maximum number of key moves per insertion. The table omits a key that still has no slot, and its
 * lookups find nothing. */
#define MOVES 64

static void insert(bench_bucket *buckets, uint32_t shift, uint32_t key)
{
    /* Half of the keys start with their second bucket, so a lookup reads 1.5 buckets on average. */
    uint64_t number = key & 1 ? bench_hash_2(key) >> shift : bench_hash_1(key) >> shift;
    for (uint32_t move = 0; move < MOVES; move++) {
        if (put(&buckets[number], key)) {
            return;
        }
        const uint64_t one = bench_hash_1(key) >> shift;
        const uint64_t two = bench_hash_2(key) >> shift;
        number = number == one ? two : one;
        if (put(&buckets[number], key)) {
            return;
        }
        bench_bucket *bucket = &buckets[number];
        const uint32_t slot = scatter(key + move) & (BENCH_SLOTS - 1);
        const uint32_t moved = bucket->keys[slot];
        bucket->keys[slot] = key;
        bucket->values[slot] = value_of(key);
        key = moved;
        const uint64_t first = bench_hash_1(key) >> shift;
        number = number == first ? bench_hash_2(key) >> shift : first;
    }
}

static void fill_cuckoo(bench_table *table)
{
    bench_bucket *buckets = (bench_bucket *)table->memory;
    const uint64_t count = table->bytes / sizeof(bench_bucket);
    table->shift = 64 - log2_of(count);
    table->entries = (uint32_t)(count * BENCH_SLOTS / 2);
    enum { AHEAD = 32 };
    for (uint32_t index = 0; index < table->entries + AHEAD; index++) {
        if (index < table->entries) {
            const uint32_t key = key_of(index);
            __builtin_prefetch(&buckets[(key & 1 ? bench_hash_2(key) : bench_hash_1(key)) >> table->shift], 1);
        }
        if (index >= AHEAD) {
            insert(buckets, table->shift, key_of(index - AHEAD));
        }
    }
}

/* Fills the table with a random permutation. Each entry is a bijective function of its index,
 * composed of xor-shifts and multiplications by odd numbers. */
static void fill_permutation(bench_table *table)
{
    uint32_t *entries = (uint32_t *)table->memory;
    table->entries = (uint32_t)(table->bytes / sizeof(uint32_t));
    table->mask = table->entries - 1;
    const uint32_t half = (log2_of(table->entries) + 1) / 2;
    for (uint32_t i = 0; i < table->entries; i++) {
        uint32_t x = (i * 0x9e3779b1u + 0x1234567u) & table->mask;
        x = (x ^ x >> half) * 0x85ebca6bu & table->mask;
        x = (x ^ x >> half) * 0xc2b2ae35u & table->mask;
        x = (x ^ x >> half) * 0x27d4eb2fu & table->mask;
        entries[i] = x ^ x >> half;
    }
}

/* Returns the upper 64 bits of prefix `index`, with zero host bits. Sets the prefix length, 48 to
 * 64. */
static uint64_t prefix_of(uint32_t index, uint32_t *length)
{
    *length = 48 + (uint32_t)(draw(2 * (uint64_t)index) % 17);
    return draw(2 * (uint64_t)index + 1) & ~(uint64_t)0 << (64 - *length);
}

static void fill_ipv6(bench_table *table)
{
    uint32_t *entries = (uint32_t *)table->memory;
    const uint32_t groups_max = (uint32_t)((table->bytes / sizeof(uint32_t) - BENCH_TBL24) / 256);
    uint32_t groups = 0;
    /* A prefix needs at most five groups. */
    for (table->entries = 0; groups + 5 <= groups_max; table->entries++) {
        uint32_t length = 0;
        const uint64_t prefix = prefix_of(table->entries, &length);
        uint64_t index = prefix >> 40;
        uint32_t depth = 24;
        while (depth < length) {
            if ((entries[index] & BENCH_GROUP) == 0) {
                const uint64_t group = BENCH_TBL24 + (uint64_t)groups * 256;
                for (uint32_t i = 0; i < 256; i++) {
                    entries[group + i] = entries[index];
                }
                entries[index] = BENCH_GROUP | groups;
                groups++;
            }
            depth += 8;
            index = BENCH_TBL24 + (uint64_t)(entries[index] & ~BENCH_GROUP) * 256 + (prefix >> (64 - depth) & 255);
        }
        for (uint64_t i = 0; i < (uint64_t)1 << (depth - length); i++) {
            entries[index + i] = 1 + table->entries % 200;
        }
    }
}

void bench_fill(bench_table *table)
{
    if (table->kind == BENCH_CUCKOO) {
        fill_cuckoo(table);
    } else if (table->kind == BENCH_IPV6) {
        fill_ipv6(table);
    } else {
        fill_permutation(table);
    }
}

uint64_t bench_query_bytes(uint32_t kind)
{
    return kind == BENCH_IPV6 ? BENCH_ADDRESS : sizeof(uint32_t);
}

void bench_make_queries(const bench_table *table, uint64_t first, void *queries, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t random = draw(~(first + i));
        const uint32_t index = (uint32_t)((random >> 32) * table->entries >> 32);
        if (table->kind == BENCH_IPV6) {
            uint32_t length = 0;
            const uint64_t prefix = prefix_of(index, &length);
            const uint64_t high = length == 64 ? prefix : prefix | random >> length;
            uint8_t *address = (uint8_t *)queries + i * BENCH_ADDRESS;
            for (uint32_t byte = 0; byte < 8; byte++) {
                address[byte] = (uint8_t)(high >> (56 - 8 * byte));
            }
            memcpy(address + 8, &random, 8);
        } else {
            ((uint32_t *)queries)[i] = table->kind == BENCH_CUCKOO ? key_of(index) : index;
        }
    }
}

uint64_t bench_sum(const uint32_t *answers, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum = sum * 0x100000001b3u + answers[i];
    }
    return sum;
}
