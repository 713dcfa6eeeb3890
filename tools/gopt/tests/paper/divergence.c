/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

int batch_index = 0;
int sum = 0;
#define DEPTH 6
#define SLOTS_PER_BKT 16
#define ABS(a) (a > 0 ? a : -1 * a)
struct cache_bkt {
    int slot_arr[SLOTS_PER_BKT];
} * cache;

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    cache = calloc(1024, sizeof *cache);
    for (int i = 0; i < 1024; i++)
        for (int k = 0; k < 16; k++)
            cache[i].slot_arr[k] = hash32(i * 16 + k) & 1023;
    static int p[960];
    for (int i = 0; i < 960; i++)
        p[i] = hash32(-i) & 1023;
    for (int i = 0; i < 960; i += BATCH_SIZE)
        process_pkts_in_batch(&p[i]);
    printf("%d\n", sum);
}
