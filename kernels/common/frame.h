/* Packet header constants, and a parser for Ethernet headers. */
#ifndef GODWIT_FRAME_H
#define GODWIT_FRAME_H

#define GW_ETHERNET_BYTES  14u
#define GW_VLAN_BYTES      4u
#define GW_ETHER_TYPE_IPV4 0x0800u
#define GW_ETHER_TYPE_VLAN 0x8100u
#define GW_ETHER_TYPE_IPV6 0x86ddu
#define GW_PROTOCOL_TCP    6u
#define GW_PROTOCOL_UDP    17u

/* Packet state that the code before the table lookup passes to the code after it. */
typedef struct gw_half {
    GW_GLOBAL gw_u8 *frame; /* first byte of the frame */
    gw_u32 offset;          /* offset at which the second half continues; 0: nothing left to do */
    gw_u32 value;           /* result of the first half */
    gw_u64 keys[2];         /* keys that the second half looks up */
} gw_half;

/* Location and type of the layer 3 header in a frame, after the Ethernet II header and at most one
 * 802.1Q tag. */
typedef struct gw_l3 {
    gw_u32 ether_type; /* EtherType of the header at `offset` */
    gw_u32 offset;     /* offset from the first byte of the frame; 0: the frame is too short */
} gw_l3;

/* Parses the Ethernet header and at most one VLAN tag (IEEE 802.3 clause 3.2, IEEE 802.1Q clause
 * 9). If a second tag follows, the result has the EtherType of that tag. */
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

/* Returns whether a frame is addressed to a group of stations, such as broadcast. The group bit is
 * the lowest bit of the first byte (IEEE 802, clause 8.2). The frame has at least one byte. */
GW_LANE gw_u32 gw_is_group_frame(const GW_GLOBAL gw_u8 *frame)
{
    return frame[0] & 1u;
}

/* Swaps the destination and the source address of a frame (bytes 0..6 and 6..12). */
GW_LANE void gw_swap_macs(GW_GLOBAL gw_u8 *frame)
{
    const gw_u64 front = gw_load_be64(frame);
    const gw_u32 back = gw_load_be32(frame + 8);
    gw_store_be64(frame, front << 48 | (gw_u64)back << 16 | front >> 48);
    gw_store_be32(frame + 8, (gw_u32)(front >> 16));
}

#endif
