/* Dependent reads with arithmetic after each, as one writes it. gopt makes the forms that hide latency from this file. */
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
            const uint32_t place = value & mask;
            g_expensive(&entries[place]);
            value = bench_work(value ^ entries[place], dial);
        }
        answers[i] = value;
    }
}
