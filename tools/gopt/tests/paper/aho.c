/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

int final_state_sum = 0;
int batch_index = 0;
#define PKT_SIZE 64
struct aho_state {
    int G[256];
};
struct pkt {
    uint8_t content[PKT_SIZE];
};

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    struct aho_state *dfa = calloc(300, sizeof *dfa);
    for (int s = 0; s < 300; s++)
        for (int i = 0; i < 256; i++)
            dfa[s].G[i] = hash32(s * 256 + i) % 300;
    struct pkt *p = calloc(96, sizeof *p);
    for (int i = 0; i < 96; i++)
        for (int k = 0; k < PKT_SIZE; k++)
            p[i].content[k] = (uint8_t)hash32(i * 99 + k);
    for (int i = 0; i < 96; i += BATCH_SIZE)
        process_batch(dfa, &p[i]);
    printf("%d\n", final_state_sum);
}
