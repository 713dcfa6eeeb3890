/* The lookup optimised by hand: loop interchange, byte by byte over a group (G-Opt, section 5). */
#include "aho.h"

#define GROUP 8

void scan(const automaton_t *automaton, const payload_t *payloads, result_t *results, int n);

void scan(const automaton_t *automaton, const payload_t *payloads, result_t *results, int n)
{
    for (int first = 0; first < n; first += GROUP) {
        const int group = n - first < GROUP ? n - first : GROUP;
        uint32_t states[GROUP] = {0};
        uint32_t ends[GROUP], longest = 0;
        for (int i = 0; i < group; i++) {
            results[first + i] = (result_t){NO_PATTERN, 0};
            ends[i] = payloads[first + i].length;
            longest = ends[i] > longest ? ends[i] : longest;
        }
        for (uint32_t at = 0; at < longest; at++) {
            for (int i = 0; i < group; i++) {
                if (at >= ends[i]) {
                    continue;
                }
                const uint8_t byte = payloads[first + i].bytes[at];
                if (byte == 0xff) {
                    ends[i] = at;
                } else if (byte != 0xfe) {
                    result_t *result = &results[first + i];
                    states[i] = automaton->next[states[i]][byte];
                    const uint32_t match = automaton->matches[states[i]];
                    if (match != 0) {
                        result->first = result->count == 0 ? match : result->first;
                        result->count++;
                    }
                }
            }
        }
    }
}
