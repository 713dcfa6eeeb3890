// Implements the mempools that shim.h declares.

#include "shim_pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#define OPS_NAME "godwit"

// The address of this variable identifies the thread.
static __thread char this_thread;

static int pool_alloc(struct rte_mempool *mempool)
{
    mempool->pool_data = mempool->pool_config;
    return 0;
}

static void pool_free(struct rte_mempool *mempool)
{
    mempool->pool_data = NULL;
}

static int pool_enqueue(struct rte_mempool *mempool, void *const *objects, unsigned int count)
{
    struct gw_dpdk_pool *pool = mempool->pool_data;
    for (unsigned int i = 0; i < count; i++)
        restore(pool, objects[i]);
    if (likely(pool->owner == &this_thread)) {
        // Many drivers free one buffer at a time. For a single buffer, an assignment is much
        // cheaper than a call to memcpy.
        if (count == 1)
            pool->ready[pool->ready_count] = objects[0];
        else
            memcpy(pool->ready + pool->ready_count, objects, count * sizeof(*objects));
        pool->ready_count += count;
        return 0;
    }
    rte_spinlock_lock(&pool->lock);
    memcpy(pool->foreign + pool->foreign_count, objects, count * sizeof(*objects));
    __atomic_store_n(&pool->foreign_count, pool->foreign_count + count, __ATOMIC_RELAXED);
    rte_spinlock_unlock(&pool->lock);
    return 0;
}

// Moves buffers that other threads have freed to the list of the pool's owner.
static void gather(struct gw_dpdk_pool *pool)
{
    if (__atomic_load_n(&pool->foreign_count, __ATOMIC_RELAXED) == 0)
        return;
    rte_spinlock_lock(&pool->lock);
    memcpy(pool->ready + pool->ready_count, pool->foreign,
           pool->foreign_count * sizeof(*pool->foreign));
    pool->ready_count += pool->foreign_count;
    __atomic_store_n(&pool->foreign_count, 0, __ATOMIC_RELAXED);
    rte_spinlock_unlock(&pool->lock);
}

// Allocates buffers from the pool. Only the worker that owns the pool calls this function.
static int pool_dequeue(struct rte_mempool *mempool, void **objects, unsigned int count)
{
    struct gw_dpdk_pool *pool = mempool->pool_data;
    if (unlikely(pool->owner != &this_thread))
        return -ENOBUFS;
    if (unlikely(pool->ready_count < count)) {
        gather(pool);
        if (pool->ready_count < count)
            return -ENOBUFS;
    }
    pool->ready_count -= count;
    for (unsigned int i = 0; i < count; i++)
        objects[i] = pool->ready[pool->ready_count + count - 1 - i];
    return 0;
}

static unsigned int pool_count(const struct rte_mempool *mempool)
{
    const struct gw_dpdk_pool *pool = mempool->pool_data;
    return pool->ready_count + __atomic_load_n(&pool->foreign_count, __ATOMIC_RELAXED);
}

// Adds all elements to the mempool. An element may cross a page boundary, because the memory is
// contiguous for devices too.
static int pool_populate(struct rte_mempool *mempool, unsigned int objects_max, void *address,
                         rte_iova_t iova, size_t bytes, rte_mempool_populate_obj_cb_t *add,
                         void *argument)
{
    size_t stride = mempool->header_size + mempool->elt_size + mempool->trailer_size;
    unsigned int count = 0;
    for (size_t at = 0; count < objects_max && at + stride <= bytes; at += stride, count++)
        add(mempool, argument, (uint8_t *)address + at + mempool->header_size,
            iova + at + mempool->header_size);
    return (int)count;
}

static ssize_t pool_mem_size(const struct rte_mempool *mempool, uint32_t objects,
                             uint32_t page_shift, size_t *chunk_min, size_t *align)
{
    (void)page_shift;
    size_t stride = mempool->header_size + mempool->elt_size + mempool->trailer_size;
    *chunk_min = stride * objects;
    *align = RTE_CACHE_LINE_SIZE;
    return (ssize_t)(stride * objects);
}

static const struct rte_mempool_ops pool_ops = {
    .name = OPS_NAME,
    .alloc = pool_alloc,
    .free = pool_free,
    .enqueue = pool_enqueue,
    .dequeue = pool_dequeue,
    .get_count = pool_count,
    .calc_mem_size = pool_mem_size,
    .populate = pool_populate,
};

RTE_MEMPOOL_REGISTER_OPS(pool_ops);

static void init_mbuf(struct rte_mempool *mempool, void *argument, void *object, unsigned int index)
{
    const struct gw_dpdk_pool *pool = argument;
    struct rte_mbuf *mbuf = object;
    (void)index;
    memset(mbuf, 0, MBUF_BYTES);
    mbuf->priv_size = rte_pktmbuf_priv_size(mempool);
    mbuf->buf_addr = buffer_address_of(pool, mbuf);
    mbuf->buf_iova = (rte_iova_t)(uintptr_t)mbuf->buf_addr;
    mbuf->buf_len = rte_pktmbuf_data_room_size(mempool);
    mbuf->data_off = RTE_PKTMBUF_HEADROOM;
    mbuf->pool = mempool;
    mbuf->nb_segs = 1;
    mbuf->port = RTE_MBUF_PORT_INVALID;
    rte_mbuf_refcnt_set(mbuf, 1);
}

void gw_dpdk_pool_free(struct gw_dpdk_pool *pool)
{
    if (pool == NULL)
        return;
    rte_mempool_free(pool->mempool);
    free(pool->ready);
    free(pool->foreign);
    free(pool);
}

struct gw_dpdk_pool *gw_dpdk_pool_create(const char *name, const struct gw_dpdk_pool_config *config,
                                         int *error)
{
    struct gw_dpdk_pool *pool = calloc(1, sizeof(*pool));
    *error = ENOMEM;
    if (pool == NULL)
        return NULL;
    pool->arena = config->arena;
    pool->slots = config->slots;
    pool->delta_bytes = config->headroom_bytes - RTE_PKTMBUF_HEADROOM;
    pool->owner = &this_thread;
    rte_spinlock_init(&pool->lock);
    pool->ready = calloc(config->slots, sizeof(*pool->ready));
    pool->foreign = calloc(config->slots, sizeof(*pool->foreign));
    if (pool->ready == NULL || pool->foreign == NULL)
        goto failed;
    // The buffers are already distributed over the memory channels, so the mempool needs no
    // padding.
    pool->mempool = rte_mempool_create_empty(
        name, config->slots, config->stride_bytes - HEADER_BYTES, 0,
        sizeof(struct rte_pktmbuf_pool_private), config->socket, RTE_MEMPOOL_F_NO_SPREAD);
    if (pool->mempool == NULL) {
        *error = rte_errno;
        goto failed;
    }
    struct rte_mempool *mempool = pool->mempool;
    int result = rte_mempool_set_ops_byname(mempool, OPS_NAME, pool);
    if (result != 0) {
        *error = -result;
        goto failed;
    }
    struct rte_pktmbuf_pool_private private = {
        .mbuf_data_room_size = (uint16_t)(config->buffer_bytes - pool->delta_bytes),
        .mbuf_priv_size = (uint16_t)(PRIVATE_BYTES + pool->delta_bytes),
    };
    memcpy(rte_mempool_get_priv(mempool), &private, sizeof(private));
    uint8_t *first = config->arena + config->first;
    result = rte_mempool_populate_iova(mempool, (char *)first, (rte_iova_t)(uintptr_t)first,
                                       (size_t)config->slots * config->stride_bytes, NULL, NULL);
    if (result != (int)config->slots) {
        *error = result < 0 ? -result : EINVAL;
        goto failed;
    }
    rte_mempool_obj_iter(mempool, init_mbuf, pool);
    return pool;
failed:
    gw_dpdk_pool_free(pool);
    return NULL;
}

void gw_dpdk_pool_own(struct gw_dpdk_pool *pool)
{
    pool->owner = &this_thread;
}

uint32_t gw_dpdk_pool_ready(struct gw_dpdk_pool *pool)
{
    gather(pool);
    return pool->ready_count;
}

void gw_dpdk_pool_give(struct gw_dpdk_pool *pool, const uint32_t *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct rte_mbuf *mbuf = mbuf_of(pool, buffers[i]);
        restore(pool, mbuf);
        pool->ready[pool->ready_count++] = mbuf;
    }
}

uint32_t gw_dpdk_pool_take(struct gw_dpdk_pool *pool, uint32_t *buffers, uint32_t count)
{
    gather(pool);
    uint32_t taken = RTE_MIN(count, pool->ready_count);
    for (uint32_t i = 0; i < taken; i++)
        buffers[i] = buffer_number_of(pool, pool->ready[--pool->ready_count]);
    return taken;
}

uint32_t gw_dpdk_pool_take_foreign(struct gw_dpdk_pool *pool, uint32_t *buffers, uint32_t count)
{
    if (__atomic_load_n(&pool->foreign_count, __ATOMIC_RELAXED) == 0)
        return 0;
    rte_spinlock_lock(&pool->lock);
    uint32_t taken = RTE_MIN(count, pool->foreign_count);
    uint32_t left = pool->foreign_count - taken;
    for (uint32_t i = 0; i < taken; i++)
        buffers[i] = buffer_number_of(pool, pool->foreign[left + i]);
    __atomic_store_n(&pool->foreign_count, left, __ATOMIC_RELAXED);
    rte_spinlock_unlock(&pool->lock);
    return taken;
}
