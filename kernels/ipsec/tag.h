/* Computes the authentication tag of an ESP or AH packet with the suite's algorithm. */
#ifndef GODWIT_IPSEC_TAG_H
#define GODWIT_IPSEC_TAG_H

#include "../common/chacha20.h"
#include "../common/poly1305.h"
#include "../common/sha1.h"
#include "../common/sha256.h"
#include "sha512.h"
#include "../common/text.h"

/* Authentication tag: the first 32 bytes of the algorithm's output, as big-endian words. A shorter
 * output is extended with zeros. The ICV of a packet is the first icv_bytes bytes of the tag. */
typedef struct gw_ipsec_tag {
    gw_u32 words[8];
} gw_ipsec_tag;

GW_LANE gw_ipsec_tag gw_ipsec_tag_words(gw_u32 a, gw_u32 b, gw_u32 c, gw_u32 d)
{
    gw_ipsec_tag tag;
    tag.words[0] = a;
    tag.words[1] = b;
    tag.words[2] = c;
    tag.words[3] = d;
    tag.words[4] = 0;
    tag.words[5] = 0;
    tag.words[6] = 0;
    tag.words[7] = 0;
    return tag;
}

/* Writes the ICV. icv_bytes is 0, 8, 12, 16, 24 or 32. */
GW_LANE void gw_ipsec_tag_store(GW_GLOBAL gw_u8 *to, gw_ipsec_tag tag, gw_u32 icv_bytes)
{
    if (icv_bytes >= 8) {
        gw_store_be32(to, tag.words[0]);
        gw_store_be32(to + 4, tag.words[1]);
    }
    if (icv_bytes >= 12) {
        gw_store_be32(to + 8, tag.words[2]);
    }
    if (icv_bytes >= 16) {
        gw_store_be32(to + 12, tag.words[3]);
    }
    for (gw_u32 i = 4; 4 * i < icv_bytes && i < 8; i++) {
        gw_store_be32(to + 4 * i, tag.words[i]);
    }
}

/* Returns whether the ICV at `bytes` equals the first icv_bytes bytes of the tag. The comparison
 * takes constant time. */
GW_LANE gw_u32 gw_ipsec_tag_equal(const GW_GLOBAL gw_u8 *bytes, gw_ipsec_tag tag, gw_u32 icv_bytes)
{
    gw_u32 difference = 0;
    if (icv_bytes >= 8) {
        difference = tag.words[0] ^ gw_load_be32(bytes);
        difference |= tag.words[1] ^ gw_load_be32(bytes + 4);
    }
    if (icv_bytes >= 12) {
        difference |= tag.words[2] ^ gw_load_be32(bytes + 8);
    }
    if (icv_bytes >= 16) {
        difference |= tag.words[3] ^ gw_load_be32(bytes + 12);
    }
    for (gw_u32 i = 4; 4 * i < icv_bytes && i < 8; i++) {
        difference |= tag.words[i] ^ gw_load_be32(bytes + 4 * i);
    }
    return difference == 0;
}

/* Returns the GCM or GMAC nonce: the SA's salt and the packet's IV. Each counter block starts with
 * the nonce (RFC 4106, section 4; RFC 4543, section 3.2). */
GW_LANE gw_aes_nonce gw_ipsec_aes_nonce(const GW_GLOBAL gw_ipsec_sa *sa, gw_u64 iv)
{
    gw_aes_nonce nonce;
    nonce.salt = gw_load_be32((const GW_GLOBAL gw_u8 *)&sa->salt);
    nonce.iv_high = (gw_u32)(iv >> 32);
    nonce.iv_low = (gw_u32)iv;
    return nonce;
}

/* Adds a text to a GHASH sum. An incomplete last block is padded with zeros. */
GW_LANE gw_ghash_element gw_ipsec_ghash_text(gw_ghash_element sum, const GW_GLOBAL gw_u32 *keys,
                                             gw_text text)
{
    const gw_u32 blocks = text.bytes / 16;
    sum = gw_ghash_blocks(sum, keys, text.data, blocks);
    const gw_u32 bytes = text.bytes + text.suffix_bytes;
    for (gw_u32 at = 16 * blocks; at < bytes; at += 16) {
        const gw_ghash_element block =
            gw_ghash_words(gw_text_word(text, at, 0), gw_text_word(text, at + 4, 0),
                           gw_text_word(text, at + 8, 0), gw_text_word(text, at + 12, 0));
        sum = gw_ghash_multiply(gw_ghash_add(sum, block), gw_ghash_key(keys));
    }
    return sum;
}

/* Completes a GCM tag (SP 800-38D, section 7.1, steps 5 and 6). Adds the lengths and the encrypted
 * first counter block to the GHASH sum. */
GW_LANE gw_ipsec_tag gw_ipsec_gcm_tag(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 rounds,
                                      gw_ghash_element sum, gw_u32 aad_bytes, gw_u32 bytes,
                                      gw_u64 iv)
{
    const gw_ghash_element lengths = gw_ghash_words(0, 8 * aad_bytes, 0, 8 * bytes);
    sum = gw_ghash_multiply(gw_ghash_add(sum, lengths), gw_ghash_key(sa->authentication));
    const gw_aes_nonce nonce = gw_ipsec_aes_nonce(sa, iv);
    const gw_aes_block mask =
        gw_aes_encrypt((const GW_GLOBAL gw_u8 *)sa->keys, rounds,
                       gw_aes_words(nonce.salt, nonce.iv_high, nonce.iv_low, 1));
    return gw_ipsec_tag_words(
        gw_ghash_word(sum, 0) ^ gw_aes_word(mask, 0), gw_ghash_word(sum, 1) ^ gw_aes_word(mask, 1),
        gw_ghash_word(sum, 2) ^ gw_aes_word(mask, 2), gw_ghash_word(sum, 3) ^ gw_aes_word(mask, 3));
}

/* Additional authenticated data (AAD) of an ESP packet with an AEAD suite (RFC 4106, section 5; RFC
 * 7634, section 2.1). It consists of the SPI and the sequence number, which has 64 bits if it is
 * extended. */
typedef struct gw_ipsec_aad {
    gw_u32 words[4]; /* big-endian; unused words are 0 */
    gw_u32 bytes;
} gw_ipsec_aad;

GW_LANE gw_ipsec_aad gw_ipsec_aad_of(const GW_GLOBAL gw_ipsec_sa *sa, gw_u64 sequence)
{
    const gw_u32 extended = (sa->flags & GW_IPSEC_SA_ESN) != 0;
    const gw_u32 low = (gw_u32)sequence;
    gw_ipsec_aad aad;
    aad.words[0] = sa->spi;
    aad.words[1] = extended ? (gw_u32)(sequence >> 32) : low;
    aad.words[2] = extended ? low : 0;
    aad.words[3] = 0;
    aad.bytes = extended ? 12 : 8;
    return aad;
}

GW_APART gw_ipsec_tag gw_ipsec_gcm(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 rounds, gw_u64 iv,
                                   gw_u64 sequence, const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    const gw_ipsec_aad aad = gw_ipsec_aad_of(sa, sequence);
    gw_ghash_element sum = gw_ghash_words(aad.words[0], aad.words[1], aad.words[2], aad.words[3]);
    sum = gw_ghash_multiply(sum, gw_ghash_key(sa->authentication));
    sum = gw_ipsec_ghash_text(sum, sa->authentication, gw_text_of(data, bytes));
    return gw_ipsec_gcm_tag(sa, rounds, sum, aad.bytes, bytes, iv);
}

/* Returns the AES-GMAC tag of an ESP packet. The whole packet is additional authenticated data (RFC
 * 4543, section 3.3). */
GW_APART gw_ipsec_tag gw_ipsec_gmac_esp(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 rounds, gw_u64 iv,
                                        gw_u64 sequence, const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    const gw_ipsec_aad aad = gw_ipsec_aad_of(sa, sequence);
    const gw_u32 iv_high = (gw_u32)(iv >> 32);
    const gw_u32 iv_low = (gw_u32)iv;
    const gw_ghash_element key = gw_ghash_key(sa->authentication);
    /* The first GHASH block contains the SPI, the sequence number and 4 or 8 bytes of the IV. The
     * remaining text starts after these bytes. */
    const gw_u32 from = aad.bytes == 12 ? 4 : 8;
    gw_ghash_element sum =
        gw_ghash_words(aad.words[0], aad.words[1], aad.bytes == 12 ? aad.words[2] : iv_high,
                       aad.bytes == 12 ? iv_high : iv_low);
    sum = gw_ghash_multiply(sum, key);
    const gw_text text = gw_text_of(data - 8 + from, bytes + 8 - from);
    sum = gw_ipsec_ghash_text(sum, sa->authentication, text);
    return gw_ipsec_gcm_tag(sa, rounds, sum, aad.bytes + 8 + bytes, 0, iv);
}

/* Flags of CCM's first block: additional data is present, and the length has 4 bytes (RFC 3610,
 * section 2.2). The code adds the ICV length. */
#define GW_IPSEC_CCM_FLAGS 0x43u

/* Returns the AES-CCM tag of plaintext (RFC 4309; RFC 3610, sections 2.2 and 2.3): the CBC-MAC of
 * the first block, additional data and plaintext, XOR the encrypted counter block 0. */
GW_APART gw_ipsec_tag gw_ipsec_ccm(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 rounds, gw_u64 iv,
                                   gw_u64 sequence, const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    const GW_GLOBAL gw_u8 *keys = (const GW_GLOBAL gw_u8 *)sa->keys;
    const gw_aes_nonce nonce = gw_ipsec_aes_nonce(sa, iv);
    const gw_ipsec_aad aad = gw_ipsec_aad_of(sa, sequence);
    const gw_u32 flags = GW_IPSEC_CCM_FLAGS + (sa->icv_bytes / 2u - 1) * 8;
    gw_aes_block mac = gw_aes_encrypt(
        keys, rounds,
        gw_aes_words(flags << 24 | (nonce.salt & 0xffffffu), nonce.iv_high, nonce.iv_low, bytes));
    /* The additional data follows its length of 2 bytes. Both fit into one block. */
    const gw_aes_block second =
        gw_aes_words(aad.bytes << 16 | aad.words[0] >> 16, aad.words[0] << 16 | aad.words[1] >> 16,
                     aad.words[1] << 16 | aad.words[2] >> 16, aad.words[2] << 16);
    mac = gw_aes_encrypt(keys, rounds, gw_aes_xor(mac, second));
    mac = gw_aes_cbc_mac(keys, rounds, mac, data, bytes);
    const gw_aes_block mask =
        gw_aes_encrypt(keys, rounds, gw_aes_words(nonce.salt, nonce.iv_high, nonce.iv_low, 0));
    mac = gw_aes_xor(mac, mask);
    return gw_ipsec_tag_words(gw_aes_word(mac, 0), gw_aes_word(mac, 1), gw_aes_word(mac, 2),
                              gw_aes_word(mac, 3));
}

GW_LANE gw_chacha20_nonce gw_ipsec_chacha20_nonce(const GW_GLOBAL gw_ipsec_sa *sa,
                                                  const GW_GLOBAL gw_u8 *iv)
{
    gw_chacha20_nonce nonce;
    nonce.words[0] = sa->salt;
    nonce.words[1] = gw_load_le32(iv);
    nonce.words[2] = gw_load_le32(iv + 4);
    return nonce;
}

/* Returns the ChaCha20-Poly1305 tag of an encrypted ESP packet (RFC 8439, section 2.8). */
GW_APART gw_ipsec_tag gw_ipsec_chacha20_poly1305(const GW_GLOBAL gw_ipsec_sa *sa,
                                                 gw_chacha20_nonce nonce, gw_u64 sequence,
                                                 const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    gw_u32 once[GW_CHACHA20_WORDS];
    gw_chacha20_block(sa->keys, nonce, 0, once);
    const gw_poly1305 r = gw_poly1305_clamp(once[0], once[1], once[2], once[3]);
    const gw_ipsec_aad aad = gw_ipsec_aad_of(sa, sequence);
    gw_poly1305 sum = gw_poly1305_words(gw_reverse32(aad.words[0]), gw_reverse32(aad.words[1]),
                                        gw_reverse32(aad.words[2]), 0, 1);
    sum = gw_poly1305_text(gw_poly1305_multiply(sum, r), r, gw_text_of(data, bytes));
    const gw_poly1305 lengths = gw_poly1305_words(aad.bytes, 0, bytes, 0, 1);
    sum = gw_poly1305_multiply(gw_poly1305_add(sum, lengths), r);
    gw_u32 tag[4];
    gw_poly1305_tag(sum, once + 4, tag);
    return gw_ipsec_tag_words(gw_reverse32(tag[0]), gw_reverse32(tag[1]), gw_reverse32(tag[2]),
                              gw_reverse32(tag[3]));
}

GW_LANE gw_ipsec_tag gw_ipsec_hmac_sha512(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 digest_words,
                                          gw_text text)
{
    const gw_sha512 mac = gw_hmac_sha512(sa->authentication, sa->more, digest_words, text);
    gw_ipsec_tag tag;
    tag.words[0] = (gw_u32)(mac.a >> 32);
    tag.words[1] = (gw_u32)mac.a;
    tag.words[2] = (gw_u32)(mac.b >> 32);
    tag.words[3] = (gw_u32)mac.b;
    tag.words[4] = (gw_u32)(mac.c >> 32);
    tag.words[5] = (gw_u32)mac.c;
    tag.words[6] = (gw_u32)(mac.d >> 32);
    tag.words[7] = (gw_u32)mac.d;
    return tag;
}

/* Number of AES rounds of AES-XCBC-MAC-96 and AES-CMAC-96. Their keys have 128 bits. */
#define GW_IPSEC_MAC_ROUNDS 10u

/* Returns the tag of AES-XCBC-MAC (RFC 3566, section 4) or AES-CMAC (RFC 4493, section 2.4). They
 * differ only in the keys that the SA holds. The text must not be empty. */
GW_ALONE gw_ipsec_tag gw_ipsec_aes_mac(const GW_GLOBAL gw_ipsec_sa *sa, gw_text text)
{
    const GW_GLOBAL gw_u8 *keys = (const GW_GLOBAL gw_u8 *)sa->more;
    const gw_u32 bytes = text.bytes + text.suffix_bytes;
    const gw_u32 last = (bytes - 1) / 16 * 16;
    const gw_u32 contiguous = text.bytes / 16 * 16;
    gw_u32 at = contiguous < last ? contiguous : last;
    gw_aes_block mac =
        gw_aes_cbc_mac(keys, GW_IPSEC_MAC_ROUNDS, gw_aes_words(0, 0, 0, 0), text.data, at);
    for (; at < bytes; at += 16) {
        mac = gw_aes_xor(mac, gw_aes_words(gw_text_word(text, at, 0x80u),
                                           gw_text_word(text, at + 4, 0x80u),
                                           gw_text_word(text, at + 8, 0x80u),
                                           gw_text_word(text, at + 12, 0x80u)));
        if (at == last) {
            const GW_GLOBAL gw_u32 *subkey = sa->authentication + (at + 16 == bytes ? 0 : 4);
            mac = gw_aes_xor(mac, gw_aes_load((const GW_GLOBAL gw_u8 *)subkey));
        }
        mac = gw_aes_encrypt(keys, GW_IPSEC_MAC_ROUNDS, mac);
    }
    return gw_ipsec_tag_words(gw_aes_word(mac, 0), gw_aes_word(mac, 1), gw_aes_word(mac, 2),
                              gw_aes_word(mac, 3));
}

/* Returns the tag of a text, for an algorithm that is independent of the cipher. */
GW_LANE gw_ipsec_tag gw_ipsec_mac(const GW_GLOBAL gw_ipsec_sa *sa, gw_u32 auth, gw_text text)
{
    if (auth == GW_IPSEC_AUTH_SHA384) {
        return gw_ipsec_hmac_sha512(sa, GW_SHA384_DIGEST_WORDS, text);
    }
    if (auth == GW_IPSEC_AUTH_SHA512) {
        return gw_ipsec_hmac_sha512(sa, GW_SHA512_DIGEST_WORDS, text);
    }
    if (auth == GW_IPSEC_AUTH_XCBC || auth == GW_IPSEC_AUTH_CMAC) {
        return gw_ipsec_aes_mac(sa, text);
    }
    const GW_GLOBAL gw_u32 *inner = sa->authentication;
    const GW_GLOBAL gw_u32 *outer = sa->authentication + GW_IPSEC_HMAC_OUTER;
    if (auth == GW_IPSEC_AUTH_SHA1) {
        const gw_sha1 mac = gw_hmac_sha1(inner, outer, text);
        return gw_ipsec_tag_words(mac.a, mac.b, mac.c, mac.d);
    }
    const gw_sha256 mac = gw_hmac_sha256(inner, outer, text);
    return gw_ipsec_tag_words(mac.a, mac.b, mac.c, mac.d);
}

#endif
