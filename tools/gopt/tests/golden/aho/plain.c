/* Aho-Corasick search for patterns in payloads. Some bytes are skipped, or end the payload. */
#include "aho.h"

void scan(const automaton_t *automaton, const payload_t *payloads, result_t *results, int n);

enum { SKIP = 0xfe, END = 0xff };

void scan(const automaton_t *automaton, const payload_t *payloads, result_t *results, int n)
{
    foreach (i, n) {
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
}
