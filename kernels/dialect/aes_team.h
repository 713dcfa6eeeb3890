/*
 * AES-128 (FIPS 197) by teams of four neighbouring lanes, for devices: lane j of a
 * team holds column j of a block, a word whose lowest byte is row 0, as it lies in
 * memory. All lanes of a group's cipher half call these together.
 *
 * SubBytes and MixColumns are one look-up in a table of 256 words for row 0, turned
 * by a byte for each row below. The table lies in the group's memory
 * GW_TABLE_COPIES times, so that each lane reads from banks of its own:
 *
 *   | entry 0, copy 0 | entry 0, copy 1 | ... | entry 1, copy 0 | ...
 *
 * Its time does not depend on keys or data where every lane has a copy.
 */
#ifndef GODWIT_AES_TEAM_H
#define GODWIT_AES_TEAM_H

#include "aes.h"

typedef struct gw_aes_team_table {
    gw_u32 words[256u << GW_TABLE_COPIES_LOG2];
} gw_aes_team_table;

/* What one lane holds for a packet. */
typedef struct gw_aes_team {
    const GW_LOCAL gw_u8 *table; /* this lane's copy of entry 0 */
    gw_u32 keys[11];             /* its column of each round key */
} gw_aes_team;

/* Fills the table, by all lanes of the group; a barrier must follow. */
GW_GROUP void gw_aes_team_fill(GW_LOCAL gw_aes_team_table *table, gw_u32 inverse)
{
    const gw_u32 copies = 1u << GW_TABLE_COPIES_LOG2;
    for (gw_u32 i = gw_lane_id(); i < 256; i += gw_lane_count()) {
        const gw_u32 entry = inverse ? gw_aes_inverse_columns[i] : gw_aes_columns[i];
        for (gw_u32 j = 0; j < copies; j++) {
            /* Neighbouring lanes begin in different banks. */
            table->words[(i << GW_TABLE_COPIES_LOG2) + ((i + j) & (copies - 1))] = entry;
        }
    }
}

/* keys: as for aes.h. */
GW_LANE void gw_aes_team_begin(gw_aes_team *team, const GW_LOCAL gw_aes_team_table *table,
                               const GW_GLOBAL gw_u32 *keys, gw_u32 column)
{
    team->table =
        gw_held((const GW_LOCAL gw_u8 *)(table->words +
                                         (gw_lane_id() & ((1u << GW_TABLE_COPIES_LOG2) - 1))));
    GW_UNROLL
    for (gw_u32 i = 0; i < 11; i++) {
        team->keys[i] = keys[4 * i + column];
    }
}

/* The entry of the byte in one row of a column. */
GW_LANE gw_u32 gw_aes_team_lookup(const gw_aes_team *team, gw_u32 column, gw_u32 row)
{
    return *(const GW_LOCAL gw_u32 *)(team->table +
                                      (gw_byte_of(column, row) << (2 + GW_TABLE_COPIES_LOG2)));
}

/* The entries that make a column of the next state. ShiftRows: row r comes from the column r * turn
 * to the right. */
GW_LANE void gw_aes_team_rows(const gw_aes_team *team, gw_u32 column, gw_u32 turn, gw_u32 state,
                              gw_u32 *rows)
{
    const gw_u32 row1 = gw_team_word(state, (column + turn) & 3u);
    const gw_u32 row2 = gw_team_word(state, (column + 2 * turn) & 3u);
    const gw_u32 row3 = gw_team_word(state, (column + 3 * turn) & 3u);
    rows[0] = gw_aes_team_lookup(team, state, 0);
    rows[1] = gw_aes_team_lookup(team, row1, 1);
    rows[2] = gw_aes_team_lookup(team, row2, 2);
    rows[3] = gw_aes_team_lookup(team, row3, 3);
}

/* All rounds; the last leaves its entries. turn: 1 to encrypt, 3 to decrypt. */
GW_LANE void gw_aes_team_rounds(const gw_aes_team *team, gw_u32 column, gw_u32 turn, gw_u32 word,
                                gw_u32 *rows)
{
    gw_u32 state = word ^ team->keys[0];
    GW_UNROLL
    for (gw_u32 round = 1; round < 10; round++) {
        gw_aes_team_rows(team, column, turn, state, rows);
        state = rows[0] ^ gw_rotate_left32(rows[1], 8) ^ gw_rotate_left32(rows[2], 16) ^
                gw_rotate_left32(rows[3], 24) ^ team->keys[round];
    }
    gw_aes_team_rows(team, column, turn, state, rows);
}

/* Cipher (FIPS 197, section 5.1): this lane's column. */
GW_LANE gw_u32 gw_aes_team_encrypt(const gw_aes_team *team, gw_u32 column, gw_u32 word)
{
    gw_u32 rows[4];
    gw_aes_team_rounds(team, column, 1, word, rows);
    /* Bytes 1 and 2 of an entry are the substituted byte itself. */
    return (((rows[0] >> 8) & 0x000000ffu) | (rows[1] & 0x0000ff00u) | (rows[2] & 0x00ff0000u) |
            ((rows[3] << 8) & 0xff000000u)) ^
           team->keys[10];
}

/* 14 + 9 + 13 + 11 is 1 in GF(2^8), so an entry's four bytes add up to the byte itself. */
GW_LANE gw_u32 gw_aes_team_plain(gw_u32 entry)
{
    entry ^= entry >> 16;
    return (entry ^ entry >> 8) & 0xffu;
}

/* EqInvCipher (FIPS 197, section 5.3.5): this lane's column. */
GW_LANE gw_u32 gw_aes_team_decrypt(const gw_aes_team *team, gw_u32 column, gw_u32 word)
{
    gw_u32 rows[4];
    gw_aes_team_rounds(team, column, 3, word, rows);
    return (gw_aes_team_plain(rows[0]) | gw_aes_team_plain(rows[1]) << 8 |
            gw_aes_team_plain(rows[2]) << 16 | gw_aes_team_plain(rows[3]) << 24) ^
           team->keys[10];
}

#endif
