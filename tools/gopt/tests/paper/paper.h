/* Types, macros and functions that the functions of the G-Opt repository need. */
#ifndef PAPER_H
#define PAPER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define FPP_EXPENSIVE(x) {}
#define PREFETCH(x) {}
#define foreach(i, n) for (i = 0; i < n; i++)
#define BATCH_SIZE 48
#define LL long long
#define ULL unsigned long long
static unsigned group = 1;
#define GOPT_GROUP group
static uint64_t mixin(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}
static int hash32(int a)
{
    return (int)(mixin((uint64_t)a) & 0x7fffffff);
}
static uint64_t digest_of(const void *p, size_t n, uint64_t d)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        d = mixin(d ^ b[i]);
    return d;
}
/* Packets. */
struct ether_addr {
    uint8_t addr_bytes[6];
};
struct ether_hdr {
    struct ether_addr d_addr, s_addr;
    uint16_t ether_type;
} __attribute__((packed));
struct ipv4_hdr {
    uint8_t version_ihl, tos;
    uint16_t total_length, id, off;
    uint8_t time_to_live, proto;
    uint16_t hdr_checksum;
    uint32_t src_addr, dst_addr;
} __attribute__((packed));
struct ipv6_hdr {
    uint32_t vtc;
    uint16_t len;
    uint8_t proto, hop;
    uint8_t src_addr[16], dst_addr[16];
} __attribute__((packed));
struct rte_pktmbuf {
    void *data;
    uint32_t pkt_len;
    uint16_t data_len;
    uint8_t nb_segs;
};
struct rte_mbuf {
    struct rte_pktmbuf pkt;
    int sent, freed;
};
struct lcore_port_info {
    int nb_tx, nb_tx_fail, nb_lookup_fail_all_ports;
};
#define rte_prefetch0(p) __builtin_prefetch(p)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define ETHER_TYPE_IPv4 0x800
static uint16_t htons_(uint16_t x)
{
    return (uint16_t)(x << 8 | x >> 8);
}
#define htons htons_
static ULL src_mac_arr[256], dst_mac_arr[256];
ULL get_mac(uint8_t *m);
void set_mac(uint8_t *m, ULL v);
void send_packet(struct rte_mbuf *m, int port, struct lcore_port_info *lp);
void rte_pktmbuf_free(struct rte_mbuf *m);
uint32_t fastrand(uint64_t *seed);
int is_valid_ipv4_pkt(struct ipv4_hdr *h, uint32_t len);
uint32_t CityHash32(const void *p, int n);
uint64_t CityHash64(const char *p, int n);
uint64_t CityHash64WithSeed(const char *p, int n, uint64_t seed);
static void packets(struct rte_mbuf **pkts, int n)
{
    for (int i = 0; i < n; i++) {
        pkts[i] = calloc(1, sizeof **pkts);
        pkts[i]->pkt.data = calloc(1, 256);
        pkts[i]->pkt.pkt_len = 60;
        for (int k = 0; k < 200; k++)
            ((uint8_t *)pkts[i]->pkt.data)[k] = (uint8_t)mixin((uint64_t)(i * 1000 + k));
    }
}
static uint64_t packets_digest(struct rte_mbuf **pkts, int n, uint64_t d)
{
    for (int i = 0; i < n; i++) {
        d = digest_of(pkts[i]->pkt.data, 256, d);
        d = mixin(d ^ (uint64_t)(pkts[i]->sent * 100 + pkts[i]->freed));
        free(pkts[i]->pkt.data);
        free(pkts[i]);
    }
    return d;
}

#endif
