/* Longest prefix match of names in a hash table, from all components down to one. */
#include "ndn.h"

void forward(const fib_t *fib, const name_t *names, uint32_t *faces, uint32_t *collisions, int n);

typedef struct found {
    uint32_t face;
    uint32_t collisions;
} found_t;

/* Looks up one prefix. Counts the entries with the same hash and another name. */
static int probe(const fib_t *fib, const name_t *name, int components, uint32_t tag, found_t *found)
{
    for (uint32_t step = 0; step < PROBES; step++) {
        const entry_t *entry = &fib->entries[(tag + step) % ENTRIES];
        if (step == 0) {
            g_expensive(entry);
        }
        if (entry->tag == 0) {
            break;
        }
        if (entry->tag != tag) {
            continue;
        }
        const name_t *known = &fib->names[entry->name];
        const uint32_t *face = &fib->faces[entry->name];
        g_expensive(known);
        g_expensive(face);
        if (same(known, name, components)) {
            found->face = *face;
            return 1;
        }
        found->collisions++;
    }
    return 0;
}

void forward(const fib_t *fib, const name_t *names, uint32_t *faces, uint32_t *collisions, int n)
{
    uint32_t all = 0;
    foreach (i, n) {
        const name_t *name = &names[i];
        uint32_t tags[COMPONENTS_MAX] = {0};
        found_t found = {NO_FACE, 0};
        hashes(name, tags);
        for (int components = name->components; components > 0; components--) {
            if (probe(fib, name, components, tags[components - 1], &found)) {
                break;
            }
        }
        faces[i] = found.face;
        all += found.collisions;
    }
    *collisions = all;
}
