/*
 * Lookup `dial`: dependent reads, each followed by arithmetic. This plain loop does not hide
 * latency. gopt transforms it into the form that does.
 */
#include "plain.h"
#include "table.h"

void dial_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);

void dial_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint32_t *starts = (const uint32_t *)queries;
    const uint32_t depth = table->depth;
    const uint32_t dial = table->dial;
    const uint32_t mask = table->mask;
    foreach(i, count) {
        uint32_t value = starts[i];
        uint32_t read;
        for (read = 0; read < depth; read++) {
            const uint32_t index = value & mask;
            g_expensive(&entries[index]);
            value = bench_work(value ^ entries[index], dial);
        }
        answers[i] = value;
    }
}
