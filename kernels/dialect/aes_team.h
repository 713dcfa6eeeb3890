/*
 * AES (FIPS 197) by teams of two neighbouring lanes, for devices: lane h of a team holds
 * columns 2h and 2h + 1 of a block, words whose lowest byte is row 0, as they lie in
 * memory. All lanes of a group's cipher part call these together.
 *
 * SubBytes and MixColumns are one look-up in a table of 256 words for row 0, turned
 * by a byte for each row below. The table lies in the group's memory once for each lane of
 * a warp, so that each reads from a bank of its own, and the same turned by two bytes:
 *
 *   | entry 0: lane 0, lane 1 ... lane 31 | turned: lane 0 ... lane 31 | entry 1: ...
 *
 * An entry takes 256 bytes, so the byte to look up and the lane make a place without any
 * arithmetic. The time of a look-up does not depend on keys or data.
 *
 * Two lanes and not four: a round is then two exchanges and eight look-ups of a lane, one
 * behind the other, which takes less time than three exchanges and four look-ups; and fewer
 * exchanges leave room for more packets.
 */
#ifndef GODWIT_AES_TEAM_H
#define GODWIT_AES_TEAM_H

#include "aes.h"

#define GW_AES_TEAM_LANES 2u
/* Columns of a lane. */
#define GW_AES_TEAM_WORDS 2u
/* AES-256's. */
#define GW_AES_ROUNDS_MAX 14u

/* Lanes of a warp, and with them banks of the group's memory. */
#define GW_AES_TABLE_LANES 32u

typedef struct gw_aes_team_table {
    gw_u32 words[256][2][GW_AES_TABLE_LANES];
} gw_aes_team_table;

/* Half of a block, or of a round key. */
typedef struct gw_aes_half {
    gw_u32 word[GW_AES_TEAM_WORDS];
} gw_aes_half;

/* What one lane holds for a packet. */
typedef struct gw_aes_team {
    const GW_LOCAL gw_u8 *table;
    gw_u32 place;                        /* of this lane in an entry, bytes */
    gw_u32 rounds;                       /* the same for all lanes of a group */
    gw_aes_half keys[GW_AES_ROUNDS_MAX]; /* its half of each round key but the last */
    gw_aes_half last;
} gw_aes_team;

/* Fills the table, by all lanes of the group; a barrier must follow. */
GW_GROUP void gw_aes_team_fill(GW_LOCAL gw_aes_team_table *table, gw_u32 inverse)
{
    for (gw_u32 i = gw_lane_id(); i < 256; i += gw_lane_count()) {
        const gw_u32 entry = inverse ? gw_aes_inverse_columns[i] : gw_aes_columns[i];
        for (gw_u32 j = 0; j < GW_AES_TABLE_LANES; j++) {
            /* Neighbouring lanes begin in different banks. */
            const gw_u32 lane = (i + j) % GW_AES_TABLE_LANES;
            table->words[i][0][lane] = entry;
            table->words[i][1][lane] = gw_rotate_left32(entry, 16);
        }
    }
}

GW_LANE gw_aes_half gw_aes_team_key(const GW_GLOBAL gw_u32 *keys, gw_u32 round)
{
    gw_aes_half key;
    key.word[0] = keys[4 * round];
    key.word[1] = keys[4 * round + 1];
    return key;
}

/* keys: as for aes.h; half: which of the team this lane is. */
GW_LANE void gw_aes_team_begin(gw_aes_team *team, const GW_LOCAL gw_aes_team_table *table,
                               const GW_GLOBAL gw_u32 *keys, gw_u32 rounds, gw_u32 half)
{
    team->table = (const GW_LOCAL gw_u8 *)table;
    team->place = 4 * (gw_lane_id() % GW_AES_TABLE_LANES);
    team->rounds = rounds;
    const GW_GLOBAL gw_u32 *own = keys + GW_AES_TEAM_WORDS * half;
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AES_ROUNDS_MAX; i++) {
        if (i < 10 || i < rounds) {
            team->keys[i] = gw_aes_team_key(own, i);
        }
    }
    team->last = gw_aes_team_key(own, rounds);
}

/*
 * The entry of the byte in one row of a column, for rows 2 and 3 turned by two bytes. Volatile: the
 * compiler is to have all entries of a round under way at once. Where it counts on few registers it
 * would load some only when others have been used, and a block would take a fifth longer.
 */
GW_LANE gw_u32 gw_aes_team_lookup(const gw_aes_team *team, gw_u32 column, gw_u32 row)
{
    const GW_LOCAL gw_u8 *half = team->table + (row < 2 ? 0 : 4 * GW_AES_TABLE_LANES);
    return *(const volatile GW_LOCAL gw_u32 *)(half + gw_byte_above(column, row, team->place));
}

/* The entries that make a half of the next state, four for each of its columns. ShiftRows takes
 * row r of a column from the column r to the right, or to undo it, r to the left. */
GW_LANE void gw_aes_team_rows(const gw_aes_team *team, gw_u32 inverse, gw_aes_half state,
                              gw_u32 rows[GW_AES_TEAM_WORDS][4])
{
    const gw_u32 other0 = gw_pair_word(state.word[0]);
    const gw_u32 other1 = gw_pair_word(state.word[1]);
    rows[0][0] = gw_aes_team_lookup(team, state.word[0], 0);
    rows[1][0] = gw_aes_team_lookup(team, state.word[1], 0);
    rows[0][inverse ? 3 : 1] = gw_aes_team_lookup(team, state.word[1], inverse ? 3 : 1);
    rows[1][inverse ? 1 : 3] = gw_aes_team_lookup(team, state.word[0], inverse ? 1 : 3);
    rows[0][2] = gw_aes_team_lookup(team, other0, 2);
    rows[1][2] = gw_aes_team_lookup(team, other1, 2);
    rows[0][inverse ? 1 : 3] = gw_aes_team_lookup(team, other1, inverse ? 1 : 3);
    rows[1][inverse ? 3 : 1] = gw_aes_team_lookup(team, other0, inverse ? 3 : 1);
}

/* A round but the last: SubBytes, ShiftRows, MixColumns, AddRoundKey. */
GW_LANE gw_aes_half gw_aes_team_round(const gw_aes_team *team, gw_u32 inverse, gw_aes_half state,
                                      gw_aes_half key)
{
    gw_u32 rows[GW_AES_TEAM_WORDS][4];
    gw_aes_team_rows(team, inverse, state, rows);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AES_TEAM_WORDS; i++) {
        state.word[i] = gw_xor3(rows[i][2], gw_rotate_left32(rows[i][1] ^ rows[i][3], 8),
                                rows[i][0] ^ key.word[i]);
    }
    return state;
}

/*
 * A block goes through gw_aes_team_enter, gw_aes_team_rounds and gw_aes_team_seal or
 * gw_aes_team_open. The rounds up to the tenth can be split: what a caller does in between fills
 * the waits of a round, where a compiler would leave it in front of all of them.
 */
#define GW_AES_TEAM_SPLIT 10u

/* The first AddRoundKey. */
GW_LANE gw_aes_half gw_aes_team_enter(const gw_aes_team *team, gw_aes_half block)
{
    block.word[0] ^= team->keys[0].word[0];
    block.word[1] ^= team->keys[0].word[1];
    return block;
}

/* Rounds from..to, at most up to GW_AES_TEAM_SPLIT, that excluded. */
GW_LANE gw_aes_half gw_aes_team_rounds(const gw_aes_team *team, gw_u32 inverse, gw_aes_half state,
                                       gw_u32 from, gw_u32 to)
{
    GW_UNROLL
    for (gw_u32 round = from; round < to; round++) {
        state = gw_aes_team_round(team, inverse, state, team->keys[round]);
    }
    return state;
}

/* The rounds from the tenth on; the last leaves its entries. */
GW_LANE void gw_aes_team_end(const gw_aes_team *team, gw_u32 inverse, gw_aes_half state,
                             gw_u32 rows[GW_AES_TEAM_WORDS][4])
{
    if (team->rounds > 10) {
        state = gw_aes_team_round(team, inverse, state, team->keys[10]);
        state = gw_aes_team_round(team, inverse, state, team->keys[11]);
    }
    if (team->rounds > 12) {
        state = gw_aes_team_round(team, inverse, state, team->keys[12]);
        state = gw_aes_team_round(team, inverse, state, team->keys[13]);
    }
    gw_aes_team_rows(team, inverse, state, rows);
}

/* What comes behind the split rounds of the cipher (FIPS 197, section 5.1): this lane's half. */
GW_LANE gw_aes_half gw_aes_team_seal(const gw_aes_team *team, gw_aes_half state)
{
    gw_u32 rows[GW_AES_TEAM_WORDS][4];
    gw_aes_team_end(team, 0, state, rows);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AES_TEAM_WORDS; i++) {
        /* Bytes 1 and 2 of an entry are the substituted byte itself; turned, 0 and 3. */
        state.word[i] = (((rows[i][0] >> 8) & 0x000000ffu) | (rows[i][1] & 0x0000ff00u) |
                         ((rows[i][2] >> 8) & 0x00ff0000u) | (rows[i][3] & 0xff000000u)) ^
                        team->last.word[i];
    }
    return state;
}

/* 14 + 9 + 13 + 11 is 1 in GF(2^8), so an entry's four bytes add up to the byte itself. */
GW_LANE gw_u32 gw_aes_team_plain(gw_u32 entry)
{
    entry ^= entry >> 16;
    return (entry ^ entry >> 8) & 0xffu;
}

/* The same of EqInvCipher (FIPS 197, section 5.3.5). */
GW_LANE gw_aes_half gw_aes_team_open(const gw_aes_team *team, gw_aes_half state)
{
    gw_u32 rows[GW_AES_TEAM_WORDS][4];
    gw_aes_team_end(team, 1, state, rows);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AES_TEAM_WORDS; i++) {
        state.word[i] =
            (gw_aes_team_plain(rows[i][0]) | gw_aes_team_plain(rows[i][1]) << 8 |
             gw_aes_team_plain(rows[i][2]) << 16 | gw_aes_team_plain(rows[i][3]) << 24) ^
            team->last.word[i];
    }
    return state;
}

#endif
