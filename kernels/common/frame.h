/* Where things lie in a frame: shared by the functions that parse packets. */
#ifndef GODWIT_FRAME_H
#define GODWIT_FRAME_H

#define GW_ETHERNET_BYTES  14u
#define GW_VLAN_BYTES      4u
#define GW_ETHER_TYPE_IPV4 0x0800u
#define GW_ETHER_TYPE_VLAN 0x8100u
#define GW_ETHER_TYPE_IPV6 0x86ddu
#define GW_PROTOCOL_TCP    6u
#define GW_PROTOCOL_UDP    17u

/* What the first half of a function leaves for its second. */
typedef struct gw_half {
    GW_GLOBAL gw_u8 *frame; /* its first byte */
    gw_u32 offset;          /* where the second half goes on; 0: the packet is settled */
    gw_u32 value;           /* what the first half found */
    gw_u64 keys[2];         /* what it looks for */
} gw_half;

/* The layer above Ethernet II, behind at most one 802.1Q tag. */
typedef struct gw_l3 {
    gw_u32 ether_type; /* of what lies at offset */
    gw_u32 offset;     /* from the frame's first byte; 0: the frame is too short to say */
} gw_l3;

/* IEEE 802.3 clause 3.2, IEEE 802.1Q clause 9. A second tag is left as an EtherType of its own. */
GW_LANE gw_l3 gw_l3_parse(const GW_GLOBAL gw_u8 *frame, gw_u32 length)
{
    gw_l3 l3;
    l3.ether_type = 0;
    l3.offset = 0;
    if (length < GW_ETHERNET_BYTES) {
        return l3;
    }
    l3.ether_type = gw_load_be16(frame + 12);
    l3.offset = GW_ETHERNET_BYTES;
    if (l3.ether_type == GW_ETHER_TYPE_VLAN) {
        if (length < GW_ETHERNET_BYTES + GW_VLAN_BYTES) {
            l3.offset = 0;
            return l3;
        }
        l3.ether_type = gw_load_be16(frame + 16);
        l3.offset = GW_ETHERNET_BYTES + GW_VLAN_BYTES;
    }
    return l3;
}

/* Swaps the Ethernet addresses: destination in bytes 0..6, source in bytes 6..12. */
GW_LANE void gw_swap_macs(GW_GLOBAL gw_u8 *frame)
{
    const gw_u64 front = gw_load_be64(frame);
    const gw_u32 back = gw_load_be32(frame + 8);
    gw_store_be64(frame, front << 48 | (gw_u64)back << 16 | front >> 48);
    gw_store_be32(frame + 8, (gw_u32)(front >> 16));
}

#endif
