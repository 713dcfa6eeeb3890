/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

#define HASH_TO_TAG(h) ((int)(h & 0xff))
#define HASH_TO_BUCKET(h) ((int)((h >> 16) & 255))
#define SLOT_TO_TAG(s) ((int)(s & 0xffff))
#define SLOT_TO_LOG_I(s) (s >> 16)
#define SLOTS_PER_BKT 8
#define INVALID_KV_I ((LL)(4096 + 1))
LL hash(LL key);
struct KV {
    LL key, value;
} * ht_log;
struct IDX_BKT {
    LL slots[SLOTS_PER_BKT];
} * ht_index;
int sum = 0;
int succ = 0;
int fail_1 = 0;
int fail_2 = 0;
int batch_index = 0;

#include "fragment.h"

LL hash(LL key)
{
    return (LL)mixin((uint64_t)key);
}
int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    ht_log = calloc(8192, sizeof *ht_log);
    ht_index = calloc(256, sizeof *ht_index);
    static LL p[960];
    for (int i = 0; i < 256; i++)
        for (int k = 0; k < 8; k++)
            ht_index[i].slots[k] = INVALID_KV_I << 16;
    for (int i = 0; i < 960; i++) {
        p[i] = hash32(i);
        LL h = hash(p[i]);
        if (i % 4)
            for (int k = 0; k < 8; k++)
                if (SLOT_TO_LOG_I(ht_index[HASH_TO_BUCKET(h)].slots[k]) == INVALID_KV_I) {
                    ht_index[HASH_TO_BUCKET(h)].slots[k] = HASH_TO_TAG(h) | (LL)i << 16;
                    ht_log[i].key = p[i];
                    ht_log[i].value = i;
                    break;
                }
    }
    for (int i = 0; i < 960; i += BATCH_SIZE)
        process_pkts_in_batch(&p[i]);
    printf("%d %d %d %d\n", sum, succ, fail_1, fail_2);
}
