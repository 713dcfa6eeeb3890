/* The longest prefix of an IPv6 address in a trie of 8 bits a level. */
#include "ipv6.h"

void route(const table_t *table, const address_t *addresses, uint32_t *hops, int n);

/* The next hop of an address. */
static uint32_t lookup(const table_t *table, const address_t *address)
{
    const uint32_t place = (uint32_t)(address->bytes[0] << 8 | address->bytes[1]) >> (16 - FIRST_BITS);
    g_expensive(&table->first[place]);
    uint32_t entry = table->first[place];
    for (int depth = 2; depth < 16; depth++) {
        if (!(entry & EXTENDED)) {
            return entry;
        }
        const uint32_t *group = table->groups[entry & ~EXTENDED];
        g_expensive(&group[address->bytes[depth]]);
        entry = group[address->bytes[depth]];
    }
    return NO_ROUTE;
}

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
void route(const table_t *table, const address_t *addresses, uint32_t *hops, int n)
{
    {
        const unsigned gopt_asked = (GOPT_GROUP);
        const unsigned gopt_group = gopt_asked < (GOPT_GROUP_MAX) ? gopt_asked : (GOPT_GROUP_MAX);
        if (gopt_group <= 1) {
            for (int i = 0; i < n; i++) {
        if (addresses[i].bytes[0] == 0xff) { /* a group has no next hop */
            hops[i] = NO_ROUTE;
            continue;
        }
        hops[i] = lookup(table, &addresses[i]);
    }
        } else {
            struct gopt_state {
                struct gopt_state *gopt_next;
                void *gopt_label;
                int i;
                const address_t *address_1;
                uint32_t place_1;
                uint32_t entry_1;
                int depth_1;
                const uint32_t *group_1;
            } gopt_states[GOPT_GROUP_MAX];
            struct gopt_state *gopt_s = gopt_states;
            struct gopt_state *gopt_previous = &gopt_states[gopt_group - 1];
            for (unsigned gopt_i = 0; gopt_i < gopt_group; gopt_i++) {
                gopt_states[gopt_i].gopt_next = &gopt_states[gopt_i + 1 < gopt_group ? gopt_i + 1 : 0];
                gopt_states[gopt_i].gopt_label = &&gopt_begin;
            }
            int i = 0;
        gopt_begin:
            while (i < n) {
                gopt_s->i = i;
                i++;
                {
        if (addresses[gopt_s->i].bytes[0] == 0xff) { /* a group has no next hop */
            hops[gopt_s->i] = NO_ROUTE;
            goto gopt_done;
        }
        { uint32_t gopt_t1; { /* lookup */
gopt_s->address_1 = &addresses[gopt_s->i];
{
    gopt_s->place_1 = (uint32_t)(gopt_s->address_1->bytes[0] << 8 | gopt_s->address_1->bytes[1]) >> (16 - FIRST_BITS);
    { GOPT_PREFETCH(&table->first[gopt_s->place_1]); GOPT_SWITCH(gopt_at_1); }
    gopt_s->entry_1 = table->first[gopt_s->place_1];
    for (gopt_s->depth_1 = 2; gopt_s->depth_1 < 16; gopt_s->depth_1++) {
        if (!(gopt_s->entry_1 & EXTENDED)) {
            { gopt_t1 = gopt_s->entry_1; goto gopt_end_1; }
        }
        gopt_s->group_1 = table->groups[gopt_s->entry_1 & ~EXTENDED];
        { GOPT_PREFETCH(&gopt_s->group_1[gopt_s->address_1->bytes[gopt_s->depth_1]]); GOPT_SWITCH(gopt_at_2); }
        gopt_s->entry_1 = gopt_s->group_1[gopt_s->address_1->bytes[gopt_s->depth_1]];
    }
    { gopt_t1 = NO_ROUTE; }
}
gopt_end_1:;
} hops[gopt_s->i] = gopt_t1; }
    }
            gopt_done:;
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
