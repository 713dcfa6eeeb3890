/* Input text of a hash or MAC: contiguous bytes of a packet, and optionally four bytes that are not
 * in the packet. */
#ifndef GODWIT_TEXT_H
#define GODWIT_TEXT_H

typedef struct gw_text {
    const GW_GLOBAL gw_u8 *data;
    gw_u32 bytes;
    gw_u32 suffix;       /* upper half of an extended sequence number */
    gw_u32 suffix_bytes; /* 4 or 0 */
} gw_text;

GW_LANE gw_text gw_text_of(const GW_GLOBAL gw_u8 *data, gw_u32 bytes)
{
    gw_text text;
    text.data = data;
    text.bytes = bytes;
    text.suffix = 0;
    text.suffix_bytes = 0;
    return text;
}

GW_LANE gw_u32 gw_reverse32(gw_u32 word)
{
    return (gw_rotate_left32(word, 8) & 0x00ff00ffu) | (gw_rotate_left32(word, 24) & 0xff00ff00u);
}

/* Returns the big-endian word at byte offset `at` of a text. The byte `marker` and then zeros
 * follow the text. */
GW_LANE gw_u32 gw_text_word(gw_text text, gw_u32 at, gw_u32 marker)
{
    if (at + 4 <= text.bytes) {
        return gw_load_be32(text.data + at);
    }
    gw_u32 word = 0;
    for (gw_u32 i = at; i < at + 4; i++) {
        gw_u32 byte = 0;
        if (i < text.bytes) {
            byte = text.data[i];
        } else if (i < text.bytes + text.suffix_bytes) {
            byte = text.suffix >> (24 - 8 * (i - text.bytes)) & 0xffu;
        } else if (i == text.bytes + text.suffix_bytes) {
            byte = marker;
        }
        word = word << 8 | byte;
    }
    return word;
}

#endif
