/*
 * CBC with HMAC for groups whose packets have one length, as most have: a bin has many packets and
 * is sorted. All lanes take the same steps then and end together, and the words that the hash takes
 * come from the cipher's blocks without going through memory.
 *
 *   text    | SPI, sequence | IV      | encrypted block | ... | upper sequence | 0x80, 0 ..., bits
 * | words          2             4             4                     0 or 1 chunks 0             1
 * ...
 *
 * Block b of the hash is what is left of chunk 4b - 1, or the first two words, chunks 4b to 4b + 2,
 * and the first half of chunk 4b + 3.
 */
#ifndef GODWIT_IPSEC_WIDE_EVEN_H
#define GODWIT_IPSEC_WIDE_EVEN_H

#include "wide_batch.h"
#include "wide_group.h"

/* Words of a text that no whole block was made of yet: of the next block, and two behind it. */
typedef struct gw_wide_text {
    __m512i words[18];
    __m512i state[8];
    __m512i outer[8];
} gw_wide_text;

/* Whether the packets of a group are of one length, and all of them with, or without, the upper
 * half of their sequence numbers. */
GW_WIDE gw_u32 gw_wide_even(const gw_wide_group *group)
{
    const gw_wide_packet *first = group->packets[0];
    gw_u32 difference = 0;
    for (gw_u32 i = 1; i < GW_WIDE_LANES; i++) {
        const gw_wide_packet *packet = group->packets[i];
        difference |= packet->data_bytes ^ first->data_bytes;
        difference |= (packet->found.sa->flags ^ first->found.sa->flags) & GW_IPSEC_SA_ESN;
    }
    return difference == 0;
}

/* SPI, sequence number, and the states after the keys. */
GW_WIDE void gw_wide_text_begin(gw_wide_text *text, const gw_wide_group *group, gw_u32 state_words)
{
    __m512i line[4][4];
    __m512i states[16];
    gw_wide_line(line, &group->sas, GW_WIDE_AUTH_LINE);
    GW_WIDE_UNROLL
    for (gw_u32 k = 0; k < 4; k++) {
        gw_wide_words(&states[4 * k], line[k]);
    }
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        text->state[i] = states[i];
        text->outer[i] = states[GW_IPSEC_HMAC_OUTER + i];
    }
    text->words[0] = _mm512_load_si512(group->spi);
    text->words[1] = _mm512_load_si512(group->numbers[1]);
}

/* Takes chunk k of a step: words 2 + 4k to 5 + 4k. */
GW_WIDE void gw_wide_text_take(gw_wide_text *text, const __m512i blocks[4], gw_u32 k)
{
    __m512i swapped[4];
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        swapped[j] = gw_wide_swap32(blocks[j]);
    }
    gw_wide_words(&text->words[2 + 4 * k], swapped);
}

/* Encrypts or decrypts the chunks of a step and hashes a block: done together, each fills the waits
 * of the other. With GW_WIDE_NONE it hashes only. */
GW_WIDE void gw_wide_even_both(gw_wide_cipher *cipher, gw_wide_text *text, gw_u32 state_words,
                               gw_u32 mode)
{
    __m512i x[4];
    __m512i w[16];
    __m512i v[8];
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        w[i] = text->words[i];
    }
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        v[i] = text->state[i];
    }
    GW_WIDE_UNROLL
    for (gw_u32 part = 0; part < 16; part++) {
        gw_wide_hash_part(v, w, part, state_words);
        if (mode != GW_WIDE_NONE) {
            gw_wide_cipher_part(cipher, x, mode, part);
        }
    }
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        text->state[i] = _mm512_add_epi32(text->state[i], v[i]);
    }
}

#define GW_WIDE_EVEN_BOTH(name, state_words, mode)                                                 \
    static __attribute__((noinline)) void gw_wide_even_##name(gw_wide_cipher *cipher,              \
                                                              gw_wide_text *text)                  \
    {                                                                                              \
        gw_wide_even_both(cipher, text, state_words, mode);                                        \
    }

GW_WIDE_EVEN_BOTH(seal_sha1, 5, GW_WIDE_CBC_SEAL)
GW_WIDE_EVEN_BOTH(seal_sha256, 8, GW_WIDE_CBC_SEAL)
GW_WIDE_EVEN_BOTH(open_sha1, 5, GW_WIDE_CBC_OPEN)
GW_WIDE_EVEN_BOTH(open_sha256, 8, GW_WIDE_CBC_OPEN)

static __attribute__((noinline)) void gw_wide_text_block_sha1(gw_wide_text *text)
{
    gw_wide_even_both(0, text, 5, GW_WIDE_NONE);
}

static __attribute__((noinline)) void gw_wide_text_block_sha256(gw_wide_text *text)
{
    gw_wide_even_both(0, text, 8, GW_WIDE_NONE);
}

GW_WIDE void gw_wide_text_next(gw_wide_text *text, gw_u32 state_words)
{
    if (state_words == 5) {
        gw_wide_text_block_sha1(text);
    } else {
        gw_wide_text_block_sha256(text);
    }
}

/* The same, and the chunks that `opening` has at hand are decrypted; 0: there are none. */
GW_WIDE void gw_wide_text_beside(gw_wide_text *text, gw_wide_cipher *opening, gw_u32 state_words)
{
    if (opening == 0) {
        gw_wide_text_next(text, state_words);
    } else if (state_words == 5) {
        gw_wide_even_open_sha1(opening, text);
    } else {
        gw_wide_even_open_sha256(opening, text);
    }
}

/* Words `from` to `to` become 0; unrolled, because a call for so few takes longer. */
GW_WIDE void gw_wide_text_clear(gw_wide_text *text, gw_u32 from, gw_u32 to)
{
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        if (i >= from && i < to) {
            text->words[i] = _mm512_setzero_si512();
        }
    }
}

/*
 * The end of all texts, of which `there` words are left, 2 to 14, and the outer block (RFC 2104).
 * Leaves the digests in text->state. opening: decrypted beside the first block.
 */
GW_WIDE void gw_wide_text_end(gw_wide_text *text, const gw_wide_group *group, gw_wide_batch *batch,
                              gw_u32 there, gw_wide_cipher *opening, gw_u32 state_words)
{
    const gw_wide_packet *first = group->packets[0];
    gw_u32 bytes = GW_WIDE_ROW_BYTES + first->text_bytes;
    if ((first->found.sa->flags & GW_IPSEC_SA_ESN) != 0) {
        text->words[there++] = _mm512_load_si512(group->numbers[0]);
        bytes += 4;
    }
    text->words[there++] = _mm512_set1_epi32((int)0x80000000u);
    gw_wide_text_clear(text, there, 16);
    if (there > 14) {
        gw_wide_ahead(batch, GW_WIDE_LANES / 4);
        gw_wide_text_beside(text, opening, state_words);
        opening = 0;
        gw_wide_text_clear(text, 0, 15);
    }
    text->words[15] = _mm512_set1_epi32((int)(8 * bytes));
    gw_wide_ahead(batch, GW_WIDE_LANES / 4);
    gw_wide_text_beside(text, opening, state_words);
    GW_WIDE_UNROLL
    for (gw_u32 i = 0; i < state_words; i++) {
        text->words[i] = text->state[i];
        text->state[i] = text->outer[i];
    }
    text->words[state_words] = _mm512_set1_epi32((int)0x80000000u);
    gw_wide_text_clear(text, state_words + 1, 15);
    text->words[15] = _mm512_set1_epi32((int)(8 * (GW_WIDE_ROW_BYTES + 4 * state_words)));
    gw_wide_ahead(batch, GW_WIDE_LANES / 4);
    gw_wide_text_next(text, state_words);
}

/* Digests as they go over the wire. */
GW_WIDE void gw_wide_text_tags(const gw_wide_text *text, __m128i tags[GW_WIDE_LANES])
{
    __m512i blocks[4];
    gw_wide_words(blocks, text->state);
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        const __m512i block = gw_wide_swap32(blocks[j]);
        tags[j] = _mm512_castsi512_si128(block);
        tags[j + 4] = _mm512_extracti32x4_epi32(block, 1);
        tags[j + 8] = _mm512_extracti32x4_epi32(block, 2);
        tags[j + 12] = _mm512_extracti32x4_epi32(block, 3);
    }
}

/* Encrypts the chunks of a step, one after the other. */
static __attribute__((noinline)) void gw_wide_even_cipher(gw_wide_cipher *cipher)
{
    const gw_wide_keys *keys = &cipher->keys;
    for (gw_u32 k = 0; k < cipher->count; k++) {
        __m512i x[4];
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            x[j] = _mm512_ternarylogic_epi64(cipher->chain[j], cipher->blocks[k][j],
                                             keys->round[0][j], 0x96);
        }
        GW_WIDE_UNROLL
        for (gw_u32 part = 0; part < 4; part++) {
            gw_wide_rounds(x, keys, part, 0);
        }
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4; j++) {
            cipher->chain[j] = x[j];
            cipher->blocks[k][j] = x[j];
        }
    }
}

/* The block is done: what is behind it begins the next. */
GW_WIDE void gw_wide_text_carry(gw_wide_text *text)
{
    text->words[0] = text->words[16];
    text->words[1] = text->words[17];
}

/*
 * Encrypts and signs. Each step encrypts up to four chunks, of which the IV is the first, and
 * hashes what the step before it has made.
 */
static __attribute__((noinline)) void gw_wide_even_seal(const gw_wide_group *group,
                                                        gw_wide_batch *batch, gw_ipsec_suite suite,
                                                        gw_u32 state_words)
{
    gw_wide_cipher cipher;
    gw_wide_text text;
    const gw_u32 chunks = group->packets[0]->data_bytes / 16 + 1;
    const gw_u32 whole = chunks / 4;
    gw_wide_move(cipher.lanes.at, group->data, -16);
    gw_wide_keys_load(&cipher.keys, &group->sas, gw_ipsec_aes_rounds(suite));
    gw_wide_text_begin(&text, group, state_words);
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        cipher.chain[j] = _mm512_setzero_si512();
    }
    for (gw_u32 step = 0; step <= whole; step++) {
        const gw_u32 offset = GW_WIDE_ROW_BYTES * step;
        const gw_u32 count = step < whole ? 4 : chunks % 4;
        cipher.count = count;
        gw_wide_ahead(batch, GW_WIDE_LANES / 4);
        if (step + 2 <= whole) {
            gw_wide_load_ahead(&cipher.lanes, offset);
        }
        gw_wide_chunks_load(cipher.blocks, &cipher.lanes, offset, count);
        if (step == 0 || count < 4) {
            gw_wide_even_cipher(&cipher);
        } else if (state_words == 5) {
            gw_wide_even_seal_sha1(&cipher, &text);
        } else {
            gw_wide_even_seal_sha256(&cipher, &text);
        }
        if (step != 0 && count < 4) {
            gw_wide_text_next(&text, state_words);
        }
        if (step != 0) {
            gw_wide_text_carry(&text);
        }
        gw_wide_chunks_store(cipher.blocks, &cipher.lanes, offset, count);
        for (gw_u32 k = 0; k < count; k++) {
            gw_wide_text_take(&text, cipher.blocks[k], k);
        }
    }
    gw_wide_text_end(&text, group, batch, 2 + 4 * (chunks % 4), 0, state_words);
    __m128i tags[GW_WIDE_LANES];
    gw_wide_text_tags(&text, tags);
    const gw_u32 data_bytes = group->packets[0]->data_bytes;
    if (group->icv_bytes != 0) {
        const __mmask8 mask = gw_wide_icv_mask(group->icv_bytes);
        /* Lanes that are left have the tag of the last packet. */
        GW_WIDE_UNROLL
        for (gw_u32 i = 0; i < GW_WIDE_LANES; i++) {
            _mm_mask_storeu_epi32(group->data[i] + data_bytes, mask, tags[i]);
        }
        return;
    }
    for (gw_u32 i = 0; i < group->count; i++) {
        _mm_mask_storeu_epi32(group->data[i] + data_bytes,
                              gw_wide_icv_mask(group->sas.sa[i]->icv_bytes), tags[i]);
    }
}

/* Encrypts the data of a packet again, which was decrypted and is not authentic: it is left as it
 * came (RFC 4303, section 3.4.4.1). Seldom needed. The SA has the keys of decryption. */
static __attribute__((noinline)) void gw_wide_restore(const gw_wide_packet *packet, gw_u32 rounds)
{
    const __m128i *inverse = (const __m128i *)packet->found.sa->keys;
    const __m128i zero = _mm_setzero_si128();
    __m128i keys[15];
    for (gw_u32 i = 0; i <= rounds; i++) {
        const __m128i key = _mm_loadu_si128(inverse + rounds - i);
        /* Those between were made by InvMixColumns (FIPS 197, section 5.3.5); this is its inverse.
         */
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

/* Says which packets are authentic, and decrypts them. Each step hashes up to four chunks, of which
 * the IV is the first, and decrypts them meanwhile. */
static __attribute__((noinline)) void gw_wide_even_open(const gw_wide_group *group,
                                                        gw_wide_batch *batch, gw_ipsec_suite suite,
                                                        gw_u32 state_words)
{
    gw_wide_cipher cipher;
    gw_wide_text text;
    __m512i iv[4];
    const gw_u32 rounds = gw_ipsec_aes_rounds(suite);
    const gw_u32 chunks = group->packets[0]->data_bytes / 16 + 1;
    const gw_u32 whole = chunks / 4;
    gw_wide_move(cipher.lanes.at, group->data, -16);
    gw_wide_keys_load(&cipher.keys, &group->sas, rounds);
    gw_wide_text_begin(&text, group, state_words);
    GW_WIDE_UNROLL
    for (gw_u32 j = 0; j < 4; j++) {
        cipher.chain[j] = _mm512_setzero_si512();
    }
    for (gw_u32 step = 0; step <= whole; step++) {
        const gw_u32 offset = GW_WIDE_ROW_BYTES * step;
        cipher.count = step < whole ? 4 : chunks % 4;
        gw_wide_ahead(batch, GW_WIDE_LANES / 4);
        if (step + 2 <= whole) {
            gw_wide_load_ahead(&cipher.lanes, offset);
        }
        gw_wide_chunks_load(cipher.blocks, &cipher.lanes, offset, cipher.count);
        for (gw_u32 k = 0; k < cipher.count; k++) {
            gw_wide_text_take(&text, cipher.blocks[k], k);
        }
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4 && step == 0; j++) {
            iv[j] = cipher.blocks[0][j];
        }
        if (step < whole) {
            gw_wide_text_beside(&text, &cipher, state_words);
            gw_wide_text_carry(&text);
        } else {
            gw_wide_text_end(&text, group, batch, 2 + 4 * cipher.count, &cipher, state_words);
        }
        /* The IV is no data: it stays what it is. */
        GW_WIDE_UNROLL
        for (gw_u32 j = 0; j < 4 && step == 0; j++) {
            cipher.blocks[0][j] = iv[j];
        }
        gw_wide_chunks_store(cipher.blocks, &cipher.lanes, offset, cipher.count);
    }
    __m128i tags[GW_WIDE_LANES];
    gw_wide_text_tags(&text, tags);
    for (gw_u32 i = 0; i < group->count; i++) {
        gw_wide_packet *packet = group->packets[i];
        const __mmask8 mask = gw_wide_icv_mask(packet->found.sa->icv_bytes);
        const __m128i came = _mm_maskz_loadu_epi32(mask, packet->data + packet->data_bytes);
        packet->authentic = _mm_mask_cmpneq_epi32_mask(mask, came, tags[i]) == 0;
        if (!packet->authentic) {
            gw_wide_restore(packet, rounds);
        }
    }
}

#endif
