/*
 * Lookups of LMDB 0.9.24: libraries/liblmdb/mdb.c.
 * Changes: lines with g_expensive, types without unused members, one comparison function, no
 * changes of pages, the tables and batch loops at the end.
 */
/*
 * Copyright 2011-2019 Howard Chu, Symas Corp.
 * All rights reserved.
 *
 * The OpenLDAP Public License
 *   Version 2.8, 17 August 2003
 *
 * Redistribution and use of this software and associated documentation
 * ("Software"), with or without modification, are permitted provided
 * that the following conditions are met:
 *
 * 1. Redistributions in source form must retain copyright statements
 *    and notices,
 *
 * 2. Redistributions in binary form must reproduce applicable copyright
 *    statements and notices, this list of conditions, and the following
 *    disclaimer in the documentation and/or other materials provided
 *    with the distribution, and
 *
 * 3. Redistributions must contain a verbatim copy of this document.
 *
 * The OpenLDAP Foundation may revise this license from time to time.
 * Each revision is distinguished by a version number.  You may use
 * this Software under terms of this license revision or under the
 * terms of any subsequent revision of the license.
 *
 * THIS SOFTWARE IS PROVIDED BY THE OPENLDAP FOUNDATION AND ITS
 * CONTRIBUTORS ``AS IS'' AND ANY EXPRESSED OR IMPLIED WARRANTIES,
 * INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY
 * AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED.  IN NO EVENT
 * SHALL THE OPENLDAP FOUNDATION, ITS CONTRIBUTORS, OR THE AUTHOR(S)
 * OR OWNER(S) OF THE SOFTWARE BE LIABLE FOR ANY DIRECT, INDIRECT,
 * INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING,
 * BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES;
 * LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
 * CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT
 * LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN
 * ANY WAY OUT OF THE USE OF THIS SOFTWARE, EVEN IF ADVISED OF THE
 * POSSIBILITY OF SUCH DAMAGE.
 *
 * The names of the authors and copyright holders must not be used in
 * advertising or otherwise to promote the sale, use or other dealing
 * in this Software without specific, written prior permission.  Title
 * to copyright in this Software shall at all times remain with copyright
 * holders.
 *
 * OpenLDAP is a registered trademark of the OpenLDAP Foundation.
 *
 * Copyright 1999-2003 The OpenLDAP Foundation, Redwood City,
 * California, USA.  All Rights Reserved.  Permission to copy and
 * distribute verbatim copies of this document is granted.
 */
#include "public.h"

#include <stddef.h>

typedef size_t pgno_t;
typedef uint16_t indx_t;
typedef struct MDB_val {
    size_t mv_size;
    void *mv_data;
} MDB_val;
typedef int (MDB_cmp_func)(const MDB_val *a, const MDB_val *b);
#define MDB_DEVEL 0
#define PGNO_TOPWORD 32
#define MDB_SUCCESS 0
#define MDB_CORRUPTED (-30796)
#define MDB_TXN_ERROR 0x02
#define C_INITIALIZED 0x01
#define C_EOF 0x02
#define CURSOR_STACK 32
#define DKBUF
#define DPRINTF(arg) ((void)0)
#define mdb_cassert(mc, expr) ((void)0)
typedef struct MDB_page {
#define mp_pgno mp_p.p_pgno
#define mp_next mp_p.p_next
    union {
        pgno_t      p_pgno;
        struct MDB_page *p_next;
    } mp_p;
    uint16_t    mp_pad;
#define P_BRANCH     0x01
#define P_LEAF       0x02
#define P_OVERFLOW   0x04
#define P_META       0x08
#define P_DIRTY      0x10
#define P_LEAF2      0x20
#define P_SUBP       0x40
#define P_LOOSE      0x4000
#define P_KEEP       0x8000
    uint16_t    mp_flags;
#define mp_lower    mp_pb.pb.pb_lower
#define mp_upper    mp_pb.pb.pb_upper
#define mp_pages    mp_pb.pb_pages
    union {
        struct {
            indx_t      pb_lower;
            indx_t      pb_upper;
        } pb;
        uint32_t    pb_pages;
    } mp_pb;
    indx_t      mp_ptrs[1];
} MDB_page;
typedef struct MDB_node {
#if BYTE_ORDER == LITTLE_ENDIAN
    unsigned short  mn_lo, mn_hi;
#else
    unsigned short  mn_hi, mn_lo;
#endif
    unsigned short  mn_flags;
    unsigned short  mn_ksize;
    char        mn_data[1];
} MDB_node;
#define F_ISSET(w, f) (((w) & (f)) == (f))
#define PAGEHDRSZ ((unsigned) offsetof(MDB_page, mp_ptrs))
#define PAGEBASE ((MDB_DEVEL) ? PAGEHDRSZ : 0)
#define NUMKEYS(p) (((p)->mp_lower - (PAGEHDRSZ-PAGEBASE)) >> 1)
#define IS_LEAF(p) F_ISSET((p)->mp_flags, P_LEAF)
#define IS_LEAF2(p) F_ISSET((p)->mp_flags, P_LEAF2)
#define IS_BRANCH(p) F_ISSET((p)->mp_flags, P_BRANCH)
#define NODEPTR(p, i) ((MDB_node *)((char *)(p) + (p)->mp_ptrs[i] + PAGEBASE))
#define NODEKEY(node) (void *)((node)->mn_data)
#define NODEDATA(node) (void *)((char *)(node)->mn_data + (node)->mn_ksize)
#define NODEPGNO(node) \
    ((node)->mn_lo | ((pgno_t) (node)->mn_hi << 16) | \
     (PGNO_TOPWORD ? ((pgno_t) (node)->mn_flags << PGNO_TOPWORD) : 0))
#define NODEKSZ(node) ((node)->mn_ksize)
#define LEAF2KEY(p, i, ks) ((char *)(p) + PAGEHDRSZ + ((i)*(ks)))
typedef struct MDB_txn {
    unsigned int mt_flags;
} MDB_txn;
typedef struct MDB_db {
    uint32_t md_pad;
} MDB_db;
typedef struct MDB_cursor {
    MDB_txn *mc_txn;
    MDB_db *mc_db;
    unsigned short mc_snum;
    unsigned short mc_top;
    unsigned int mc_flags;
    MDB_page *mc_pg[CURSOR_STACK];
    indx_t mc_ki[CURSOR_STACK];
} MDB_cursor;

/* Pages of a file that is in memory. */
#define PAGE_BYTES 4096u
static char *map;
static int mdb_page_get(MDB_cursor *mc, pgno_t pgno, MDB_page **ret, int *lvl)
{
    *ret = (MDB_page *)(map + pgno * PAGE_BYTES);
    return MDB_SUCCESS;
}
static int mdb_cursor_push(MDB_cursor *mc, MDB_page *mp)
{
    mc->mc_top = mc->mc_snum++;
    mc->mc_pg[mc->mc_top] = mp;
    mc->mc_ki[mc->mc_top] = 0;
    return MDB_SUCCESS;
}

static int
mdb_cmp_long(const MDB_val *a, const MDB_val *b)
{
    return (*(size_t *)a->mv_data < *(size_t *)b->mv_data) ? -1 :
        *(size_t *)a->mv_data > *(size_t *)b->mv_data;
}

static MDB_node *
mdb_node_search(MDB_cursor *mc, MDB_val *key, int *exactp)
{
    unsigned int     i = 0, nkeys;
    int      low, high;
    int      rc = 0;
    MDB_page *mp = mc->mc_pg[mc->mc_top];
    MDB_node    *node = NULL;
    MDB_val  nodekey;
    MDB_cmp_func *cmp;
    DKBUF;

    g_expensive(mp);
    nkeys = NUMKEYS(mp);

    DPRINTF(("searching %u keys in %s %spage %"Z"u",
        nkeys, IS_LEAF(mp) ? "leaf" : "branch", IS_SUBP(mp) ? "sub-" : "",
        mdb_dbg_pgno(mp)));

    low = IS_LEAF(mp) ? 0 : 1;
    high = nkeys - 1;
    cmp = mdb_cmp_long;

    if (IS_LEAF2(mp)) {
        nodekey.mv_size = mc->mc_db->md_pad;
        node = NODEPTR(mp, 0);  /* fake */
        while (low <= high) {
            i = (low + high) >> 1;
            nodekey.mv_data = LEAF2KEY(mp, i, nodekey.mv_size);
            rc = cmp(key, &nodekey);
            DPRINTF(("found leaf index %u [%s], rc = %i",
                i, DKEY(&nodekey), rc));
            if (rc == 0)
                break;
            if (rc > 0)
                low = i + 1;
            else
                high = i - 1;
        }
    } else {
        while (low <= high) {
            i = (low + high) >> 1;

            node = NODEPTR(mp, i);
            g_expensive(node);
            nodekey.mv_size = NODEKSZ(node);
            nodekey.mv_data = NODEKEY(node);

            rc = cmp(key, &nodekey);
#if MDB_DEBUG
            if (IS_LEAF(mp))
                DPRINTF(("found leaf index %u [%s], rc = %i",
                    i, DKEY(&nodekey), rc));
            else
                DPRINTF(("found branch index %u [%s -> %"Z"u], rc = %i",
                    i, DKEY(&nodekey), NODEPGNO(node), rc));
#endif
            if (rc == 0)
                break;
            if (rc > 0)
                low = i + 1;
            else
                high = i - 1;
        }
    }

    if (rc > 0) {   /* Found entry is less than the key. */
        i++;    /* Skip to get the smallest entry larger than key. */
        if (!IS_LEAF2(mp))
            node = NODEPTR(mp, i);
    }
    if (exactp)
        *exactp = (rc == 0 && nkeys > 0);
    /* store the key index */
    mc->mc_ki[mc->mc_top] = i;
    if (i >= nkeys)
        /* There is no entry larger or equal to the key. */
        return NULL;

    /* nodeptr is fake for LEAF2 */
    return node;
}

static int
mdb_page_search_root(MDB_cursor *mc, MDB_val *key, int flags)
{
    MDB_page    *mp = mc->mc_pg[mc->mc_top];
    int rc;
    DKBUF;

    while (IS_BRANCH(mp)) {
        MDB_node    *node;
        indx_t      i;

        DPRINTF(("branch page %"Z"u has %u keys", mp->mp_pgno, NUMKEYS(mp)));
        /* Don't assert on branch pages in the FreeDB. We can get here
         * while in the process of rebalancing a FreeDB branch page; we must
         * let that proceed. ITS#8336
         */
        mdb_cassert(mc, !mc->mc_dbi || NUMKEYS(mp) > 1);
        DPRINTF(("found index 0 to page %"Z"u", NODEPGNO(NODEPTR(mp, 0))));

            int  exact;
            node = mdb_node_search(mc, key, &exact);
            if (node == NULL)
                i = NUMKEYS(mp) - 1;
            else {
                i = mc->mc_ki[mc->mc_top];
                if (!exact) {
                    mdb_cassert(mc, i > 0);
                    i--;
                }
            }
            DPRINTF(("following index %u for key [%s]", i, DKEY(key)));

        mdb_cassert(mc, i < NUMKEYS(mp));
        node = NODEPTR(mp, i);

        if ((rc = mdb_page_get(mc, NODEPGNO(node), &mp, NULL)) != 0)
            return rc;

        mc->mc_ki[mc->mc_top] = i;
        if ((rc = mdb_cursor_push(mc, mp)))
            return rc;
    }

    if (!IS_LEAF(mp)) {
        DPRINTF(("internal error, index points to a %02X page!?",
            mp->mp_flags));
        mc->mc_txn->mt_flags |= MDB_TXN_ERROR;
        return MDB_CORRUPTED;
    }

    DPRINTF(("found leaf page %"Z"u for key [%s]", mp->mp_pgno,
        key ? DKEY(key) : "null"));
    mc->mc_flags |= C_INITIALIZED;
    mc->mc_flags &= ~C_EOF;

    return MDB_SUCCESS;
}

static MDB_db numbers;
static MDB_txn own;
static pgno_t root;
static void add(pgno_t page, size_t key, uint64_t value)
{
    MDB_page *mp = (MDB_page *)(map + page * PAGE_BYTES);
    MDB_node *node;
    mp->mp_upper = (indx_t)(mp->mp_upper - 24);
    mp->mp_ptrs[NUMKEYS(mp)] = mp->mp_upper;
    mp->mp_lower = (indx_t)(mp->mp_lower + sizeof(indx_t));
    node = (MDB_node *)((char *)mp + mp->mp_upper);
    node->mn_ksize = sizeof key;
    memcpy(node->mn_data, &key, sizeof key);
    if (IS_BRANCH(mp)) {
        node->mn_lo = (unsigned short)value;
        node->mn_hi = (unsigned short)(value >> 16);
        node->mn_flags = (unsigned short)(value >> 32);
    } else {
        memcpy(NODEDATA(node), &value, sizeof value);
    }
}
static int by_key(const void *one, const void *two)
{
    const size_t a = *(const size_t *)one, b = *(const size_t *)two;
    return (a > b) - (a < b);
}
static void lmdb_search_build(void)
{
    enum { FILL = 100 };
    size_t *sorted = take(entries * sizeof *sorted), count = entries;
    pgno_t *children = take(entries * sizeof *children), pages = 0;
    for (uint32_t entry = 0; entry < entries; entry++) {
        sorted[entry] = key_of(entry);
    }
    qsort(sorted, entries, sizeof *sorted, by_key);
    map = take((entries / FILL * 2 + 16ull) * PAGE_BYTES);
    for (uint16_t flags = P_LEAF; flags == P_LEAF || count > 1; flags = P_BRANCH) {
        size_t above = 0;
        for (size_t first = 0; first < count; first += FILL, pages++) {
            MDB_page *mp = (MDB_page *)(map + pages * PAGE_BYTES);
            mp->mp_flags = flags;
            mp->mp_lower = (indx_t)PAGEHDRSZ;
            mp->mp_upper = PAGE_BYTES;
            const size_t key = sorted[first];
            for (size_t i = first; i < count && i < first + FILL; i++) {
                add(pages, sorted[i], flags == P_LEAF ? sorted[i] * 3u + 1u : children[i]);
            }
            sorted[above] = key;
            children[above++] = pages;
        }
        count = above;
    }
    root = pages - 1;
}
static uint64_t lmdb_search(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        size_t number = keys[i];
        MDB_val key = {sizeof number, &number};
        MDB_cursor cursor = {.mc_txn = &own, .mc_db = &numbers};
        int exact = 0;
        mdb_cursor_push(&cursor, (MDB_page *)(map + root * PAGE_BYTES));
        answers[i] = UINT64_MAX;
        if (mdb_page_search_root(&cursor, &key, 0) == MDB_SUCCESS) {
            const MDB_node *node = mdb_node_search(&cursor, &key, &exact);
            if (exact) {
                memcpy(&answers[i], NODEDATA(node), sizeof answers[i]);
            }
        }
    }
    return 0;
}

MAIN(LOOKUP(lmdb_search))
