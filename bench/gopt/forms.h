/* What the bench `gopt` can run. */
#ifndef GODWIT_BENCH_GOPT_FORMS_H
#define GODWIT_BENCH_GOPT_FORMS_H

#include "table.h"

/* bench/src/subject/loops.rs has the same numbers. */
enum bench_form {
    BENCH_PLAIN = 0,
    BENCH_HAND = 1,
    BENCH_GENERATED = 2,
};

/* Looks `count` queries up. */
typedef void bench_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);

/* NULL where there is no form with a group of this size. */
bench_lookup *bench_form(uint32_t kind, uint32_t form, uint32_t group);

#endif
