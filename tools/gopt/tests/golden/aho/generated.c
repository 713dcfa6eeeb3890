/* Every pattern that ends in a payload, by an Aho-Corasick automaton; some payloads are left out, or end early. */
#include "aho.h"

void scan(const automaton_t *automaton, const payload_t *payloads, result_t *results, int n);

enum { SKIP = 0xfe, END = 0xff };

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
void scan(const automaton_t *automaton, const payload_t *payloads, result_t *results, int n)
{
    {
        const unsigned gopt_asked = (GOPT_GROUP);
        const unsigned gopt_group = gopt_asked < (GOPT_GROUP_MAX) ? gopt_asked : (GOPT_GROUP_MAX);
        if (gopt_group <= 1) {
            for (int i = 0; i < ( n ); i++) {
        const payload_t *payload = &payloads[i];
        result_t result = {NO_PATTERN, 0};
        uint32_t state = 0;
        g_expensive(payload);
        for (uint32_t at = 0; at < payload->length; at++) {
            const uint8_t byte = payload->bytes[at];
            switch (byte) {
            case SKIP:
                continue;
            case END:
                goto done;
            default:
                g_expensive(&automaton->next[state][byte]);
                state = automaton->next[state][byte];
                break;
            }
            const uint32_t match = automaton->matches[state];
            if (match != 0) {
                if (result.count == 0) {
                    result.first = match;
                }
                result.count++;
            }
        }
    done:
        results[i] = result;
    }
        } else {
            struct gopt_state {
                struct gopt_state *gopt_next;
                void *gopt_label;
                int i;
                const payload_t *payload;
                result_t result;
                uint32_t state;
                uint32_t at;
                uint8_t byte;
                uint32_t match;
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
        gopt_s->payload = &payloads[gopt_s->i];
        gopt_s->result = (__typeof__(gopt_s->result)){NO_PATTERN, 0};
        gopt_s->state = 0;
        { GOPT_PREFETCH(gopt_s->payload); GOPT_SWITCH(gopt_at_1); }
        for (gopt_s->at = 0; gopt_s->at < gopt_s->payload->length; gopt_s->at++) {
            gopt_s->byte = gopt_s->payload->bytes[gopt_s->at];
            switch (gopt_s->byte) {
            case SKIP:
                continue;
            case END:
                goto gopt_done_0;
            default:
                { GOPT_PREFETCH(&automaton->next[gopt_s->state][gopt_s->byte]); GOPT_SWITCH(gopt_at_2); }
                gopt_s->state = automaton->next[gopt_s->state][gopt_s->byte];
                break;
            }
            gopt_s->match = automaton->matches[gopt_s->state];
            if (gopt_s->match != 0) {
                if (gopt_s->result.count == 0) {
                    gopt_s->result.first = gopt_s->match;
                }
                gopt_s->result.count++;
            }
        }
    gopt_done_0:
        results[gopt_s->i] = gopt_s->result;
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
