/* Forms of the lookups that the benchmark `gopt` measures. */
#ifndef GODWIT_BENCH_GOPT_FORMS_H
#define GODWIT_BENCH_GOPT_FORMS_H

#include "table.h"

/* Forms of a lookup. bench/src/subject/loops.rs declares the same numbers. */
enum bench_form {
    BENCH_PLAIN = 0,     /* plain loop */
    BENCH_HAND = 1,      /* latency hidden by hand, hand.c */
    BENCH_GENERATED = 2, /* latency hidden by gopt */
};

/* Looks up `count` queries and writes one answer per query. */
typedef void bench_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);

/* Returns a lookup function, or NULL if this kind has no such form or group size. */
bench_lookup *bench_form(uint32_t kind, uint32_t form, uint32_t group);

#endif
