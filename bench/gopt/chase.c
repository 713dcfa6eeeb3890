/* A chain of dependent reads, as one writes it. gopt makes the forms that hide latency from this file. */
#include "plain.h"
#include "table.h"

void chase_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);

void chase_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint32_t *starts = (const uint32_t *)queries;
    const uint32_t depth = table->depth;
    foreach(i, count) {
        uint32_t place = starts[i];
        uint32_t read;
        for (read = 0; read < depth; read++) {
            g_expensive(&entries[place]);
            place = entries[place];
        }
        answers[i] = place;
    }
}
