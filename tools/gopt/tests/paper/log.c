/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

int batch_index = 0;
int sum = 0;
int *ht_log;
#define DEPTH 5
#define LOG_CAP_ 4095
#define hash hash32

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    ht_log = calloc(4096, sizeof *ht_log);
    static int p[960];
    for (int i = 0; i < 4096; i++)
        ht_log[i] = hash32(i) & 4095;
    for (int i = 0; i < 960; i++)
        p[i] = hash32(-i) & 4095;
    for (int i = 0; i < 960; i += BATCH_SIZE)
        process_pkts_in_batch(&p[i]);
    printf("%d %d\n", sum, batch_index);
}
