/* The lookup optimised by hand: prefetch the first entry of every prefix, then search. */
#include "ndn.h"

#define GROUP 16

void forward(const fib_t *fib, const name_t *names, uint32_t *faces, uint32_t *collisions, int n);

void forward(const fib_t *fib, const name_t *names, uint32_t *faces, uint32_t *collisions, int n)
{
    *collisions = 0;
    for (int first = 0; first < n; first += GROUP) {
        const int group = n - first < GROUP ? n - first : GROUP;
        uint32_t tags[GROUP][COMPONENTS_MAX];
        for (int i = 0; i < group; i++) {
            hashes(&names[first + i], tags[i]);
            for (int prefix = 0; prefix < names[first + i].components; prefix++) {
                __builtin_prefetch(&fib->entries[tags[i][prefix] % ENTRIES]);
            }
        }
        for (int i = 0; i < group; i++) {
            const name_t *name = &names[first + i];
            uint32_t face = NO_FACE;
            int done = 0;
            for (int components = name->components; components > 0 && !done; components--) {
                const uint32_t tag = tags[i][components - 1];
                for (uint32_t step = 0; step < PROBES && !done; step++) {
                    const entry_t *entry = &fib->entries[(tag + step) % ENTRIES];
                    if (entry->tag == 0) {
                        break;
                    }
                    if (entry->tag == tag && same(&fib->names[entry->name], name, components)) {
                        face = fib->faces[entry->name];
                        done = 1;
                    } else if (entry->tag == tag) {
                        (*collisions)++;
                    }
                }
            }
            faces[first + i] = face;
        }
    }
}
