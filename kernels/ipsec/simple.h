/*
 * Headers of simple ESP packets, in words of one packet or of sixteen packets (dialect/words.h). A
 * simple packet is an IPv4 packet in a tunnel between IPv4 endpoints, without VLAN tag and without
 * UDP header in front of ESP. The results are the same as in encapsulate.h and decapsulate.h, which
 * process all other packets and all drops.
 *
 *               | L2 | outer IPv4 | SPI, sequence | IV      | inner packet | padding | ICV |
 *   words              0 to 4       5, 6            7 to 10
 *
 * The functions compute with words that the caller has loaded. They do not access packets. The file
 * has no include guard, because it is included once per word type.
 */

/* Maximum number of words in a packet's new headers: outer IPv4 header, ESP header and IV. */
#define GW_IPSEC_SIMPLE_WORDS 11u

/* Returns whether an SA (security association) can carry simple packets with this suite and
 * direction: IPv4 packets in a tunnel, without UDP header. */
GW_WORDWISE GW_TEST GW_NAME(gw_ipsec_simple_sa)(GW_NAME(gw_ipsec_sa_words) sa, gw_u32 variant)
{
    const gw_u32 inbound =
        gw_ipsec_direction(variant) == GW_IPSEC_INBOUND ? GW_IPSEC_SA_INBOUND : 0;
    const gw_u32 checked = GW_IPSEC_SA_USED | GW_IPSEC_SA_INBOUND | GW_IPSEC_SA_TRANSPORT |
                           GW_IPSEC_SA_OUTER_IPV6 | GW_IPSEC_SA_UDP;
    return GW_EQUAL(sa.flags & checked, GW_IPSEC_SA_USED | inbound) &
           GW_EQUAL(sa.bytes & 0xffu, variant >> 1);
}

/* Returns whether a frame contains a valid IPv4 packet. `first` is the first word of the IPv4
 * header. */
GW_WORDWISE GW_TEST GW_NAME(gw_ipsec_simple_ipv4)(GW_WORD ether_type, GW_WORD first,
                                                  GW_WORD frame_bytes)
{
    return GW_EQUAL(ether_type, GW_ETHER_TYPE_IPV4) & GW_NAME(gw_ipsec_ipv4_valid)(first) &
           GW_AT_LEAST(frame_bytes, (first & 0xffffu) + GW_ETHERNET_BYTES);
}

/* A simple packet before encapsulation. */
typedef struct GW_NAME(gw_ipsec_simple_out) {
    GW_NAME(gw_ipsec_sa_words) sa;
    GW_WORD head; /* offset of the frame in its buffer, in bytes */
    GW_WORD frame_bytes;
    GW_WORD room_bytes;
    GW_WORD ether_type;
    GW_WORD ip[2];       /* first words of the packet */
    GW_WORD sequence[2]; /* upper and lower half */
    /* Results of gw_ipsec_simple_encapsulate_begin, in bytes. */
    GW_WORD total_bytes; /* inner packet */
    GW_WORD cipher_bytes;
    GW_WORD icv_bytes;
    GW_WORD outer_bytes; /* outer packet */
} GW_NAME(gw_ipsec_simple_out);

/* Checks an outbound packet and computes its lengths after encapsulation. Returns whether it is a
 * simple IPv4 packet in a tunnel, and its buffer has room for the headers and the trailer. */
GW_WORDWISE GW_TEST GW_NAME(gw_ipsec_simple_encapsulate_begin)(GW_NAME(gw_ipsec_simple_out) *
                                                                   packet,
                                                               gw_u32 variant, gw_ipsec_suite suite)
{
    const gw_u32 added = GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite);
    const GW_TEST simple =
        GW_NAME(gw_ipsec_simple_sa)(packet->sa, variant) &
        GW_NAME(gw_ipsec_simple_ipv4)(packet->ether_type, packet->ip[0], packet->frame_bytes);
    packet->total_bytes = packet->ip[0] & 0xffffu;
    packet->cipher_bytes = GW_NAME(gw_ipsec_cipher_bytes)(suite, packet->total_bytes);
    packet->icv_bytes = packet->sa.bytes >> 8 & 0xffu;
    packet->outer_bytes = packet->cipher_bytes + packet->icv_bytes + added;
    const GW_WORD end = packet->head + packet->outer_bytes + GW_ETHERNET_BYTES;
    return simple & GW_AT_LEAST(packet->head, added) & GW_AT_LEAST(packet->room_bytes + added, end);
}

/* Computes the outer IP header and the ESP header. With CBC, the IV words contain a nonce that is
 * encrypted later (gw_ipsec_cbc_iv). The words after the headers stay unchanged. */
GW_WORDWISE void GW_NAME(gw_ipsec_simple_headers)(GW_WORD *words,
                                                  const GW_NAME(gw_ipsec_simple_out) * packet,
                                                  gw_ipsec_suite suite)
{
    GW_NAME(gw_ipsec_outer_ipv4)
    (words, packet->sa, packet->ip[0] >> 16 & 0xffu, packet->ip[1] & GW_IPSEC_IPV4_DF,
     packet->sequence[1], packet->outer_bytes, GW_IPSEC_ESP);
    words[5] = packet->sa.spi;
    words[6] = packet->sequence[1];
    if (suite.cipher == GW_IPSEC_CIPHER_CBC) {
        words[7] = packet->sa.spi;
        words[8] = packet->sequence[0];
        words[9] = packet->sequence[1];
        words[10] = packet->sa.destination;
    } else if (gw_ipsec_iv_bytes(suite) != 0) {
        words[7] = packet->sequence[0];
        words[8] = packet->sequence[1];
    }
}

/* A simple packet before decapsulation. */
typedef struct GW_NAME(gw_ipsec_simple_in) {
    GW_NAME(gw_ipsec_sa_words) sa;
    GW_WORD frame_bytes;
    GW_WORD ether_type;
    GW_WORD ip[5]; /* outer header */
    GW_WORD spi;   /* of the packet */
    /* Results of gw_ipsec_simple_decapsulate_begin. */
    GW_WORD cipher_bytes;
    GW_WORD icv_bytes;
} GW_NAME(gw_ipsec_simple_in);

/* Checks the headers of an inbound packet and computes the lengths of its parts. Returns whether
 * the packet is simple and its headers are valid. */
GW_WORDWISE GW_TEST GW_NAME(gw_ipsec_simple_decapsulate_begin)(GW_NAME(gw_ipsec_simple_in) * packet,
                                                               gw_u32 variant, gw_ipsec_suite suite)
{
    const GW_WORD total_bytes = packet->ip[0] & 0xffffu;
    packet->icv_bytes = packet->sa.bytes >> 8 & 0xffu;
    const GW_WORD around =
        packet->icv_bytes + (GW_IPV4_BYTES + GW_ESP_HEADER_BYTES + gw_ipsec_iv_bytes(suite));
    packet->cipher_bytes = total_bytes - around;
    return GW_NAME(gw_ipsec_simple_sa)(packet->sa, variant) &
           GW_NAME(gw_ipsec_simple_ipv4)(packet->ether_type, packet->ip[0], packet->frame_bytes) &
           GW_EQUAL(packet->ip[0] >> 24, 0x45) & GW_NOT(GW_HAS(packet->ip[1], 0x3fffu)) &
           GW_EQUAL(packet->ip[2] & 0xff0000u, GW_IPSEC_ESP << 16) &
           GW_EQUAL(GW_NAME(gw_ipsec_ipv4_sum)(packet->ip), 0xffffu) &
           GW_EQUAL(packet->ip[4], packet->sa.destination) &
           GW_NAME(gw_ipsec_cipher_bytes_valid)(suite, total_bytes, around) &
           GW_EQUAL(packet->spi, packet->sa.spi);
}

/* Words of a decrypted packet from which its lengths are computed. */
typedef struct GW_NAME(gw_ipsec_simple_content) {
    GW_WORD first; /* first word of the inner packet */
    GW_WORD last;  /* last word of the decrypted data */
    GW_WORD cipher_bytes;
    GW_WORD outer_ecn;
    /* Results of gw_ipsec_simple_decapsulate_end, in bytes. */
    GW_WORD total_bytes; /* inner packet */
    GW_WORD pad_bytes;
} GW_NAME(gw_ipsec_simple_content);

/* Maximum number of padding bytes that ESP needs in a packet. */
#define GW_IPSEC_SIMPLE_PAD_BYTES 15u

/* Checks the decrypted content of an inbound packet, except its padding bytes and its selectors.
 * Returns whether it is an IPv4 packet with minimal padding, whose ECN field stays unchanged. */
GW_WORDWISE GW_TEST GW_NAME(gw_ipsec_simple_decapsulate_end)(GW_NAME(gw_ipsec_simple_content) *
                                                             content)
{
    const GW_WORD ecn = content->first >> 16 & GW_IPSEC_ECN;
    content->total_bytes = content->first & 0xffffu;
    content->pad_bytes = content->last >> 8 & 0xffu;
    return GW_AT_LEAST(GW_IPSEC_SIMPLE_PAD_BYTES, content->pad_bytes) &
           GW_EQUAL(content->last & 0xffu, GW_PROTOCOL_IPV4) &
           GW_NAME(gw_ipsec_ipv4_valid)(content->first) &
           GW_AT_LEAST(content->cipher_bytes,
                       content->total_bytes + content->pad_bytes + GW_ESP_TAIL_BYTES) &
           (GW_EQUAL(content->outer_ecn, 0) | GW_EQUAL(content->outer_ecn, ecn));
}
