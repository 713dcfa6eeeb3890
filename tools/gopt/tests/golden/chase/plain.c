/* Pointer chasing (G-Opt, section 2.5): each lookup follows a chain of D random entries. */
#include "chase.h"

void chase(const uint32_t *entries, uint32_t *heads, int n);

void chase(const uint32_t *entries, uint32_t *heads, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        uint32_t index = heads[i];
        for (int step = 0; step < D; step++) {
            g_expensive(&entries[index]);
            index = entries[index];
        }
        heads[i] = index;
    }
}
