// What Rust calls of DPDK. DPDK's packet path consists of inline functions,
// which only C can call. ffi.rs holds the same declarations.

#ifndef GW_DPDK_SHIM_H
#define GW_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes in front of each buffer: the mempool's header (64), the mbuf (128), its
// private area (64).
#define GW_DPDK_PREFIX_BYTES 256

struct gw_dpdk_pool;

// A packet in the arena: the fields of gw_descriptor that a port fills in.
struct gw_dpdk_packet {
  uint32_t buffer; // in units of 64 bytes from the arena's base
  uint16_t head;
  uint16_t length;
  uint32_t flow_hash; // where GW_DPDK_HASHED is set
  uint32_t flags;
};

#define GW_DPDK_HASHED 1u // the device computed the flow hash
#define GW_DPDK_BAD_CHECKSUM                                                   \
  2u // the device found a wrong IP, TCP or UDP checksum
#define GW_DPDK_TOO_LONG                                                       \
  4u // longer than a buffer: several buffers, or more than is taken

// The region of a worker, as memory of a mempool.
struct gw_dpdk_pool_plan {
  uint8_t *arena; // the arena's base
  uint64_t first; // offset of the first slot: its buffer lies
                  // GW_DPDK_PREFIX_BYTES behind
  uint32_t slots;
  uint32_t stride_bytes; // from slot to slot
  uint32_t buffer_bytes;
  uint32_t headroom_bytes; // what a frame that arrives has in front of it
  int socket;
};

struct gw_dpdk_port_plan {
  uint16_t queues;
  uint16_t receive_ring;
  uint16_t transmit_ring;
  uint16_t mtu; // 0: as it is
  bool promiscuous;
  bool checksum;      // have the device check checksums
  const uint8_t *key; // of receive-side scaling
  uint32_t key_bytes;
};

// What a device is and what became of a plan.
struct gw_dpdk_port_state {
  char driver[64];
  char name[64];
  uint8_t mac[6];
  uint16_t mtu;
  uint16_t queues_max; // of both directions
  uint16_t receive_ring;
  uint16_t transmit_ring;
  int socket;  // NUMA node; -1 where unknown
  bool hashes; // receive-side scaling with our key spreads packets over the
               // queues
  bool checksum;
};

struct gw_dpdk_stats {
  uint64_t received_packets;
  uint64_t received_bytes;
  uint64_t sent_packets;
  uint64_t sent_bytes;
  uint64_t missed;
  uint64_t receive_errors;
  uint64_t transmit_errors;
  uint64_t no_buffer;
};

// ffi.rs asserts the same.
_Static_assert(sizeof(struct gw_dpdk_packet) == 16, "gw_dpdk_packet");
_Static_assert(sizeof(struct gw_dpdk_pool_plan) == 40, "gw_dpdk_pool_plan");
_Static_assert(sizeof(struct gw_dpdk_port_plan) == 32, "gw_dpdk_port_plan");
_Static_assert(sizeof(struct gw_dpdk_port_state) == 152, "gw_dpdk_port_state");
_Static_assert(sizeof(struct gw_dpdk_stats) == 64, "gw_dpdk_stats");

int gw_dpdk_init(int count, char **arguments);
bool gw_dpdk_iova_is_va(void);
const char *gw_dpdk_error(int number);
int gw_dpdk_register_memory(void *address, size_t bytes, size_t page_bytes);
int gw_dpdk_unregister_memory(void *address, size_t bytes);

// Attaches a device; its numbers, or a negative error.
int gw_dpdk_probe(const char *arguments, uint16_t *ports, int ports_max);
int gw_dpdk_dma_map(uint16_t port, void *address, size_t bytes);
void gw_dpdk_dma_unmap(uint16_t port, void *address, size_t bytes);
int gw_dpdk_state(uint16_t port, struct gw_dpdk_port_state *state);
// `step` says what failed.
int gw_dpdk_configure(uint16_t port, const struct gw_dpdk_port_plan *plan,
                      struct gw_dpdk_pool *const *pools,
                      struct gw_dpdk_port_state *state, const char **step);
int gw_dpdk_start(uint16_t port, const struct gw_dpdk_port_plan *plan,
                  struct gw_dpdk_port_state *state, const char **step);
void gw_dpdk_close(uint16_t port);
int gw_dpdk_stats(uint16_t port, struct gw_dpdk_stats *stats);
int gw_dpdk_stats_of(const char *name, struct gw_dpdk_stats *stats);
// 1 up, 0 down, negative where it is not known; Mbps in `speed`.
int gw_dpdk_link(uint16_t port, uint32_t *speed);

struct gw_dpdk_pool *gw_dpdk_pool_create(const char *name,
                                         const struct gw_dpdk_pool_plan *plan,
                                         int *error);
void gw_dpdk_pool_free(struct gw_dpdk_pool *pool);
// The thread that calls gives and takes from now on without a lock.
void gw_dpdk_pool_own(struct gw_dpdk_pool *pool);
// Buffers that the pool has for its queues.
uint32_t gw_dpdk_pool_ready(struct gw_dpdk_pool *pool);
void gw_dpdk_pool_give(struct gw_dpdk_pool *pool, const uint32_t *buffers,
                       uint32_t count);
uint32_t gw_dpdk_pool_take(struct gw_dpdk_pool *pool, uint32_t *buffers,
                           uint32_t count);
// As gw_dpdk_pool_take, by any thread, of what others than the owner have
// freed.
uint32_t gw_dpdk_pool_take_away(struct gw_dpdk_pool *pool, uint32_t *buffers,
                                uint32_t count);

uint32_t gw_dpdk_receive(struct gw_dpdk_pool *pool, uint16_t port,
                         uint16_t queue, struct gw_dpdk_packet *packets,
                         uint16_t count);
// Packets that were not taken stay with the caller.
uint32_t gw_dpdk_transmit(struct gw_dpdk_pool *pool, uint16_t port,
                          uint16_t queue, const struct gw_dpdk_packet *packets,
                          uint32_t count);
// Has the driver give back what it has sent.
void gw_dpdk_clean(uint16_t port, uint16_t queue);

// Attaches the XDP program of libxdp to an interface, for net_af_xdp to find it
// there. A file descriptor that keeps it attached, or a negative error.
int gw_dpdk_xdp_link(unsigned int interface);

int gw_dpdk_thread_register(void);
void gw_dpdk_thread_unregister(void);

#endif
