/*
 * Lookups of DPDK 22.11.11: lib/lpm/rte_lpm.h, lib/lpm/rte_lpm6.c, lib/rib/rte_rib.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2010-2014 Intel Corporation
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

MAIN(LOOKUP(dpdk_lpm), LOOKUP(dpdk_lpm6), LOOKUP(dpdk_rib))
