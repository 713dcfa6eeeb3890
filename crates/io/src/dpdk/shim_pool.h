// The mempool of a worker manages the packet memory of the worker. Each element of the mempool has
// the following parts, with sizes in bytes:
//
//     | header 64 | mbuf 128 | private 64 | buffer ...  | to the next slot |
//
// The distance between an mbuf and its buffer is constant, because drivers such as net_af_xdp
// compute the address of a buffer from its mbuf.

#ifndef GW_DPDK_SHIM_POOL_H
#define GW_DPDK_SHIM_POOL_H

#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>

#include "shim.h"

#define HEADER_BYTES  64
#define MBUF_BYTES    128
#define PRIVATE_BYTES (GW_DPDK_PREFIX_BYTES - HEADER_BYTES - MBUF_BYTES)
#define UNIT_BYTES    64

_Static_assert(sizeof(struct rte_mbuf) == MBUF_BYTES, "the size of an mbuf");
_Static_assert(sizeof(struct rte_mempool_objhdr) <= HEADER_BYTES,
               "the header of a mempool's element");

// Free buffers for the queues of one worker. The worker's thread uses the list `ready` without a
// lock. Other threads put the buffers that they free into the list `foreign`.
struct gw_dpdk_pool {
    struct rte_mempool *mempool;
    uint8_t *arena;
    uint32_t delta_bytes; // from the buffer's start to the address that drivers use
    uint32_t ready_count; // number of buffers in ready
    const void *owner;    // thread that uses ready
    struct rte_mbuf **ready;
    uint32_t slots;
    uint32_t foreign_count;
    rte_spinlock_t lock;
    struct rte_mbuf **foreign;
};

static inline struct rte_mbuf *mbuf_of(const struct gw_dpdk_pool *pool, uint32_t buffer)
{
    return (struct rte_mbuf *)(pool->arena + (uint64_t)buffer * UNIT_BYTES - PRIVATE_BYTES -
                               MBUF_BYTES);
}

static inline uint32_t buffer_number_of(const struct gw_dpdk_pool *pool,
                                        const struct rte_mbuf *mbuf)
{
    uint64_t offset = (const uint8_t *)mbuf - pool->arena;
    return (uint32_t)((offset + MBUF_BYTES + PRIVATE_BYTES) / UNIT_BYTES);
}

static inline uint8_t *buffer_address_of(const struct gw_dpdk_pool *pool,
                                         const struct rte_mbuf *mbuf)
{
    return (uint8_t *)mbuf + MBUF_BYTES + PRIVATE_BYTES + pool->delta_bytes;
}

// Restores the default buffer address of an mbuf. gw_dpdk_transmit lowers this address for a frame
// that starts in front of it.
static inline void restore(const struct gw_dpdk_pool *pool, struct rte_mbuf *mbuf)
{
    if (pool->delta_bytes != 0) {
        mbuf->buf_addr = buffer_address_of(pool, mbuf);
        mbuf->buf_iova = (rte_iova_t)(uintptr_t)mbuf->buf_addr;
    }
}

#endif
