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
            struct gopt_saved_1 {
                int i_0;
                uint32_t place_0;
                int step_0;
            } gopt_queue_1[GOPT_GROUP_MAX], *gopt_last_1 = gopt_queue_1;
            int i_0 = {0};
            uint32_t place_0 = {0};
            int step_0 = {0};
            unsigned gopt_begins = gopt_group - 1; /* look-ups fewer than there may be */
            const void *gopt_first = 0, *gopt_end = 0; /* of the queue whose turn it is */
            i = 0;
#define GOPT_NEXT do { if (gopt_first != gopt_end) { goto gopt_at_1; } goto gopt_turn; } while (0)
        gopt_begin:
            while (i < n) {
                i_0 = i;
                i++;
                {
        place_0 = heads[i_0];
        for (step_0 = 0; step_0 < D; step_0++) {
            { GOPT_PREFETCH(&places[place_0]); gopt_last_1->i_0 = i_0; gopt_last_1->place_0 = place_0; gopt_last_1->step_0 = step_0; gopt_last_1++; GOPT_NEXT; gopt_at_1:; { const struct gopt_saved_1 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; place_0 = gopt_now->place_0; step_0 = gopt_now->step_0; } }
            place_0 = places[place_0];
        }
        heads[i_0] = place_0;
    }
            }
            GOPT_NEXT;
#undef GOPT_NEXT
        gopt_turn:
            if (gopt_begins != 0) {
                gopt_begins--;
                goto gopt_begin;
            }
            if (gopt_last_1 != gopt_queue_1) {
                gopt_first = gopt_queue_1;
                gopt_end = gopt_last_1;
                gopt_last_1 = gopt_queue_1;
                goto gopt_at_1;
            }
        }
    }
}
