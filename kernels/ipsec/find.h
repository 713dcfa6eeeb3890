/* Finds a packet's SA (security association) and the offset of its IP header. All packets start
 * with this step. */
#ifndef GODWIT_IPSEC_FIND_H
#define GODWIT_IPSEC_FIND_H

/* Returns the SA (security association) that the host has selected for a packet. Returns 0 if the
 * SA does not exist, or if its suite or direction differs from the packet's. */
GW_LANE const GW_GLOBAL gw_ipsec_sa *gw_ipsec_sa_of(const gw_lane *lane)
{
    const GW_GLOBAL gw_ipsec_image *image = (const GW_GLOBAL gw_ipsec_image *)lane->image;
    const gw_u32 index = gw_ipsec_sa_index(lane->parameter);
    if (index >= image->sa_count) {
        return 0;
    }
    const GW_GLOBAL gw_ipsec_sa *sa =
        (const GW_GLOBAL gw_ipsec_sa *)(lane->image + image->sa_offset) + index;
    const gw_u32 inbound = (sa->flags & GW_IPSEC_SA_INBOUND) != 0;
    const gw_u32 matches = (sa->flags & GW_IPSEC_SA_USED) != 0 && sa->suite == lane->variant >> 1 &&
                           inbound == gw_ipsec_direction(lane->variant);
    return matches ? sa : 0;
}

typedef struct gw_ipsec_found {
    const GW_GLOBAL gw_ipsec_sa *sa; /* 0: the packet needs no further processing */
    gw_u32 l2_bytes;
    gw_u32 version; /* IP version of the EtherType: 4 or 6 */
} gw_ipsec_found;

GW_LANE gw_ipsec_found gw_ipsec_find(const gw_lane *lane, const gw_descriptor *descriptor,
                                     gw_outcome *outcome)
{
    const gw_l3 l3 = gw_l3_parse(gw_frame(lane, descriptor), descriptor->length);
    gw_ipsec_found found;
    found.sa = 0;
    found.l2_bytes = l3.offset;
    found.version = gw_ipsec_version_of(l3.ether_type);
    if (l3.offset == 0) {
        gw_drop(outcome, GW_IPSEC_TRUNCATED);
        return found;
    }
    if (found.version == 0) {
        gw_verdict(outcome, GW_IPSEC_NOT_IP, 0, 0);
        return found;
    }
    found.sa = gw_ipsec_sa_of(lane);
    if (found.sa == 0) {
        gw_drop(outcome, GW_IPSEC_NO_SA);
    }
    return found;
}

#endif
