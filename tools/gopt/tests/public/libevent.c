/*
 * Lookups of libevent 2.1.12: ht-internal.h.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/* Copyright 2005-2012 Nick Mathewson
 * Copyright 2009-2012 Niels Provos and Nick Mathewson */
/*
 * Copyright 2005, Nick Mathewson.  Implementation logic is adapted from code
 * by Christopher Clark, retrofit to allow drop-in memory management, and to
 * use the same interface as Niels Provos's tree.h.  This is probably still
 * a derived work, so the original license below still applies.
 *
 * Copyright (c) 2002, Christopher Clark
 * All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without
 * modification, are permitted provided that the following conditions
 * are met:
 *
 * * Redistributions of source code must retain the above copyright
 * notice, this list of conditions and the following disclaimer.
 *
 * * Redistributions in binary form must reproduce the above copyright
 * notice, this list of conditions and the following disclaimer in the
 * documentation and/or other materials provided with the distribution.
 *
 * * Neither the name of the original author; nor the names of any contributors
 * may be used to endorse or promote products derived from this software
 * without specific prior written permission.
 *
 *
 * THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS
 * "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT
 * LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR
 * A PARTICULAR PURPOSE ARE DISCLAIMED.  IN NO EVENT SHALL THE COPYRIGHT OWNER
 * OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL,
 * EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO,
 * PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE, DATA, OR
 * PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF
 * LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING
 * NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
 * SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
*/
#include "public.h"

#define HT_HEAD(name, type)                                             \
  struct name {                                                         \
    /* The hash table itself. */                                        \
    struct type **hth_table;                                            \
    /* How long is the hash table? */                                   \
    unsigned hth_table_length;                                          \
    /* How many elements does the table contain? */                     \
    unsigned hth_n_entries;                                             \
    /* How many elements will we allow in the table before resizing it? */ \
    unsigned hth_load_limit;                                            \
    /* Position of hth_table_length in the primes table. */             \
    int hth_prime_idx;                                                  \
  }

#define HT_ENTRY(type)                          \
  struct {                                      \
    struct type *hte_next;                      \
    unsigned hte_hash;                          \
  }
#define HT_SET_HASH_(elm, field, hashfn)        \
    do { (elm)->field.hte_hash = hashfn(elm); } while (0)
#define HT_ELT_HASH_(elm, field, hashfn)    \
    ((elm)->field.hte_hash)
#define HT_BUCKET_(head, field, elm, hashfn)                \
    ((head)->hth_table[HT_ELT_HASH_(elm,field,hashfn) % head->hth_table_length])

static inline unsigned
ht_improve_hash_(unsigned h)
{
  /* Aim to protect against poor hash functions by adding logic here
   * - logic taken from java 1.4 hashtable source */
  h += ~(h << 9);
  h ^=  ((h >> 14) | (h << 18)); /* >>> */
  h +=  (h << 4);
  h ^=  ((h >> 10) | (h << 22)); /* >>> */
  return h;
}

#define HT_FIND_FUNCTIONS(name, type, field, hashfn, eqfn) \
  static inline struct type **                                          \
  name##_HT_FIND_P_(struct name *head, struct type *elm)        \
  {                                                                     \
    struct type **p;                                                    \
    if (!head->hth_table)                                               \
      return NULL;                                                      \
    p = &HT_BUCKET_(head, field, elm, hashfn);                \
    g_expensive(p);        \
    while (*p) {        \
      g_expensive(*p);                                                        \
      if (eqfn(*p, elm))                                                \
        return p;                                                       \
      p = &(*p)->field.hte_next;                                        \
    }                                                                   \
    return p;                                                           \
  }                                                                     \
  /* Return a pointer to the element in the table 'head' matching 'elm', \
   * or NULL if no such element exists */                               \
  static inline struct type *                                           \
  name##_HT_FIND(const struct name *head, struct type *elm)             \
  {                                                                     \
    struct type **p;                                                    \
    struct name *h = (struct name *) head;                              \
    HT_SET_HASH_(elm, field, hashfn);                                   \
    p = name##_HT_FIND_P_(h, elm);                    \
    return p ? *p : NULL;                                               \
  }

struct flow {
    HT_ENTRY(flow) node;
    uint32_t key;
    uint64_t value;
};
HT_HEAD(flows, flow);
static unsigned hash_flow(const struct flow *flow)
{
    return ht_improve_hash_(flow->key);
}
static int equal_flows(const struct flow *one, const struct flow *two)
{
    return one->key == two->key;
}
HT_FIND_FUNCTIONS(flows, flow, node, hash_flow, equal_flows)
static struct flows own_flows;
static void libevent_ht_build(void)
{
    struct flows *head = &own_flows;
    own_flows.hth_table_length = entries | 1;
    own_flows.hth_table = take((entries | 1) * sizeof *own_flows.hth_table);
    for (uint32_t entry = 0; entry < entries; entry++) {
        struct flow *flow = take(sizeof *flow);
        flow->key = key_of(entry);
        flow->value = entry;
        HT_SET_HASH_(flow, node, hash_flow);
        struct flow **place = &HT_BUCKET_(head, node, flow, hash_flow);
        flow->node.hte_next = *place;
        *place = flow;
    }
}
static uint64_t libevent_ht(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        struct flow flow = {.key = keys[i]};
        const struct flow *found = flows_HT_FIND(&own_flows, &flow);
        answers[i] = found ? found->value : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(libevent_ht))
