/*
 * Lookups of uthash 2.3.0: src/uthash.h.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
Copyright (c) 2003-2021, Troy D. Hanson     http://troydhanson.github.com/uthash/
All rights reserved.

Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are met:

    * Redistributions of source code must retain the above copyright
      notice, this list of conditions and the following disclaimer.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS
IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED
TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A
PARTICULAR PURPOSE ARE DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT OWNER
OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL,
EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO,
PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR
PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF
LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING
NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
*/
#include "public.h"

#include <stddef.h>

#define DECLTYPE(x) (__typeof(x))
#define DECLTYPE_ASSIGN(dst,src) \
do { \
  (dst) = DECLTYPE(dst)(src); \
} while (0)
#define HASH_FUNCTION(keyptr,keylen,hashv) (hashv) = (unsigned)scramble(*(const uint32_t *)(keyptr))
#define HASH_KEYCMP(a,b,n) memcmp(a,b,n)
#define HASH_BLOOM_TEST(tbl,hashv) (1)
#define ELMT_FROM_HH(tbl,hhp) ((void*)(((char*)(hhp)) - ((tbl)->hho)))
#define HASH_VALUE(keyptr,keylen,hashv) \
do { \
  HASH_FUNCTION(keyptr, keylen, hashv); \
} while (0)
#define HASH_TO_BKT(hashv,num_bkts,bkt) \
do { \
  bkt = ((hashv) & ((num_bkts) - 1U)); \
} while (0)
#define HASH_FIND_BYHASHVALUE(hh,head,keyptr,keylen,hashval,out) \
do { \
  (out) = NULL; \
  if (head) { \
    unsigned _hf_bkt; \
    HASH_TO_BKT(hashval, (head)->hh.tbl->num_buckets, _hf_bkt); \
    if (HASH_BLOOM_TEST((head)->hh.tbl, hashval) != 0) { \
      HASH_FIND_IN_BKT((head)->hh.tbl, hh, (head)->hh.tbl->buckets[ _hf_bkt ], keyptr, keylen, hashval, out); \
    } \
  } \
} while (0)
#define HASH_FIND(hh,head,keyptr,keylen,out) \
do { \
  (out) = NULL; \
  if (head) { \
    unsigned _hf_hashv; \
    HASH_VALUE(keyptr, keylen, _hf_hashv); \
    HASH_FIND_BYHASHVALUE(hh, head, keyptr, keylen, _hf_hashv, out); \
  } \
} while (0)
#define HASH_FIND_IN_BKT(tbl,hh,head,keyptr,keylen_in,hashval,out) \
do { \
  if ((head).hh_head != NULL) { \
    DECLTYPE_ASSIGN(out, ELMT_FROM_HH(tbl, (head).hh_head)); \
  } else { \
    (out) = NULL; \
  } \
  while ((out) != NULL) { \
    g_expensive(out); \
    if ((out)->hh.hashv == (hashval) && (out)->hh.keylen == (keylen_in)) { \
      if (HASH_KEYCMP((out)->hh.key, keyptr, keylen_in) == 0) { \
        break; \
      } \
    } \
    if ((out)->hh.hh_next != NULL) { \
      DECLTYPE_ASSIGN(out, ELMT_FROM_HH(tbl, (out)->hh.hh_next)); \
    } else { \
      (out) = NULL; \
    } \
  } \
} while (0)
#define HASH_FIND_INT(head,findint,out) \
    HASH_FIND(hh,head,findint,sizeof(int),out)
typedef struct UT_hash_bucket {
   struct UT_hash_handle *hh_head;
   unsigned count;
   unsigned expand_mult;
} UT_hash_bucket;
typedef struct UT_hash_table {
   UT_hash_bucket *buckets;
   unsigned num_buckets, log2_num_buckets;
   unsigned num_items;
   struct UT_hash_handle *tail;
   ptrdiff_t hho;
   unsigned ideal_chain_maxlen;
   unsigned nonideal_items;
   unsigned ineff_expands, noexpand;
   uint32_t signature;
} UT_hash_table;
typedef struct UT_hash_handle {
   struct UT_hash_table *tbl;
   void *prev;
   void *next;
   struct UT_hash_handle *hh_prev;
   struct UT_hash_handle *hh_next;
   const void *key;
   unsigned keylen;
   unsigned hashv;
} UT_hash_handle;

struct user {
    int id;
    uint64_t value;
    UT_hash_handle hh;
};
static struct user *users;
static void uthash_find_build(void)
{
    UT_hash_table *tbl = take(sizeof *tbl);
    tbl->num_buckets = power_of_two(entries);
    tbl->buckets = take(tbl->num_buckets * sizeof *tbl->buckets);
    tbl->hho = offsetof(struct user, hh);
    for (uint32_t entry = 0; entry < entries; entry++) {
        struct user *one = take(sizeof *one);
        const uint32_t key = key_of(entry);
        one->id = (int)key;
        one->value = entry;
        one->hh.tbl = tbl;
        one->hh.key = &one->id;
        one->hh.keylen = sizeof one->id;
        HASH_FUNCTION(&key, sizeof key, one->hh.hashv);
        unsigned bucket;
        HASH_TO_BKT(one->hh.hashv, tbl->num_buckets, bucket);
        one->hh.hh_next = tbl->buckets[bucket].hh_head;
        tbl->buckets[bucket].hh_head = &one->hh;
        users = users ? users : one;
    }
}
static uint64_t uthash_find(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        struct user *found;
        HASH_FIND_INT(users, &keys[i], found);
        answers[i] = found ? found->value : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(uthash_find))
