/*
 * Lookups of DPDK 22.11.11: lib/lpm/rte_lpm.h, lib/lpm/rte_lpm6.c, lib/rib/rte_rib.c,
 * lib/rib/rte_rib6.c, lib/fib/trie.h, lib/member/rte_member_ht.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2010-2014 Intel Corporation
 * Copyright(c) 2017 Intel Corporation
 * Copyright(c) 2018 Vladimir Medvedkin <medvedkinv@gmail.com>
 * Copyright(c) 2019 Intel Corporation
 * Copyright(c) 2020 Arm Limited
 */
#include "public.h"

#include <errno.h>
#include <stdbool.h>
#define unlikely(x) __builtin_expect(!!(x), 0)
#define RTE_LPM_RETURN_IF_TRUE(cond, retval)
#define RTE_LPM_TBL8_GROUP_NUM_ENTRIES  256
#define RTE_LPM_VALID_EXT_ENTRY_BITMASK 0x03000000
#define RTE_LPM_LOOKUP_SUCCESS 0x01000000
struct rte_lpm_tbl_entry {
    uint32_t next_hop : 24;
    uint32_t valid : 1;
    uint32_t valid_group : 1;
    uint32_t depth : 6;
};
struct rte_lpm {
    struct rte_lpm_tbl_entry *tbl24;
    struct rte_lpm_tbl_entry *tbl8;
};

static inline int
rte_lpm_lookup(const struct rte_lpm *lpm, uint32_t ip, uint32_t *next_hop)
{
    unsigned tbl24_index = (ip >> 8);
    uint32_t tbl_entry;
    const uint32_t *ptbl;

    /* DEBUG: Check user input arguments. */
    RTE_LPM_RETURN_IF_TRUE(((lpm == NULL) || (next_hop == NULL)), -EINVAL);

    g_expensive(&lpm->tbl24[tbl24_index]);
    /* Copy tbl24 entry */
    ptbl = (const uint32_t *)(&lpm->tbl24[tbl24_index]);
    tbl_entry = *ptbl;

    /* Memory ordering is not required in lookup. Because dataflow
     * dependency exists, compiler or HW won't be able to re-order
     * the operations.
     */
    /* Copy tbl8 entry (only if needed) */
    if (unlikely((tbl_entry & RTE_LPM_VALID_EXT_ENTRY_BITMASK) ==
            RTE_LPM_VALID_EXT_ENTRY_BITMASK)) {

        unsigned tbl8_index = (uint8_t)ip +
                (((uint32_t)tbl_entry & 0x00FFFFFF) *
                        RTE_LPM_TBL8_GROUP_NUM_ENTRIES);

        g_expensive(&lpm->tbl8[tbl8_index]);
        ptbl = (const uint32_t *)&lpm->tbl8[tbl8_index];
        tbl_entry = *ptbl;
    }

    *next_hop = ((uint32_t)tbl_entry & 0x00FFFFFF);
    return (tbl_entry & RTE_LPM_LOOKUP_SUCCESS) ? 0 : -ENOENT;
}

#define RTE_LPM6_TBL8_GROUP_NUM_ENTRIES 256
#define RTE_LPM6_VALID_EXT_ENTRY_BITMASK 0xA0000000
#define RTE_LPM6_LOOKUP_SUCCESS 0x20000000
#define RTE_LPM6_TBL8_BITMASK 0x001FFFFF
#define LOOKUP_FIRST_BYTE 4
#define BYTE_SIZE 8
#define BYTES2_SIZE 16
struct rte_lpm6_tbl_entry {
    uint32_t next_hop : 21;
    uint32_t depth : 8;
    uint32_t valid : 1;
    uint32_t valid_group : 1;
    uint32_t ext_entry : 1;
};
struct rte_lpm6 {
    struct rte_lpm6_tbl_entry *tbl24;
    struct rte_lpm6_tbl_entry *tbl8;
};

static inline int
lookup_step(const struct rte_lpm6 *lpm, const struct rte_lpm6_tbl_entry *tbl,
        const struct rte_lpm6_tbl_entry **tbl_next, const uint8_t *ip,
        uint8_t first_byte, uint32_t *next_hop)
{
    uint32_t tbl8_index, tbl_entry;

    /* Take the integer value from the pointer. */
    tbl_entry = *(const uint32_t *)tbl;

    /* If it is valid and extended we calculate the new pointer to return. */
    if ((tbl_entry & RTE_LPM6_VALID_EXT_ENTRY_BITMASK) ==
            RTE_LPM6_VALID_EXT_ENTRY_BITMASK) {

        tbl8_index = ip[first_byte-1] +
                ((tbl_entry & RTE_LPM6_TBL8_BITMASK) *
                RTE_LPM6_TBL8_GROUP_NUM_ENTRIES);

        *tbl_next = &lpm->tbl8[tbl8_index];

        return 1;
    } else {
        /* If not extended then we can have a match. */
        *next_hop = ((uint32_t)tbl_entry & RTE_LPM6_TBL8_BITMASK);
        return (tbl_entry & RTE_LPM6_LOOKUP_SUCCESS) ? 0 : -ENOENT;
    }
}

static int
rte_lpm6_lookup(const struct rte_lpm6 *lpm, const uint8_t *ip,
        uint32_t *next_hop)
{
    const struct rte_lpm6_tbl_entry *tbl;
    const struct rte_lpm6_tbl_entry *tbl_next = NULL;
    int status;
    uint8_t first_byte;
    uint32_t tbl24_index;

    /* DEBUG: Check user input arguments. */
    if ((lpm == NULL) || (ip == NULL) || (next_hop == NULL))
        return -EINVAL;

    first_byte = LOOKUP_FIRST_BYTE;
    tbl24_index = (ip[0] << BYTES2_SIZE) | (ip[1] << BYTE_SIZE) | ip[2];

    /* Calculate pointer to the first entry to be inspected */
    tbl = &lpm->tbl24[tbl24_index];

    do {
        g_expensive(tbl);
        /* Continue inspecting following levels until success or failure */
        status = lookup_step(lpm, tbl, &tbl_next, ip, first_byte++, next_hop);
        tbl = tbl_next;
    } while (status == 1);

    return status;
}

#define RTE_RIB_VALID_NODE 1
#define RIB_MAXDEPTH 32
struct rte_rib_node {
    struct rte_rib_node *left;
    struct rte_rib_node *right;
    struct rte_rib_node *parent;
    uint32_t ip;
    uint8_t depth;
    uint8_t flag;
    uint64_t nh;
};
struct rte_rib {
    struct rte_rib_node *tree;
};
static inline uint32_t
rte_rib_depth_to_mask(uint8_t depth)
{
    return (uint32_t)(UINT64_MAX << (32 - depth));
}

static inline bool
is_valid_node(const struct rte_rib_node *node)
{
    return (node->flag & RTE_RIB_VALID_NODE) == RTE_RIB_VALID_NODE;
}
static inline bool
is_covered(uint32_t ip1, uint32_t ip2, uint8_t depth)
{
    return ((ip1 ^ ip2) & rte_rib_depth_to_mask(depth)) == 0;
}
static inline struct rte_rib_node *
get_nxt_node(struct rte_rib_node *node, uint32_t ip)
{
    if (node->depth == RIB_MAXDEPTH)
        return NULL;
    return (ip & (1u << (31 - node->depth))) ? node->right : node->left;
}
static struct rte_rib_node *
rte_rib_lookup(struct rte_rib *rib, uint32_t ip)
{
    struct rte_rib_node *cur, *prev = NULL;


    cur = rib->tree;
    while ((cur != NULL) && is_covered(ip, cur->ip, cur->depth)) {
        if (is_valid_node(cur))
            prev = cur;
        cur = get_nxt_node(cur, ip);
        g_expensive(cur);
    }
    return prev;
}

static struct rte_lpm lpm;
static void dpdk_lpm_build(void)
{
    lpm.tbl24 = take((1u << 24) * sizeof *lpm.tbl24);
    lpm.tbl8 = take((entries / 4 + 1) * 256ull * sizeof *lpm.tbl8);
    uint32_t groups = 0;
    for (uint32_t entry = 0; entry < entries; entry++) {
        struct rte_lpm_tbl_entry *place = &lpm.tbl24[key_of(entry) >> 8];
        if (entry % 4 == 0 && groups < 1u << 16 && !place->valid) {
            for (uint32_t i = 0; i < 256; i++) {
                lpm.tbl8[groups * 256 + i] = (struct rte_lpm_tbl_entry){(entry + i) & 0xffffff, 1, 0, 32};
            }
            *place = (struct rte_lpm_tbl_entry){groups++, 1, 1, 24};
        } else if (!place->valid) {
            *place = (struct rte_lpm_tbl_entry){entry & 0xffffff, 1, 0, 24};
        }
    }
}
static uint64_t dpdk_lpm(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        uint32_t next_hop;
        const int status = rte_lpm_lookup(&lpm, keys[i], &next_hop);
        answers[i] = status ? UINT64_MAX : next_hop;
    }
    return 0;
}

static struct rte_lpm6 lpm6;
static uint8_t (*addresses)[16];
static void dpdk_lpm6_build(void)
{
    /* Groups of 256 entries form a tree. Each level has the next 8 bits of the address. */
    const uint32_t groups = entries / 64 + 2;
    lpm6.tbl24 = take((1u << 24) * sizeof *lpm6.tbl24);
    lpm6.tbl8 = take(groups * 256ull * sizeof *lpm6.tbl8);
    for (uint32_t i = 0; i < 1u << 24; i++) {
        lpm6.tbl24[i] = (struct rte_lpm6_tbl_entry){(uint32_t)(scramble(i) % (groups / 2)) & 0x1fffff, 24, 1, 1, 1};
    }
    for (uint32_t i = 0; i < groups * 256; i++) {
        const uint32_t own = i / 256;
        const uint32_t next = own + 1 + (uint32_t)(scramble(i) % groups);
        lpm6.tbl8[i] = i % 3 != 0 && next < groups ? (struct rte_lpm6_tbl_entry){next & 0x1fffff, 32, 1, 1, 1}
                                                   : (struct rte_lpm6_tbl_entry){i & 0x1fffff, 32, i % 7 != 0, 0, 0};
    }
    addresses = take(queries * sizeof *addresses);
    for (uint32_t i = 0; i < queries; i++) {
        for (uint32_t byte = 0; byte < 16; byte++) {
            addresses[i][byte] = (uint8_t)scramble(i * 16ull + byte);
        }
    }
}
static uint64_t dpdk_lpm6(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        uint32_t next_hop = 0;
        const int status = rte_lpm6_lookup(&lpm6, addresses[i], &next_hop);
        answers[i] = status ? UINT64_MAX : next_hop;
    }
    return 0;
}

static struct rte_rib rib;
static void dpdk_rib_build(void)
{
    rib.tree = take(sizeof *rib.tree);
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t ip = key_of(entry);
        struct rte_rib_node *node = rib.tree;
        for (uint8_t depth = 1; depth <= 20 + entry % 5; depth++) {
            struct rte_rib_node **next = ip >> (32 - depth) & 1 ? &node->right : &node->left;
            if (!*next) {
                *next = take(sizeof **next);
                (*next)->depth = depth;
                (*next)->ip = ip & rte_rib_depth_to_mask(depth);
            }
            node = *next;
        }
        node->flag = RTE_RIB_VALID_NODE;
        node->nh = entry;
    }
}
static uint64_t dpdk_rib(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const struct rte_rib_node *node = rte_rib_lookup(&rib, keys[i]);
        answers[i] = node ? node->nh : UINT64_MAX;
    }
    return 0;
}

#define RTE_FIB6_IPV6_ADDR_SIZE 16
#define TRIE_TBL8_GRP_NUM_ENT 256ULL
#define TRIE_EXT_ENT 1
struct rte_trie_tbl {
    uint64_t *tbl8;
    uint64_t *tbl24;
};

static inline uint32_t
get_tbl24_idx(const uint8_t *ip)
{
    return ip[0] << 16|ip[1] << 8|ip[2];
}

static inline int
is_entry_extended(uint64_t ent)
{
    return (ent & TRIE_EXT_ENT) == TRIE_EXT_ENT;
}

#define LOOKUP_FUNC(suffix, type, nh_sz) \
static inline void rte_trie_lookup_bulk_##suffix(void *p, \
    uint8_t ips[][RTE_FIB6_IPV6_ADDR_SIZE], \
    uint64_t *next_hops, const unsigned int n) \
{ \
    struct rte_trie_tbl *dp = (struct rte_trie_tbl *)p; \
    uint64_t tmp; \
    uint32_t i, j; \
 \
    for (i = 0; i < n; i++) { \
        g_expensive(&((type *)dp->tbl24)[get_tbl24_idx(&ips[i][0])]); \
        tmp = ((type *)dp->tbl24)[get_tbl24_idx(&ips[i][0])]; \
        j = 3; \
        while (is_entry_extended(tmp)) { \
            g_expensive(&((type *)dp->tbl8)[ips[i][j] + \
                ((tmp >> 1) * TRIE_TBL8_GRP_NUM_ENT)]); \
            tmp = ((type *)dp->tbl8)[ips[i][j++] + \
                ((tmp >> 1) * TRIE_TBL8_GRP_NUM_ENT)]; \
        } \
        next_hops[i] = tmp >> 1; \
    } \
}

LOOKUP_FUNC(4b, uint32_t, 2)

static struct rte_trie_tbl trie;
static void dpdk_fib6_build(void)
{
    /* Groups of 256 entries form a tree. Each level has the next 8 bits of the address. */
    const uint32_t groups = entries / 64 + 2;
    uint32_t *tbl24 = take((1u << 24) * sizeof *tbl24), *tbl8 = take(groups * 256ull * sizeof *tbl8);
    for (uint32_t i = 0; i < 1u << 24; i++) {
        tbl24[i] = (uint32_t)(scramble(i) % (groups / 2)) << 1 | TRIE_EXT_ENT;
    }
    for (uint32_t i = 0; i < groups * 256; i++) {
        const uint32_t next = i / 256 + 1 + (uint32_t)(scramble(i) % groups);
        tbl8[i] = i % 3 != 0 && next < groups ? next << 1 | TRIE_EXT_ENT : i << 1;
    }
    trie.tbl24 = (uint64_t *)tbl24;
    trie.tbl8 = (uint64_t *)tbl8;
}
static uint64_t dpdk_fib6(void)
{
    rte_trie_lookup_bulk_4b(&trie, addresses, answers, queries);
    return 0;
}

#define RTE_RIB6_IPV6_ADDR_SIZE 16
#define RIB6_MAXDEPTH 128
#define CHAR_BIT 8
struct rte_rib6_node {
    struct rte_rib6_node    *left;
    struct rte_rib6_node    *right;
    uint64_t        nh;
    uint8_t         ip[RTE_RIB6_IPV6_ADDR_SIZE];
    uint8_t         depth;
    uint8_t         flag;
};
struct rte_rib6 {
    struct rte_rib6_node *tree;
};
static inline uint8_t
get_msk_part(uint8_t depth, int byte)
{
    const int bits = depth - 8 * byte;
    return bits <= 0 ? 0 : bits >= 8 ? 0xff : (uint8_t)(0xff00 >> bits);
}

static inline bool
is_valid_node6(const struct rte_rib6_node *node)
{
    return (node->flag & RTE_RIB_VALID_NODE) == RTE_RIB_VALID_NODE;
}

static inline bool
is_covered6(const uint8_t ip1[RTE_RIB6_IPV6_ADDR_SIZE],
        const uint8_t ip2[RTE_RIB6_IPV6_ADDR_SIZE], uint8_t depth)
{
    int i;

    for (i = 0; i < RTE_RIB6_IPV6_ADDR_SIZE; i++)
        if ((ip1[i] ^ ip2[i]) & get_msk_part(depth, i))
            return false;

    return true;
}

static inline int
get_dir6(const uint8_t ip[RTE_RIB6_IPV6_ADDR_SIZE], uint8_t depth)
{
    uint8_t index, msk;

    /*
     * depth & 127 clamps depth to values that will not
     * read off the end of ip.
     * depth is the number of bits deep into ip to traverse, and
     * is incremented in blocks of 8 (1 byte). This means the last
     * 3 bits are irrelevant to what the index of ip should be.
     */
    index = (depth & INT8_MAX) / CHAR_BIT;

    /*
     * msk is the bitmask used to extract the bit used to decide the
     * direction of the next step of the binary search.
     */
    msk = 1 << (7 - (depth & 7));

    return (ip[index] & msk) != 0;
}

static inline struct rte_rib6_node *
get_nxt_node6(struct rte_rib6_node *node,
    const uint8_t ip[RTE_RIB6_IPV6_ADDR_SIZE])
{
    if (node->depth == RIB6_MAXDEPTH)
        return NULL;

    return (get_dir6(ip, node->depth)) ? node->right : node->left;
}

static struct rte_rib6_node *
rte_rib6_lookup(struct rte_rib6 *rib,
    const uint8_t ip[RTE_RIB6_IPV6_ADDR_SIZE])
{
    struct rte_rib6_node *cur;
    struct rte_rib6_node *prev = NULL;

    cur = rib->tree;

    while ((cur != NULL) && is_covered6(ip, cur->ip, cur->depth)) {
        if (is_valid_node6(cur))
            prev = cur;
        cur = get_nxt_node6(cur, ip);
        g_expensive(cur);
    }
    return prev;
}

static struct rte_rib6 rib6;
static void dpdk_rib6_build(void)
{
    rib6.tree = take(sizeof *rib6.tree);
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint8_t *ip = addresses[scramble(entry) % queries];
        struct rte_rib6_node *node = rib6.tree;
        for (uint8_t depth = 1; depth <= 20 + entry % 13; depth++) {
            struct rte_rib6_node **next = get_dir6(ip, node->depth) ? &node->right : &node->left;
            if (!*next) {
                *next = take(sizeof **next);
                (*next)->depth = depth;
                for (int byte = 0; byte < 16; byte++) {
                    (*next)->ip[byte] = ip[byte] & get_msk_part(depth, byte);
                }
            }
            node = *next;
        }
        node->flag = RTE_RIB_VALID_NODE;
        node->nh = entry;
    }
}
static uint64_t dpdk_rib6(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const struct rte_rib6_node *node = rte_rib6_lookup(&rib6, addresses[i]);
        answers[i] = node ? node->nh : UINT64_MAX;
    }
    return 0;
}

#define RTE_MEMBER_BUCKET_ENTRIES 16
#define RTE_MEMBER_NO_MATCH 0
typedef uint16_t member_sig_t;
typedef uint16_t member_set_t;
enum rte_member_sig_compare_function { RTE_MEMBER_COMPARE_SCALAR };
struct member_ht_bucket {
    member_sig_t sigs[RTE_MEMBER_BUCKET_ENTRIES];
    member_set_t sets[RTE_MEMBER_BUCKET_ENTRIES];
};
struct rte_member_setsum {
    uint32_t key_len, prim_hash_seed, sec_hash_seed, bucket_mask;
    uint8_t cache;
    enum rte_member_sig_compare_function sig_cmp_fn;
    void *table;
};
static uint32_t MEMBER_HASH_FUNC(const void *key, uint32_t bytes, uint32_t seed)
{
    uint64_t hash = seed;
    for (uint32_t i = 0; i < bytes; i++) {
        hash = scramble(hash ^ ((const uint8_t *)key)[i]);
    }
    return (uint32_t)hash;
}

static inline int
search_bucket_single(uint32_t bucket_id, member_sig_t tmp_sig,
        struct member_ht_bucket *buckets,
        member_set_t *set_id)
{
    uint32_t iter;

    g_expensive(&buckets[bucket_id]);
    for (iter = 0; iter < RTE_MEMBER_BUCKET_ENTRIES; iter++) {
        if (tmp_sig == buckets[bucket_id].sigs[iter] &&
                buckets[bucket_id].sets[iter] !=
                RTE_MEMBER_NO_MATCH) {
            *set_id = buckets[bucket_id].sets[iter];
            return 1;
        }
    }
    return 0;
}

static inline void
get_buckets_index(const struct rte_member_setsum *ss, const void *key,
        uint32_t *prim_bkt, uint32_t *sec_bkt, member_sig_t *sig)
{
    uint32_t first_hash = MEMBER_HASH_FUNC(key, ss->key_len,
                        ss->prim_hash_seed);
    uint32_t sec_hash = MEMBER_HASH_FUNC(&first_hash, sizeof(uint32_t),
                        ss->sec_hash_seed);
    /*
     * We use the first hash value for the signature, and the second hash
     * value to derive the primary and secondary bucket locations.
     *
     * For non-cache mode, we use the lower bits for the primary bucket
     * location. Then we xor primary bucket location and the signature
     * to get the secondary bucket location. This is called "partial-key
     * cuckoo hashing" proposed by B. Fan, et al's paper
     * "Cuckoo Filter: Practically Better Than Bloom". The benefit to use
     * xor is that one could derive the alternative bucket location
     * by only using the current bucket location and the signature. This is
     * generally required by non-cache mode's eviction and deletion
     * process without the need to store alternative hash value nor the full
     * key.
     *
     * For cache mode, we use the lower bits for the primary bucket
     * location and the higher bits for the secondary bucket location. In
     * cache mode, keys are simply overwritten if bucket is full. We do not
     * use xor since lower/higher bits are more independent hash values thus
     * should provide slightly better table load.
     */
    *sig = first_hash;
    if (ss->cache) {
        *prim_bkt = sec_hash & ss->bucket_mask;
        *sec_bkt =  (sec_hash >> 16) & ss->bucket_mask;
    } else {
        *prim_bkt = sec_hash & ss->bucket_mask;
        *sec_bkt =  (*prim_bkt ^ *sig) & ss->bucket_mask;
    }
}

static int
rte_member_lookup_ht(const struct rte_member_setsum *ss,
        const void *key, member_set_t *set_id)
{
    uint32_t prim_bucket, sec_bucket;
    member_sig_t tmp_sig;
    struct member_ht_bucket *buckets = ss->table;

    *set_id = RTE_MEMBER_NO_MATCH;
    get_buckets_index(ss, key, &prim_bucket, &sec_bucket, &tmp_sig);

    switch (ss->sig_cmp_fn) {
    default:
        if (search_bucket_single(prim_bucket, tmp_sig, buckets,
                set_id) ||
                search_bucket_single(sec_bucket, tmp_sig,
                    buckets, set_id))
            return 1;
    }

    return 0;
}

static struct rte_member_setsum members = {sizeof(uint32_t), 1, 2, 0, 0, RTE_MEMBER_COMPARE_SCALAR, NULL};
static void dpdk_member_build(void)
{
    members.bucket_mask = power_of_two(entries / 8 + 2) - 1;
    members.table = take((members.bucket_mask + 1ull) * sizeof(struct member_ht_bucket));
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t key = key_of(entry);
        uint32_t prim, sec;
        member_sig_t sig;
        get_buckets_index(&members, &key, &prim, &sec, &sig);
        for (int i = 0; i < 2 * RTE_MEMBER_BUCKET_ENTRIES; i++) {
            struct member_ht_bucket *bucket = (struct member_ht_bucket *)members.table + (i % 2 ? sec : prim);
            if (bucket->sets[i / 2] == RTE_MEMBER_NO_MATCH) {
                bucket->sigs[i / 2] = sig;
                bucket->sets[i / 2] = (member_set_t)(entry % 60000 + 1);
                break;
            }
        }
    }
}
static uint64_t dpdk_member(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        member_set_t set;
        answers[i] = rte_member_lookup_ht(&members, &keys[i], &set) ? set : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(dpdk_lpm), LOOKUP(dpdk_lpm6), LOOKUP(dpdk_rib), LOOKUP(dpdk_fib6), LOOKUP(dpdk_rib6),
     LOOKUP(dpdk_member))
