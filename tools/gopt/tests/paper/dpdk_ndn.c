/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

#define HDR_SIZE 14
#define NDN_SEED 3
#define NDN_NUM_BKT_ 255
#define NDN_NUM_SLOTS 8
struct ndn_slot {
    int8_t dst_port;
    uint8_t is_terminal;
    uint64_t cityhash;
};
struct ndn_bucket {
    struct ndn_slot slots[NDN_NUM_SLOTS];
};
int batch_index;

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    static struct rte_mbuf *p[300];
    static struct lcore_port_info lp[4];
    static struct ndn_bucket t[256];
    packets(p, 300);
    for (int i = 0; i < 300; i++) {
        char *n = (char *)p[i]->pkt.data + 26;
        sprintf(n, "com%d/site%d/dir%d/file%d/end", i % 3, hash32(i) % 40, hash32(i) % 5, i % 7);
        if (i % 2)
            for (int k = 0, s = 0; n[k]; k++)
                if (n[k] == '/' && ++s == 2 + i % 2) {
                    uint64_t h = digest_of(n, (size_t)k + 1, NDN_SEED);
                    int b = (int)(h & 255);
                    for (int q = 0; q < 8; q++)
                        if (!t[b].slots[q].cityhash) {
                            t[b].slots[q] = (struct ndn_slot){(int8_t)(i & 3), i % 3 == 0, h};
                            break;
                        }
                }
    }
    process_batch_nogoto(p, 300, t, lp, 1);
    printf("%llx\n", (ULL)packets_digest(p, 300, digest_of(lp, sizeof lp, 1)));
}
