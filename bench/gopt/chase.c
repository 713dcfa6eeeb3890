/*
 * Lookup `chase`: a chain of dependent reads. This plain loop does not hide latency. gopt
 * transforms it into the form that does.
 */
#include "plain.h"
#include "table.h"

void chase_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count);

void chase_lookup(const bench_table *table, const void *queries, uint32_t *answers, uint64_t count)
{
    const uint32_t *entries = (const uint32_t *)table->memory;
    const uint32_t *starts = (const uint32_t *)queries;
    const uint32_t depth = table->depth;
    foreach(i, count) {
        uint32_t index = starts[i];
        uint32_t read;
        for (read = 0; read < depth; read++) {
            g_expensive(&entries[index]);
            index = entries[index];
        }
        answers[i] = index;
    }
}
