/*
 * CBC with HMAC for groups of sixteen equally long packets. Most groups are of this kind, because
 * batches have many packets and are sorted by length. All packets take the same steps and end
 * together. The hash takes its words directly from the cipher's registers, without a detour through
 * memory.
 *
 *   text    | SPI, sequence | IV | encrypted block | ... | upper sequence | 0x80... | 0.. | bits |
 *   words          2          4            4                    0 or 1          1             1
 *
 * The IV counts as cipher block 0. Hash block b starts with the second half of cipher block 4b - 1
 * (or SPI and sequence number, if b is 0). Then follow cipher blocks 4b to 4b + 2, and the first
 * half of cipher block 4b + 3.
 */
#ifndef GODWIT_IPSEC_AVX512_CBC_HMAC_H
#define GODWIT_IPSEC_AVX512_CBC_HMAC_H

#include "avx512_batch.h"
#include "avx512_group.h"

/* HMAC state of sixteen texts. `words` contains text that is not hashed yet: up to one hash block
 * and two more words. */
typedef struct gw_avx512_text {
    __m512i words[18];
    __m512i state[8];
    __m512i outer[8];
} gw_avx512_text;

/* Returns whether all packets of a group have the same length and equally long sequence numbers. */
GW_AVX512 gw_u32 gw_avx512_same_length(const gw_avx512_group *group)
{
    const gw_native_packet *first = group->packets[0];
    gw_u32 difference = 0;
    for (gw_u32 i = 1; i < GW_AVX512_LANES; i++) {
        const gw_native_packet *packet = group->packets[i];
        difference |= packet->data_bytes ^ first->data_bytes;
        difference |= (packet->found.sa->flags ^ first->found.sa->flags) & GW_IPSEC_SA_ESN;
    }
    return difference == 0;
}

/* Starts the HMAC computation of sixteen packets. Loads the HMAC states, and begins each text with
 * the SPI and the sequence number. */
GW_AVX512 void gw_avx512_text_begin(gw_avx512_text *text, const gw_avx512_group *group,
                                    gw_u32 state_words)
{
    __m512i line[4][4];
    __m512i states[16];
    gw_avx512_load_sa_line(line, &group->sas, GW_AVX512_AUTH_LINE);
    GW_AVX512_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_avx512_words(&states[4 * k], line[k]);
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        text->state[i] = states[i];
        text->outer[i] = states[GW_IPSEC_HMAC_OUTER + i];
    }
    text->words[0] = _mm512_load_si512(group->spi);
    text->words[1] = _mm512_load_si512(group->sequence[1]);
}

/* Appends a 16-byte block of each packet to the packet's HMAC text. SPI and sequence number fill
 * the first two words, so block k starts at word 2 + 4k. */
GW_AVX512 void gw_avx512_text_append(gw_avx512_text *text, const __m512i blocks[4], gw_u32 k)
{
    __m512i swapped[4];
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        swapped[j] = gw_avx512_swap32(blocks[j]);
    }
    gw_avx512_words(&text->words[2 + 4 * k], swapped);
}

/* Encrypts or decrypts 64 bytes of each packet, and hashes one block of each packet. Cipher and
 * hash instructions are interleaved to hide their latency. With the mode GW_AVX512_NONE, the
 * function only hashes. */
GW_AVX512 void gw_avx512_cipher_and_hash(gw_avx512_cipher *cipher, gw_avx512_text *text,
                                         gw_u32 state_words, gw_u32 mode)
{
    __m512i x[4];
    __m512i w[16];
    __m512i v[8];
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        w[i] = text->words[i];
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        v[i] = text->state[i];
    }
    GW_AVX512_UNROLL
    for (gw_u32 part = 0; part < 16; part++) {
        gw_avx512_hash_part(v, w, part, state_words);
        if (mode != GW_AVX512_NONE) {
            gw_avx512_cipher_part(cipher, x, mode, part);
        }
    }
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        text->state[i] = _mm512_add_epi32(text->state[i], v[i]);
    }
}

#define GW_AVX512_CIPHER_AND_HASH(name, state_words, mode)                                         \
    static __attribute__((noinline)) void gw_avx512_cbc_hmac_##name(gw_avx512_cipher *cipher,      \
                                                                    gw_avx512_text *text)          \
    {                                                                                              \
        gw_avx512_cipher_and_hash(cipher, text, state_words, mode);                                \
    }

GW_AVX512_CIPHER_AND_HASH(encrypt_sha1, 5, GW_AVX512_CBC_ENCRYPT)
GW_AVX512_CIPHER_AND_HASH(encrypt_sha256, 8, GW_AVX512_CBC_ENCRYPT)
GW_AVX512_CIPHER_AND_HASH(decrypt_sha1, 5, GW_AVX512_CBC_DECRYPT)
GW_AVX512_CIPHER_AND_HASH(decrypt_sha256, 8, GW_AVX512_CBC_DECRYPT)

static __attribute__((noinline)) void gw_avx512_text_block_sha1(gw_avx512_text *text)
{
    gw_avx512_cipher_and_hash(0, text, 5, GW_AVX512_NONE);
}

static __attribute__((noinline)) void gw_avx512_text_block_sha256(gw_avx512_text *text)
{
    gw_avx512_cipher_and_hash(0, text, 8, GW_AVX512_NONE);
}

GW_AVX512 void gw_avx512_text_hash(gw_avx512_text *text, gw_u32 state_words)
{
    if (state_words == 5) {
        gw_avx512_text_block_sha1(text);
    } else {
        gw_avx512_text_block_sha256(text);
    }
}

/* Hashes one block of each of sixteen packets. If `decrypting` is not 0, it decrypts that state's
 * blocks at the same time. */
GW_AVX512 void gw_avx512_text_hash_and_decrypt(gw_avx512_text *text, gw_avx512_cipher *decrypting,
                                               gw_u32 state_words)
{
    if (decrypting == 0) {
        gw_avx512_text_hash(text, state_words);
    } else if (state_words == 5) {
        gw_avx512_cbc_hmac_decrypt_sha1(decrypting, text);
    } else {
        gw_avx512_cbc_hmac_decrypt_sha256(decrypting, text);
    }
}

/* Clears the words from index `from` to index `to` - 1 in all registers. An unrolled loop is faster
 * than memset for a few words. */
GW_AVX512 void gw_avx512_text_clear(gw_avx512_text *text, gw_u32 from, gw_u32 to)
{
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        if (i >= from && i < to) {
            text->words[i] = _mm512_setzero_si512();
        }
    }
}

/* Hashes the last words_left words (2 to 14) of each text and then HMAC's outer block (RFC 2104).
 * Stores the digests in text->state. If `decrypting` is not 0, it decrypts that state's blocks at
 * the same time. */
GW_AVX512 void gw_avx512_text_end(gw_avx512_text *text, const gw_avx512_group *group,
                                  gw_avx512_batch *batch, gw_u32 words_left,
                                  gw_avx512_cipher *decrypting, gw_u32 state_words)
{
    const gw_native_packet *first = group->packets[0];
    gw_u32 bytes = GW_AVX512_ROW_BYTES + first->text_bytes;
    if ((first->found.sa->flags & GW_IPSEC_SA_ESN) != 0) {
        text->words[words_left++] = _mm512_load_si512(group->sequence[0]);
        bytes += 4;
    }
    text->words[words_left++] = _mm512_set1_epi32((int)0x80000000u);
    gw_avx512_text_clear(text, words_left, 16);
    if (words_left > 14) {
        gw_avx512_prefetch_upcoming(batch, GW_AVX512_LANES / 4);
        gw_avx512_text_hash_and_decrypt(text, decrypting, state_words);
        decrypting = 0;
        gw_avx512_text_clear(text, 0, 15);
    }
    text->words[15] = _mm512_set1_epi32((int)(8 * bytes));
    gw_avx512_prefetch_upcoming(batch, GW_AVX512_LANES / 4);
    gw_avx512_text_hash_and_decrypt(text, decrypting, state_words);
    GW_AVX512_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        text->words[i] = text->state[i];
        text->state[i] = text->outer[i];
    }
    text->words[state_words] = _mm512_set1_epi32((int)0x80000000u);
    gw_avx512_text_clear(text, state_words + 1, 15);
    text->words[15] = _mm512_set1_epi32((int)(8 * (GW_AVX512_ROW_BYTES + 4 * state_words)));
    gw_avx512_prefetch_upcoming(batch, GW_AVX512_LANES / 4);
    gw_avx512_text_hash(text, state_words);
}

/* Converts the digests of sixteen packets to authentication tags in network byte order. */
GW_AVX512 void gw_avx512_text_tags(const gw_avx512_text *text, __m128i tags[GW_AVX512_LANES])
{
    __m512i blocks[4];
    gw_avx512_words(blocks, text->state);
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i block = gw_avx512_swap32(blocks[j]);
        tags[j] = _mm512_castsi512_si128(block);
        tags[j + 4] = _mm512_extracti32x4_epi32(block, 1);
        tags[j + 8] = _mm512_extracti32x4_epi32(block, 2);
        tags[j + 12] = _mm512_extracti32x4_epi32(block, 3);
    }
}

/* Encrypts the current blocks of sixteen packets with CBC, without hashing. */
static __attribute__((noinline)) void gw_avx512_cbc_hmac_cipher(gw_avx512_cipher *cipher)
{
    const gw_avx512_keys *keys = &cipher->keys;
    for (gw_u32 k = 0; k < cipher->count; k++) {
        __m512i x[4];
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            x[j] = _mm512_ternarylogic_epi64(cipher->chain[j], cipher->blocks[k][j],
                                             keys->round[0][j], 0x96);
        }
        GW_AVX512_UNROLL
        for (gw_u32 part = 0; part < 4; part++) {
            gw_avx512_rounds(x, keys, part, 0);
        }
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            cipher->chain[j] = x[j];
            cipher->blocks[k][j] = x[j];
        }
    }
}

/* Moves the two words after a hashed block to the array's start, where the next block begins. */
GW_AVX512 void gw_avx512_text_shift(gw_avx512_text *text)
{
    text->words[0] = text->words[16];
    text->words[1] = text->words[17];
}

/* Encrypts and authenticates sixteen equally long packets. Each step encrypts up to four blocks of
 * each packet and hashes the blocks of the previous step. The hash starts with the IV. */
static __attribute__((noinline)) void gw_avx512_cbc_hmac_encrypt(const gw_avx512_group *group,
                                                                 gw_avx512_batch *batch,
                                                                 gw_ipsec_suite suite,
                                                                 gw_u32 state_words)
{
    gw_avx512_cipher cipher;
    gw_avx512_text text;
    const gw_u32 block_count = group->packets[0]->data_bytes / 16 + 1;
    const gw_u32 whole = block_count / 4;
    gw_avx512_offset_addresses(cipher.lanes.at, group->data, -16);
    gw_avx512_keys_load(&cipher.keys, &group->sas, gw_ipsec_aes_rounds(suite));
    gw_avx512_text_begin(&text, group, state_words);
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        cipher.chain[j] = _mm512_setzero_si512();
    }
    for (gw_u32 step = 0; step <= whole; step++) {
        const gw_u32 offset = GW_AVX512_ROW_BYTES * step;
        const gw_u32 count = step < whole ? 4 : block_count % 4;
        cipher.count = count;
        gw_avx512_prefetch_upcoming(batch, GW_AVX512_LANES / 4);
        if (step + 2 <= whole) {
            gw_avx512_prefetch_rows(&cipher.lanes, offset);
        }
        gw_avx512_load_blocks(cipher.blocks, &cipher.lanes, offset, count);
        if (step == 0 || count < 4) {
            gw_avx512_cbc_hmac_cipher(&cipher);
        } else if (state_words == 5) {
            gw_avx512_cbc_hmac_encrypt_sha1(&cipher, &text);
        } else {
            gw_avx512_cbc_hmac_encrypt_sha256(&cipher, &text);
        }
        if (step != 0 && count < 4) {
            gw_avx512_text_hash(&text, state_words);
        }
        if (step != 0) {
            gw_avx512_text_shift(&text);
        }
        gw_avx512_store_blocks(cipher.blocks, &cipher.lanes, offset, count);
        for (gw_u32 k = 0; k < count; k++) {
            gw_avx512_text_append(&text, cipher.blocks[k], k);
        }
    }
    gw_avx512_text_end(&text, group, batch, 2 + 4 * (block_count % 4), 0, state_words);
    __m128i tags[GW_AVX512_LANES];
    gw_avx512_text_tags(&text, tags);
    const gw_u32 data_bytes = group->packets[0]->data_bytes;
    if (group->icv_bytes != 0) {
        const __mmask8 mask = gw_avx512_icv_mask(group->icv_bytes);
        /* Unused SIMD lanes repeat the last packet, so storing its tag again is harmless. */
        GW_AVX512_UNROLL
        for (gw_u32 i = 0; i < GW_AVX512_LANES; i++) {
            _mm_mask_storeu_epi32(group->data[i] + data_bytes, mask, tags[i]);
        }
        return;
    }
    for (gw_u32 i = 0; i < group->count; i++) {
        _mm_mask_storeu_epi32(group->data[i] + data_bytes,
                              gw_avx512_icv_mask(group->sas.sa[i]->icv_bytes), tags[i]);
    }
}

/* Encrypts a packet again after its ICV turned out to be wrong, because the packet must stay
 * unchanged (RFC 4303, section 3.4.4.1). The function computes the encryption keys, because the SA
 * holds only the decryption keys. */
static __attribute__((noinline)) void gw_avx512_reencrypt(const gw_native_packet *packet,
                                                          gw_u32 rounds)
{
    const __m128i *inverse = (const __m128i *)packet->found.sa->keys;
    const __m128i zero = _mm_setzero_si128();
    __m128i keys[15];
    for (gw_u32 i = 0; i <= rounds; i++) {
        const __m128i key = _mm_loadu_si128(inverse + rounds - i);
        /* The first and the last decryption key are encryption keys. All others are InvMixColumns
         * of an encryption key (FIPS 197, section 5.3.5), so MixColumns restores them. */
        const __m128i mixed = _mm_aesenc_si128(_mm_aesdeclast_si128(key, zero), zero);
        keys[i] = i == 0 || i == rounds ? key : mixed;
    }
    __m128i chain = _mm_loadu_si128((const __m128i *)(packet->data - 16));
    for (gw_u32 at = 0; at < packet->data_bytes; at += 16) {
        __m128i *block = (__m128i *)(packet->data + at);
        chain = _mm_xor_si128(_mm_xor_si128(chain, _mm_loadu_si128(block)), keys[0]);
        for (gw_u32 i = 1; i < rounds; i++) {
            chain = _mm_aesenc_si128(chain, keys[i]);
        }
        chain = _mm_aesenclast_si128(chain, keys[rounds]);
        _mm_storeu_si128(block, chain);
    }
}

/* Verifies and decrypts sixteen equally long packets. Each step hashes up to four blocks of each
 * packet and decrypts them at the same time. The hash starts with the IV. */
static __attribute__((noinline)) void gw_avx512_cbc_hmac_decrypt(const gw_avx512_group *group,
                                                                 gw_avx512_batch *batch,
                                                                 gw_ipsec_suite suite,
                                                                 gw_u32 state_words)
{
    gw_avx512_cipher cipher;
    gw_avx512_text text;
    __m512i iv[4];
    const gw_u32 rounds = gw_ipsec_aes_rounds(suite);
    const gw_u32 block_count = group->packets[0]->data_bytes / 16 + 1;
    const gw_u32 whole = block_count / 4;
    gw_avx512_offset_addresses(cipher.lanes.at, group->data, -16);
    gw_avx512_keys_load(&cipher.keys, &group->sas, rounds);
    gw_avx512_text_begin(&text, group, state_words);
    GW_AVX512_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        cipher.chain[j] = _mm512_setzero_si512();
    }
    for (gw_u32 step = 0; step <= whole; step++) {
        const gw_u32 offset = GW_AVX512_ROW_BYTES * step;
        cipher.count = step < whole ? 4 : block_count % 4;
        gw_avx512_prefetch_upcoming(batch, GW_AVX512_LANES / 4);
        if (step + 2 <= whole) {
            gw_avx512_prefetch_rows(&cipher.lanes, offset);
        }
        gw_avx512_load_blocks(cipher.blocks, &cipher.lanes, offset, cipher.count);
        for (gw_u32 k = 0; k < cipher.count; k++) {
            gw_avx512_text_append(&text, cipher.blocks[k], k);
        }
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4 && step == 0; j++) {
            iv[j] = cipher.blocks[0][j];
        }
        if (step < whole) {
            gw_avx512_text_hash_and_decrypt(&text, &cipher, state_words);
            gw_avx512_text_shift(&text);
        } else {
            gw_avx512_text_end(&text, group, batch, 2 + 4 * cipher.count, &cipher, state_words);
        }
        /* Decryption leaves the IV in the packet unchanged. */
        GW_AVX512_UNROLL
        for (gw_u32 j = 0; j < 4 && step == 0; j++) {
            cipher.blocks[0][j] = iv[j];
        }
        gw_avx512_store_blocks(cipher.blocks, &cipher.lanes, offset, cipher.count);
    }
    __m128i tags[GW_AVX512_LANES];
    gw_avx512_text_tags(&text, tags);
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_native_packet *packet = group->packets[i];
        const __mmask8 mask = gw_avx512_icv_mask(packet->found.sa->icv_bytes);
        const __m128i received = _mm_maskz_loadu_epi32(mask, packet->data + packet->data_bytes);
        packet->authentic = _mm_mask_cmpneq_epi32_mask(mask, received, tags[i]) == 0;
        if (!packet->authentic) {
            gw_avx512_reencrypt(packet, rounds);
        }
    }
}

#endif
