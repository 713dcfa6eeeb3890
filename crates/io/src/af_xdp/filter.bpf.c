// XDP program of the port `af_xdp`. It selects the frames of an interface that workers receive. The
// kernel processes all other frames.
//
// The program parses the headers that rules can match. These are VLAN tags, IPv4 or IPv6 headers,
// and port numbers. The first rule that matches a frame decides about the frame. If no rule
// matches, the `take` setting decides. A selected frame goes to the AF_XDP socket of its queue. If
// the queue has no socket, the frame goes to the kernel.
//
// The script scripts/bpf.sh compiles this file to filter.bpf.o. The object file is part of the
// repository, so that a build does not need clang.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// These definitions are copied from linux/bpf.h. The XDP program needs no other definitions.
enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_XSKMAP = 17 };
enum { XDP_PASS = 2, XDP_REDIRECT = 4 };
struct xdp_md {
    u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
static void *(*const lookup)(void *map, const void *key) = (void *)1;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

#define SECTION(name) __attribute__((section(name), used))
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name

// The file filter.rs declares the same limits and numbers.
enum { RULES_MAX = 64, QUEUES_MAX = 128, ADDRESSES_MAX = 4096 };
enum take { TAKE_NONE, TAKE_ALL, TAKE_IP, TAKE_ROUTED };
enum action { ACTION_END, ACTION_TAKE, ACTION_PASS };
enum counter { TAKEN, PASSED, NO_SOCKET, COUNTERS };
// Special values in filter rules. A rule whose field `family` is 0 matches both IP versions. A rule
// with ANY_PROTOCOL matches every protocol, and one with ESP_IN_UDP matches UDP that carries ESP.
enum { FAMILY_IPV4 = 4, FAMILY_IPV6 = 6, ANY_PROTOCOL = 256, ESP_IN_UDP = 257 };

// An IPv6 address in network byte order. IPv4 addresses are stored in the mapped form ::ffff:0:0/96
// of IPv6.
struct address {
    u32 word[4];
};

struct rule {
    struct address source, source_mask, destination, destination_mask;
    // First and last port, in host byte order.
    u16 source_ports[2], destination_ports[2];
    u16 protocol;
    u8 family, action;
};

struct settings {
    u32 take;
    u8 mac[6];
    u8 padding[2];
};

struct {
    UINT(type, MAP_XSKMAP);
    UINT(max_entries, QUEUES_MAX);
    TYPE(key, u32);
    TYPE(value, u32);
} sockets SECTION(".maps");

struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, RULES_MAX);
    TYPE(key, u32);
    TYPE(value, struct rule);
} rules SECTION(".maps");

struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct settings);
} settings SECTION(".maps");

// IP addresses of this machine.
struct {
    UINT(type, MAP_HASH);
    UINT(max_entries, ADDRESSES_MAX);
    TYPE(key, struct address);
    TYPE(value, u8);
} addresses SECTION(".maps");

struct {
    UINT(type, MAP_PERCPU_ARRAY);
    UINT(max_entries, COUNTERS);
    TYPE(key, u32);
    TYPE(value, u64);
} counters SECTION(".maps");

struct packet {
    struct address source, destination;
    u16 source_port, destination_port;
    u16 ether_type;
    u8 family, protocol;
    u8 has_ports, is_tagged, is_esp_in_udp;
};

static inline u16 be16(const u8 *bytes)
{
    return (u16)(bytes[0] << 8 | bytes[1]);
}

static inline u32 word(const u8 *bytes)
{
    return (u32)bytes[0] | (u32)bytes[1] << 8 | (u32)bytes[2] << 16 | (u32)bytes[3] << 24;
}

static inline void count(u32 counter)
{
    u64 *value = lookup(&counters, &counter);
    if (value)
        *value += 1;
}

static inline void parse_ports(struct packet *packet, const u8 *at, const u8 *end)
{
    u8 protocol = packet->protocol;
    // The protocols TCP, UDP, SCTP and UDP-Lite have port numbers.
    if (protocol != 6 && protocol != 17 && protocol != 132 && protocol != 136)
        return;
    if (at + 4 > end)
        return;
    packet->source_port = be16(at);
    packet->destination_port = be16(at + 2);
    packet->has_ports = 1;
    // ESP in UDP begins with its SPI, and IKE on the same port with four zero bytes (RFC 3948,
    // section 2). A NAT keepalive is shorter.
    if (protocol == 17 && at + 12 <= end)
        packet->is_esp_in_udp = word(at + 8) != 0;
}

static inline void parse(struct packet *packet, const u8 *at, const u8 *end)
{
    if (at + 14 > end)
        return;
    u16 type = be16(at + 12);
    at += 14;
#pragma unroll
    for (int tags = 0; tags < 2; tags++) {
        if (type != 0x8100 && type != 0x88a8)
            break;
        if (at + 4 > end)
            return;
        type = be16(at + 2);
        at += 4;
        packet->is_tagged = 1;
    }
    packet->ether_type = type;
    if (type == 0x0800) {
        if (at + 20 > end || at[0] >> 4 != 4)
            return;
        u32 header_bytes = (at[0] & 15u) * 4;
        if (header_bytes < 20)
            return;
        packet->family = FAMILY_IPV4;
        packet->protocol = at[9];
        packet->source.word[2] = packet->destination.word[2] = 0xffff0000;
        packet->source.word[3] = word(at + 12);
        packet->destination.word[3] = word(at + 16);
        // Only the first fragment of a packet contains the port numbers.
        if ((be16(at + 6) & 0x1fff) == 0)
            parse_ports(packet, at + header_bytes, end);
    } else if (type == 0x86dd) {
        if (at + 40 > end || at[0] >> 4 != 6)
            return;
        packet->family = FAMILY_IPV6;
        packet->protocol = at[6];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            packet->source.word[i] = word(at + 8 + 4 * i);
            packet->destination.word[i] = word(at + 24 + 4 * i);
        }
        parse_ports(packet, at + 40, end);
    }
}

static inline int matches_prefix(const struct address *address, const struct address *prefix, const struct address *mask)
{
    u32 differs = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        differs |= (address->word[i] ^ prefix->word[i]) & mask->word[i];
    return differs == 0;
}

static inline int is_within(u16 port, const u16 range[2])
{
    return range[0] <= port && port <= range[1];
}

static inline int fits(const struct rule *rule, const struct packet *packet)
{
    if (rule->family != 0 && rule->family != packet->family)
        return 0;
    if (rule->protocol == ESP_IN_UDP && !packet->is_esp_in_udp)
        return 0;
    if (rule->protocol < ANY_PROTOCOL && (packet->family == 0 || rule->protocol != packet->protocol))
        return 0;
    if (!matches_prefix(&packet->source, &rule->source, &rule->source_mask) ||
        !matches_prefix(&packet->destination, &rule->destination, &rule->destination_mask))
        return 0;
    int any_source = rule->source_ports[0] == 0 && rule->source_ports[1] == 65535;
    int any_destination = rule->destination_ports[0] == 0 && rule->destination_ports[1] == 65535;
    if (any_source && any_destination)
        return 1;
    return packet->has_ports && is_within(packet->source_port, rule->source_ports) &&
           is_within(packet->destination_port, rule->destination_ports);
}

// Returns whether a router would forward the packet. The destination MAC address must be the
// address of this machine, and the destination IP address must belong to another machine. Packets
// to multicast, broadcast and link-local addresses are not forwarded.
static inline int is_routed(const struct packet *packet, const u8 *frame, const u8 *end, const struct settings *settings)
{
    if (packet->family == 0 || packet->is_tagged || frame + 14 > end)
        return 0;
    u32 differs = 0;
#pragma unroll
    for (int i = 0; i < 6; i++)
        differs |= frame[i] ^ settings->mac[i];
    if (differs)
        return 0;
    if (packet->family == FAMILY_IPV4) {
        u32 address = packet->destination.word[3];
        u8 first = address & 255, second = address >> 8 & 255;
        if (first >= 224 || (first == 169 && second == 254))
            return 0;
    } else {
        u32 address = packet->destination.word[0];
        u8 first = address & 255, second = address >> 8 & 255;
        if (first == 0xff || (first == 0xfe && (second & 0xc0) == 0x80))
            return 0;
    }
    return lookup(&addresses, &packet->destination) == 0;
}

SECTION("xdp") int godwit(struct xdp_md *context)
{
    const u8 *frame = (const u8 *)(long)context->data;
    const u8 *end = (const u8 *)(long)context->data_end;
    u32 zero = 0;
    const struct settings *current = lookup(&settings, &zero);
    if (!current)
        return XDP_PASS;
    struct packet packet = {0};
    parse(&packet, frame, end);
    u8 action = ACTION_END;
    for (u32 i = 0; i < RULES_MAX; i++) {
        u32 key = i;
        const struct rule *rule = lookup(&rules, &key);
        if (!rule || rule->action == ACTION_END)
            break;
        if (fits(rule, &packet)) {
            action = rule->action;
            break;
        }
    }
    int take = action == ACTION_TAKE;
    if (action == ACTION_END) {
        take = current->take == TAKE_ALL || (current->take == TAKE_IP && packet.family != 0) ||
               (current->take == TAKE_ROUTED && is_routed(&packet, frame, end, current));
    }
    if (!take) {
        count(PASSED);
        return XDP_PASS;
    }
    long result = redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
    count(result == XDP_REDIRECT ? TAKEN : NO_SOCKET);
    return result;
}

// The kernel restricts some helper functions to programs under the GPL. This program calls none of
// them, so it can have another license.
const char terms[] SECTION("license") = "Apache-2.0";
