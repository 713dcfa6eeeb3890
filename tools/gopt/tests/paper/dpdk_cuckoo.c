/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

#define NUM_BKT_ 255
struct cuckoo_bucket {
    ULL slot[8];
};
#define SLOT_TO_MAC(s) ((s)&0xffffffffffff)
#define SLOT_TO_PORT(s) ((int)((s) >> 48))
int batch_index;

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    static struct rte_mbuf *p[300];
    static struct lcore_port_info lp[4];
    static struct cuckoo_bucket t[256];
    uint64_t seed = 7;
    packets(p, 300);
    for (int i = 0; i < 256 * 8; i++)
        t[i / 8].slot[i % 8] = (ULL)(hash32(i) & 0x3ff) | (ULL)(i & 3) << 48;
    process_batch_nogoto(p, 300, &seed, t, lp, 1);
    printf("%llx\n", (ULL)packets_digest(p, 300, digest_of(lp, sizeof lp, 1)));
}
