/* Which suites the native forms of ipsec run. */
#ifndef GODWIT_IPSEC_COVERS_H
#define GODWIT_IPSEC_COVERS_H

/* The number of ipsec in functions.h. */
#define GW_NATIVE_IPSEC 3u

/* By sixteen packets at once. */
GW_LANE gw_u32 gw_wide_covers(gw_u32 variant)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(variant);
    if (suite.protocol == 0) {
        return 0;
    }
    /* AH with GMAC is left to the kernel. */
    return suite.protocol == GW_IPSEC_ESP || suite.auth != GW_IPSEC_AUTH_GHASH;
}

#endif
