/*
 * AES (FIPS 197) on devices, with a team of two neighbouring threads per block. Thread h of a team
 * holds columns 2h and 2h + 1 of a block. A column is a word in memory order whose lowest byte is
 * row 0. All threads of a warp call these functions together.
 *
 * One lookup in a table of 256 words computes SubBytes and MixColumns for row 0. Each further row
 * rotates its entry by one more byte. The work-group's local memory holds one copy of the table per
 * thread of a warp, so each thread reads from a separate bank. It also holds a second set of
 * copies, rotated by two bytes:
 *
 *   | entry 0: thread 0 ... thread 31 | rotated: thread 0 ... thread 31 | entry 1: ...
 *
 * An entry takes 256 bytes, so the address of a lookup is the byte followed by the thread's offset.
 * No arithmetic is needed. The time of a lookup is independent of keys and data.
 *
 * With two threads, a round takes two exchanges and eight dependent lookups per thread. This is
 * faster than four threads with three exchanges and four lookups. Fewer exchanges also leave
 * capacity for more packets.
 */
#ifndef GODWIT_AES_TEAM_H
#define GODWIT_AES_TEAM_H

#include "aes.h"

#define GW_AES_TEAM_LANES 2u
/* Number of columns of an AES block that one thread holds. */
#define GW_AES_TEAM_WORDS 2u
/* Number of AES rounds with a key of 256 bits. */
#define GW_AES_ROUNDS_MAX 14u

/* Number of threads in a warp. It equals the number of banks in the local memory of a work-group.
 */
#define GW_AES_TABLE_LANES 32u

typedef struct gw_aes_team_table {
    gw_u32 words[256][2][GW_AES_TABLE_LANES];
} gw_aes_team_table;

/* Half of an AES block, or of a round key. */
typedef struct gw_aes_half {
    gw_u32 word[GW_AES_TEAM_WORDS];
} gw_aes_half;

/* AES state of one thread for one packet. */
typedef struct gw_aes_team {
    const GW_LOCAL gw_u8 *table;
    gw_u32 lane_offset;                  /* offset of this thread's copy in an entry, in bytes */
    gw_u32 rounds;                       /* the same for all threads of a work-group */
    gw_aes_half keys[GW_AES_ROUNDS_MAX]; /* this thread's half of all round keys but the last */
    gw_aes_half last;                    /* this thread's half of the last round key */
} gw_aes_team;

/* Fills the AES lookup table in local memory, for encryption or decryption. All threads of the
 * work-group call this function, and a barrier must follow. */
GW_GROUP void gw_aes_team_fill(GW_LOCAL gw_aes_team_table *table, gw_u32 inverse)
{
    for (gw_u32 i = gw_lane_id(); i < 256; i += gw_lane_count()) {
        const gw_u32 entry = inverse ? gw_aes_inverse_columns[i] : gw_aes_columns[i];
        for (gw_u32 j = 0; j < GW_AES_TABLE_LANES; j++) {
            /* Neighbouring threads start with different copies to avoid bank conflicts. */
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

/* Loads this thread's half of the AES round keys. `keys` points to round keys in the format of
 * aes.h. `half` is 0 or 1, the number of the thread in its pair. */
GW_LANE void gw_aes_team_begin(gw_aes_team *team, const GW_LOCAL gw_aes_team_table *table,
                               const GW_GLOBAL gw_u32 *keys, gw_u32 rounds, gw_u32 half)
{
    team->table = (const GW_LOCAL gw_u8 *)table;
    team->lane_offset = 4 * (gw_lane_id() % GW_AES_TABLE_LANES);
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
 * Returns the table entry for the byte in row `row` of a column. For rows 2 and 3, the entry is
 * rotated by two bytes. The load is volatile, so that the compiler issues all loads of an AES round
 * before it uses any of them. Otherwise, a block takes 20 % longer.
 */
GW_LANE gw_u32 gw_aes_team_lookup(const gw_aes_team *team, gw_u32 column, gw_u32 row)
{
    const GW_LOCAL gw_u8 *half = team->table + (row < 2 ? 0 : 4 * GW_AES_TABLE_LANES);
    return *(const volatile GW_LOCAL gw_u32 *)(half +
                                               gw_byte_above(column, row, team->lane_offset));
}

/* Looks up the table entries for this thread's half of the next AES state. Each of its two columns
 * needs four entries. ShiftRows takes row r from the column that is r positions to the right, and
 * InvShiftRows from the column that is r positions to the left. */
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

/* Computes one AES round except the last: SubBytes, ShiftRows, MixColumns and AddRoundKey. */
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
 * First AES round that the final call for a block computes. A block passes through
 * gw_aes_team_start, gw_aes_team_rounds, and then gw_aes_team_encrypt_end or
 * gw_aes_team_decrypt_end.
 *
 * Callers can split the earlier rounds into several calls to gw_aes_team_rounds. Other work between
 * two calls then fills the stalls of a round. Without the split, the compiler would schedule this
 * other work before all rounds.
 */
#define GW_AES_TEAM_SPLIT 10u

/* Applies the first AddRoundKey of AES to this thread's half of the block. */
GW_LANE gw_aes_half gw_aes_team_start(const gw_aes_team *team, gw_aes_half block)
{
    block.word[0] ^= team->keys[0].word[0];
    block.word[1] ^= team->keys[0].word[1];
    return block;
}

/* Computes the AES rounds `from` to `to` - 1, where `to` is at most GW_AES_TEAM_SPLIT. */
GW_LANE gw_aes_half gw_aes_team_rounds(const gw_aes_team *team, gw_u32 inverse, gw_aes_half state,
                                       gw_u32 from, gw_u32 to)
{
    GW_UNROLL
    for (gw_u32 round = from; round < to; round++) {
        state = gw_aes_team_round(team, inverse, state, team->keys[round]);
    }
    return state;
}

/* Computes the AES rounds from round 10 on. For the last round, it only loads the table entries
 * into `rows`. */
GW_LANE void gw_aes_team_last_rounds(const gw_aes_team *team, gw_u32 inverse, gw_aes_half state,
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

/* Completes the encryption of an AES block after gw_aes_team_rounds (FIPS 197, section 5.1).
 * Returns this thread's half of the block. */
GW_LANE gw_aes_half gw_aes_team_encrypt_end(const gw_aes_team *team, gw_aes_half state)
{
    gw_u32 rows[GW_AES_TEAM_WORDS][4];
    gw_aes_team_last_rounds(team, 0, state, rows);
    GW_UNROLL
    for (gw_u32 i = 0; i < GW_AES_TEAM_WORDS; i++) {
        /* SubBytes is in bytes 1 and 2, or 0 and 3 if rotated. */
        state.word[i] = (((rows[i][0] >> 8) & 0x000000ffu) | (rows[i][1] & 0x0000ff00u) |
                         ((rows[i][2] >> 8) & 0x00ff0000u) | (rows[i][3] & 0xff000000u)) ^
                        team->last.word[i];
    }
    return state;
}

GW_LANE gw_u32 gw_aes_team_plain(gw_u32 entry)
{
    entry ^= entry >> 16;
    return (entry ^ entry >> 8) & 0xffu;
}

/* Completes the decryption of an AES block with the equivalent inverse cipher (FIPS 197, section
 * 5.3.5). Returns this thread's half of the block. */
GW_LANE gw_aes_half gw_aes_team_decrypt_end(const gw_aes_team *team, gw_aes_half state)
{
    gw_u32 rows[GW_AES_TEAM_WORDS][4];
    gw_aes_team_last_rounds(team, 1, state, rows);
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
