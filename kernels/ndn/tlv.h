/*
 * Parsers for NDN packets: type-length-value (TLV) elements, names, Interests, and the link
 * protocol NDNLPv2.
 *
 * Spec: NDN Packet Format Specification 0.3 ("NDN"), sections TLV, Name, Interest; NDNLPv2.
 */
#ifndef GODWIT_NDN_TLV_H
#define GODWIT_NDN_TLV_H

/* Results of the TLV parsers. */
#define GW_NDN_SOUND 0u
#define GW_NDN_SHORT 1u /* the element exceeds its container */
#define GW_NDN_WRONG 2u /* a number is not in its shortest form, or is not a valid type */

/* Types of NDN elements (NDN, section "Types"). */
#define GW_NDN_TLV_IMPLICIT_DIGEST   1u
#define GW_NDN_TLV_PARAMETERS_DIGEST 2u
#define GW_NDN_TLV_INTEREST          5u
#define GW_NDN_TLV_DATA              6u
#define GW_NDN_TLV_NAME              7u
#define GW_NDN_TLV_NONCE             10u
#define GW_NDN_TLV_LIFETIME          12u
#define GW_NDN_TLV_MUST_BE_FRESH     18u
#define GW_NDN_TLV_FORWARDING_HINT   30u
#define GW_NDN_TLV_CAN_BE_PREFIX     33u
#define GW_NDN_TLV_HOP_LIMIT         34u
#define GW_NDN_TLV_PARAMETERS        36u
#define GW_NDN_TLV_SIGNATURE_INFO    44u
#define GW_NDN_TLV_SIGNATURE_VALUE   46u
/* NDNLPv2 field types (NDNLPv2, section "TLV-TYPE code assignments"). */
#define GW_NDN_LP          100u
#define GW_NDN_LP_FRAGMENT 80u
#define GW_NDN_LP_SEQUENCE 81u
#define GW_NDN_LP_INDEX    82u
#define GW_NDN_LP_COUNT    83u
#define GW_NDN_LP_TOKEN    98u
#define GW_NDN_LP_NACK     800u

/* Type-length-value (TLV) element of a packet. Offsets count from the first byte of the frame. */
typedef struct gw_ndn_tlv {
    gw_u32 type;
    gw_u32 value; /* start of the value */
    gw_u32 end;   /* end of the value, where the next element begins */
} gw_ndn_tlv;

/*
 * Parses a number of 1, 3, 5 or 9 bytes at offset *at, and advances *at to its end. The number must
 * have its shortest form (NDN, section "TLV Encoding"). Numbers above 2^32 - 1 become 2^32 - 1,
 * which exceeds every valid length.
 */
GW_LANE gw_u32 gw_ndn_number(const GW_GLOBAL gw_u8 *frame, gw_u32 *at, gw_u32 limit, gw_u32 *number)
{
    const gw_u32 from = *at;
    if (from >= limit) {
        return GW_NDN_SHORT;
    }
    const gw_u32 first = frame[from];
    *number = first;
    *at = from + 1;
    if (first < 253) {
        return GW_NDN_SOUND;
    }
    const gw_u32 bytes = 2u << (first - 253);
    if (limit - from - 1 < bytes) {
        return GW_NDN_SHORT;
    }
    *at = from + 1 + bytes;
    if (first == 253) {
        *number = gw_load_be16(frame + from + 1);
        return *number < 253 ? GW_NDN_WRONG : GW_NDN_SOUND;
    }
    const gw_u32 word = gw_load_be32(frame + from + 1);
    if (first == 254) {
        *number = word;
        return word < 0x10000u ? GW_NDN_WRONG : GW_NDN_SOUND;
    }
    *number = 0xffffffffu;
    return word == 0 ? GW_NDN_WRONG : GW_NDN_SOUND;
}

/* Reads a TLV element with a type and a length of any size. */
GW_RARE gw_u32 gw_ndn_read_any(const GW_GLOBAL gw_u8 *frame, gw_u32 at, gw_u32 limit,
                               gw_ndn_tlv *element)
{
    gw_u32 here = at;
    gw_u32 type = 0;
    gw_u32 length = 0;
    gw_u32 fault = gw_ndn_number(frame, &here, limit, &type);
    if (fault != GW_NDN_SOUND) {
        return fault;
    }
    /* A valid TLV type is 1 to 2^32 - 1, and takes 1, 3 or 5 bytes (NDN, section "TLV
     * Encoding"). */
    if (type == 0 || frame[at] == 255) {
        return GW_NDN_WRONG;
    }
    fault = gw_ndn_number(frame, &here, limit, &length);
    if (fault != GW_NDN_SOUND) {
        return fault;
    }
    if (length > limit - here) {
        return GW_NDN_SHORT;
    }
    element->type = type;
    element->value = here;
    element->end = here + length;
    return GW_NDN_SOUND;
}

/* Reads the TLV element at offset `at`. Returns GW_NDN_SHORT if the element exceeds `limit`,
 * GW_NDN_WRONG if its encoding is invalid, and GW_NDN_SOUND otherwise. */
GW_LANE gw_u32 gw_ndn_read(const GW_GLOBAL gw_u8 *frame, gw_u32 at, gw_u32 limit,
                           gw_ndn_tlv *element)
{
    if (at + 2 <= limit) {
        const gw_u32 type = frame[at];
        const gw_u32 length = frame[at + 1];
        /* The subtraction maps type 0 to a large value. */
        if (type - 1 < 252 && length < 253) {
            element->type = type;
            element->value = at + 2;
            element->end = at + 2 + length;
            return element->end > limit ? GW_NDN_SHORT : GW_NDN_SOUND;
        }
    }
    return gw_ndn_read_any(frame, at, limit, element);
}

/* Interest fields that a forwarder needs. Offsets count from the first byte of the frame. */
typedef struct gw_ndn_interest {
    gw_u32 name; /* offset of the first component */
    gw_u32 name_bytes;
    gw_u32 hop_limit; /* offset of the HopLimit value; 0: absent */
    gw_u32 has_nonce;
} gw_ndn_interest;

/* Returns whether an Interest name is valid. A valid name has at least one component. Component
 * types are 1 to 65535, and digest components have 32 bytes (NDN, section "Name"). */
GW_LANE gw_u32 gw_ndn_name_is_sound(const GW_GLOBAL gw_u8 *frame, gw_u32 at, gw_u32 end)
{
    if (at == end) {
        return 0;
    }
    while (at < end) {
        gw_ndn_tlv component;
        if (gw_ndn_read(frame, at, end, &component) != GW_NDN_SOUND || component.type > 0xffff) {
            return 0;
        }
        if (component.type <= GW_NDN_TLV_PARAMETERS_DIGEST &&
            component.end - component.value != 32) {
            return 0;
        }
        at = component.end;
    }
    return 1;
}

/* Returns the position that an element type must have in an Interest, counted from 1. Returns 0 for
 * an unknown type. */
GW_LANE gw_u32 gw_ndn_rank(gw_u32 type)
{
    switch (type) {
    case GW_NDN_TLV_NAME:
        return 1;
    case GW_NDN_TLV_CAN_BE_PREFIX:
        return 2;
    case GW_NDN_TLV_MUST_BE_FRESH:
        return 3;
    case GW_NDN_TLV_FORWARDING_HINT:
        return 4;
    case GW_NDN_TLV_NONCE:
        return 5;
    case GW_NDN_TLV_LIFETIME:
        return 6;
    case GW_NDN_TLV_HOP_LIMIT:
        return 7;
    case GW_NDN_TLV_PARAMETERS:
        return 8;
    case GW_NDN_TLV_SIGNATURE_INFO:
        return 9;
    case GW_NDN_TLV_SIGNATURE_VALUE:
        return 10;
    default:
        return 0;
    }
}

/* Returns whether an Interest element of this type may have this length (NDN, section "Interest
 * Packet"). */
GW_LANE gw_u32 gw_ndn_length_is_sound(gw_u32 type, gw_u32 length)
{
    switch (type) {
    case GW_NDN_TLV_CAN_BE_PREFIX:
    case GW_NDN_TLV_MUST_BE_FRESH:
        return (gw_u32)(length == 0);
    case GW_NDN_TLV_NONCE:
        return (gw_u32)(length == 4);
    case GW_NDN_TLV_LIFETIME:
        return (gw_u32)(length == 1 || length == 2 || length == 4 || length == 8);
    case GW_NDN_TLV_HOP_LIMIT:
        return (gw_u32)(length == 1);
    default:
        return 1;
    }
}

/*
 * Parses the Interest whose TLV value lies in the bytes at..end of the frame. Returns 0 if the
 * Interest is malformed.
 *
 * An element that is unknown, repeated or out of order is ignored if its type is even and above 31.
 * Otherwise, such an element makes the Interest malformed (NDN, section "Considerations for
 * Evolvability of TLV-Based Encoding").
 */
GW_LANE gw_u32 gw_ndn_interest_parse(const GW_GLOBAL gw_u8 *frame, gw_u32 at, gw_u32 end,
                                     gw_ndn_interest *interest)
{
    gw_ndn_tlv element;
    if (gw_ndn_read(frame, at, end, &element) != GW_NDN_SOUND || element.type != GW_NDN_TLV_NAME ||
        !gw_ndn_name_is_sound(frame, element.value, element.end)) {
        return 0;
    }
    interest->name = element.value;
    interest->name_bytes = element.end - element.value;
    interest->hop_limit = 0;
    interest->has_nonce = 0;
    gw_u32 last = 1;
    at = element.end;
    while (at < end) {
        if (gw_ndn_read(frame, at, end, &element) != GW_NDN_SOUND) {
            return 0;
        }
        const gw_u32 rank = gw_ndn_rank(element.type);
        if (rank > last) {
            if (!gw_ndn_length_is_sound(element.type, element.end - element.value)) {
                return 0;
            }
            last = rank;
            if (element.type == GW_NDN_TLV_NONCE) {
                interest->has_nonce = 1;
            } else if (element.type == GW_NDN_TLV_HOP_LIMIT) {
                interest->hop_limit = element.value;
            }
        } else if (element.type <= 31 || (element.type & 1)) {
            return 0;
        }
        at = element.end;
    }
    return 1;
}

/* Returns whether the integer in the bytes at..end of the frame equals `value`. The integer has 1,
 * 2, 4 or 8 bytes, and `value` is below 256. */
GW_LANE gw_u32 gw_ndn_integer_is(const GW_GLOBAL gw_u8 *frame, gw_u32 at, gw_u32 end, gw_u32 value)
{
    gw_u32 above = 0;
    for (; at + 1 < end; at++) {
        above |= frame[at];
    }
    return (gw_u32)(above == 0 && frame[at] == value);
}

/*
 * Parses the LpPacket whose TLV value lies in the bytes at..end of the frame, and reads the network
 * packet inside it. If the LpPacket contains only a part of a packet, `inside` gets type 0. Returns
 * GW_NDN_SOUND or GW_NDN_WRONG.
 */
GW_RARE gw_u32 gw_ndn_lp_parse(const GW_GLOBAL gw_u8 *frame, gw_u32 at, gw_u32 end,
                               gw_ndn_tlv *inside)
{
    gw_u32 last = 0;
    gw_u32 whole = 1;
    inside->type = 0;
    while (at < end) {
        gw_ndn_tlv field;
        if (gw_ndn_read(frame, at, end, &field) != GW_NDN_SOUND) {
            return GW_NDN_WRONG;
        }
        const gw_u32 bytes = field.end - field.value;
        if (field.type == GW_NDN_LP_FRAGMENT) {
            /* The Fragment is the last field of an LpPacket. */
            if (field.end != end) {
                return GW_NDN_WRONG;
            }
            if (!whole || bytes == 0) {
                return GW_NDN_SOUND;
            }
            const gw_u32 fault = gw_ndn_read(frame, field.value, end, inside);
            return fault == GW_NDN_SOUND && inside->end == end ? GW_NDN_SOUND : GW_NDN_WRONG;
        }
        /* LpPacket fields must be in ascending order of their types. Only fields that a receiver
         * may ignore can be repeated. */
        const gw_u32 ignored =
            (gw_u32)(field.type >= 800 && field.type <= 959 && (field.type & 3) == 0);
        if (field.type < last || (field.type == last && !ignored)) {
            return GW_NDN_WRONG;
        }
        last = field.type;
        gw_u32 is_sound = ignored;
        if (field.type == GW_NDN_LP_INDEX || field.type == GW_NDN_LP_COUNT) {
            is_sound = (gw_u32)(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
            /* A packet that is not fragmented has index 0 and count 1. */
            if (is_sound &&
                !gw_ndn_integer_is(frame, field.value, field.end, field.type - GW_NDN_LP_INDEX)) {
                whole = 0;
            }
        } else if (field.type == GW_NDN_LP_NACK) {
            whole = 0;
        } else if (field.type == GW_NDN_LP_SEQUENCE) {
            is_sound = (gw_u32)(bytes == 8);
        } else if (field.type == GW_NDN_LP_TOKEN) {
            is_sound = (gw_u32)(bytes >= 1 && bytes <= 32);
        }
        if (!is_sound) {
            return GW_NDN_WRONG;
        }
        at = field.end;
    }
    return GW_NDN_SOUND;
}

#endif
