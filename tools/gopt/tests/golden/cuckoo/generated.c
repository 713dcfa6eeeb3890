/* A 2-8 cuckoo hash table (MemC3's words): a key has two buckets of eight entries. */
#include "cuckoo.h"

void find(const bucket_t *table, const uint32_t *keys, uint32_t *values, int n);

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
void find(const bucket_t *table, const uint32_t *keys, uint32_t *values, int n)
{
    {
        const unsigned gopt_asked = (GOPT_GROUP);
        const unsigned gopt_group = gopt_asked < (GOPT_GROUP_MAX) ? gopt_asked : (GOPT_GROUP_MAX);
        if (gopt_group <= 1) {
            for (int i = 0; i < ( n ); i++) {
        const uint32_t key = keys[i];
        uint32_t value = NOT_FOUND;
        for (int way = 0; way < 2; way++) {
            const bucket_t *bucket = &table[place(key, way)];
            g_expensive(bucket);
            int slot = 0;
            while (slot < SLOTS && bucket->entries[slot].key != key) {
                slot++;
            }
            if (slot < SLOTS) {
                value = bucket->entries[slot].value;
                break;
            }
        }
        values[i] = value;
    }
        } else {
            struct gopt_state {
                struct gopt_state *gopt_next;
                void *gopt_label;
                int i;
                uint32_t key;
                uint32_t value;
                int way;
                const bucket_t *bucket;
            } gopt_states[GOPT_GROUP_MAX];
            struct gopt_state *gopt_s = gopt_states;
            struct gopt_state *gopt_previous = &gopt_states[gopt_group - 1];
            for (unsigned gopt_i = 0; gopt_i < gopt_group; gopt_i++) {
                gopt_states[gopt_i].gopt_next = &gopt_states[gopt_i + 1 < gopt_group ? gopt_i + 1 : 0];
                gopt_states[gopt_i].gopt_label = &&gopt_begin;
            }
            int i = 0;
        gopt_begin:
            while (i < ( n )) {
                gopt_s->i = i;
                i++;
                {
        gopt_s->key = keys[gopt_s->i];
        gopt_s->value = NOT_FOUND;
        for (gopt_s->way = 0; gopt_s->way < 2; gopt_s->way++) {
            gopt_s->bucket = &table[place(gopt_s->key, gopt_s->way)];
            { GOPT_PREFETCH(gopt_s->bucket); GOPT_SWITCH(gopt_at_1); }
            int slot = 0;
            while (slot < SLOTS && gopt_s->bucket->entries[slot].key != gopt_s->key) {
                slot++;
            }
            if (slot < SLOTS) {
                gopt_s->value = gopt_s->bucket->entries[slot].value;
                break;
            }
        }
        values[gopt_s->i] = gopt_s->value;
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
