/*
 * The tables of the bench `gopt`, and what is looked up in them. Made by seed: the bench and its peer, which is a
 * program of its own, make the same.
 */
#ifndef GODWIT_BENCH_GOPT_TABLE_H
#define GODWIT_BENCH_GOPT_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* What is measured; bench/src/subject/loops.rs has the same numbers. */
enum bench_kind {
    BENCH_CUCKOO = 0, /* 2-8 cuckoo table of integers; G-Opt section 3.3 */
    BENCH_CHASE = 1,  /* depth dependent reads of a random permutation; section 2.5 */
    BENCH_IPV6 = 2,   /* DPDK's table for the longest prefix: 24 bits at first, then 8 at a time */
    BENCH_DIAL = 3,   /* dependent reads with dial rounds of arithmetic after each; APUNet figure 4 */
};

typedef struct bench_table {
    uint8_t *memory; /* zeroed before bench_fill, aligned to 64 */
    uint64_t bytes;  /* a power of two, but for BENCH_IPV6 */
    uint32_t kind;
    uint32_t depth;   /* BENCH_CHASE, BENCH_DIAL: reads of a look-up */
    uint32_t dial;    /* BENCH_DIAL: rounds of arithmetic after each read */
    uint32_t entries; /* set by bench_fill: keys or prefixes */
    uint32_t shift;   /* set by bench_fill; BENCH_CUCKOO: of a hash, so that a bucket's number is left */
    uint32_t mask;    /* set by bench_fill; BENCH_CHASE, BENCH_DIAL: entries - 1 */
    uint32_t group;   /* look-ups under way together, in the forms that gopt made */
    uint32_t pad;
} bench_table;

#define BENCH_NONE 0xffffffffu /* what a look-up says where there is nothing */

/* One cache line. Key 0 is an empty slot. */
#define BENCH_SLOTS 8
typedef struct bench_bucket {
    uint32_t keys[BENCH_SLOTS];
    uint32_t values[BENCH_SLOTS];
} bench_bucket;

/* An entry of BENCH_IPV6: a group of 256 further entries, or a next hop plus 1; 0 is no route. */
#define BENCH_GROUP   0x80000000u
#define BENCH_TBL24   (1u << 24)
#define BENCH_ADDRESS 16 /* bytes of a query; of the other kinds a query has 4 */

#ifdef __cplusplus
extern "C" {
#endif

/* Fills the table. */
void bench_fill(bench_table *table);

/* `count` queries from number `first` on; nearly all of them find something. */
void bench_ask(const bench_table *table, uint64_t first, void *queries, uint64_t count);

/* Bytes of a query. */
uint64_t bench_query_bytes(uint32_t kind);

/* Depends on every answer and its place. */
uint64_t bench_sum(const uint32_t *answers, uint64_t count);

#ifdef __cplusplus
}
#endif

/* The value of a key in a bucket, or BENCH_NONE. */
static inline uint32_t bench_find(const bench_bucket *bucket, uint32_t key)
{
    for (int slot = 0; slot < BENCH_SLOTS; slot++) {
        if (bucket->keys[slot] == key) {
            return bucket->values[slot];
        }
    }
    return BENCH_NONE;
}

/* Two independent hashes of a key; the upper bits are the best. */
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

/* What the dial turns: each round depends on the one before. */
static inline uint32_t bench_work(uint32_t value, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        value = value * 0x2c1b3c6du + 0x297a2d39u;
    }
    return value;
}

#endif
