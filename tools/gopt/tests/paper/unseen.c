/* Functions whose bodies gopt does not see. */
#include "paper.h"

/* The programs keep their tables until they end. */
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

ULL get_mac(uint8_t *m)
{
    ULL v = 0;
    memcpy(&v, m, 6);
    return v & 0x3ff;
}
void set_mac(uint8_t *m, ULL v)
{
    memcpy(m, &v, 6);
}
void send_packet(struct rte_mbuf *m, int port, struct lcore_port_info *lp)
{
    m->sent += port + 1;
    lp[port & 3].nb_tx++;
}
void rte_pktmbuf_free(struct rte_mbuf *m)
{
    m->freed++;
}
uint32_t fastrand(uint64_t *seed)
{
    return (uint32_t)*seed;
}
int is_valid_ipv4_pkt(struct ipv4_hdr *h, uint32_t len)
{
    return h->tos & 1 ? -1 : (int)len;
}
uint32_t CityHash32(const void *p, int n)
{
    return (uint32_t)digest_of(p, (size_t)n, 3);
}
uint64_t CityHash64(const char *p, int n)
{
    return digest_of(p, (size_t)n, 5);
}
uint64_t CityHash64WithSeed(const char *p, int n, uint64_t seed)
{
    return digest_of(p, (size_t)n, seed);
}
