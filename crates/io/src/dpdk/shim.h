// C functions through which Rust uses DPDK. Only C can call the inline functions of DPDK that send
// and receive packets. The file ffi.rs contains the same declarations for Rust.

#ifndef GW_DPDK_SHIM_H
#define GW_DPDK_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Number of bytes in front of each packet buffer: mempool header (64 bytes), mbuf (128 bytes) and
// private area of the mbuf (64 bytes).
#define GW_DPDK_PREFIX_BYTES 256

struct gw_dpdk_pool;

// A packet in the packet memory, with the fields of struct gw_descriptor that a port sets.
struct gw_dpdk_packet {
    uint32_t buffer;    // start of the buffer, in units of 64 bytes from the arena's base
    uint16_t head;      // bytes from the start of the buffer to the frame
    uint16_t length;    // length of the frame in bytes
    uint32_t flow_hash; // valid if GW_DPDK_HASHED is set
    uint32_t flags;
};

#define GW_DPDK_HASHED       1u // the device computed the flow hash
#define GW_DPDK_BAD_CHECKSUM 2u // the device reported a wrong IP, TCP or UDP checksum
#define GW_DPDK_TOO_LONG     4u // the frame does not fit in one buffer

// Configuration of a mempool for the packet memory of one worker. The memory consists of slots.
// Each slot contains GW_DPDK_PREFIX_BYTES bytes for DPDK, and then one buffer.
struct gw_dpdk_pool_config {
    uint8_t *arena; // the arena's base
    uint64_t first; // offset of the first slot in the arena, in bytes
    uint32_t slots;
    uint32_t stride_bytes; // distance between two slots
    uint32_t buffer_bytes;
    uint32_t headroom_bytes; // headroom of a received frame
    int socket;              // NUMA node
};

struct gw_dpdk_port_config {
    uint16_t queues;
    uint16_t receive_ring;
    uint16_t transmit_ring;
    uint16_t mtu; // 0: keep the MTU of the device
    bool promiscuous;
    bool checksum;      // the device checks checksums
    const uint8_t *key; // RSS key
    uint32_t key_bytes;
};

// Properties of a device, and the settings that its driver selected.
struct gw_dpdk_port_state {
    char driver[64];
    char name[64];
    uint8_t mac[6];
    uint16_t mtu;
    uint16_t queues_max; // maximum number of queue pairs
    uint16_t receive_ring;
    uint16_t transmit_ring;
    int socket;    // NUMA node; -1 if unknown
    bool hashes;   // RSS distributes packets over the queues with the configured key
    bool checksum; // the device checks checksums
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

// The Rust file ffi.rs asserts the same sizes.
_Static_assert(sizeof(struct gw_dpdk_packet) == 16, "gw_dpdk_packet");
_Static_assert(sizeof(struct gw_dpdk_pool_config) == 40, "gw_dpdk_pool_config");
_Static_assert(sizeof(struct gw_dpdk_port_config) == 32, "gw_dpdk_port_config");
_Static_assert(sizeof(struct gw_dpdk_port_state) == 152, "gw_dpdk_port_state");
_Static_assert(sizeof(struct gw_dpdk_stats) == 64, "gw_dpdk_stats");

int gw_dpdk_init(int count, char **arguments);
bool gw_dpdk_iova_is_va(void);
const char *gw_dpdk_error(int number);
int gw_dpdk_register_memory(void *address, size_t bytes, size_t page_bytes);
int gw_dpdk_unregister_memory(void *address, size_t bytes);

// Attaches a device and writes the numbers of its DPDK ports to `ports`. Returns the number of
// ports, or a negative error number.
int gw_dpdk_probe(const char *arguments, uint16_t *ports, int ports_max);
int gw_dpdk_dma_map(uint16_t port, void *address, size_t bytes);
void gw_dpdk_dma_unmap(uint16_t port, void *address, size_t bytes);
int gw_dpdk_state(uint16_t port, struct gw_dpdk_port_state *state);
// Configures the device and its queues. If this fails, `step` points to the name of the failed
// step.
int gw_dpdk_configure(uint16_t port, const struct gw_dpdk_port_config *config,
                      struct gw_dpdk_pool *const *pools, struct gw_dpdk_port_state *state,
                      const char **step);
int gw_dpdk_start(uint16_t port, const struct gw_dpdk_port_config *config,
                  struct gw_dpdk_port_state *state, const char **step);
void gw_dpdk_close(uint16_t port);
int gw_dpdk_stats(uint16_t port, struct gw_dpdk_stats *stats);
int gw_dpdk_stats_of(const char *name, struct gw_dpdk_stats *stats);
// Returns 1 if the link is up, 0 if the link is down, or a negative error number. Writes the link
// speed in Mbps to `speed`.
int gw_dpdk_link(uint16_t port, uint32_t *speed);

struct gw_dpdk_pool *gw_dpdk_pool_create(const char *name, const struct gw_dpdk_pool_config *config,
                                         int *error);
void gw_dpdk_pool_free(struct gw_dpdk_pool *pool);
// Makes the calling thread the owner of the pool. Only the owner may add and remove buffers without
// a lock.
void gw_dpdk_pool_own(struct gw_dpdk_pool *pool);
// Returns the number of free buffers in the pool. Only the pool's owner may call this function.
uint32_t gw_dpdk_pool_ready(struct gw_dpdk_pool *pool);
void gw_dpdk_pool_give(struct gw_dpdk_pool *pool, const uint32_t *buffers, uint32_t count);
uint32_t gw_dpdk_pool_take(struct gw_dpdk_pool *pool, uint32_t *buffers, uint32_t count);
// Takes buffers that threads other than the pool's owner have freed. Any thread may call this
// function.
uint32_t gw_dpdk_pool_take_foreign(struct gw_dpdk_pool *pool, uint32_t *buffers, uint32_t count);

uint32_t gw_dpdk_receive(struct gw_dpdk_pool *pool, uint16_t port, uint16_t queue,
                         struct gw_dpdk_packet *packets, uint16_t count);
// Sends packets. Returns the number of packets that the device accepted. The caller keeps the
// buffers of all other packets.
uint32_t gw_dpdk_transmit(struct gw_dpdk_pool *pool, uint16_t port, uint16_t queue,
                          const struct gw_dpdk_packet *packets, uint32_t count);
// Makes the driver free the buffers of sent packets.
void gw_dpdk_clean(uint16_t port, uint16_t queue);

// Attaches the XDP program of libxdp to an interface, for the driver net_af_xdp. Returns a file
// descriptor that keeps the program attached, or a negative error number.
int gw_dpdk_xdp_link(unsigned int interface);

int gw_dpdk_thread_register(void);
void gw_dpdk_thread_unregister(void);

#endif
