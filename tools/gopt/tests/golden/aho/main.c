#include FORM
#include "../main.h"

int main(void)
{
    static automaton_t automaton;
    static payload_t payloads[QUERIES];
    static result_t results[QUERIES];
    static uint32_t answers[2 * QUERIES];
    uint32_t random = 1;
    for (int state = 0; state < STATES; state++) {
        automaton.matches[state] = next_random(&random) % 9 == 0 ? (uint32_t)state + 1 : 0;
        for (int byte = 0; byte < 256; byte++) {
            automaton.next[state][byte] = next_random(&random) % STATES;
        }
    }
    for (int i = 0; i < QUERIES; i++) {
        payloads[i].length = next_random(&random) % (BYTES_MAX + 1);
        for (int at = 0; at < BYTES_MAX; at++) {
            payloads[i].bytes[at] = (uint8_t)(next_random(&random) >> 8);
        }
    }
    scan(&automaton, payloads, results, QUERIES);
    for (int i = 0; i < QUERIES; i++) {
        answers[2 * i] = results[i].first;
        answers[2 * i + 1] = results[i].count;
    }
    print_digest(answers, 2 * QUERIES);
    return 0;
}
