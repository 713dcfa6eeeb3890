/*
 * Lookups of nginx 1.22.1: src/core/ngx_radix_tree.c, ngx_hash.c, ngx_string.c,
 * src/http/modules/ngx_http_upstream_hash_module.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * Copyright (C) 2002-2021 Igor Sysoev
 * Copyright (C) 2011-2022 Nginx, Inc.
 * Copyright (C) Roman Arutyunyan
 * All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without
 * modification, are permitted provided that the following conditions
 * are met:
 * 1. Redistributions of source code must retain the above copyright
 *    notice, this list of conditions and the following disclaimer.
 * 2. Redistributions in binary form must reproduce the above copyright
 *    notice, this list of conditions and the following disclaimer in the
 *    documentation and/or other materials provided with the distribution.
 *
 * THIS SOFTWARE IS PROVIDED BY THE AUTHOR AND CONTRIBUTORS ``AS IS'' AND
 * ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
 * IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE
 * ARE DISCLAIMED.  IN NO EVENT SHALL THE AUTHOR OR CONTRIBUTORS BE LIABLE
 * FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
 * DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS
 * OR SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION)
 * HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT
 * LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY
 * OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF
 * SUCH DAMAGE.
 */
#include "public.h"

typedef intptr_t ngx_int_t;
typedef uintptr_t ngx_uint_t;
typedef unsigned char u_char;
#define ngx_align_ptr(p, a) (u_char *) (((uintptr_t) (p) + ((uintptr_t) a - 1)) & ~((uintptr_t) a - 1))
#define ngx_memcmp(s1, s2, n) memcmp((const char *) s1, (const char *) s2, n)
#define NGX_RADIX_NO_VALUE (uintptr_t) -1
typedef struct ngx_radix_node_s ngx_radix_node_t;
struct ngx_radix_node_s {
    ngx_radix_node_t *right;
    ngx_radix_node_t *left;
    ngx_radix_node_t *parent;
    uintptr_t value;
};
typedef struct {
    ngx_radix_node_t *root;
} ngx_radix_tree_t;
typedef struct {
    void *value;
    unsigned short len;
    u_char name[1];
} ngx_hash_elt_t;
typedef struct {
    ngx_hash_elt_t **buckets;
    ngx_uint_t size;
} ngx_hash_t;
typedef struct ngx_rbtree_node_s ngx_rbtree_node_t;
struct ngx_rbtree_node_s {
    ngx_uint_t key;
    ngx_rbtree_node_t *left;
    ngx_rbtree_node_t *right;
};
typedef struct {
    ngx_rbtree_node_t *root;
    ngx_rbtree_node_t *sentinel;
} ngx_rbtree_t;
typedef struct {
    size_t len;
    u_char *data;
} ngx_str_t;
typedef struct {
    ngx_rbtree_node_t node;
    ngx_str_t str;
} ngx_str_node_t;

static uintptr_t
ngx_radix32tree_find(ngx_radix_tree_t *tree, uint32_t key)
{
    uint32_t           bit;
    uintptr_t          value;
    ngx_radix_node_t  *node;

    bit = 0x80000000;
    value = NGX_RADIX_NO_VALUE;
    node = tree->root;

    while (node) {
        g_expensive(node);
        if (node->value != NGX_RADIX_NO_VALUE) {
            value = node->value;
        }

        if (key & bit) {
            node = node->right;

        } else {
            node = node->left;
        }

        bit >>= 1;
    }

    return value;
}

static uintptr_t
ngx_radix128tree_find(ngx_radix_tree_t *tree, u_char *key)
{
    u_char             bit;
    uintptr_t          value;
    ngx_uint_t         i;
    ngx_radix_node_t  *node;

    i = 0;
    bit = 0x80;
    value = NGX_RADIX_NO_VALUE;
    node = tree->root;

    while (node) {
        g_expensive(node);
        if (node->value != NGX_RADIX_NO_VALUE) {
            value = node->value;
        }

        if (key[i] & bit) {
            node = node->right;

        } else {
            node = node->left;
        }

        bit >>= 1;

        if (bit == 0) {
            i++;
            bit = 0x80;
        }
    }

    return value;
}

static void *
ngx_hash_find(ngx_hash_t *hash, ngx_uint_t key, u_char *name, size_t len)
{
    ngx_uint_t       i;
    ngx_hash_elt_t  *elt;

#if 0
    ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, 0, "hf:\"%*s\"", len, name);
#endif

    g_expensive(&hash->buckets[key % hash->size]);
    elt = hash->buckets[key % hash->size];

    if (elt == NULL) {
        return NULL;
    }

    g_expensive(elt);
    while (elt->value) {
        if (len != (size_t) elt->len) {
            goto next;
        }

        for (i = 0; i < len; i++) {
            if (name[i] != elt->name[i]) {
                goto next;
            }
        }

        return elt->value;

    next:

        elt = (ngx_hash_elt_t *) ngx_align_ptr(&elt->name[0] + elt->len,
                                               sizeof(void *));
        continue;
    }

    return NULL;
}

static ngx_str_node_t *
ngx_str_rbtree_lookup(ngx_rbtree_t *rbtree, ngx_str_t *val, uint32_t hash)
{
    ngx_int_t           rc;
    ngx_str_node_t     *n;
    ngx_rbtree_node_t  *node, *sentinel;

    node = rbtree->root;
    sentinel = rbtree->sentinel;

    while (node != sentinel) {

        g_expensive(node);
        n = (ngx_str_node_t *) node;

        if (hash != node->key) {
            node = (hash < node->key) ? node->left : node->right;
            continue;
        }

        if (val->len != n->str.len) {
            node = (val->len < n->str.len) ? node->left : node->right;
            continue;
        }

        rc = ngx_memcmp(val->data, n->str.data, val->len);

        if (rc < 0) {
            node = node->left;
            continue;
        }

        if (rc > 0) {
            node = node->right;
            continue;
        }

        return n;
    }

    return NULL;
}

static ngx_radix_tree_t tree4, tree6;
static void insert(ngx_radix_tree_t *tree, const u_char *prefix, unsigned length, uintptr_t value)
{
    ngx_radix_node_t **place = &tree->root;
    for (unsigned bit = 0;; bit++) {
        if (!*place) {
            *place = take(sizeof **place);
            (*place)->value = NGX_RADIX_NO_VALUE;
        }
        if (bit == length) {
            (*place)->value = value;
            return;
        }
        place = prefix[bit / 8] >> (7 - bit % 8) & 1 ? &(*place)->right : &(*place)->left;
    }
}
static void nginx_radix32_build(void)
{
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t key = key_of(entry);
        const u_char bytes[4] = {(u_char)(key >> 24), (u_char)(key >> 16), (u_char)(key >> 8), (u_char)key};
        insert(&tree4, bytes, 16 + entry % 9, entry);
    }
}
static uint64_t nginx_radix32(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = ngx_radix32tree_find(&tree4, keys[i]);
    }
    return 0;
}

static u_char (*addresses)[16];
static void nginx_radix128_build(void)
{
    for (uint32_t entry = 0; entry < entries; entry++) {
        u_char bytes[16] = {0x20, 1};
        const uint32_t key = key_of(entry);
        memcpy(bytes + 2, &key, sizeof key);
        insert(&tree6, bytes, 32 + entry % 17, entry);
    }
    addresses = take(queries * sizeof *addresses);
    for (uint32_t i = 0; i < queries; i++) {
        addresses[i][0] = 0x20;
        addresses[i][1] = 1;
        memcpy(addresses[i] + 2, &keys[i], sizeof keys[i]);
    }
}
static uint64_t nginx_radix128(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = ngx_radix128tree_find(&tree6, addresses[i]);
    }
    return 0;
}

static ngx_hash_t names;
static void nginx_hash_build(void)
{
    /* A bucket is an array of elements, and ends with an element without a value. */
    names.size = entries;
    names.buckets = take(entries * sizeof *names.buckets);
    size_t *sizes = take(entries * sizeof *sizes);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t entry = 0; entry < entries; entry++) {
            const uint32_t key = key_of(entry);
            const size_t bucket = scramble(key) % entries;
            if (pass == 1) {
                if (!names.buckets[bucket]) {
                    names.buckets[bucket] = take(sizes[bucket] + sizeof(ngx_hash_elt_t));
                    sizes[bucket] = 0;
                }
                ngx_hash_elt_t *elt = (ngx_hash_elt_t *)((u_char *)names.buckets[bucket] + sizes[bucket]);
                elt->value = (void *)(uintptr_t)(entry + 1);
                elt->len = sizeof key;
                memcpy(elt->name, &key, sizeof key);
            }
            sizes[bucket] += sizeof(ngx_hash_elt_t);
        }
    }
}
static uint64_t nginx_hash(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = (uintptr_t)ngx_hash_find(&names, scramble(keys[i]), (u_char *)&keys[i], sizeof keys[i]);
    }
    return 0;
}

static ngx_rbtree_node_t nil;
static ngx_rbtree_t strings = {&nil, &nil};
static void nginx_strings_build(void)
{
    for (uint32_t entry = 0; entry < entries; entry++) {
        ngx_str_node_t *node = take(sizeof *node);
        uint32_t *key = take(sizeof *key);
        *key = key_of(entry);
        *node = (ngx_str_node_t){{(uint32_t)scramble(*key), &nil, &nil}, {sizeof *key, (u_char *)key}};
        ngx_rbtree_node_t **place = &strings.root;
        while (*place != &nil) {
            place = node->node.key < (*place)->key ? &(*place)->left : &(*place)->right;
        }
        *place = &node->node;
    }
}
static uint64_t nginx_strings(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        ngx_str_t name = {sizeof keys[i], (u_char *)&keys[i]};
        ngx_str_node_t *n = ngx_str_rbtree_lookup(&strings, &name, (uint32_t)scramble(keys[i]));
        answers[i] = n ? *(const uint32_t *)n->str.data : 0;
    }
    return 0;
}

typedef struct {
    uint32_t                            hash;
} ngx_http_upstream_chash_point_t;


typedef struct {
    ngx_uint_t                          number;
    ngx_http_upstream_chash_point_t     point[];
} ngx_http_upstream_chash_points_t;

static ngx_uint_t
ngx_http_upstream_find_chash_point(ngx_http_upstream_chash_points_t *points,
    uint32_t hash)
{
    ngx_uint_t                        i, j, k;
    ngx_http_upstream_chash_point_t  *point;

    /* find first point >= hash */

    point = &points->point[0];

    i = 0;
    j = points->number;

    while (i < j) {
        k = (i + j) / 2;
        g_expensive(&point[k]);

        if (hash > point[k].hash) {
            i = k + 1;

        } else if (hash < point[k].hash) {
            j = k;

        } else {
            return k;
        }
    }

    return i;
}

static ngx_http_upstream_chash_points_t *points;
static int by_hash(const void *one, const void *two)
{
    const uint32_t a = ((const ngx_http_upstream_chash_point_t *)one)->hash;
    const uint32_t b = ((const ngx_http_upstream_chash_point_t *)two)->hash;
    return (a > b) - (a < b);
}
static void nginx_chash_build(void)
{
    points = take(sizeof *points + entries * sizeof points->point[0]);
    points->number = entries;
    for (uint32_t entry = 0; entry < entries; entry++) {
        points->point[entry].hash = key_of(entry);
    }
    qsort(points->point, entries, sizeof points->point[0], by_hash);
}
static uint64_t nginx_chash(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = ngx_http_upstream_find_chash_point(points, keys[i]);
    }
    return 0;
}

MAIN(LOOKUP(nginx_radix32), LOOKUP(nginx_radix128), LOOKUP(nginx_hash), LOOKUP(nginx_strings),
     LOOKUP(nginx_chash))
