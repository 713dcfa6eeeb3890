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
                struct gopt_state *gopt_next;
                void *gopt_label;
                int i;
                const name_t *name;
                uint32_t tags[COMPONENTS_MAX];
                found_t found;
                int components;
                int components_1;
                uint32_t tag_1;
                uint32_t step_1;
                const entry_t *entry_1;
                const name_t *known_1;
                const uint32_t *face_1;
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
        gopt_s->name = &names[gopt_s->i];
        __builtin_memcpy(gopt_s->tags, (__typeof__(gopt_s->tags)){0}, sizeof(gopt_s->tags));
        gopt_s->found = (__typeof__(gopt_s->found)){NO_FACE, 0};
        hashes(gopt_s->name, gopt_s->tags);
        for (gopt_s->components = gopt_s->name->components; gopt_s->components > 0; gopt_s->components--) {
            { int gopt_t1; { /* probe */
gopt_s->components_1 = gopt_s->components;
gopt_s->tag_1 = gopt_s->tags[gopt_s->components - 1];
{
    for (gopt_s->step_1 = 0; gopt_s->step_1 < PROBES; gopt_s->step_1++) {
        gopt_s->entry_1 = &fib->entries[(gopt_s->tag_1 + gopt_s->step_1) % ENTRIES];
        if (gopt_s->step_1 == 0) {
            { GOPT_PREFETCH(gopt_s->entry_1); GOPT_SWITCH(gopt_at_1); }
        }
        if (gopt_s->entry_1->tag == 0) {
            break;
        }
        if (gopt_s->entry_1->tag != gopt_s->tag_1) {
            continue;
        }
        gopt_s->known_1 = &fib->names[gopt_s->entry_1->name];
        gopt_s->face_1 = &fib->faces[gopt_s->entry_1->name];
        { GOPT_PREFETCH(gopt_s->known_1); GOPT_PREFETCH(gopt_s->face_1); GOPT_SWITCH(gopt_at_2); }
        if (same(gopt_s->known_1, gopt_s->name, gopt_s->components_1)) {
            (&gopt_s->found)->face = *gopt_s->face_1;
            { gopt_t1 = 1; goto gopt_end_1; }
        }
        (&gopt_s->found)->collisions++;
    }
    { gopt_t1 = 0; }
}
gopt_end_1:;
} if (gopt_t1) {
                break;
            } }
        }
        faces[gopt_s->i] = gopt_s->found.face;
        all += gopt_s->found.collisions;
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
    *collisions = all;
}
