/* Processes the headers of one packet before encryption or decryption, and completes the packet
 * afterwards. All native forms use this code. */
#ifndef GODWIT_IPSEC_NATIVE_PACKET_H
#define GODWIT_IPSEC_NATIVE_PACKET_H

/* Marks functions that are always inlined. Values that a caller passes are then constants. */
#define GW_NATIVE static inline __attribute__((always_inline))

/* Additional state of an AH packet. */
typedef struct gw_native_ah {
    gw_ipsec_ah_input input;
    gw_ipsec_tag tag;
} gw_native_ah;

typedef struct gw_native_packet {
    gw_ipsec_found found;
    gw_u8 *text; /* authenticated bytes */
    gw_u8 *data; /* data to encrypt or decrypt; the ICV of ESP follows */
    gw_u64 sequence;
    gw_u32 text_bytes;
    gw_u32 data_bytes;
    gw_u32 next_header_at; /* inbound: see gw_ipsec_decryption */
    gw_u16 index;          /* index in the batch */
    gw_u16 authentic;      /* inbound: 1 if the ICV is correct */
    gw_native_ah *ah;
} gw_native_packet;
GW_STATIC_ASSERT(sizeof(gw_native_packet) == 64, native_packet_size);

/* Suite and direction of a packet batch. Inlined loops treat them as constants. */
typedef struct gw_native_operation {
    gw_ipsec_suite suite;
    gw_u32 outbound;
} gw_native_operation;

/* Writes the IV of an outbound packet. For CBC, it writes a nonce, whose encryption is the IV
 * (gw_ipsec_cbc_iv). */
GW_NATIVE void gw_native_iv(gw_u8 *iv, gw_ipsec_suite suite, const gw_ipsec_sa *sa, gw_u64 sequence)
{
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        gw_aes_store(iv, gw_aes_words(sa->spi, (gw_u32)(sequence >> 32), (gw_u32)sequence,
                                      sa->destination[0]));
    } else if (gw_ipsec_iv_bytes(suite) != 0) {
        gw_store_be64(iv, sequence);
    }
}

/* Writes the headers of an outbound ESP packet. Returns whether the packet must be encrypted. */
static __attribute__((noinline)) gw_u32
gw_native_esp_encapsulate_begin(gw_native_packet *packet, const gw_lane *lane, gw_ipsec_suite suite,
                                gw_descriptor *descriptor, gw_outcome *outcome)
{
    packet->found = gw_ipsec_find(lane, descriptor, outcome);
    if (packet->found.sa == 0) {
        return 0;
    }
    const gw_ipsec_encryption encryption =
        gw_ipsec_esp_encapsulate_begin(lane, packet->found, suite, descriptor, outcome);
    gw_u8 *iv = encryption.esp + GW_ESP_HEADER_BYTES;
    packet->text = encryption.esp;
    packet->data = iv + gw_ipsec_iv_bytes(suite);
    packet->data_bytes = encryption.cipher_bytes;
    packet->text_bytes = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + encryption.cipher_bytes;
    packet->sequence = encryption.sequence;
    if (encryption.cipher_bytes == 0) {
        return 0;
    }
    gw_native_iv(iv, suite, packet->found.sa, encryption.sequence);
    return 1;
}

/* Checks the headers of an inbound ESP packet. Returns whether the packet must be verified and
 * decrypted. */
GW_NATIVE gw_u32 gw_native_esp_decapsulate_begin(gw_native_packet *packet, const gw_lane *lane,
                                                 gw_ipsec_suite suite,
                                                 const gw_descriptor *descriptor,
                                                 gw_outcome *outcome)
{
    packet->found = gw_ipsec_find(lane, descriptor, outcome);
    if (packet->found.sa == 0) {
        return 0;
    }
    const gw_ipsec_decryption decryption =
        gw_ipsec_esp_decapsulate_begin(lane, packet->found, suite, descriptor, outcome);
    packet->text = decryption.esp;
    packet->data = decryption.esp + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    packet->data_bytes = decryption.cipher_bytes;
    packet->text_bytes = GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite) + decryption.cipher_bytes;
    packet->sequence = decryption.sequence;
    packet->next_header_at = decryption.next_header_at;
    return decryption.cipher_bytes != 0;
}

/* Writes the headers of an outbound AH packet, or checks the headers of an inbound AH packet.
 * Returns whether the packet must be authenticated. */
GW_NATIVE gw_u32 gw_native_ah_begin(gw_native_packet *packet, const gw_lane *lane,
                                    gw_native_operation operation, gw_descriptor *descriptor,
                                    gw_outcome *outcome)
{
    gw_ipsec_ah_input *input = &packet->ah->input;
    packet->found = gw_ipsec_find(lane, descriptor, outcome);
    if (packet->found.sa == 0) {
        return 0;
    }
    if (operation.outbound) {
        gw_ipsec_ah_encapsulate_begin(lane, packet->found, operation.suite, input, descriptor,
                                      outcome);
    } else {
        gw_ipsec_ah_decapsulate_begin(lane, packet->found, operation.suite, input, descriptor,
                                      outcome);
    }
    packet->text = input->header;
    packet->text_bytes = input->bytes;
    packet->sequence = input->sequence;
    packet->data = input->header;
    packet->data_bytes = 0;
    return input->bytes != 0;
}

/* Writes the headers of an outbound packet, or checks the headers of an inbound packet. Returns
 * whether the packet needs encryption, decryption or authentication. */
GW_NATIVE gw_u32 gw_native_begin(gw_native_packet *packet, const gw_lane *lane,
                                 gw_native_operation operation, gw_descriptor *descriptor_out,
                                 gw_outcome *outcome_out)
{
    packet->authentic = 1;
    gw_descriptor descriptor = *descriptor_out;
    gw_outcome outcome = {0, 0, 0, 0};
    gw_u32 more = 0;
    if (operation.suite.protocol == GW_IPSEC_AH) {
        more = gw_native_ah_begin(packet, lane, operation, &descriptor, &outcome);
    } else if (operation.outbound) {
        more =
            gw_native_esp_encapsulate_begin(packet, lane, operation.suite, &descriptor, &outcome);
    } else {
        more =
            gw_native_esp_decapsulate_begin(packet, lane, operation.suite, &descriptor, &outcome);
    }
    descriptor_out->head = descriptor.head;
    descriptor_out->length = descriptor.length;
    *outcome_out = outcome;
    return more;
}

GW_NATIVE void gw_native_finish(gw_native_packet *packet, const gw_lane *lane,
                                gw_native_operation operation, gw_descriptor *descriptor_out,
                                gw_outcome *outcome_out)
{
    const gw_ipsec_suite suite = operation.suite;
    if (operation.outbound) {
        if (suite.protocol == GW_IPSEC_AH) {
            gw_ipsec_ah_encapsulate_end(packet->found, suite, &packet->ah->input, packet->ah->tag);
        } else {
            const gw_ipsec_encryption encryption = {packet->text, packet->sequence,
                                                    packet->data_bytes};
            gw_ipsec_esp_encapsulate_end(packet->found, suite, encryption);
        }
        return;
    }
    gw_descriptor descriptor = *descriptor_out;
    gw_outcome outcome = {0, 0, 0, 0};
    if (suite.protocol == GW_IPSEC_AH) {
        gw_ipsec_ah_decapsulate_end(lane, packet->found, suite, &packet->ah->input, packet->ah->tag,
                                    &descriptor, &outcome);
    } else if (!packet->authentic) {
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
    } else {
        const gw_ipsec_decryption decryption = {packet->text, packet->sequence, packet->data_bytes,
                                                packet->next_header_at};
        gw_ipsec_esp_decapsulate_end(lane, packet->found, suite, decryption, &descriptor, &outcome);
    }
    descriptor_out->head = descriptor.head;
    descriptor_out->length = descriptor.length;
    *outcome_out = outcome;
}

/* Stores the ICV of an outbound packet, or compares the ICV of an inbound packet with its tag. */
GW_NATIVE void gw_native_apply_tag(gw_native_packet *packet, gw_native_operation operation,
                                   gw_ipsec_tag tag)
{
    gw_u8 *icv = packet->data + packet->data_bytes;
    const gw_u32 icv_bytes = packet->found.sa->icv_bytes;
    if (operation.suite.protocol == GW_IPSEC_AH) {
        packet->ah->tag = tag;
    } else if (operation.outbound) {
        gw_ipsec_tag_store(icv, tag, icv_bytes);
    } else {
        packet->authentic = gw_ipsec_tag_equal(icv, tag, icv_bytes);
    }
}

#endif
