/* Lookup functions of the benchmark `gopt`, by kind, form and group size. */
#include "forms.h"
#include "hand.h"

#define PLAIN(kind)                                                                                                    \
    void kind##_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);
PLAIN(cuckoo)
PLAIN(chase)
PLAIN(ipv6)
PLAIN(dial)

/* Functions that gopt generated from the plain loops. */
#define GENERATED(kind)                                                                                                \
    void kind##_generated(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);
GENERATED(cuckoo)
GENERATED(chase)
GENERATED(ipv6)
GENERATED(dial)

static bench_lookup *const generated[] = {cuckoo_generated, chase_generated, ipv6_generated, dial_generated};
static bench_lookup *const plain[] = {cuckoo_lookup, chase_lookup, ipv6_lookup, dial_lookup};

#define HAND_FORM(kind, group) {group, kind##_hand_##group},
typedef struct form {
    uint32_t group;
    bench_lookup *lookup;
} form;
static const form by_hand[][9] = {
    {BENCH_GROUPS(HAND_FORM, cuckoo)},
    {BENCH_GROUPS(HAND_FORM, chase)},
    {BENCH_GROUPS(HAND_FORM, ipv6)},
    {BENCH_GROUPS(HAND_FORM, dial)},
};

bench_lookup *bench_form(uint32_t kind, uint32_t form, uint32_t group)
{
    if (form == BENCH_PLAIN) {
        return plain[kind];
    }
    if (form == BENCH_HAND) {
        for (uint32_t i = 0; i < sizeof by_hand[kind] / sizeof *by_hand[kind]; i++) {
            if (by_hand[kind][i].group == group) {
                return by_hand[kind][i].lookup;
            }
        }
    }
    return form == BENCH_GENERATED ? generated[kind] : NULL;
}
