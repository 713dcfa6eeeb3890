/*
 * Encryption, decryption and authentication of ESP and AH packets, for every suite.
 *
 *   esp       | SPI, sequence | IV | encrypted data with padding | ICV |
 *   bytes            8       0/8/16         cipher_bytes          icv_bytes
 *
 * All packets of a batch have the same suite, so all threads of a work-group take the same
 * branches.
 */
#ifndef GODWIT_IPSEC_TRANSFORM_H
#define GODWIT_IPSEC_TRANSFORM_H

#include "../dialect/aes.h"
#include "../dialect/ghash.h"
#include "image.h"
#include "suite.h"
#include "tag.h"

#define GW_IPSEC_ESP_HEADER_BYTES 8u /* SPI, sequence number (RFC 4303, section 2) */

/*
 * Returns the IV of a packet that is encrypted with CBC. The IV is the encryption of a nonce with
 * the key of the packet's SA (NIST SP 800-38A, appendix C, first method). The nonce consists of the
 * SPI, the 64-bit sequence number and the destination address.
 *
 * The IV is unpredictable, as RFC 3602 section 3 requires. It depends only on the SA and the
 * sequence number, so every device computes the same IV.
 *
 * A nonce never repeats with the same key. The SPI and the destination identify the SA, and an SA
 * uses each sequence number once. If the first plaintext block of a packet equals its IV xor a
 * nonce, its ciphertext reveals the IV of that nonce. An attacker cannot choose such a block
 * without knowing the IV in advance. It occurs by chance once in 2^96 blocks.
 */
GW_LANE gw_aes_block gw_ipsec_cbc_iv(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 rounds,
                                     gw_u64 sequence)
{
    return gw_aes_encrypt(
        (const GW_GLOBAL gw_u8 *)sa->keys, rounds,
        gw_aes_words(sa->spi, (gw_u32)(sequence >> 32), (gw_u32)sequence, sa->destination[0]));
}

/* Returns the text that HMAC or an AES MAC authenticates: `data`, and the upper half of an extended
 * sequence number, which is not in the packet (RFC 4303, section 2.2.1; RFC 4302, section 2.5.1).
 */
GW_LANE gw_text gw_ipsec_text(const GW_GLOBAL gw_ipsec_sa *sa, const GW_GLOBAL gw_u8 *data,
                              gw_u32 bytes, gw_u64 sequence)
{
    gw_text text = gw_text_of(data, bytes);
    text.suffix = (gw_u32)(sequence >> 32);
    text.suffix_bytes = (sa->flags & GW_IPSEC_SA_ESN) != 0 ? 4 : 0;
    return text;
}

/* Returns the authentication tag of an ESP packet whose payload is already encrypted. */
GW_APART gw_ipsec_tag gw_ipsec_esp_tag(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite,
                                       const GW_GLOBAL gw_u8 *esp, gw_u32 cipher_bytes,
                                       gw_u64 sequence)
{
    const gw_u32 before = GW_IPSEC_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const GW_GLOBAL gw_u8 *iv = esp + GW_IPSEC_ESP_HEADER_BYTES;
    const GW_GLOBAL gw_u8 *data = esp + before;
    const gw_u32 rounds = gw_ipsec_aes_rounds(suite);
    if (suite.auth == GW_IPSEC_AUTH_GHASH && suite.cipher == GW_IPSEC_CIPHER_CTR) {
        return gw_ipsec_gcm(sa, rounds, gw_load_be64(iv), sequence, data, cipher_bytes);
    }
    if (suite.auth == GW_IPSEC_AUTH_GHASH) {
        return gw_ipsec_gmac_esp(sa, rounds, gw_load_be64(iv), sequence, data, cipher_bytes);
    }
    if (suite.auth == GW_IPSEC_AUTH_POLY1305) {
        return gw_ipsec_chacha20_poly1305(sa, gw_ipsec_chacha20_nonce(sa, iv), sequence, data,
                                          cipher_bytes);
    }
    return gw_ipsec_mac(sa, suite.auth, gw_ipsec_text(sa, esp, before + cipher_bytes, sequence));
}

/* Encrypts or decrypts data with CTR or ChaCha20. GCM and ChaCha20-Poly1305 use the first block of
 * the key stream for the tag. The key stream for the data then starts with the second block. */
GW_LANE void gw_ipsec_stream(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite,
                             const GW_GLOBAL gw_u8 *iv, GW_GLOBAL gw_u8 *data, gw_u32 cipher_bytes)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CTR) {
        gw_aes_ctr((const GW_GLOBAL gw_u8 *)sa->keys, gw_ipsec_aes_rounds(suite),
                   gw_ipsec_aes_nonce(sa, gw_load_be64(iv)),
                   suite.auth == GW_IPSEC_AUTH_GHASH ? 2 : 1, data, cipher_bytes);
    } else if (suite.cipher == GW_IPSEC_CIPHER_CHACHA20) {
        gw_chacha20(sa->keys, gw_ipsec_chacha20_nonce(sa, iv), 1, data, cipher_bytes);
    }
}

/* Decrypts with CCM in place, and verifies the ICV, which authenticates the plaintext. If the ICV
 * is wrong, it encrypts the data again and returns 0, so that the packet is unchanged. */
GW_LANE gw_u32 gw_ipsec_ccm_decrypt(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite,
                                    const GW_GLOBAL gw_u8 *iv, GW_GLOBAL gw_u8 *data,
                                    gw_u32 cipher_bytes, gw_u64 sequence)
{
    gw_ipsec_stream(sa, suite, iv, data, cipher_bytes);
    const gw_ipsec_tag tag = gw_ipsec_ccm(sa, gw_ipsec_aes_rounds(suite), gw_load_be64(iv),
                                          sequence, data, cipher_bytes);
    if (!gw_ipsec_tag_equal(data + cipher_bytes, tag, sa->icv_bytes)) {
        gw_ipsec_stream(sa, suite, iv, data, cipher_bytes);
        return 0;
    }
    return 1;
}

/* Completes an outbound ESP packet with a finished header: writes the IV, encrypts the data in
 * place, and writes the ICV. `sequence` is the full 64-bit sequence number. With CBC, cipher_bytes
 * must be a multiple of 16. */
GW_APART void gw_ipsec_esp_encrypt(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite,
                                   GW_GLOBAL gw_u8 *esp, gw_u32 cipher_bytes, gw_u64 sequence)
{
    GW_GLOBAL gw_u8 *iv = esp + GW_IPSEC_ESP_HEADER_BYTES;
    GW_GLOBAL gw_u8 *data = iv + gw_ipsec_iv_bytes(suite);
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        const gw_u32 rounds = gw_ipsec_aes_rounds(suite);
        const gw_aes_block block = gw_ipsec_cbc_iv(sa, rounds, sequence);
        gw_aes_store(iv, block);
        gw_aes_cbc_encrypt((const GW_GLOBAL gw_u8 *)sa->keys, rounds, block, data,
                           cipher_bytes / 16);
    } else if (gw_ipsec_iv_bytes(suite) != 0) {
        gw_store_be64(iv, sequence);
        if (suite.auth == GW_IPSEC_AUTH_CCM) {
            gw_ipsec_tag_store(data + cipher_bytes,
                               gw_ipsec_ccm(sa, gw_ipsec_aes_rounds(suite), sequence, sequence,
                                            data, cipher_bytes),
                               sa->icv_bytes);
        }
        gw_ipsec_stream(sa, suite, iv, data, cipher_bytes);
    }
    if (suite.auth != GW_IPSEC_AUTH_NONE && suite.auth != GW_IPSEC_AUTH_CCM) {
        gw_ipsec_tag_store(data + cipher_bytes,
                           gw_ipsec_esp_tag(sa, suite, esp, cipher_bytes, sequence), sa->icv_bytes);
    }
}

/* Verifies the ICV of an ESP packet and decrypts the packet in place. If the ICV is wrong, leaves
 * the packet unchanged and returns 0 (RFC 4303, section 3.4.4.1). `sequence` is the full 64-bit
 * sequence number. */
GW_APART gw_u32 gw_ipsec_esp_decrypt(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite,
                                     GW_GLOBAL gw_u8 *esp, gw_u32 cipher_bytes, gw_u64 sequence)
{
    GW_GLOBAL gw_u8 *iv = esp + GW_IPSEC_ESP_HEADER_BYTES;
    GW_GLOBAL gw_u8 *data = iv + gw_ipsec_iv_bytes(suite);
    if (suite.auth == GW_IPSEC_AUTH_CCM) {
        return gw_ipsec_ccm_decrypt(sa, suite, iv, data, cipher_bytes, sequence);
    }
    if (suite.auth != GW_IPSEC_AUTH_NONE &&
        !gw_ipsec_tag_equal(data + cipher_bytes,
                            gw_ipsec_esp_tag(sa, suite, esp, cipher_bytes, sequence),
                            sa->icv_bytes)) {
        return 0;
    }
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        gw_aes_cbc_decrypt((const GW_GLOBAL gw_u8 *)sa->keys, gw_ipsec_aes_rounds(suite),
                           gw_aes_load(iv), data, cipher_bytes / 16);
    } else {
        gw_ipsec_stream(sa, suite, iv, data, cipher_bytes);
    }
    return 1;
}

/* Returns the authentication tag of an AH packet of `bytes` bytes. The mutable fields and the ICV
 * must be 0 (RFC 4302, section 3.3.3). `iv` is the IV of GMAC, which precedes the ICV in the packet
 * (RFC 4543, section 4). In outbound packets, it is the sequence number. */
GW_APART gw_ipsec_tag gw_ipsec_ah_tag(const GW_GLOBAL gw_ipsec_sa *sa, gw_ipsec_suite suite,
                                      const GW_GLOBAL gw_u8 *data, gw_u32 bytes, gw_u64 iv,
                                      gw_u64 sequence)
{
    const gw_text text = gw_ipsec_text(sa, data, bytes, sequence);
    if (suite.auth != GW_IPSEC_AUTH_GHASH) {
        return gw_ipsec_mac(sa, suite.auth, text);
    }
    const gw_ghash_element sum = gw_ipsec_ghash_text(gw_ghash_zero(), sa->authentication, text);
    return gw_ipsec_gcm_tag(sa, gw_ipsec_aes_rounds(suite), sum, bytes + text.suffix_bytes, 0, iv);
}

#endif
