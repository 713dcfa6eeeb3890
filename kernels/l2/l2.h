/* godwit function l2
summary = """\
    Switches Ethernet frames by VLAN and address, and learns the ports of addresses (a cuckoo \
    hash table)."""
spec    = "IEEE 802.1Q-2018 clauses 6.9, 8.6 to 8.8; Zhou et al., CoNEXT 2013"
number  = 6
magic   = "l22 "
reads   = 18
headroom = 4
variants = ["all"]
[verdicts]
forward = {
    text = """\
        The destination is at another port; the frame is tagged or untagged as that port \
        requires.""",
    port = true, value = "VID and flags",
}
flood = {
    text = """\
        The destination is a group address or unknown; the frame goes to all other ports of the \
        VLAN.""",
    port = true, value = "VID and flags",
}
reserved = {
    text = "The destination is one of 01-80-C2-00-00-00 to -0F, which bridges do not forward.",
    value = "VID",
}
[drops]
truncated = "The frame ends within its Ethernet header or its VLAN tag."
port = "The frame arrived on a port that does not belong to the switch."
vlan = "The port does not accept frames of this VLAN, untagged frames, or tagged frames."
source = "The source is a group address or all zeros."
same_port = "The destination is at the port that the frame arrived on."
[counters]
addresses = {
    unit = "addresses",
    text = "Addresses in the table now, learned and static.",
}
learned = {
    unit = "addresses",
    text = "Addresses learned from frames.",
}
moved = {
    unit = "addresses",
    text = "Addresses learned at a different port than before.",
}
aged = {
    unit = "addresses",
    text = "Addresses removed because no frame arrived from them.",
}
displaced = {
    unit = "entries",
    text = "Entries moved to their other bucket to make room.",
}
unheard = {
    unit = "notices",
    text = "Notices of source addresses that did not fit into the queue to the control side.",
}
not_learned = {
    unit = "addresses",
    text = "Addresses that did not fit into the table or exceeded the limit of their port.",
}
[constants]
notice = "u32 = 0x80000000: Flag in the value: the host must learn the source."
pop = "u32 = 0x10000: Flag in the value: remove the tag."
push = "u32 = 0x20000: Flag in the value: add a tag of the VLAN."
set = "u32 = 0x30000: Flags in the value: set VID 0 of the tag to that of the VLAN."
untagged = "u8 = 1: Flag of a port: accepts frames without a tag or with VID 0."
tagged = "u8 = 2: Flag of a port: accepts frames with a tag, in the VLANs of which it is a member."
learns = "u8 = 4: Flag of a port: learns source addresses."
[structs.image]
text = "Header of the table image, drawn in l2.h"
fields.magic = "u32: GW_L2_MAGIC"
fields.bucket_bits = "u32: binary logarithm of the number of buckets, 8 to 28"
fields.multipliers = "u64[4]: multipliers of the permutation; odd, secret"
fields.addends = "u64[4]: addends of the permutation; secret"
fields.second = "u64: multiplier of the second bucket's hash; odd, secret"
fields.ports_offset = "u64: offset of the ports"
fields.vlans_offset = "u64: offset of the VLANs"
fields.buckets_offset = "u64: offset of the buckets, which have four entries of eight bytes each"
fields.bytes = "u64: size of the image"
[structs.port]
text = "Rules of an ingress port of the switch"
default = true
fields.vid = "u16: VLAN of untagged frames"
fields.flags = "u8: GW_L2_UNTAGGED, GW_L2_TAGGED, GW_L2_LEARNS"
fields.pad = "u8: 0"
[structs.vlan]
text = "Ports of a VLAN, in one cache line. Port p is bit p % 32 of word p / 32"
default = true
fields.members = "u32[8]: member ports"
fields.tagged = "u32[8]: member ports that send frames with a tag"
*/
/*
 * l2: an Ethernet switch that forwards by VLAN and destination address.
 *
 * The rules are checked in order. The first rule that applies decides:
 *
 *    1  incomplete Ethernet header or tag                           drop truncated
 *    2  the ingress port does not belong to the switch              drop port
 *    3  untagged, or VID 0, on a port that accepts tagged frames
 *       only; tagged on a port that accepts untagged ones only;
 *       VID 4095; the port is not a member of the VLAN              drop vlan
 *    4  source is a group address, or all zeros                     drop source
 *    5  destination is 01-80-C2-00-00-00 to -0F                     reserved
 *    6  destination is a group address, or not in the table         flood
 *    7  destination is at the ingress port                          drop same_port
 *    8  otherwise                                                   forward
 *
 * An untagged frame belongs to the VLAN of its port. The kernel does not change the frame. The host
 * adds or removes the tag, as the egress port requires. The outcome of forward and flood also
 * reports whether the host must learn the source address (GW_L2_NOTICE). It must if the address is
 * not in the table, not fresh, or at another port and not static.
 *
 * The kernel reads 18 bytes of the frame. It also reads 2 independent buckets each for the source
 * and the destination. If the table is large, all of these loads miss every cache.
 */
#ifndef GODWIT_L2_H
#define GODWIT_L2_H

/*
 * Tables of l2: ports, VLANs, and a cuckoo hash table of addresses. A lookup key has two buckets of
 * four entries each (Pagh, Rodler, Cuckoo Hashing, ESA 2001; Zhou et al., Scalable, High
 * Performance Ethernet Forwarding with CuckooSwitch, CoNEXT 2013).
 *
 *   0         ports_offset   vlans_offset   buckets_offset                 bytes
 *   | header  | 256 * 4      | 4096 * 64    | 2^bucket_bits * 4 entries * 8 |
 *
 * All offsets count from the first byte of the tables and are multiples of 64.
 *
 * A key is VID << 48 | MAC, 60 bits. A keyed permutation of 60 bits (gw_l2_mix) is applied to it.
 * The lower bucket_bits of the result are the key's first bucket. The other bits, `rest`, identify
 * the key within the bucket. The second bucket is the first bucket XOR a keyed hash of `rest`. The
 * same XOR leads back, so an entry and its bucket determine the key:
 *
 *   63                          12 11          4  3        2       1        0
 *   | rest: 60 - bucket_bits bits | port         | static | fresh | second | valid |
 *
 * second: the entry is in the key's second bucket. fresh: the address was seen recently, so no
 * notice is needed when it is seen again. An empty entry is 0.
 *
 * An entry is one 64-bit word that is changed by one store while lookups run, so a lookup sees
 * either the old or the new entry. To move an entry, the host writes the copy, waits until every
 * lookup that began before has ended, and only then overwrites the original. At any time during a
 * lookup, the entry is in one of its two buckets: a lookup that began before the copy existed
 * reads the original before it is overwritten, and any later one finds the copy. If a lookup finds
 * both, they may differ only if the entry was changed in between; the first one is used.
 */

#define GW_L2_ROUNDS     4
#define GW_L2_VALID      1u
#define GW_L2_SECOND     2u
#define GW_L2_FRESH      4u
#define GW_L2_STATIC     8u
#define GW_L2_PORT_SHIFT 4
#define GW_L2_REST_SHIFT 12

#define GW_L2_VIDS 4096u
#define GW_L2_MACS 0x0000ffffffffffffu

/* Bits of gw_half.value, in addition to the VID. */
#define GW_L2_HAS_TAG  0x1000u
#define GW_L2_HAS_ZERO 0x2000u /* a tag of VID 0 */
#define GW_L2_GROUP    0x4000u /* the destination is a group address */
#define GW_L2_LEARNING 0x8000u /* the port learns */

/*
 * Permutes a 60-bit key with a Feistel network. Its round functions are strongly universal hashes
 * with secret multipliers (Dietzfelbinger, Universal hashing and k-wise independent random
 * variables via integer arithmetic without primes, STACS 1996, theorem 1). An attacker who does not
 * know the multipliers cannot choose addresses that fall into the same buckets.
 */
GW_LANE gw_u64 gw_l2_mix(const GW_GLOBAL gw_l2_image *header, gw_u64 key)
{
    gw_u64 left = key >> 30;
    gw_u64 right = key & 0x3fffffffu;
    for (int round = 0; round < GW_L2_ROUNDS; round += 2) {
        left ^= (right * header->multipliers[round] + header->addends[round]) >> 34;
        right ^= (left * header->multipliers[round + 1] + header->addends[round + 1]) >> 34;
    }
    return left << 30 | right;
}

/* Returns the number of the first bucket of a permuted key. */
GW_LANE gw_u64 gw_l2_first(const GW_GLOBAL gw_l2_image *header, gw_u64 mixed)
{
    return mixed & (((gw_u64)1 << header->bucket_bits) - 1);
}

/* Returns the XOR of a key's two bucket numbers. The result is at least 2, so the two buckets never
 * share a cache line. */
GW_LANE gw_u64 gw_l2_flip(const GW_GLOBAL gw_l2_image *header, gw_u64 mixed)
{
    return (((mixed >> header->bucket_bits) * header->second) >> (64 - header->bucket_bits)) | 2;
}

GW_LANE const GW_GLOBAL gw_u64 *gw_l2_bucket(const GW_GLOBAL gw_l2_image *header, gw_u64 bucket)
{
    return (const GW_GLOBAL gw_u64 *)((const GW_GLOBAL gw_u8 *)header + header->buckets_offset) +
           bucket * 4;
}

/* Returns the address of the first bucket of a permuted key. */
GW_LANE const GW_GLOBAL gw_u64 *gw_l2_one(const GW_GLOBAL gw_l2_image *header, gw_u64 mixed)
{
    return gw_l2_bucket(header, gw_l2_first(header, mixed));
}

/* Returns the address of the second bucket of a permuted key. */
GW_LANE const GW_GLOBAL gw_u64 *gw_l2_other(const GW_GLOBAL gw_l2_image *header, gw_u64 mixed)
{
    return gw_l2_bucket(header, gw_l2_first(header, mixed) ^ gw_l2_flip(header, mixed));
}

/* Returns the entry of a permuted key, or 0. */
GW_LANE gw_u64 gw_l2_find(const GW_GLOBAL gw_l2_image *header, gw_u64 mixed)
{
    const gw_u64 expected = (mixed >> header->bucket_bits) << GW_L2_REST_SHIFT | GW_L2_VALID;
    return gw_find_word(gw_l2_one(header, mixed), expected, gw_l2_other(header, mixed),
                        expected | GW_L2_SECOND, ~(gw_u64)0xfff | GW_L2_VALID | GW_L2_SECOND);
}

GW_LANE gw_u32 gw_l2_has_port(const GW_GLOBAL gw_u32 *set, gw_u32 port)
{
    return set[(port & 255) >> 5] >> (port & 31) & 1;
}

/* Checks the headers and the VLAN of a frame. */
GW_LANE void gw_l2_begin(const gw_lane *lane, const gw_descriptor *descriptor, gw_half *first_half,
                         gw_outcome *outcome)
{
    const GW_GLOBAL gw_l2_image *header = (const GW_GLOBAL gw_l2_image *)lane->image;
    GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    const gw_u32 length = descriptor->length;
    first_half->frame = frame;
    first_half->offset = 0;
    if (length < GW_ETHERNET_BYTES) {
        gw_drop(outcome, GW_L2_TRUNCATED);
        return;
    }
    const gw_u64 front = gw_load_be64(frame);
    const gw_u64 middle = gw_load_be64(frame + 6);
    gw_u32 state = 0;
    gw_u32 vid = 0;
    if ((middle & 0xffff) == GW_ETHER_TYPE_VLAN) {
        if (length < GW_ETHERNET_BYTES + GW_VLAN_BYTES) {
            gw_drop(outcome, GW_L2_TRUNCATED);
            return;
        }
        vid = gw_load_be16(frame + 14) & 0xfff;
        state = vid != 0 ? GW_L2_HAS_TAG : GW_L2_HAS_TAG | GW_L2_HAS_ZERO;
    }
    const GW_GLOBAL gw_l2_port *port =
        (const GW_GLOBAL gw_l2_port *)(lane->image + header->ports_offset) + descriptor->port;
    const gw_u32 flags = port->flags;
    if ((flags & (GW_L2_UNTAGGED | GW_L2_TAGGED)) == 0) {
        gw_drop(outcome, GW_L2_PORT);
        return;
    }
    const gw_u32 needed = vid != 0 ? GW_L2_TAGGED : GW_L2_UNTAGGED;
    vid = vid != 0 ? vid : port->vid;
    const GW_GLOBAL gw_l2_vlan *vlan =
        (const GW_GLOBAL gw_l2_vlan *)(lane->image + header->vlans_offset) + vid;
    /* VID 4095 has no members. */
    if ((flags & needed) == 0 || !gw_l2_has_port(vlan->members, descriptor->port)) {
        gw_drop(outcome, GW_L2_VLAN);
        return;
    }
    const gw_u64 source = middle >> 16;
    const gw_u64 destination = front >> 16;
    if ((source >> 40 & 1) != 0 || source == 0) {
        gw_drop(outcome, GW_L2_SOURCE);
        return;
    }
    if (destination >> 4 == 0x0180c200000u) {
        gw_verdict(outcome, GW_L2_RESERVED, 0, vid);
        return;
    }
    state |= vid;
    state |= (flags & GW_L2_LEARNS) != 0 ? GW_L2_LEARNING : 0;
    state |= (destination >> 40 & 1) != 0 ? GW_L2_GROUP : 0;
    first_half->offset = 1u + descriptor->port;
    first_half->value = state;
    first_half->keys[0] = gw_l2_mix(header, (gw_u64)vid << 48 | source);
    first_half->keys[1] = gw_l2_mix(header, (gw_u64)vid << 48 | destination);
}

/* Looks up both addresses and sets the outcome. */
GW_LANE void gw_l2_end(const gw_lane *lane, const gw_half *first_half, gw_outcome *outcome)
{
    if (first_half->offset == 0) {
        return;
    }
    const GW_GLOBAL gw_l2_image *header = (const GW_GLOBAL gw_l2_image *)lane->image;
    const gw_u32 ingress = first_half->offset - 1;
    const gw_u32 state = first_half->value;
    const gw_u32 vid = state & 0xfff;
    const gw_u64 source = first_half->keys[0];
    const gw_u64 station = (state & GW_L2_GROUP) != 0 ? source : first_half->keys[1];
    GW_EXPENSIVE(gw_l2_one(header, source));
    GW_EXPENSIVE(gw_l2_other(header, source));
    GW_EXPENSIVE(gw_l2_one(header, station));
    GW_EXPENSIVE(gw_l2_other(header, station));
    const gw_u64 from = gw_l2_find(header, source);
    /* The host does not learn the source address if its table entry is static, or if a fresh entry
     * names the ingress port. */
    const gw_u32 here = (gw_u32)((from >> GW_L2_PORT_SHIFT & 0xff) == ingress);
    const gw_u32 known =
        (gw_u32)((from & GW_L2_STATIC) != 0) | (here & (gw_u32)((from & GW_L2_FRESH) != 0));
    const gw_u32 value = vid | (known == 0 && (state & GW_L2_LEARNING) != 0 ? GW_L2_NOTICE : 0);
    const gw_u64 to = (state & GW_L2_GROUP) != 0 ? (gw_u64)0 : gw_l2_find(header, station);
    if (to == 0) {
        gw_verdict(outcome, GW_L2_FLOOD, GW_PORT_FLOOD, value);
        return;
    }
    const gw_u32 egress = (gw_u32)(to >> GW_L2_PORT_SHIFT) & 0xff;
    if (egress == ingress) {
        gw_drop(outcome, GW_L2_SAME_PORT);
        /* The destination is behind the ingress port, so the frame is dropped. The host still
         * learns the source address. */
        outcome->value = value;
        return;
    }
    const GW_GLOBAL gw_l2_vlan *vlan =
        (const GW_GLOBAL gw_l2_vlan *)(lane->image + header->vlans_offset) + vid;
    const gw_u32 tagged = gw_l2_has_port(vlan->tagged, egress);
    const gw_u32 bare = tagged != 0 ? GW_L2_PUSH : 0;
    const gw_u32 zero = tagged != 0 ? GW_L2_SET : GW_L2_POP;
    const gw_u32 other = tagged != 0 ? 0 : GW_L2_POP;
    const gw_u32 had = (state & GW_L2_HAS_ZERO) != 0 ? zero : other;
    gw_verdict(outcome, GW_L2_FORWARD, egress, value | ((state & GW_L2_HAS_TAG) != 0 ? had : bare));
}

GW_CALLED void gw_l2_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_half first_half;
    gw_l2_begin(lane, descriptor, &first_half, outcome);
    gw_l2_end(lane, &first_half, outcome);
}

#endif
