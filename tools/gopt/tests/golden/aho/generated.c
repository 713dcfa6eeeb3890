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
                result_t result;
            } gopt_states[GOPT_GROUP_MAX], *gopt_s = gopt_states;
            struct gopt_saved_1 {
                int i_0;
                const payload_t *payload_0;
                uint32_t state_0;
                struct gopt_state *gopt_s;
            } gopt_queue_1[GOPT_GROUP_MAX], *gopt_last_1 = gopt_queue_1;
            struct gopt_saved_2 {
                int i_0;
                const payload_t *payload_0;
                uint32_t state_0;
                uint32_t at_0;
                uint8_t byte_0;
                struct gopt_state *gopt_s;
            } gopt_queue_2[GOPT_GROUP_MAX], *gopt_last_2 = gopt_queue_2;
            int i_0 = {0};
            const payload_t *payload_0 = {0};
            uint32_t state_0 = {0};
            uint32_t at_0 = {0};
            uint8_t byte_0 = {0};
            uint32_t match_0 = {0};
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
        payload_0 = &payloads[i_0];
        gopt_s->result = (__typeof__(gopt_s->result)){NO_PATTERN, 0};
        state_0 = 0;
        { GOPT_PREFETCH(payload_0); gopt_last_1->i_0 = i_0; gopt_last_1->payload_0 = payload_0; gopt_last_1->state_0 = state_0; gopt_last_1->gopt_s = gopt_s; gopt_last_1++; GOPT_NEXT; gopt_at_1:; { const struct gopt_saved_1 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; payload_0 = gopt_now->payload_0; state_0 = gopt_now->state_0; gopt_s = gopt_now->gopt_s; } }
        for (at_0 = 0; at_0 < payload_0->length; at_0++) {
            byte_0 = payload_0->bytes[at_0];
            switch (byte_0) {
            case SKIP:
                continue;
            case END:
                goto gopt_done_0;
            default:
                { GOPT_PREFETCH(&automaton->next[state_0][byte_0]); gopt_last_2->i_0 = i_0; gopt_last_2->payload_0 = payload_0; gopt_last_2->state_0 = state_0; gopt_last_2->at_0 = at_0; gopt_last_2->byte_0 = byte_0; gopt_last_2->gopt_s = gopt_s; gopt_last_2++; GOPT_NEXT; gopt_at_2:; { const struct gopt_saved_2 *gopt_now = gopt_first; gopt_first = gopt_now + 1; i_0 = gopt_now->i_0; payload_0 = gopt_now->payload_0; state_0 = gopt_now->state_0; at_0 = gopt_now->at_0; byte_0 = gopt_now->byte_0; gopt_s = gopt_now->gopt_s; } }
                state_0 = automaton->next[state_0][byte_0];
                break;
            }
            match_0 = automaton->matches[state_0];
            if (match_0 != 0) {
                if (gopt_s->result.count == 0) {
                    gopt_s->result.first = match_0;
                }
                gopt_s->result.count++;
            }
        }
    gopt_done_0:
        results[i_0] = gopt_s->result;
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
}
