/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

struct rte_lpm {
    uint16_t *tbl24, *tbl8;
};
#define RTE_LPM_VALID_EXT_ENTRY_BITMASK 0x0300
#define RTE_LPM_TBL8_GROUP_NUM_ENTRIES 256
int batch_index, tbl_index;

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    static struct rte_mbuf *p[300];
    static struct lcore_port_info lp[4];
    struct rte_lpm l = {calloc(1 << 24, 2), calloc(65536, 2)};
    for (int i = 0; i < 1 << 24; i++)
        l.tbl24[i] = (uint16_t)(i * 7);
    for (int i = 0; i < 65536; i++)
        l.tbl8[i] = (uint16_t)(i * 3);
    packets(p, 300);
    for (int i = 0; i < 256; i++) {
        src_mac_arr[i] = (ULL)i * 3;
        dst_mac_arr[i] = (ULL)i * 7;
    }
    process_batch_nogoto(p, 300, 1, &l, lp);
    printf("%llx\n", (ULL)packets_digest(p, 300, digest_of(lp, sizeof lp, 1)));
}
