/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

#define NDN_NUM_BKT_ 255
#define NDN_SLOT_TO_OFFSET(s) ((int)((s)&0xffffffff))
#define NDN_SLOT_TO_TAG(s) ((uint16_t)((s) >> 48))
struct ndn_name {
    char name[64];
};
struct ndn_bucket {
    ULL slot[8];
};
struct ndn_ht {
    struct ndn_bucket *ht_index;
    uint8_t *ht_log;
};
uint16_t ndn_tag_func(char *name, int len);

#include "fragment.h"

uint16_t ndn_tag_func(char *name, int len)
{
    return (uint16_t)digest_of(name, (size_t)len, 9);
}
int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    static struct ndn_name n[480];
    static int ports[480];
    static uint8_t log[65536];
    static struct ndn_bucket t[256];
    struct ndn_ht ht = {t, log};
    int at = 1;
    for (int i = 0; i < 480; i++) {
        sprintf(n[i].name, "com%d/site%d/dir%d/file%d/end", i % 3, hash32(i) % 40, hash32(i) % 5,
                i % 7);
        if (i % 2)
            for (int k = 0, s = 0; n[i].name[k]; k++)
                if (n[i].name[k] == '/' && ++s == 2 + i % 3) {
                    int b = (int)(CityHash64(n[i].name, k + 1) & 255);
                    for (int q = 0; q < 8; q++)
                        if (!t[b].slot[q]) {
                            t[b].slot[q] = (ULL)ndn_tag_func(n[i].name, k + 1) << 48 | (ULL)at;
                            log[at] = (uint8_t)(k + 1);
                            log[at + 1] = i % 5 == 0;
                            log[at + 2] = (uint8_t)i;
                            memcpy(log + at + 3, n[i].name, (size_t)k + 1);
                            at += k + 4;
                            break;
                        }
                }
    }
    for (int i = 0; i < 480; i += BATCH_SIZE)
        process_batch(&n[i], &ports[i], &ht);
    printf("%llx\n", (ULL)digest_of(ports, sizeof ports, 1));
}
