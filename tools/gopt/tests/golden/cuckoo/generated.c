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
            struct gopt_saved_1 {
                int i_0;
                uint32_t key_0;
                uint32_t value_0;
                int way_0;
                const bucket_t *bucket_0;
            } gopt_queue_1[GOPT_GROUP_MAX], *gopt_last_1 = gopt_queue_1;
            int i_0 = {0};
            uint32_t key_0 = {0};
            uint32_t value_0 = {0};
            int way_0 = {0};
            const bucket_t *bucket_0 = {0};
            unsigned gopt_begins = gopt_group - 1; /* look-ups fewer than there may be */
            const void *gopt_first = 0, *gopt_end = 0; /* of the queue whose turn it is */
            int i = 0;
#define GOPT_NEXT do { if (gopt_first != gopt_end) { goto gopt_at_1; } goto gopt_turn; } while (0)
        gopt_begin:
            while (i < ( n )) {
                i_0 = i;
                i++;
                {
        key_0 = keys[i_0];
        value_0 = NOT_FOUND;
        for (way_0 = 0; way_0 < 2; way_0++) {
            bucket_0 = &table[place(key_0, way_0)];
            { GOPT_PREFETCH(bucket_0); gopt_last_1->i_0 = i_0; gopt_last_1->key_0 = key_0; gopt_last_1->value_0 = value_0; gopt_last_1->way_0 = way_0; gopt_last_1->bucket_0 = bucket_0; gopt_last_1++; GOPT_NEXT; gopt_at_1:; { const struct gopt_saved_1 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; key_0 = gopt_now->key_0; value_0 = gopt_now->value_0; way_0 = gopt_now->way_0; bucket_0 = gopt_now->bucket_0; } }
            int slot = 0;
            while (slot < SLOTS && bucket_0->entries[slot].key != key_0) {
                slot++;
            }
            if (slot < SLOTS) {
                value_0 = bucket_0->entries[slot].value;
                break;
            }
        }
        values[i_0] = value_0;
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
