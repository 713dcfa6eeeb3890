/* Determines which suites of ipsec the AVX-512 code supports. */
#ifndef GODWIT_IPSEC_COVERS_H
#define GODWIT_IPSEC_COVERS_H

/* Returns whether AVX-512 code exists for this suite and direction. */
GW_LANE gw_u32 gw_avx512_covers(gw_u32 variant)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(variant);
    if (suite.protocol == 0) {
        return 0;
    }
    /* The AVX-512 code supports neither CCM nor AH with GMAC. The scalar kernel processes them. */
    return suite.protocol == GW_IPSEC_ESP ? suite.auth != GW_IPSEC_AUTH_CCM
                                          : suite.auth != GW_IPSEC_AUTH_GHASH;
}

#endif
