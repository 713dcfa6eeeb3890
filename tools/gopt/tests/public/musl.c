/*
 * Lookups of musl 1.2.3: src/search/hsearch.c, tsearch.c, tfind.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * musl as a whole is licensed under the following standard MIT license:
 *
 * Copyright (C) 2005-2020 Rich Felker, et al.
 *
 * Permission is hereby granted, free of charge, to any person obtaining
 * a copy of this software and associated documentation files (the
 * "Software"), to deal in the Software without restriction, including
 * without limitation the rights to use, copy, modify, merge, publish,
 * distribute, sublicense, and/or sell copies of the Software, and to
 * permit persons to whom the Software is furnished to do so, subject to
 * the following conditions:
 *
 * The above copyright notice and this permission notice shall be
 * included in all copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
 * EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
 * MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT.
 * IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY
 * CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT,
 * TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
 * SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
 */
#include "public.h"

typedef struct entry {
    char *key;
    void *data;
} ENTRY;
struct hsearch_data {
    struct __tab *__tab;
};
struct __tab {
    ENTRY *entries;
    size_t mask;
    size_t used;
};

static size_t keyhash(char *k)
{
    unsigned char *p = (void *)k;
    size_t h = 0;

    while (*p)
        h = 31*h + *p++;
    return h;
}

static ENTRY *lookup(char *key, size_t hash, struct hsearch_data *htab)
{
    size_t i, j;
    ENTRY *e;

    for (i=hash,j=1; ; i+=j++) {
        e = htab->__tab->entries + (i & htab->__tab->mask);
        g_expensive(e);
        if (!e->key || strcmp(e->key, key) == 0)
            break;
    }
    return e;
}

#define MAXH 64
struct node {
    const void *key;
    void *a[2];
    int h;
};

static inline int height(struct node *n) { return n ? n->h : 0; }

static int rot(void **p, struct node *x, int dir /* deeper side */)
{
    struct node *y = x->a[dir];
    struct node *z = y->a[!dir];
    int hx = x->h;
    int hz = height(z);
    if (hz > height(y->a[dir])) {
        /*
         *   x
         *  / \ dir          z
         * A   y            / \
         *    / \   -->    x   y
         *   z   D        /|   |\
         *  / \          A B   C D
         * B   C
         */
        x->a[dir] = z->a[!dir];
        y->a[!dir] = z->a[dir];
        z->a[!dir] = x;
        z->a[dir] = y;
        x->h = hz;
        y->h = hz;
        z->h = hz+1;
    } else {
        /*
         *   x               y
         *  / \             / \
         * A   y    -->    x   D
         *    / \         / \
         *   z   D       A   z
         */
        x->a[dir] = z;
        y->a[!dir] = x;
        x->h = hz+1;
        y->h = hz+2;
        z = y;
    }
    *p = z;
    return z->h - hx;
}

static int __tsearch_balance(void **p)
{
    struct node *n = *p;
    int h0 = height(n->a[0]);
    int h1 = height(n->a[1]);
    if (h0 - h1 + 1u < 3u) {
        int old = n->h;
        n->h = h0<h1 ? h1+1 : h0+1;
        return n->h - old;
    }
    return rot(p, n, h0<h1);
}

static void *tsearch(const void *key, void **rootp,
    int (*cmp)(const void *, const void *))
{
    if (!rootp)
        return 0;

    void **a[MAXH];
    struct node *n = *rootp;
    struct node *r;
    int i=0;
    a[i++] = rootp;
    for (;;) {
        if (!n)
            break;
        int c = cmp(key, n->key);
        if (!c)
            return n;
        a[i++] = &n->a[c>0];
        n = n->a[c>0];
    }
    r = take(sizeof *r);
    if (!r)
        return 0;
    r->key = key;
    r->a[0] = r->a[1] = 0;
    r->h = 1;
    /* insert new node, rebalance ancestors.  */
    *a[--i] = r;
    while (i && __tsearch_balance(a[--i]));
    return r;
}

static void *tfind(const void *key, void *const *rootp,
    int(*cmp)(const void *, const void *))
{
    if (!rootp)
        return 0;

    struct node *n = *rootp;
    for (;;) {
        if (!n)
            break;
        g_expensive(n);
        int c = cmp(key, n->key);
        if (!c)
            break;
        n = n->a[c>0];
    }
    return n;
}

static struct __tab table;
static struct hsearch_data words = {&table};
static char (*texts)[12];
static void musl_hsearch_build(void)
{
    table.mask = power_of_two(entries * 2) - 1;
    table.entries = take((table.mask + 1) * sizeof *table.entries);
    for (uint32_t entry = 0; entry < entries; entry++) {
        char *key = take(12);
        sprintf(key, "%08x", (unsigned)key_of(entry));
        ENTRY *e = lookup(key, keyhash(key), &words);
        *e = (ENTRY){key, (void *)(uintptr_t)(entry + 1)};
    }
    texts = take(queries * sizeof *texts);
    for (uint32_t i = 0; i < queries; i++) {
        sprintf(texts[i], "%08x", (unsigned)keys[i]);
    }
}
static uint64_t musl_hsearch(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const ENTRY *e = lookup(texts[i], keyhash(texts[i]), &words);
        answers[i] = e->key ? (uintptr_t)e->data : 0;
    }
    return 0;
}

static int by_number(const void *one, const void *two)
{
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)two;
    return (a > b) - (a < b);
}
static void *numbers;
static void musl_tfind_build(void)
{
    uint32_t *all = take(entries * sizeof *all);
    for (uint32_t entry = 0; entry < entries; entry++) {
        all[entry] = key_of(entry);
        tsearch(&all[entry], &numbers, by_number);
    }
}
static uint64_t musl_tfind(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        const struct node *found = tfind(&keys[i], &numbers, by_number);
        answers[i] = found ? *(const uint32_t *)found->key + (uint64_t)found->h : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(musl_hsearch), LOOKUP(musl_tfind))
