/* Determines which suites of ipsec the native forms support. */
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

/* Returns whether AVX2 code exists for this suite and direction. */
GW_LANE gw_u32 gw_avx2_covers(gw_u32 variant)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of(variant);
    if (suite.protocol == 0) {
        return 0;
    }
    return suite.auth == GW_IPSEC_AUTH_NONE || suite.auth == GW_IPSEC_AUTH_SHA1 ||
           suite.auth == GW_IPSEC_AUTH_SHA256 || suite.auth == GW_IPSEC_AUTH_POLY1305 ||
           (suite.auth == GW_IPSEC_AUTH_GHASH && suite.cipher == GW_IPSEC_CIPHER_CTR);
}

#endif
