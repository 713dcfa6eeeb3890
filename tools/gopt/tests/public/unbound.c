/*
 * Lookups of Unbound 1.17.1: util/rbtree.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * rbtree.c -- generic red black tree
 *
 * Copyright (c) 2001-2007, NLnet Labs. All rights reserved.
 *
 * This software is open source.
 *
 * Redistribution and use in source and binary forms, with or without
 * modification, are permitted provided that the following conditions
 * are met:
 *
 * Redistributions of source code must retain the above copyright notice,
 * this list of conditions and the following disclaimer.
 *
 * Redistributions in binary form must reproduce the above copyright notice,
 * this list of conditions and the following disclaimer in the documentation
 * and/or other materials provided with the distribution.
 *
 * Neither the name of the NLNET LABS nor the names of its contributors may
 * be used to endorse or promote products derived from this software without
 * specific prior written permission.
 *
 * THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS
 * "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT
 * LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR
 * A PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT
 * HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
 * SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED
 * TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR
 * PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF
 * LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING
 * NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
 * SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
 *
 */
#include "public.h"

typedef struct rbnode_type rbnode_type;
struct rbnode_type {
    rbnode_type *parent;
    rbnode_type *left;
    rbnode_type *right;
    const void *key;
    uint8_t color;
};
typedef struct rbtree_type {
    rbnode_type *root;
    size_t count;
    int (*cmp)(const void *, const void *);
} rbtree_type;
static rbnode_type rbtree_null_node;
#define RBTREE_NULL &rbtree_null_node
#define log_assert(x)
#define fptr_ok(x)
static int compare(const void *one, const void *two)
{
    const uint64_t x = *(const uint64_t *)one, y = *(const uint64_t *)two;
    return x < y ? -1 : x > y;
}
/* The tree has one order, so that the call has one target. */
#define cmp(one, two) count * 0 + compare(one, two)

static int
rbtree_find_less_equal(rbtree_type *rbtree, const void *key,
    rbnode_type **result)
{
    int r;
    rbnode_type *node;

    log_assert(result);

    /* We start at root... */
    node = rbtree->root;

    *result = NULL;
    fptr_ok(fptr_whitelist_rbtree_cmp(rbtree->cmp));

    /* While there are children... */
    while (node != RBTREE_NULL) {
        g_expensive(node);
        r = rbtree->cmp(key, node->key);
        if (r == 0) {
            /* Exact match */
            *result = node;
            return 1;
        }
        if (r < 0) {
            node = node->left;
        } else {
            /* Temporary match */
            *result = node;
            node = node->right;
        }
    }
    return 0;
}

static rbnode_type *
rbtree_search (rbtree_type *rbtree, const void *key)
{
    rbnode_type *node;

    if (rbtree_find_less_equal(rbtree, key, &node)) {
        return node;
    } else {
        return NULL;
    }
}

#undef cmp
static rbtree_type tree = {RBTREE_NULL, 0, compare};
static void unbound_rbtree_build(void)
{
    for (uint32_t entry = 0; entry < entries; entry++) {
        rbnode_type *node = take(sizeof *node);
        uint64_t *key = take(sizeof *key);
        *key = scramble(key_of(entry));
        *node = (rbnode_type){0, RBTREE_NULL, RBTREE_NULL, key, 0};
        rbnode_type **place = &tree.root;
        while (*place != RBTREE_NULL) {
            place = compare(key, (*place)->key) < 0 ? &(*place)->left : &(*place)->right;
        }
        *place = node;
    }
}
static uint64_t unbound_rbtree(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const uint64_t key = scramble(keys[i]);
        const rbnode_type *node = rbtree_search(&tree, &key);
        answers[i] = node ? *(const uint64_t *)node->key : 0;
    }
    return 0;
}

MAIN(LOOKUP(unbound_rbtree))
