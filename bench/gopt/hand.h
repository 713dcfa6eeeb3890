/* Lookups whose latency is hidden by hand: one function per kind and group size. */
#ifndef GODWIT_BENCH_GOPT_HAND_H
#define GODWIT_BENCH_GOPT_HAND_H

#include "table.h"

#define BENCH_GROUPS(X, kind)                                                                                           \
    X(kind, 1) X(kind, 2) X(kind, 4) X(kind, 8) X(kind, 12) X(kind, 16) X(kind, 24) X(kind, 32) X(kind, 64)

#define BENCH_DECLARE(kind, group)                                                                                      \
    void kind##_hand_##group(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);
BENCH_GROUPS(BENCH_DECLARE, cuckoo)
BENCH_GROUPS(BENCH_DECLARE, chase)
BENCH_GROUPS(BENCH_DECLARE, ipv6)
BENCH_GROUPS(BENCH_DECLARE, dial)

#endif
