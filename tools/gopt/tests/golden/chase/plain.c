/* Pointer chasing (section 2.5 of the paper): each look-up follows a chain of D random places. */
#include "chase.h"

void chase(const uint32_t *places, uint32_t *heads, int n);

void chase(const uint32_t *places, uint32_t *heads, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        uint32_t place = heads[i];
        for (int step = 0; step < D; step++) {
            g_expensive(&places[place]);
            place = places[place];
        }
        heads[i] = place;
    }
}
