/* Saves, clears and restores the mutable fields of the headers before AH. AH authenticates these
 * fields as zeros (RFC 4302, section 3.3.3.1 and appendix A). */
#ifndef GODWIT_IPSEC_MUTABLE_H
#define GODWIT_IPSEC_MUTABLE_H

/* Capacity for saved header bytes. It suffices for a whole IPv4 header, and limits the mutable
 * bytes of an IPv6 packet. */
#define GW_IPSEC_SAVED_BYTES 64u

typedef struct gw_ipsec_saved {
    gw_u8 bytes[GW_IPSEC_SAVED_BYTES];
} gw_ipsec_saved;

/* Actions on the mutable fields of the headers. */
#define GW_IPSEC_FIELDS_CHECK   0u /* validate only */
#define GW_IPSEC_FIELDS_CLEAR   1u
#define GW_IPSEC_FIELDS_RESTORE 2u

#define GW_IPV4_OPTION_END          0u
#define GW_IPV4_OPTION_NONE         1u
#define GW_IPV4_OPTION_LOOSE_ROUTE  131u
#define GW_IPV4_OPTION_STRICT_ROUTE 137u

#define GW_IPV6_OPTION_PAD1    0u
#define GW_IPV6_OPTION_MUTABLE 0x20u /* bit in the option type (RFC 8200, section 4.2) */

/* Returns whether an IPv4 option is immutable (RFC 4302, appendix A1): End, No Operation, Security,
 * Extended Security, Commercial Security, Router Alert and Sender Directed Delivery. */
GW_LANE gw_u32 gw_ipsec_option_stays(gw_u32 type)
{
    return type <= 1 || type == 130 || type == 133 || type == 134 || type == 148 || type == 149;
}

/* Checks or clears the mutable options of an IPv4 header. Returns GW_IPSEC_OK or a drop reason. For
 * an outbound packet with a source route, it sets the destination to the last address of the route,
 * as the receiver will see it (RFC 4302, section 3.3.3.1.1.2). */
GW_LANE gw_u32 gw_ipsec_options(GW_GLOBAL gw_u8 *header, gw_u32 header_bytes, gw_u32 outbound,
                                gw_u32 action)
{
    gw_u32 at = GW_IPV4_BYTES;
    while (at < header_bytes) {
        const gw_u32 type = header[at];
        if (type == GW_IPV4_OPTION_END) {
            break;
        }
        if (type == GW_IPV4_OPTION_NONE) {
            at++;
            continue;
        }
        const gw_u32 length = at + 2 <= header_bytes ? header[at + 1] : 0;
        if (length < 2 || at + length > header_bytes) {
            return GW_IPSEC_MALFORMED;
        }
        const gw_u32 is_route =
            type == GW_IPV4_OPTION_LOOSE_ROUTE || type == GW_IPV4_OPTION_STRICT_ROUTE;
        if (action == GW_IPSEC_FIELDS_CLEAR) {
            if (is_route && outbound && length >= 7 && header[at + 2] <= length) {
                gw_store_be32(header + 16, gw_load_be32(header + at + length - 4));
            }
            if (!gw_ipsec_option_stays(type)) {
                for (gw_u32 i = 0; i < length; i++) {
                    header[at + i] = 0;
                }
            }
        }
        at += length;
    }
    return GW_IPSEC_OK;
}

/* Checks, clears or restores the mutable fields of an IPv4 header. Clearing first saves the whole
 * header. */
GW_LANE gw_u32 gw_ipsec_fields_ipv4(GW_GLOBAL gw_u8 *header, gw_u32 outbound, gw_u32 action,
                                    gw_ipsec_saved *saved)
{
    const gw_u32 header_bytes = (header[0] & 0x0fu) * 4;
    if (action == GW_IPSEC_FIELDS_RESTORE) {
        for (gw_u32 i = 0; i < header_bytes; i++) {
            header[i] = saved->bytes[i];
        }
        return GW_IPSEC_OK;
    }
    if (action == GW_IPSEC_FIELDS_CLEAR) {
        for (gw_u32 i = 0; i < header_bytes; i++) {
            saved->bytes[i] = header[i];
        }
        header[1] = 0;                /* DSCP and ECN */
        gw_store_be16(header + 6, 0); /* flags and offset */
        header[8] = 0;                /* time to live */
        gw_store_be16(header + 10, 0);
    }
    return gw_ipsec_options(header, header_bytes, outbound, action);
}

/* Clears or restores one mutable byte of a header, and counts the byte. */
GW_LANE void gw_ipsec_field(GW_GLOBAL gw_u8 *byte, gw_u32 action, gw_ipsec_saved *saved,
                            gw_u32 *count)
{
    if (*count < GW_IPSEC_SAVED_BYTES) {
        if (action == GW_IPSEC_FIELDS_CLEAR) {
            saved->bytes[*count] = *byte;
            *byte = 0;
        } else if (action == GW_IPSEC_FIELDS_RESTORE) {
            *byte = saved->bytes[*count];
        }
    }
    *count += 1;
}

/* Checks, clears or restores the mutable options in an IPv6 hop-by-hop or destination options
 * header. */
GW_LANE gw_u32 gw_ipsec_extension_options(GW_GLOBAL gw_u8 *extension, gw_u32 length, gw_u32 action,
                                          gw_ipsec_saved *saved, gw_u32 *count)
{
    gw_u32 at = 2;
    while (at < length) {
        const gw_u32 type = extension[at];
        if (type == GW_IPV6_OPTION_PAD1) {
            at++;
            continue;
        }
        const gw_u32 end = at + 2 <= length ? at + 2 + extension[at + 1] : length + 1;
        if (end > length) {
            return GW_IPSEC_MALFORMED;
        }
        if ((type & GW_IPV6_OPTION_MUTABLE) != 0) {
            for (gw_u32 i = at + 2; i < end; i++) {
                gw_ipsec_field(extension + i, action, saved, count);
            }
        }
        at = end;
    }
    return GW_IPSEC_OK;
}

GW_LANE void gw_ipsec_swap_address(GW_GLOBAL gw_u8 *one, GW_GLOBAL gw_u8 *other)
{
    for (gw_u32 i = 0; i < 16; i += 4) {
        const gw_u32 word = gw_load_be32(one + i);
        gw_store_be32(one + i, gw_load_be32(other + i));
        gw_store_be32(other + i, word);
    }
}

/*
 * Changes an outbound IPv6 routing header to the value that the receiver will see (RFC 4302,
 * section 3.3.3.1.2.1). It swaps the destination address with each remaining address of the route
 * in order. Restoring repeats the swaps in reverse order. Only types 0 (RFC 2460, section 4.4) and
 * 2 (RFC 6275, section 6.4) are supported.
 */
GW_LANE gw_u32 gw_ipsec_route(GW_GLOBAL gw_u8 *header, GW_GLOBAL gw_u8 *extension, gw_u32 length,
                              gw_u32 action, gw_ipsec_saved *saved, gw_u32 *count)
{
    const gw_u32 type = extension[2];
    const gw_u32 segments = (length - 8) / 16;
    const gw_u32 slot = *count < GW_IPSEC_SAVED_BYTES ? *count : 0;
    const gw_u32 left = action == GW_IPSEC_FIELDS_RESTORE ? saved->bytes[slot] : extension[3];
    if (left > segments || (left != 0 && type != 0 && type != 2)) {
        return GW_IPSEC_MALFORMED;
    }
    for (gw_u32 i = 0; action != GW_IPSEC_FIELDS_CHECK && i < left; i++) {
        const gw_u32 step = action == GW_IPSEC_FIELDS_CLEAR ? i : left - 1 - i;
        gw_ipsec_swap_address(header + 24, extension + 8 + 16 * (segments - left + step));
    }
    gw_ipsec_field(extension + 3, action, saved, count);
    return GW_IPSEC_OK;
}

/* Checks, clears or restores the mutable fields of an IPv6 header and its extension headers. The
 * headers must be complete, and `bytes` is their total length. */
GW_LANE gw_u32 gw_ipsec_fields_ipv6(GW_GLOBAL gw_u8 *header, gw_u32 bytes, gw_u32 outbound,
                                    gw_u32 action, gw_ipsec_saved *saved)
{
    gw_u32 count = 0;
    /* The mutable fields are the traffic class, the flow label and the hop limit. The version in
     * the first byte stays unchanged. */
    const gw_u32 version = header[0] & 0xf0u;
    for (gw_u32 i = 0; i < 4; i++) {
        gw_ipsec_field(header + i, action, saved, &count);
    }
    gw_ipsec_field(header + 7, action, saved, &count);
    if (action == GW_IPSEC_FIELDS_CLEAR) {
        header[0] = (gw_u8)version;
    }
    gw_u32 protocol = header[6];
    gw_u32 at = GW_IPV6_BYTES;
    while (at < bytes) {
        const gw_u32 length = 8 + 8 * (gw_u32)header[at + 1];
        gw_u32 error = GW_IPSEC_OK;
        if (protocol == GW_PROTOCOL_ROUTING && outbound) {
            error = gw_ipsec_route(header, header + at, length, action, saved, &count);
        } else if (protocol != GW_PROTOCOL_ROUTING) {
            error = gw_ipsec_extension_options(header + at, length, action, saved, &count);
        }
        if (error != GW_IPSEC_OK) {
            return error;
        }
        protocol = header[at];
        at += length;
    }
    return count <= GW_IPSEC_SAVED_BYTES ? GW_IPSEC_OK : GW_IPSEC_NO_ROOM;
}

/* Checks, clears or restores the mutable fields of an IP header and its extension headers. `bytes`
 * is their total length. Returns GW_IPSEC_OK or a drop reason. After a successful check, clearing
 * cannot fail. */
GW_LANE gw_u32 gw_ipsec_fields(GW_GLOBAL gw_u8 *header, gw_u32 version, gw_u32 bytes,
                               gw_u32 outbound, gw_u32 action, gw_ipsec_saved *saved)
{
    return version == 4 ? gw_ipsec_fields_ipv4(header, outbound, action, saved)
                        : gw_ipsec_fields_ipv6(header, bytes, outbound, action, saved);
}

#endif
