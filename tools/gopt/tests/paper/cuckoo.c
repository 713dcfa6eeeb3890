/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

#define NUM_BKT_ 1023
#define hash hash32
struct slot {
    int key, value;
};
struct cuckoo_bkt {
    struct slot slot[8];
} * ht_index;
int sum = 0;
int succ_1 = 0;
int succ_2 = 0;
int fail = 0;
int batch_index = 0;

#include "fragment.h"

static void cuckoo_table(int *keys, int n)
{
    ht_index = calloc(1024, sizeof *ht_index);
    for (int i = 0; i < n; i++) {
        keys[i] = hash32(i);
        if (i % 5 == 0)
            continue;
        int b = hash(keys[i]) & NUM_BKT_;
        if (i % 3)
            b = hash(b) & NUM_BKT_;
        for (int k = 0; k < 8; k++)
            if (!ht_index[b].slot[k].key) {
                ht_index[b].slot[k] = (struct slot){keys[i], i};
                break;
            }
    }
}
int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    static int keys[4800];
    cuckoo_table(keys, 4800);
    for (int i = 0; i < 4800; i += BATCH_SIZE)
        process_batch(&keys[i]);
    printf("%d %d %d %d %d\n", sum, succ_1, succ_2, fail, batch_index);
}
