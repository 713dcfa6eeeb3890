/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

#define LOOKUP_FIRST_BYTE 4
#define BYTES2_SIZE 16
#define BYTE_SIZE 8
#define RTE_LPM6_IPV6_ADDR_SIZE 16
struct rte_lpm6_tbl_entry {
    uint32_t next_hop : 21, depth : 8, valid : 1, valid_group : 1, ext_entry : 1;
};
struct rte_lpm6 {
    struct rte_lpm6_tbl_entry *tbl24, *tbl8;
};
int batch_index;
static inline int lookup_step(const struct rte_lpm6 *lpm, const struct rte_lpm6_tbl_entry *tbl,
                              const struct rte_lpm6_tbl_entry **tbl_next, uint8_t *ip,
                              uint8_t first_byte, uint8_t *next_hop)
{
    if (tbl->valid && tbl->ext_entry) {
        *tbl_next = &lpm->tbl8[(tbl->next_hop & 63) * 256 + ip[first_byte - 1]];
        return 1;
    }
    *next_hop = (uint8_t)tbl->next_hop;
    return tbl->valid ? 0 : -1;
}
static struct rte_lpm6 *lpm_made(void)
{
    struct rte_lpm6 *l = calloc(1, sizeof *l);
    l->tbl24 = calloc(1 << 24, 4);
    l->tbl8 = calloc(64 * 256, 4);
    for (int i = 0; i < 1 << 24; i += 1) {
        l->tbl24[i].valid = i % 5 != 0;
        l->tbl24[i].ext_entry = i % 2;
        l->tbl24[i].next_hop = (unsigned)i & 63;
    }
    for (int i = 0; i < 64 * 256; i++) {
        l->tbl8[i].valid = i % 7 != 0;
        l->tbl8[i].next_hop = (unsigned)(i / 256 + 1) & 63;
        l->tbl8[i].ext_entry = i / 256 < 63 && i % 3;
    }
    return l;
}

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    struct rte_lpm6 *l = lpm_made();
    static struct rte_mbuf *p[300];
    static struct lcore_port_info lp[4];
    packets(p, 300);
    for (int i = 0; i < 256; i++) {
        src_mac_arr[i] = (ULL)i * 3;
        dst_mac_arr[i] = (ULL)i * 7;
    }
    process_batch_nogoto(p, 300, 1, l, lp);
    printf("%llx\n", (ULL)packets_digest(p, 300, digest_of(lp, sizeof lp, 1)));
}
