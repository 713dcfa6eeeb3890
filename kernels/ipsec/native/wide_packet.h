/* One packet of a bin on its way through the wide form: its headers before the transforms, and what
 * is left to do behind them. */
#ifndef GODWIT_IPSEC_WIDE_PACKET_H
#define GODWIT_IPSEC_WIDE_PACKET_H

#include "wide.h"

/* What AH needs besides. */
typedef struct gw_wide_ah {
    gw_ipsec_signing signing;
    gw_ipsec_tag tag;
} gw_wide_ah;

typedef struct gw_wide_packet {
    gw_ipsec_found found;
    gw_u8 *text; /* what is authenticated */
    gw_u8 *data; /* what is encrypted; the ICV of ESP comes behind */
    gw_u64 sequence;
    gw_u32 text_bytes;
    gw_u32 data_bytes;
    gw_u32 named_at;  /* inbound: gw_ipsec_opening's */
    gw_u16 index;     /* in the batch */
    gw_u16 authentic; /* inbound */
    gw_wide_ah *ah;
} gw_wide_packet;
GW_STATIC_ASSERT(sizeof(gw_wide_packet) == 64, wide_packet_size);

/* How a bin's packets are treated: constants where loops are inlined. */
typedef struct gw_wide_form {
    gw_ipsec_suite suite;
    gw_u32 outbound;
} gw_wide_form;

/* What goes into the IV's place: CBC's nonce as gw_ipsec_cbc_iv has it, before it is encrypted. */
GW_WIDE void gw_wide_iv(gw_u8 *iv, gw_ipsec_suite suite, const gw_ipsec_sa *sa, gw_u64 sequence)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        gw_aes_store(iv, gw_aes_words(sa->spi, (gw_u32)(sequence >> 32), (gw_u32)sequence,
                                      sa->destination[0]));
    } else if (gw_ipsec_iv_bytes(suite) != 0) {
        gw_store_be64(iv, sequence);
    }
}

/* What lies behind an IPv4 packet in a tunnel: so many bytes of padding, up to 15, their number,
 * and the next header (gw_ipsec_pad). */
typedef struct gw_wide_padding {
    __m256i all;
    __mmask32 mask;
    gw_u32 bytes;
} gw_wide_padding;

GW_WIDE gw_wide_padding gw_wide_pad_of(gw_u32 pad_bytes)
{
    static const gw_u8 numbers[32]
        __attribute__((aligned(32))) = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const __m256i all = _mm256_min_epu8(_mm256_set1_epi8((char)pad_bytes),
                                        _mm256_load_si256((const __m256i *)numbers));
    gw_wide_padding padding;
    padding.all = _mm256_mask_set1_epi8(all, (__mmask32)2 << pad_bytes, GW_PROTOCOL_IPV4);
    padding.mask = ((__mmask32)4 << pad_bytes) - 1;
    padding.bytes = pad_bytes;
    return padding;
}

/* Headers of an ESP packet, outbound; returns whether there is more to do. */
static __attribute__((noinline)) gw_u32
gw_wide_seal_begin(gw_wide_packet *packet, const gw_lane *lane, gw_ipsec_suite suite,
                   gw_descriptor *descriptor, gw_outcome *outcome)
{
    packet->found = gw_ipsec_find(lane, descriptor, outcome);
    if (packet->found.sa == 0) {
        return 0;
    }
    const gw_ipsec_sealing sealing =
        gw_ipsec_seal_begin(lane, packet->found, suite, descriptor, outcome);
    gw_u8 *iv = sealing.esp + GW_ESP_HEADER_BYTES;
    packet->text = sealing.esp;
    packet->data = iv + gw_ipsec_iv_bytes(suite);
    packet->data_bytes = sealing.cipher_bytes;
    packet->text_bytes = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + sealing.cipher_bytes;
    packet->sequence = sealing.sequence;
    if (sealing.cipher_bytes == 0) {
        return 0;
    }
    gw_wide_iv(iv, suite, packet->found.sa, sealing.sequence);
    return 1;
}

/* The same inbound. */
GW_WIDE gw_u32 gw_wide_open_begin(gw_wide_packet *packet, const gw_lane *lane, gw_ipsec_suite suite,
                                  const gw_descriptor *descriptor, gw_outcome *outcome)
{
    packet->found = gw_ipsec_find(lane, descriptor, outcome);
    if (packet->found.sa == 0) {
        return 0;
    }
    const gw_ipsec_opening opening =
        gw_ipsec_open_begin(lane, packet->found, suite, descriptor, outcome);
    packet->text = opening.esp;
    packet->data = opening.esp + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    packet->data_bytes = opening.cipher_bytes;
    packet->text_bytes = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + opening.cipher_bytes;
    packet->sequence = opening.sequence;
    packet->named_at = opening.named_at;
    return opening.cipher_bytes != 0;
}

/* The same for AH, in both directions. */
GW_WIDE gw_u32 gw_wide_ah_begin(gw_wide_packet *packet, const gw_lane *lane, gw_wide_form form,
                                gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_ipsec_signing *signing = &packet->ah->signing;
    packet->found = gw_ipsec_find(lane, descriptor, outcome);
    if (packet->found.sa == 0) {
        return 0;
    }
    if (form.outbound) {
        gw_ipsec_sign_begin(lane, packet->found, form.suite, signing, descriptor, outcome);
    } else {
        gw_ipsec_verify_begin(lane, packet->found, form.suite, signing, descriptor, outcome);
    }
    packet->text = signing->header;
    packet->text_bytes = signing->bytes;
    packet->sequence = signing->sequence;
    packet->data = signing->header;
    packet->data_bytes = 0;
    return signing->bytes != 0;
}

/* Headers of one packet; returns whether there is more to do. */
GW_WIDE gw_u32 gw_wide_begin(gw_wide_packet *packet, const gw_lane *lane, gw_wide_form form,
                             gw_descriptor *at_descriptor, gw_outcome *at_outcome)
{
    packet->authentic = 1;
    gw_descriptor descriptor = *at_descriptor;
    gw_outcome outcome = {0, 0, 0, 0};
    gw_u32 more = 0;
    if (form.suite.protocol == GW_IPSEC_AH) {
        more = gw_wide_ah_begin(packet, lane, form, &descriptor, &outcome);
    } else if (form.outbound) {
        more = gw_wide_seal_begin(packet, lane, form.suite, &descriptor, &outcome);
    } else {
        more = gw_wide_open_begin(packet, lane, form.suite, &descriptor, &outcome);
    }
    at_descriptor->head = descriptor.head;
    at_descriptor->length = descriptor.length;
    *at_outcome = outcome;
    return more;
}

/* What is left to do with a packet whose transforms are done. */
GW_WIDE void gw_wide_finish(gw_wide_packet *packet, const gw_lane *lane, gw_wide_form form,
                            gw_descriptor *at_descriptor, gw_outcome *at_outcome)
{
    const gw_ipsec_suite suite = form.suite;
    if (form.outbound) {
        if (suite.protocol == GW_IPSEC_AH) {
            gw_ipsec_sign_end(packet->found, suite, &packet->ah->signing, packet->ah->tag);
        } else {
            const gw_ipsec_sealing sealing = {packet->text, packet->sequence, packet->data_bytes};
            gw_ipsec_seal_end(packet->found, suite, sealing);
        }
        return;
    }
    gw_descriptor descriptor = *at_descriptor;
    gw_outcome outcome = {0, 0, 0, 0};
    if (suite.protocol == GW_IPSEC_AH) {
        gw_ipsec_verify_end(lane, packet->found, suite, &packet->ah->signing, packet->ah->tag,
                            &descriptor, &outcome);
    } else if (!packet->authentic) {
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
    } else {
        const gw_ipsec_opening opening = {packet->text, packet->sequence, packet->data_bytes,
                                          packet->named_at};
        gw_ipsec_open_end(lane, packet->found, suite, opening, &descriptor, &outcome);
    }
    at_descriptor->head = descriptor.head;
    at_descriptor->length = descriptor.length;
    *at_outcome = outcome;
}

#endif
