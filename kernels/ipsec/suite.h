/*
 * The suites of ipsec. A suite is a combination of protocol (ESP or AH), cipher, key size and
 * authentication algorithm. A test compares this list with crates/function/src/ipsec/suite.rs.
 *
 * The variant of a packet is 2 * suite + direction. It is the same for all packets of a batch, so
 * all threads of a work-group take the same branches.
 */
#ifndef GODWIT_IPSEC_SUITE_H
#define GODWIT_IPSEC_SUITE_H

#define GW_IPSEC_ESP 50u
#define GW_IPSEC_AH  51u

#define GW_IPSEC_CIPHER_NULL     0u /* RFC 2410 */
#define GW_IPSEC_CIPHER_CBC      1u /* RFC 3602 */
#define GW_IPSEC_CIPHER_CTR      2u /* RFC 3686; in GCM: RFC 4106; in CCM: RFC 4309 */
#define GW_IPSEC_CIPHER_CHACHA20 3u /* RFC 7634 */

#define GW_IPSEC_AUTH_NONE     0u
#define GW_IPSEC_AUTH_SHA1     1u /* HMAC-SHA1-96: RFC 2404 */
#define GW_IPSEC_AUTH_SHA256   2u /* HMAC-SHA-256-128: RFC 4868 */
#define GW_IPSEC_AUTH_GHASH    3u /* GCM: RFC 4106; without a cipher GMAC: RFC 4543 */
#define GW_IPSEC_AUTH_POLY1305 4u /* RFC 7634 */
#define GW_IPSEC_AUTH_CCM      5u /* CBC-MAC of CCM: RFC 4309 */
#define GW_IPSEC_AUTH_SHA384   6u /* HMAC-SHA-384-192: RFC 4868 */
#define GW_IPSEC_AUTH_SHA512   7u /* HMAC-SHA-512-256: RFC 4868 */
#define GW_IPSEC_AUTH_XCBC     8u /* AES-XCBC-MAC-96: RFC 3566 */
#define GW_IPSEC_AUTH_CMAC     9u /* AES-CMAC-96: RFC 4494 */

/* List of all suites. The arguments of X are: number, name, protocol, cipher, length in bytes of
 * the cipher key or GMAC key, and authentication algorithm. */
#define GW_IPSEC_SUITES(X)                                                                         \
    X(0, cbc128_sha1, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 16, GW_IPSEC_AUTH_SHA1)                   \
    X(1, cbc192_sha1, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 24, GW_IPSEC_AUTH_SHA1)                   \
    X(2, cbc256_sha1, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 32, GW_IPSEC_AUTH_SHA1)                   \
    X(3, cbc128_sha256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 16, GW_IPSEC_AUTH_SHA256)               \
    X(4, cbc192_sha256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 24, GW_IPSEC_AUTH_SHA256)               \
    X(5, cbc256_sha256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 32, GW_IPSEC_AUTH_SHA256)               \
    X(6, cbc128_none, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 16, GW_IPSEC_AUTH_NONE)                   \
    X(7, ctr128_sha1, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_SHA1)                   \
    X(8, ctr192_sha1, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_SHA1)                   \
    X(9, ctr256_sha1, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_SHA1)                   \
    X(10, ctr128_sha256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_SHA256)              \
    X(11, ctr192_sha256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_SHA256)              \
    X(12, ctr256_sha256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_SHA256)              \
    X(13, null_sha1, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA1)                    \
    X(14, null_sha256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA256)                \
    X(15, gcm128, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_GHASH)                      \
    X(16, gcm192, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_GHASH)                      \
    X(17, gcm256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_GHASH)                      \
    X(18, gmac128, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 16, GW_IPSEC_AUTH_GHASH)                    \
    X(19, gmac192, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 24, GW_IPSEC_AUTH_GHASH)                    \
    X(20, gmac256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 32, GW_IPSEC_AUTH_GHASH)                    \
    X(21, chacha20_poly1305, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CHACHA20, 32, GW_IPSEC_AUTH_POLY1305)   \
    X(22, ah_sha1, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA1)                       \
    X(23, ah_sha256, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA256)                   \
    X(24, ah_gmac128, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 16, GW_IPSEC_AUTH_GHASH)                  \
    X(25, ah_gmac192, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 24, GW_IPSEC_AUTH_GHASH)                  \
    X(26, ah_gmac256, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 32, GW_IPSEC_AUTH_GHASH)                  \
    X(27, ccm128, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_CCM)                        \
    X(28, ccm192, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_CCM)                        \
    X(29, ccm256, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_CCM)                        \
    X(30, cbc128_sha384, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 16, GW_IPSEC_AUTH_SHA384)              \
    X(31, cbc192_sha384, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 24, GW_IPSEC_AUTH_SHA384)              \
    X(32, cbc256_sha384, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 32, GW_IPSEC_AUTH_SHA384)              \
    X(33, ctr128_sha384, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_SHA384)              \
    X(34, ctr192_sha384, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_SHA384)              \
    X(35, ctr256_sha384, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_SHA384)              \
    X(36, null_sha384, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA384)                \
    X(37, ah_sha384, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA384)                   \
    X(38, cbc128_sha512, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 16, GW_IPSEC_AUTH_SHA512)              \
    X(39, cbc192_sha512, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 24, GW_IPSEC_AUTH_SHA512)              \
    X(40, cbc256_sha512, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 32, GW_IPSEC_AUTH_SHA512)              \
    X(41, ctr128_sha512, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_SHA512)              \
    X(42, ctr192_sha512, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_SHA512)              \
    X(43, ctr256_sha512, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_SHA512)              \
    X(44, null_sha512, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA512)                \
    X(45, ah_sha512, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_SHA512)                   \
    X(46, cbc128_xcbc, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 16, GW_IPSEC_AUTH_XCBC)                  \
    X(47, cbc192_xcbc, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 24, GW_IPSEC_AUTH_XCBC)                  \
    X(48, cbc256_xcbc, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 32, GW_IPSEC_AUTH_XCBC)                  \
    X(49, ctr128_xcbc, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_XCBC)                  \
    X(50, ctr192_xcbc, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_XCBC)                  \
    X(51, ctr256_xcbc, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_XCBC)                  \
    X(52, null_xcbc, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_XCBC)                    \
    X(53, ah_xcbc, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_XCBC)                       \
    X(54, cbc128_cmac, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 16, GW_IPSEC_AUTH_CMAC)                  \
    X(55, cbc192_cmac, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 24, GW_IPSEC_AUTH_CMAC)                  \
    X(56, cbc256_cmac, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CBC, 32, GW_IPSEC_AUTH_CMAC)                  \
    X(57, ctr128_cmac, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 16, GW_IPSEC_AUTH_CMAC)                  \
    X(58, ctr192_cmac, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 24, GW_IPSEC_AUTH_CMAC)                  \
    X(59, ctr256_cmac, GW_IPSEC_ESP, GW_IPSEC_CIPHER_CTR, 32, GW_IPSEC_AUTH_CMAC)                  \
    X(60, null_cmac, GW_IPSEC_ESP, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_CMAC)                    \
    X(61, ah_cmac, GW_IPSEC_AH, GW_IPSEC_CIPHER_NULL, 0, GW_IPSEC_AUTH_CMAC)

#define GW_IPSEC_SUITE_COUNT 62u

#define GW_IPSEC_OUTBOUND 0u
#define GW_IPSEC_INBOUND  1u

typedef struct gw_ipsec_suite {
    gw_u32 protocol;
    gw_u32 cipher;
    gw_u32 key_bytes;
    gw_u32 auth;
} gw_ipsec_suite;

GW_LANE gw_u32 gw_ipsec_direction(gw_u32 variant)
{
    return variant & 1u;
}

/* Table of all suites. Each suite is one word: protocol | cipher << 8 | key_bytes << 16 | auth <<
 * 24. A lookup takes one load, whereas a switch takes a GPU several branches. */
GW_TABLE gw_u32 gw_ipsec_suites[GW_IPSEC_SUITE_COUNT] = {
#define GW_IPSEC_SUITE_ENTRY(number, name, protocol, cipher, key_bytes, auth)                      \
    (protocol) | (cipher) << 8 | (key_bytes) << 16 | (auth) << 24,
    GW_IPSEC_SUITES(GW_IPSEC_SUITE_ENTRY)
#undef GW_IPSEC_SUITE_ENTRY
};

/* Returns the suite of a variant, which is 2 * suite + direction. For an invalid variant, the
 * protocol of the result is 0. */
GW_LANE gw_ipsec_suite gw_ipsec_suite_of(gw_u32 variant)
{
    const gw_u32 number = variant >> 1;
    const gw_u32 entry = number < GW_IPSEC_SUITE_COUNT ? gw_ipsec_suites[number] : 0;
    gw_ipsec_suite suite;
    suite.protocol = entry & 0xffu;
    suite.cipher = entry >> 8 & 0xffu;
    suite.key_bytes = entry >> 16 & 0xffu;
    suite.auth = entry >> 24;
    return suite;
}

/* Returns the number of AES rounds for the key length of a suite (FIPS 197, section 5). */
GW_LANE gw_u32 gw_ipsec_aes_rounds(gw_ipsec_suite suite)
{
    return suite.key_bytes / 4 + 6;
}

/* Returns the length of the IV in the packet, in bytes. */
GW_LANE gw_u32 gw_ipsec_iv_bytes(gw_ipsec_suite suite)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        return 16;
    }
    return suite.cipher == GW_IPSEC_CIPHER_NULL && suite.auth != GW_IPSEC_AUTH_GHASH ? 0 : 8;
}

/* Returns the alignment of the padded payload in bytes: the block size of the cipher, but at least
 * 4 (RFC 4303, section 2.4). */
GW_LANE gw_u32 gw_ipsec_block_bytes(gw_ipsec_suite suite)
{
    return suite.cipher == GW_IPSEC_CIPHER_CBC ? 16 : 4;
}

#endif
