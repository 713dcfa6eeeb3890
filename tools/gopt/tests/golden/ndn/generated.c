/* The longest prefix of a name that a hash table has: from all its components down to one. */
#include "ndn.h"

void forward(const fib_t *fib, const name_t *names, uint32_t *faces, uint32_t *collisions, int n);

typedef struct found {
    uint32_t face;
    uint32_t collisions;
} found_t;

/* The entry of a prefix; what only looks like it is counted. */
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
void forward(const fib_t *fib, const name_t *names, uint32_t *faces, uint32_t *collisions, int n)
{
    uint32_t all = 0;
    {
        const unsigned gopt_asked = (GOPT_GROUP);
        const unsigned gopt_group = gopt_asked < (GOPT_GROUP_MAX) ? gopt_asked : (GOPT_GROUP_MAX);
        if (gopt_group <= 1) {
            for (int i = 0; i < ( n ); i++) {
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
        } else {
            struct gopt_state {
                uint32_t tags[COMPONENTS_MAX];
            } gopt_states[GOPT_GROUP_MAX], *gopt_s = gopt_states;
            struct gopt_saved_1 {
                int i_0;
                const name_t *name_0;
                found_t found_0;
                int components_0;
                int components_1;
                uint32_t tag_1;
                uint32_t step_1;
                const entry_t *entry_1;
                struct gopt_state *gopt_s;
            } gopt_queue_1[GOPT_GROUP_MAX], *gopt_last_1 = gopt_queue_1;
            struct gopt_saved_2 {
                int i_0;
                const name_t *name_0;
                found_t found_0;
                int components_0;
                int components_1;
                uint32_t tag_1;
                uint32_t step_1;
                const name_t *known_1;
                const uint32_t *face_1;
                struct gopt_state *gopt_s;
            } gopt_queue_2[GOPT_GROUP_MAX], *gopt_last_2 = gopt_queue_2;
            int i_0 = {0};
            const name_t *name_0 = {0};
            found_t found_0 = {0};
            int components_0 = {0};
            int components_1 = {0};
            uint32_t tag_1 = {0};
            uint32_t step_1 = {0};
            const entry_t *entry_1 = {0};
            const name_t *known_1 = {0};
            const uint32_t *face_1 = {0};
            unsigned gopt_begins = gopt_group - 1; /* look-ups fewer than there may be */
            const void *gopt_first = 0, *gopt_end = 0; /* of the queue whose turn it is */
            void *gopt_label = 0;
            unsigned gopt_queue = 0;
            int i = 0;
#define GOPT_NEXT do { if (gopt_first != gopt_end) { goto *gopt_label; } goto gopt_turn; } while (0)
        gopt_begin:
            while (i < ( n )) {
                i_0 = i;
                i++;
                {
        name_0 = &names[i_0];
        __builtin_memcpy(gopt_s->tags, (__typeof__(gopt_s->tags)){0}, sizeof(gopt_s->tags));
        found_0 = (__typeof__(found_0)){NO_FACE, 0};
        hashes(name_0, gopt_s->tags);
        for (components_0 = name_0->components; components_0 > 0; components_0--) {
            { int gopt_t1; { /* probe */
components_1 = components_0;
tag_1 = gopt_s->tags[components_0 - 1];
{
    for (step_1 = 0; step_1 < PROBES; step_1++) {
        entry_1 = &fib->entries[(tag_1 + step_1) % ENTRIES];
        if (step_1 == 0) {
            { GOPT_PREFETCH(entry_1); gopt_last_1->i_0 = i_0; gopt_last_1->name_0 = name_0; gopt_last_1->found_0 = found_0; gopt_last_1->components_0 = components_0; gopt_last_1->components_1 = components_1; gopt_last_1->tag_1 = tag_1; gopt_last_1->step_1 = step_1; gopt_last_1->entry_1 = entry_1; gopt_last_1->gopt_s = gopt_s; gopt_last_1++; GOPT_NEXT; gopt_at_1:; { const struct gopt_saved_1 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; name_0 = gopt_now->name_0; found_0 = gopt_now->found_0; components_0 = gopt_now->components_0; components_1 = gopt_now->components_1; tag_1 = gopt_now->tag_1; step_1 = gopt_now->step_1; entry_1 = gopt_now->entry_1; gopt_s = gopt_now->gopt_s; } }
        }
        if (entry_1->tag == 0) {
            break;
        }
        if (entry_1->tag != tag_1) {
            continue;
        }
        known_1 = &fib->names[entry_1->name];
        face_1 = &fib->faces[entry_1->name];
        { GOPT_PREFETCH(known_1); GOPT_PREFETCH(face_1); gopt_last_2->i_0 = i_0; gopt_last_2->name_0 = name_0; gopt_last_2->found_0 = found_0; gopt_last_2->components_0 = components_0; gopt_last_2->components_1 = components_1; gopt_last_2->tag_1 = tag_1; gopt_last_2->step_1 = step_1; gopt_last_2->known_1 = known_1; gopt_last_2->face_1 = face_1; gopt_last_2->gopt_s = gopt_s; gopt_last_2++; GOPT_NEXT; gopt_at_2:; { const struct gopt_saved_2 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; name_0 = gopt_now->name_0; found_0 = gopt_now->found_0; components_0 = gopt_now->components_0; components_1 = gopt_now->components_1; tag_1 = gopt_now->tag_1; step_1 = gopt_now->step_1; known_1 = gopt_now->known_1; face_1 = gopt_now->face_1; gopt_s = gopt_now->gopt_s; } }
        if (same(known_1, name_0, components_1)) {
            (&found_0)->face = *face_1;
            { gopt_t1 = 1; goto gopt_end_1; }
        }
        (&found_0)->collisions++;
    }
    { gopt_t1 = 0; }
}
gopt_end_1:;
} if (gopt_t1) {
                break;
            } }
        }
        faces[i_0] = found_0.face;
        all += found_0.collisions;
    }
            }
            GOPT_NEXT;
#undef GOPT_NEXT
        gopt_turn:
            if (gopt_begins != 0) {
                gopt_s = &gopt_states[gopt_begins];
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
    *collisions = all;
}
