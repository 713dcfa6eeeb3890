/* Headers of simple packets (../simple.h), one packet at a time. All functions leave other packets
 * unchanged and return 0 for them. */
#ifndef GODWIT_IPSEC_NATIVE_SIMPLE_PACKET_H
#define GODWIT_IPSEC_NATIVE_SIMPLE_PACKET_H

#include "../simple.h"
#include "packet.h"

/* Offset of the protocol in an IPv4 header (RFC 791, section 3.1). */
#define GW_NATIVE_PROTOCOL_AT 9u

/* Last 16 bytes of the data of an IPv4 packet: the end of the packet, padding, pad length and next
 * header. They contain all padding except the first byte of 15. */
typedef struct gw_native_trailer {
    __m128i bytes;
    __m128i mask; /* set in the bytes of the trailer */
} gw_native_trailer;

GW_NATIVE gw_native_trailer gw_native_trailer_of(gw_u32 pad_bytes)
{
    const __m128i indices = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i numbers = _mm_add_epi8(indices, _mm_set1_epi8((char)(pad_bytes - 13)));
    gw_native_trailer trailer;
    trailer.mask = _mm_cmpgt_epi8(numbers, _mm_setzero_si128());
    trailer.bytes = _mm_min_epu8(numbers, _mm_set1_epi8((char)pad_bytes));
    trailer.bytes = _mm_insert_epi8(trailer.bytes, GW_PROTOCOL_IPV4, 15);
    return trailer;
}

/* Moves the 14 bytes of an L2 header. */
GW_NATIVE void gw_native_move_l2(gw_u8 *to, const gw_u8 *from)
{
    gw_u64 first;
    gw_u64 last;
    __builtin_memcpy(&first, from, sizeof(first));
    __builtin_memcpy(&last, from + GW_ETHERNET_BYTES - sizeof(last), sizeof(last));
    __builtin_memcpy(to, &first, sizeof(first));
    __builtin_memcpy(to + GW_ETHERNET_BYTES - sizeof(last), &last, sizeof(last));
}

/* Sets the ranges of a packet. `esp` points to its ESP header. */
GW_NATIVE void gw_native_simple_ranges(gw_native_packet *packet, const gw_ipsec_sa *sa,
                                       gw_ipsec_suite suite, gw_u8 *esp, gw_u32 data_bytes)
{
    const gw_u32 front = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    packet->found.sa = sa;
    packet->found.l2_bytes = GW_ETHERNET_BYTES;
    packet->found.version = 4;
    packet->text = esp;
    packet->text_bytes = front + data_bytes;
    packet->data = esp + front;
    packet->data_bytes = data_bytes;
    packet->next_header_at = GW_NATIVE_PROTOCOL_AT;
    packet->authentic = 1;
    packet->ah = 0;
}

/* Returns the SA of a packet, or 0 if its index is not valid. */
GW_NATIVE const gw_ipsec_sa *gw_native_simple_sa(const gw_bin_call *call, gw_u32 index)
{
    const gw_ipsec_image *image = (const gw_ipsec_image *)call->image;
    const gw_u32 number = gw_ipsec_sa_index(call->parameters[index]);
    return number < image->sa_count ? (const gw_ipsec_sa *)(call->image + image->sa_offset) + number
                                    : 0;
}

/* Writes the headers and the trailer of an outbound packet, its descriptor and its outcome. For
 * CBC, it writes the nonce of the IV. */
GW_NATIVE gw_u32 gw_native_simple_encapsulate(gw_native_packet *packet, const gw_bin_call *call,
                                              gw_u32 index, gw_ipsec_suite suite)
{
    gw_descriptor *descriptor = &call->descriptors[index];
    const gw_ipsec_sa *sa = gw_native_simple_sa(call, index);
    if (sa == 0 || descriptor->length < GW_ETHERNET_BYTES + GW_IPV4_BYTES) {
        return 0;
    }
    gw_u8 *frame = call->arena + (gw_u64)descriptor->buffer * GW_BUFFER_UNIT + descriptor->head;
    gw_u8 *inner = frame + GW_ETHERNET_BYTES;
    gw_ipsec_simple_out out;
    packet->sequence = gw_ipsec_sequence(call->parameters[index]);
    out.sa = gw_ipsec_sa_words_of(sa);
    out.head = descriptor->head;
    out.frame_bytes = descriptor->length;
    out.room_bytes = descriptor->room * GW_BUFFER_UNIT;
    out.ether_type = gw_load_be16(inner - 2);
    out.ip[0] = gw_load_be32(inner);
    out.ip[1] = gw_load_be32(inner + 4);
    out.sequence[0] = (gw_u32)(packet->sequence >> 32);
    out.sequence[1] = (gw_u32)packet->sequence;
    if (!gw_ipsec_simple_encapsulate_begin(&out, call->variant, suite)) {
        return 0;
    }
    gw_u32 words[GW_IPSEC_SIMPLE_WORDS] = {0};
    const gw_u32 added = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    gw_ipsec_simple_headers(words, &out, suite);
    gw_native_move_l2(frame - added, frame);
    for (gw_u32 i = 0; 4 * i < added && i < GW_IPSEC_SIMPLE_WORDS; i++) {
        gw_store_be32(inner - added + 4 * i, words[i]);
    }
    const gw_u32 pad_bytes = out.cipher_bytes - GW_ESP_TAIL_BYTES - out.total_bytes;
    const gw_native_trailer trailer = gw_native_trailer_of(pad_bytes);
    gw_u8 *end = inner + out.cipher_bytes;
    gw_aes_store(end - 16, _mm_blendv_epi8(gw_aes_load(end - 16), trailer.bytes, trailer.mask));
    if (pad_bytes == GW_IPSEC_SIMPLE_PAD_BYTES) {
        end[-17] = 1;
    }
    gw_native_simple_ranges(packet, sa, suite, inner - added + GW_IPV4_BYTES, out.cipher_bytes);
    gw_outcome outcome = {0, 0, 0, 0};
    gw_verdict(&outcome, GW_IPSEC_ENCRYPTED, 0, out.sa.spi);
    descriptor->head = (gw_u16)(descriptor->head - added);
    descriptor->length = (gw_u16)(GW_ETHERNET_BYTES + out.outer_bytes);
    call->outcomes[index] = outcome;
    return 1;
}

/* Checks the headers of an inbound packet. */
GW_NATIVE gw_u32 gw_native_simple_decapsulate_begin(gw_native_packet *packet,
                                                    const gw_bin_call *call, gw_u32 index,
                                                    gw_ipsec_suite suite)
{
    const gw_descriptor *descriptor = &call->descriptors[index];
    const gw_ipsec_sa *sa = gw_native_simple_sa(call, index);
    if (sa == 0 || descriptor->length < GW_ETHERNET_BYTES + GW_IPV4_BYTES + GW_ESP_HEADER_BYTES) {
        return 0;
    }
    gw_u8 *outer = call->arena + (gw_u64)descriptor->buffer * GW_BUFFER_UNIT + descriptor->head +
                   GW_ETHERNET_BYTES;
    gw_u8 *esp = outer + GW_IPV4_BYTES;
    gw_ipsec_simple_in in;
    in.sa = gw_ipsec_sa_words_of(sa);
    in.frame_bytes = descriptor->length;
    in.ether_type = gw_load_be16(outer - 2);
    for (gw_u32 i = 0; i < 5; i++) {
        in.ip[i] = gw_load_be32(outer + 4 * i);
    }
    in.spi = gw_load_be32(esp);
    if (!gw_ipsec_simple_decapsulate_begin(&in, call->variant, suite)) {
        return 0;
    }
    packet->sequence =
        (gw_ipsec_sequence(call->parameters[index]) & ~(gw_u64)0xffffffffu) | gw_load_be32(esp + 4);
    gw_native_simple_ranges(packet, sa, suite, esp, in.cipher_bytes);
    return 1;
}

/* Returns whether an SA accepts any inner packet, by its first selector. */
GW_NATIVE gw_u32 gw_native_accepts_any(const gw_ipsec_sa *sa, const gw_bin_call *call)
{
    const gw_ipsec_image *image = (const gw_ipsec_image *)call->image;
    const gw_ipsec_selector *selector =
        (const gw_ipsec_selector *)(call->image + image->selector_offset) + sa->selector_first;
    return sa->selector_count != 0 && selector->family == 0 && selector->ports == 0 &&
           selector->protocol == GW_IPSEC_PROTOCOL_ANY;
}

/* Removes the headers and the trailer of an authentic, decrypted packet. The packet must be simple,
 * and its SA must accept any inner packet. Writes its descriptor and outcome. */
GW_NATIVE gw_u32 gw_native_simple_decapsulate_end(const gw_native_packet *packet,
                                                  const gw_bin_call *call, gw_u32 index)
{
    const gw_ipsec_sa *sa = packet->found.sa;
    const gw_u8 *outer = packet->text - GW_IPV4_BYTES;
    const gw_u8 *end = packet->data + packet->data_bytes;
    if (packet->data_bytes < 16 || !gw_native_accepts_any(sa, call)) {
        return 0;
    }
    gw_ipsec_simple_content content;
    content.first = gw_load_be32(packet->data);
    content.last = gw_load_be32(end - 4);
    content.cipher_bytes = packet->data_bytes;
    content.outer_ecn = outer[1] & GW_IPSEC_ECN;
    if (!gw_ipsec_simple_decapsulate_end(&content)) {
        return 0;
    }
    /* Padding is checked only in packets with a correct ICV, so the check reveals nothing to an
     * attacker. */
    const gw_native_trailer trailer = gw_native_trailer_of(content.pad_bytes);
    const __m128i difference = _mm_xor_si128(gw_aes_load(end - 16), trailer.bytes);
    if (!_mm_testz_si128(difference, trailer.mask) ||
        (content.pad_bytes == GW_IPSEC_SIMPLE_PAD_BYTES && end[-17] != 1)) {
        return 0;
    }
    gw_descriptor *descriptor = &call->descriptors[index];
    gw_outcome outcome = {0, 0, 0, 0};
    gw_native_move_l2(packet->data - GW_ETHERNET_BYTES, outer - GW_ETHERNET_BYTES);
    gw_verdict(&outcome, GW_IPSEC_DECRYPTED, 0, sa->spi);
    descriptor->head = (gw_u16)(descriptor->head + (packet->data - outer));
    descriptor->length = (gw_u16)(GW_ETHERNET_BYTES + content.total_bytes);
    call->outcomes[index] = outcome;
    return 1;
}

#endif
