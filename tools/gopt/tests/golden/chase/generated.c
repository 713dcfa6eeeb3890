/* Pointer chasing (section 2.5 of the paper): each look-up follows a chain of D random places. */
#include "chase.h"

void chase(const uint32_t *places, uint32_t *heads, int n);

/* Made by gopt: look-ups of a batch take turns while what they fetch is under way. */
#ifndef GOPT_GROUP
#define GOPT_GROUP 32 /* look-ups under way at a time; 1 switches the whole off */
#endif
#ifndef GOPT_GROUP_MAX
#define GOPT_GROUP_MAX 64 /* room for as many */
#endif
#ifndef GOPT_PREFETCH
#define GOPT_PREFETCH(address) __builtin_prefetch(address)
#endif
#ifndef GOPT_SWITCH
/* Saves where this look-up goes on, and goes on with the next one. */
#define GOPT_SWITCH(label)                \
    do {                                  \
        gopt_s->gopt_label = &&label;     \
        gopt_previous = gopt_s;           \
        gopt_s = gopt_s->gopt_next;       \
        goto *gopt_s->gopt_label;         \
    label:;                               \
    } while (0)
#endif
void chase(const uint32_t *places, uint32_t *heads, int n)
{
    int i;
    {
        const unsigned gopt_asked = (GOPT_GROUP);
        const unsigned gopt_group = gopt_asked < (GOPT_GROUP_MAX) ? gopt_asked : (GOPT_GROUP_MAX);
        if (gopt_group <= 1) {
            for (i = 0; i < n; i++) {
        uint32_t place = heads[i];
        for (int step = 0; step < D; step++) {
            g_expensive(&places[place]);
            place = places[place];
        }
        heads[i] = place;
    }
        } else {
            struct gopt_state {
                struct gopt_state *gopt_next;
                void *gopt_label;
                int i;
                uint32_t place;
                int step;
            } gopt_states[GOPT_GROUP_MAX];
            struct gopt_state *gopt_s = gopt_states;
            struct gopt_state *gopt_previous = &gopt_states[gopt_group - 1];
            for (unsigned gopt_i = 0; gopt_i < gopt_group; gopt_i++) {
                gopt_states[gopt_i].gopt_next = &gopt_states[gopt_i + 1 < gopt_group ? gopt_i + 1 : 0];
                gopt_states[gopt_i].gopt_label = &&gopt_begin;
            }
            i = 0;
        gopt_begin:
            while (i < n) {
                gopt_s->i = i;
                i++;
                {
        gopt_s->place = heads[gopt_s->i];
        for (gopt_s->step = 0; gopt_s->step < D; gopt_s->step++) {
            { GOPT_PREFETCH(&places[gopt_s->place]); GOPT_SWITCH(gopt_at_1); }
            gopt_s->place = places[gopt_s->place];
        }
        heads[gopt_s->i] = gopt_s->place;
    }
            }
            /* None is left to begin: one look-up fewer in the ring. */
            if (gopt_s != gopt_previous) {
                gopt_previous->gopt_next = gopt_s->gopt_next;
                gopt_s = gopt_s->gopt_next;
                goto *gopt_s->gopt_label;
            }
        }
    }
}
