// Implements the functions of shim.h except those for buffer pools, which are in shim_pool.c.

#include "shim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>

#include "shim_pool.h"

#define BURST_MAX 256
#define AHEAD     8 // prefetch distance, in packets

int gw_dpdk_init(int count, char **arguments)
{
    int result = rte_eal_init(count, arguments);
    return result < 0 ? -rte_errno : 0;
}

bool gw_dpdk_iova_is_va(void)
{
    return rte_eal_iova_mode() == RTE_IOVA_VA;
}

const char *gw_dpdk_error(int number)
{
    return rte_strerror(number < 0 ? -number : number);
}

int gw_dpdk_register_memory(void *address, size_t bytes, size_t page_bytes)
{
    return rte_extmem_register(address, bytes, NULL, 0, page_bytes) == 0 ? 0 : -rte_errno;
}

int gw_dpdk_unregister_memory(void *address, size_t bytes)
{
    return rte_extmem_unregister(address, bytes) == 0 ? 0 : -rte_errno;
}

int gw_dpdk_probe(const char *arguments, uint16_t *ports, int ports_max)
{
    int result = rte_dev_probe(arguments);
    if (result != 0)
        return result < 0 ? result : -ENODEV;
    struct rte_dev_iterator iterator;
    uint16_t port;
    int found = 0;
    RTE_ETH_FOREACH_MATCHING_DEV(port, arguments, &iterator)
    {
        if (found == ports_max) {
            rte_eth_iterator_cleanup(&iterator);
            break;
        }
        ports[found++] = port;
    }
    return found > 0 ? found : -ENODEV;
}

static struct rte_device *device_of(uint16_t port)
{
    struct rte_eth_dev_info info;
    return rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
}

int gw_dpdk_dma_map(uint16_t port, void *address, size_t bytes)
{
    struct rte_device *device = device_of(port);
    if (device == NULL)
        return -ENODEV;
    if (rte_dev_dma_map(device, address, (uint64_t)(uintptr_t)address, bytes) == 0)
        return 0;
    // Two failures are harmless. Some devices use no DMA and need no mapping. Another device in the
    // same IOMMU group may already have mapped the memory.
    return rte_errno == ENOTSUP || rte_errno == EEXIST ? 0 : -rte_errno;
}

void gw_dpdk_dma_unmap(uint16_t port, void *address, size_t bytes)
{
    struct rte_device *device = device_of(port);
    if (device != NULL)
        rte_dev_dma_unmap(device, address, (uint64_t)(uintptr_t)address, bytes);
}

int gw_dpdk_state(uint16_t port, struct gw_dpdk_port_state *state)
{
    struct rte_eth_dev_info info;
    memset(state, 0, sizeof(*state));
    int result = rte_eth_dev_info_get(port, &info);
    if (result != 0)
        return result;
    snprintf(state->driver, sizeof(state->driver), "%s", info.driver_name);
    char name[RTE_ETH_NAME_MAX_LEN];
    if (rte_eth_dev_get_name_by_port(port, name) == 0)
        snprintf(state->name, sizeof(state->name), "%.63s", name);
    struct rte_ether_addr mac;
    if (rte_eth_macaddr_get(port, &mac) == 0)
        memcpy(state->mac, mac.addr_bytes, 6);
    rte_eth_dev_get_mtu(port, &state->mtu);
    state->queues_max = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
    state->socket = rte_eth_dev_socket_id(port);
    return 0;
}

// Header fields for the device's flow hash (RSS): the IP addresses, and the TCP and UDP ports.
#define HASHED_FIELDS                                                                              \
    (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_FRAG_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_TCP |                     \
     RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV4_OTHER | RTE_ETH_RSS_IPV6 |            \
     RTE_ETH_RSS_FRAG_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_TCP | RTE_ETH_RSS_NONFRAG_IPV6_UDP |         \
     RTE_ETH_RSS_NONFRAG_IPV6_OTHER)

// Maximum length of the RSS key in bytes. Each device requires a certain key length. The configured
// key repeats every 16 bits, so any length is possible.
#define KEY_BYTES_MAX 64

int gw_dpdk_configure(uint16_t port, const struct gw_dpdk_port_config *port_config,
                      struct gw_dpdk_pool *const *pools, struct gw_dpdk_port_state *state,
                      const char **step)
{
    struct rte_eth_dev_info info;
    *step = "cannot read the capabilities of the device";
    int result = rte_eth_dev_info_get(port, &info);
    if (result != 0)
        return result;
    struct rte_eth_conf config;
    memset(&config, 0, sizeof(config));
    uint8_t key[KEY_BYTES_MAX];
    for (uint32_t i = 0; i < sizeof(key); i++)
        key[i] = port_config->key[i % port_config->key_bytes];
    uint64_t fields = info.flow_type_rss_offloads & HASHED_FIELDS;
    if (fields != 0) {
        uint8_t key_bytes = info.hash_key_size != 0 ? info.hash_key_size : 40;
        if (key_bytes <= sizeof(key)) {
            config.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
            config.rx_adv_conf.rss_conf.rss_hf = fields;
            config.rx_adv_conf.rss_conf.rss_key = key;
            config.rx_adv_conf.rss_conf.rss_key_len = key_bytes;
            state->hashes = true;
            if (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH)
                config.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_RSS_HASH;
        }
    }
    uint64_t checks =
        RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
    if (port_config->checksum && (info.rx_offload_capa & checks) == checks) {
        config.rxmode.offloads |= checks;
        state->checksum = true;
    }
    *step = "cannot set the MTU";
    if (port_config->mtu != 0) {
        config.rxmode.mtu = port_config->mtu;
    } else {
        uint16_t mtu = 0;
        rte_eth_dev_get_mtu(port, &mtu);
        config.rxmode.mtu = mtu;
    }
    *step = "cannot configure the queues";
    result = rte_eth_dev_configure(port, port_config->queues, port_config->queues, &config);
    if (result != 0)
        return result;
    if (port_config->mtu != 0) {
        *step = "cannot set the MTU";
        uint16_t mtu = 0;
        result = rte_eth_dev_get_mtu(port, &mtu);
        if (result == 0 && mtu != port_config->mtu)
            result = rte_eth_dev_set_mtu(port, port_config->mtu);
        if (result != 0 && result != -ENOTSUP)
            return result;
    }
    state->receive_ring = port_config->receive_ring;
    state->transmit_ring = port_config->transmit_ring;
    *step = "cannot adjust the sizes of the rings";
    result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &state->receive_ring, &state->transmit_ring);
    if (result != 0 && result != -ENOTSUP)
        return result;
    unsigned int socket = (unsigned int)rte_eth_dev_socket_id(port);
    for (uint16_t queue = 0; queue < port_config->queues; queue++) {
        struct rte_eth_txconf transmit = info.default_txconf;
        transmit.offloads = 0;
        *step = "cannot set up a transmit queue";
        result = rte_eth_tx_queue_setup(port, queue, state->transmit_ring, socket, &transmit);
        if (result != 0)
            return result;
        struct rte_eth_rxconf receive = info.default_rxconf;
        receive.offloads = config.rxmode.offloads;
        *step = "cannot set up a receive queue";
        result = rte_eth_rx_queue_setup(port, queue, state->receive_ring, socket, &receive,
                                        pools[queue]->mempool);
        if (result != 0)
            return result;
    }
    return 0;
}

// Sets the RSS table of the device. Bucket i belongs to queue i modulo the number of queues. The
// software assigns buckets in the same way.
static int set_bucket_queues(uint16_t port, uint16_t queues)
{
    struct rte_eth_dev_info info;
    int result = rte_eth_dev_info_get(port, &info);
    if (result != 0 || info.reta_size == 0)
        return result;
    struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE];
    if (info.reta_size > RTE_ETH_RSS_RETA_SIZE_512)
        return 0;
    memset(table, 0, sizeof(table));
    for (uint16_t i = 0; i < info.reta_size; i++) {
        table[i / RTE_ETH_RETA_GROUP_SIZE].mask |= 1ull << i % RTE_ETH_RETA_GROUP_SIZE;
        table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] = i % 128 % queues;
    }
    result = rte_eth_dev_rss_reta_update(port, table, info.reta_size);
    return result == -ENOTSUP ? 0 : result;
}

int gw_dpdk_start(uint16_t port, const struct gw_dpdk_port_config *port_config,
                  struct gw_dpdk_port_state *state, const char **step)
{
    *step = "cannot start the device";
    int result = rte_eth_dev_start(port);
    if (result != 0)
        return result;
    *step = "cannot distribute packets over the queues";
    if (state->hashes && port_config->queues > 1) {
        result = set_bucket_queues(port, port_config->queues);
        if (result != 0)
            return result;
    }
    *step = "cannot set promiscuous mode";
    result = port_config->promiscuous ? rte_eth_promiscuous_enable(port) : 0;
    if (result != 0 && result != -ENOTSUP)
        return result;
    rte_eth_dev_get_mtu(port, &state->mtu);
    return 0;
}

void gw_dpdk_close(uint16_t port)
{
    struct rte_device *device = device_of(port);
    rte_eth_dev_stop(port);
    rte_eth_dev_close(port);
    if (device != NULL)
        rte_dev_remove(device);
}

int gw_dpdk_stats(uint16_t port, struct gw_dpdk_stats *stats)
{
    struct rte_eth_stats found;
    int result = rte_eth_stats_get(port, &found);
    if (result != 0)
        return result;
    *stats = (struct gw_dpdk_stats){
        .received_packets = found.ipackets,
        .received_bytes = found.ibytes,
        .sent_packets = found.opackets,
        .sent_bytes = found.obytes,
        .missed = found.imissed,
        .receive_errors = found.ierrors,
        .transmit_errors = found.oerrors,
        .no_buffer = found.rx_nombuf,
    };
    return 0;
}

int gw_dpdk_stats_of(const char *name, struct gw_dpdk_stats *stats)
{
    uint16_t port;
    int result = rte_eth_dev_get_port_by_name(name, &port);
    return result != 0 ? result : gw_dpdk_stats(port, stats);
}

int gw_dpdk_link(uint16_t port, uint32_t *speed)
{
    struct rte_eth_link link;
    int result = rte_eth_link_get_nowait(port, &link);
    if (result != 0)
        return result;
    *speed = link.link_speed;
    return link.link_status == RTE_ETH_LINK_UP;
}

uint32_t gw_dpdk_receive(struct gw_dpdk_pool *pool, uint16_t port, uint16_t queue,
                         struct gw_dpdk_packet *packets, uint16_t count)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint16_t received = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(count, BURST_MAX));
    for (uint16_t i = 0; i < received; i++) {
        struct rte_mbuf *mbuf = mbufs[i];
        if (i + 4 < received)
            rte_prefetch0(rte_pktmbuf_mtod(mbufs[i + 4], void *));
        uint64_t flags = mbuf->ol_flags;
        uint32_t packet_flags = flags & RTE_MBUF_F_RX_RSS_HASH ? GW_DPDK_HASHED : 0;
        if ((flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_BAD ||
            (flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD)
            packet_flags |= GW_DPDK_BAD_CHECKSUM;
        if (unlikely(mbuf->pool != pool->mempool)) {
            // The buffer belongs to another worker, because several workers exchange packets
            // through a net_ring. The packet is copied into a buffer of this worker.
            struct rte_mbuf *own = rte_pktmbuf_copy(mbuf, pool->mempool, 0, UINT32_MAX);
            rte_pktmbuf_free(mbuf);
            mbuf = own;
        }
        if (unlikely(mbuf == NULL)) {
            packets[i] = (struct gw_dpdk_packet){.flags = GW_DPDK_TOO_LONG, .buffer = UINT32_MAX};
            continue;
        }
        if (unlikely(mbuf->nb_segs != 1)) {
            packet_flags |= GW_DPDK_TOO_LONG;
            rte_pktmbuf_free(mbuf->next);
            mbuf->next = NULL;
            mbuf->nb_segs = 1;
        }
        packets[i] = (struct gw_dpdk_packet){
            .buffer = buffer_number_of(pool, mbuf),
            // The offset is computed from the buffer address in the mbuf. If the packet came
            // through DPDK's in-memory device `net_ring`, its sender may have changed this address.
            .head = (uint16_t)((uint8_t *)mbuf->buf_addr - (uint8_t *)mbuf - MBUF_BYTES -
                               PRIVATE_BYTES + mbuf->data_off),
            .length = mbuf->data_len,
            .flow_hash = mbuf->hash.rss,
            .flags = packet_flags,
        };
    }
    return received;
}

uint32_t gw_dpdk_transmit(struct gw_dpdk_pool *pool, uint16_t port, uint16_t queue,
                          const struct gw_dpdk_packet *packets, uint32_t count)
{
    struct rte_mbuf *mbufs[BURST_MAX];
    uint32_t sent = 0;
    while (sent < count) {
        uint16_t burst = (uint16_t)RTE_MIN(count - sent, (uint32_t)BURST_MAX);
        for (uint16_t i = 0; i < burst; i++) {
            const struct gw_dpdk_packet *packet = &packets[sent + i];
            struct rte_mbuf *mbuf = mbuf_of(pool, packet->buffer);
            if (i + AHEAD < burst)
                rte_prefetch0(mbuf_of(pool, packet[AHEAD].buffer));
            if (likely(packet->head >= pool->delta_bytes)) {
                restore(pool, mbuf);
                mbuf->data_off = (uint16_t)(packet->head - pool->delta_bytes);
            } else {
                mbuf->buf_addr = buffer_address_of(pool, mbuf) - pool->delta_bytes;
                mbuf->buf_iova = (rte_iova_t)(uintptr_t)mbuf->buf_addr;
                mbuf->data_off = packet->head;
            }
            mbuf->data_len = packet->length;
            mbuf->pkt_len = packet->length;
            mbuf->ol_flags = 0;
            mbufs[i] = mbuf;
        }
        uint16_t taken = rte_eth_tx_burst(port, queue, mbufs, burst);
        sent += taken;
        if (taken < burst) {
            for (uint16_t i = taken; i < burst; i++)
                restore(pool, mbufs[i]);
            break;
        }
    }
    return sent;
}

void gw_dpdk_clean(uint16_t port, uint16_t queue)
{
    rte_eth_tx_done_cleanup(port, queue, 0);
}

int gw_dpdk_thread_register(void)
{
    return rte_thread_register() == 0 ? 0 : -rte_errno;
}

void gw_dpdk_thread_unregister(void)
{
    rte_thread_unregister();
}
