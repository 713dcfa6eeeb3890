/*
 * AES with one thread per block, for modes whose blocks are independent. The lookup table of
 * aes_team.h must be in the work-group's local memory. Each 32-bit word is one column of the AES
 * state, in memory order.
 */
#ifndef GODWIT_AES_LANE_H
#define GODWIT_AES_LANE_H

#include "aes_team.h"

/* Number of AES blocks that a thread encrypts together. It computes one block while the table
 * entries of the other block load. */
#define GW_AES_LANE_BLOCKS 2u

GW_LANE const GW_LOCAL gw_u8 *gw_aes_lane_table(const GW_LOCAL gw_aes_team_table *table)
{
    return (const GW_LOCAL gw_u8 *)&table->words[0][0][gw_lane_id() % GW_AES_TABLE_LANES];
}

/* Returns the entry of the AES lookup table for the byte in row `row` of a column. For rows 2 and
 * 3, the entry is rotated by two bytes. */
GW_LANE gw_u32 gw_aes_lane_entry(const GW_LOCAL gw_u8 *table, gw_u32 column, gw_u32 row)
{
    return *(const GW_LOCAL gw_u32 *)(table + (row < 2 ? 0 : 4 * GW_AES_TABLE_LANES) +
                                      gw_byte_above(column, row, 0));
}

/* Computes one column of the next AES state: SubBytes, ShiftRows, MixColumns and AddRoundKey.
 * ShiftRows takes row 0 from the column `row0`, row 1 from `row1`, and so on. */
GW_LANE gw_u32 gw_aes_lane_column(const GW_LOCAL gw_u8 *table, gw_u32 row0, gw_u32 row1,
                                  gw_u32 row2, gw_u32 row3, gw_u32 key)
{
    const gw_u32 even = gw_aes_lane_entry(table, row0, 0) ^ gw_aes_lane_entry(table, row2, 2);
    const gw_u32 odd = gw_aes_lane_entry(table, row1, 1) ^ gw_aes_lane_entry(table, row3, 3);
    return even ^ gw_rotate_left32(odd, 8) ^ key;
}

/* Computes one column of the final AES round, which has no MixColumns. */
GW_LANE gw_u32 gw_aes_lane_last(const GW_LOCAL gw_u8 *table, gw_u32 row0, gw_u32 row1, gw_u32 row2,
                                gw_u32 row3, gw_u32 key)
{
    return (((gw_aes_lane_entry(table, row0, 0) >> 8) & 0x000000ffu) |
            (gw_aes_lane_entry(table, row1, 1) & 0x0000ff00u) |
            ((gw_aes_lane_entry(table, row2, 2) >> 8) & 0x00ff0000u) |
            (gw_aes_lane_entry(table, row3, 3) & 0xff000000u)) ^
           key;
}

/* Encrypts GW_AES_LANE_BLOCKS blocks of four words each with AES, in place. `keys` points to the
 * round keys in the format of aes.h. */
GW_LANE void gw_aes_lane_encrypt(const GW_LOCAL gw_u8 *table, const GW_GLOBAL gw_u8 *keys,
                                 gw_u32 rounds, gw_u32 *blocks)
{
    gw_block key = gw_load_block(keys);
    GW_UNROLL
    for (gw_u32 i = 0; i < 4 * GW_AES_LANE_BLOCKS; i += 4) {
        blocks[i] ^= key.word0;
        blocks[i + 1] ^= key.word1;
        blocks[i + 2] ^= key.word2;
        blocks[i + 3] ^= key.word3;
    }
    key = gw_load_block(keys + 16);
    GW_NO_COPY
    for (gw_u32 round = 1; round < rounds; round++) {
        const gw_block next = gw_load_block(keys + 16 * (round + 1));
        GW_UNROLL
        for (gw_u32 i = 0; i < 4 * GW_AES_LANE_BLOCKS; i += 4) {
            const gw_u32 a = blocks[i];
            const gw_u32 b = blocks[i + 1];
            const gw_u32 c = blocks[i + 2];
            const gw_u32 d = blocks[i + 3];
            blocks[i] = gw_aes_lane_column(table, a, b, c, d, key.word0);
            blocks[i + 1] = gw_aes_lane_column(table, b, c, d, a, key.word1);
            blocks[i + 2] = gw_aes_lane_column(table, c, d, a, b, key.word2);
            blocks[i + 3] = gw_aes_lane_column(table, d, a, b, c, key.word3);
        }
        key = next;
    }
    GW_UNROLL
    for (gw_u32 i = 0; i < 4 * GW_AES_LANE_BLOCKS; i += 4) {
        const gw_u32 a = blocks[i];
        const gw_u32 b = blocks[i + 1];
        const gw_u32 c = blocks[i + 2];
        const gw_u32 d = blocks[i + 3];
        blocks[i] = gw_aes_lane_last(table, a, b, c, d, key.word0);
        blocks[i + 1] = gw_aes_lane_last(table, b, c, d, a, key.word1);
        blocks[i + 2] = gw_aes_lane_last(table, c, d, a, b, key.word2);
        blocks[i + 3] = gw_aes_lane_last(table, d, a, b, c, key.word3);
    }
}

#endif
