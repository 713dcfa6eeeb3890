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
            struct gopt_saved_1 {
                int i_0;
                const address_t *address_1;
                uint32_t place_1;
            } gopt_queue_1[GOPT_GROUP_MAX], *gopt_last_1 = gopt_queue_1;
            struct gopt_saved_2 {
                int i_0;
                const address_t *address_1;
                uint32_t entry_1;
                int depth_1;
                const uint32_t *group_1;
            } gopt_queue_2[GOPT_GROUP_MAX], *gopt_last_2 = gopt_queue_2;
            int i_0 = {0};
            const address_t *address_1 = {0};
            uint32_t place_1 = {0};
            uint32_t entry_1 = {0};
            int depth_1 = {0};
            const uint32_t *group_1 = {0};
            unsigned gopt_begins = gopt_group - 1; /* look-ups fewer than there may be */
            const void *gopt_first = 0, *gopt_end = 0; /* of the queue whose turn it is */
            void *gopt_label = 0;
            unsigned gopt_queue = 0;
            int i = 0;
#define GOPT_NEXT do { if (gopt_first != gopt_end) { goto *gopt_label; } goto gopt_turn; } while (0)
        gopt_begin:
            while (i < n) {
                i_0 = i;
                i++;
                {
        if (addresses[i_0].bytes[0] == 0xff) { /* a group has no next hop */
            hops[i_0] = NO_ROUTE;
            goto gopt_done;
        }
        { uint32_t gopt_t1; { /* lookup */
address_1 = &addresses[i_0];
{
    place_1 = (uint32_t)(address_1->bytes[0] << 8 | address_1->bytes[1]) >> (16 - FIRST_BITS);
    { GOPT_PREFETCH(&table->first[place_1]); gopt_last_1->i_0 = i_0; gopt_last_1->address_1 = address_1; gopt_last_1->place_1 = place_1; gopt_last_1++; GOPT_NEXT; gopt_at_1:; { const struct gopt_saved_1 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; address_1 = gopt_now->address_1; place_1 = gopt_now->place_1; } }
    entry_1 = table->first[place_1];
    for (depth_1 = 2; depth_1 < 16; depth_1++) {
        if (!(entry_1 & EXTENDED)) {
            { gopt_t1 = entry_1; goto gopt_end_1; }
        }
        group_1 = table->groups[entry_1 & ~EXTENDED];
        { GOPT_PREFETCH(&group_1[address_1->bytes[depth_1]]); gopt_last_2->i_0 = i_0; gopt_last_2->address_1 = address_1; gopt_last_2->entry_1 = entry_1; gopt_last_2->depth_1 = depth_1; gopt_last_2->group_1 = group_1; gopt_last_2++; GOPT_NEXT; gopt_at_2:; { const struct gopt_saved_2 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; address_1 = gopt_now->address_1; entry_1 = gopt_now->entry_1; depth_1 = gopt_now->depth_1; group_1 = gopt_now->group_1; } }
        entry_1 = group_1[address_1->bytes[depth_1]];
    }
    { gopt_t1 = NO_ROUTE; }
}
gopt_end_1:;
} hops[i_0] = gopt_t1; }
    }
            gopt_done:;
            }
            GOPT_NEXT;
#undef GOPT_NEXT
        gopt_turn:
            if (gopt_begins != 0) {
                gopt_begins--;
                goto gopt_begin;
            }
            switch (gopt_queue) {
            case 0:
                if (gopt_last_2 != gopt_queue_2) {
                    gopt_first = gopt_queue_2;
                    gopt_end = gopt_last_2;
                    gopt_last_2 = gopt_queue_2;
                    gopt_label = &&gopt_at_2;
                    gopt_queue = 2;
                    goto gopt_at_2;
                }
                /* fall through */
            case 2:
                if (gopt_last_1 != gopt_queue_1) {
                    gopt_first = gopt_queue_1;
                    gopt_end = gopt_last_1;
                    gopt_last_1 = gopt_queue_1;
                    gopt_label = &&gopt_at_1;
                    gopt_queue = 1;
                    goto gopt_at_1;
                }
                /* fall through */
            default:
                break;
            }
            if (gopt_queue != 0) {
                gopt_queue = 0;
                goto gopt_turn;
            }
        }
    }
}
