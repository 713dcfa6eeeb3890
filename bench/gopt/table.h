/*
 * Tables and queries of the benchmark `gopt`. They depend only on their parameters, so that the
 * benchmark and its peer program generate the same data.
 */
#ifndef GODWIT_BENCH_GOPT_TABLE_H
#define GODWIT_BENCH_GOPT_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* Kinds of table and lookup. bench/src/subject/loops.rs declares the same numbers. */
enum bench_kind {
    BENCH_CUCKOO = 0, /* 2-8 cuckoo table of integers (G-Opt, section 3.3) */
    BENCH_CHASE = 1,  /* `depth` dependent reads of a random permutation (G-Opt, section 2.5) */
    BENCH_IPV6 = 2,   /* longest prefix match of rte_lpm6: 24 bits, then 8 bits per step */
    BENCH_DIAL = 3,   /* dependent reads, each with `dial` rounds of arithmetic (APUNet, figure 4) */
};

/* Table and its parameters. bench_fill sets entries, shift and mask. The caller sets the others. */
typedef struct bench_table {
    uint8_t *memory;  /* zeroed before bench_fill, aligned to 64 bytes */
    uint64_t bytes;   /* size of the memory; a power of two, except for BENCH_IPV6 */
    uint32_t kind;    /* enum bench_kind */
    uint32_t depth;   /* BENCH_CHASE, BENCH_DIAL: reads per lookup */
    uint32_t dial;    /* BENCH_DIAL: rounds of arithmetic after each read */
    uint32_t entries; /* number of keys or prefixes */
    uint32_t shift;   /* BENCH_CUCKOO: right shift that converts a hash to a bucket number */
    uint32_t mask;    /* BENCH_CHASE, BENCH_DIAL: entries - 1 */
    uint32_t group;   /* interleaved lookups in the generated form */
    uint32_t pad;
} bench_table;

#define BENCH_NONE 0xffffffffu /* answer of a lookup that finds nothing */

/* Bucket of the cuckoo table: one cache line. A slot with key 0 is empty. */
#define BENCH_SLOTS 8
typedef struct bench_bucket {
    uint32_t keys[BENCH_SLOTS];
    uint32_t values[BENCH_SLOTS];
} bench_bucket;

/*
 * Entry of BENCH_IPV6: the next hop plus 1, or 0 without a route. With the bit BENCH_GROUP, it is
 * instead the number of a group of 256 entries, for the next 8 address bits.
 */
#define BENCH_GROUP   0x80000000u
#define BENCH_TBL24   (1u << 24) /* entries before the first group */
#define BENCH_ADDRESS 16         /* length of a query in bytes; queries of other kinds have 4 bytes */

#ifdef __cplusplus
extern "C" {
#endif

/* Fills the table and sets `entries`, `shift` and `mask`. */
void bench_fill(bench_table *table);

/* Writes `count` queries, starting with query number `first`. Nearly all of them find an entry. */
void bench_make_queries(const bench_table *table, uint64_t first, void *queries, uint64_t count);

/* Returns the length of a query in bytes. */
uint64_t bench_query_bytes(uint32_t kind);

/* Returns a sum that depends on each answer and its index. */
uint64_t bench_sum(const uint32_t *answers, uint64_t count);

#ifdef __cplusplus
}
#endif

/* Returns the value of a key in a bucket, or BENCH_NONE. */
static inline uint32_t bench_find(const bench_bucket *bucket, uint32_t key)
{
    for (int slot = 0; slot < BENCH_SLOTS; slot++) {
        if (bucket->keys[slot] == key) {
            return bucket->values[slot];
        }
    }
    return BENCH_NONE;
}

/* Two independent hashes of a key. Their upper bits are the most random. */
static inline uint64_t bench_hash_1(uint32_t key)
{
    const uint64_t h = (uint64_t)key * 0x9e3779b97f4a7c15u;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
}

static inline uint64_t bench_hash_2(uint32_t key)
{
    const uint64_t h = ((uint64_t)key ^ 0x5bd1e995u) * 0xc2b2ae3d27d4eb4fu;
    return (h ^ h >> 31) * 0x94d049bb133111ebu;
}

/* Arithmetic of BENCH_DIAL. Each round depends on the previous one. */
static inline uint32_t bench_work(uint32_t value, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        value = value * 0x2c1b3c6du + 0x297a2d39u;
    }
    return value;
}

#endif
