/*
 * exact: a cuckoo hash table, which finds the row of a key by exact match. A key has two buckets of
 * four entries of 64 bits (Pagh, Rodler, Cuckoo Hashing, ESA 2001; Zhou et al., CuckooSwitch,
 * CoNEXT 2013). l2 uses the same table.
 *
 * If the key and the row fit into an entry (packed form), a keyed permutation is applied to the
 * key. The lower bucket_bits of the result are the first bucket. The other bits, `rest`, identify
 * the key within the bucket, so the entry needs no other key. The second bucket is the first bucket
 * XOR a keyed hash of `rest`:
 *
 *   63                  rest_shift        2       1       0
 *   | rest               | row            | second | valid |
 *
 * Otherwise (wide form), the entry has 30 bits of a keyed hash and the index of a record, which
 * holds the words of the key and the row:
 *
 *   63          34 33           2       1       0
 *   | tag        | record       | second | valid |
 *
 * The bit `second` tells that the entry is in the key's second bucket. An empty entry is 0.
 * kernels/l2/l2.h explains the order of changes while lookups run.
 */
#ifndef GODWIT_TABLES_EXACT_H
#define GODWIT_TABLES_EXACT_H

typedef struct gw_exact {
    gw_u32 bucket_bits;  /* binary logarithm of the number of buckets, 8 to 28 */
    gw_u32 record_shift; /* wide: binary logarithm of the size of a record */
    gw_u64 hash[11];     /* secret: packed: multipliers 0 to 3, addends 4 to 7; wide: multipliers */
    gw_u64 second;       /* secret multiplier of the second bucket's hash; odd */
    gw_u64 buckets_offset;
    gw_u64 records_offset; /* wide */
    gw_u64 reserved;
} gw_exact;
GW_STATIC_ASSERT(sizeof(gw_exact) == GW_TABLE_HEADER_BYTES, exact_size);

#define GW_EXACT_VALID     1u
#define GW_EXACT_SECOND    2u
#define GW_EXACT_TAG_SHIFT 34u
#define GW_EXACT_TAG_BITS  30u
#define GW_EXACT_PROBES    8u /* maximum number of entries with the tag of a key */

/* Permutes a key of 2 * half_bits bits with a Feistel network. Its round functions are strongly
 * universal hashes with secret multipliers (Dietzfelbinger, STACS 1996, theorem 1). */
GW_LANE gw_u64 gw_exact_mix(const GW_GLOBAL gw_exact *table, gw_u64 key, const gw_u32 half_bits)
{
    gw_u64 left = key >> half_bits;
    gw_u64 right = key & (((gw_u64)1 << half_bits) - 1);
    for (int round = 0; round < 4; round += 2) {
        left ^= (right * table->hash[round] + table->hash[round + 4]) >> (64 - half_bits);
        right ^= (left * table->hash[round + 1] + table->hash[round + 5]) >> (64 - half_bits);
    }
    return left << half_bits | right;
}

/* Returns the initial hash value for a wide key, which has several words. The hash is strongly
 * universal. */
GW_LANE gw_u64 gw_exact_begin(const GW_GLOBAL gw_exact *table)
{
    return table->hash[10];
}

/* Adds one word of a wide key to the hash. Each half of the word is multiplied by a separate secret
 * number. `index` is the position of the word in the key, 0 to 4. */
GW_LANE gw_u64 gw_exact_step(const GW_GLOBAL gw_exact *table, gw_u64 mixed, gw_u64 word,
                             const gw_u32 index)
{
    return mixed + (word & 0xffffffffu) * table->hash[2 * index] +
           (word >> 32) * table->hash[2 * index + 1];
}

/* Completes the hash of a wide key. Its lower bits select the bucket, and its upper bits are the
 * tag. */
GW_LANE gw_u64 gw_exact_finish(const GW_GLOBAL gw_exact *table, gw_u64 mixed)
{
    mixed = (mixed ^ mixed >> 32) * table->second;
    return (mixed ^ mixed >> 29) & (((gw_u64)1 << (table->bucket_bits + GW_EXACT_TAG_BITS)) - 1);
}

GW_LANE const GW_GLOBAL gw_u64 *gw_exact_bucket(const GW_GLOBAL gw_u8 *image,
                                                const GW_GLOBAL gw_exact *table, gw_u64 bucket)
{
    return (const GW_GLOBAL gw_u64 *)(image + table->buckets_offset) + bucket * 4;
}

GW_LANE gw_u64 gw_exact_first(const GW_GLOBAL gw_exact *table, gw_u64 mixed)
{
    return mixed & (((gw_u64)1 << table->bucket_bits) - 1);
}

/* Returns the XOR of a key's two bucket numbers. The result is at least 2, so the two buckets never
 * share a cache line. */
GW_LANE gw_u64 gw_exact_flip(const GW_GLOBAL gw_exact *table, gw_u64 mixed)
{
    return (((mixed >> table->bucket_bits) * table->second) >> (64 - table->bucket_bits)) | 2;
}

/* Returns the address of the first bucket of a permuted key. */
GW_LANE const GW_GLOBAL gw_u64 *gw_exact_one(const GW_GLOBAL gw_u8 *image,
                                             const GW_GLOBAL gw_exact *table, gw_u64 mixed)
{
    return gw_exact_bucket(image, table, gw_exact_first(table, mixed));
}

/* Returns the address of the second bucket of a permuted key. */
GW_LANE const GW_GLOBAL gw_u64 *gw_exact_other(const GW_GLOBAL gw_u8 *image,
                                               const GW_GLOBAL gw_exact *table, gw_u64 mixed)
{
    return gw_exact_bucket(image, table,
                           gw_exact_first(table, mixed) ^ gw_exact_flip(table, mixed));
}

/* Finds the entry of a permuted key in packed form. Returns 0 if the table does not contain the
 * key. */
GW_LANE gw_u64 gw_exact_entry(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_exact *table,
                              gw_u64 mixed, const gw_u32 rest_shift)
{
    const gw_u64 expected = (mixed >> table->bucket_bits) << rest_shift | GW_EXACT_VALID;
    const gw_u64 mask = ~(((gw_u64)1 << rest_shift) - 1) | GW_EXACT_VALID | GW_EXACT_SECOND;
    return gw_find_word(gw_exact_one(image, table, mixed), expected,
                        gw_exact_other(image, table, mixed), expected | GW_EXACT_SECOND, mask);
}

/* Returns the tag bits of an entry for a hash. */
GW_LANE gw_u64 gw_exact_tagged(const GW_GLOBAL gw_exact *table, gw_u64 mixed)
{
    return (mixed >> table->bucket_bits) << GW_EXACT_TAG_SHIFT | GW_EXACT_VALID;
}

/* Searches a key's buckets for entries with its tag. Skips `wanted` such entries and returns the
 * next one, or 0 if there is none. */
GW_RARE gw_u64 gw_exact_again(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_exact *table,
                              gw_u64 mixed, gw_u32 wanted)
{
    const gw_u64 expected = gw_exact_tagged(table, mixed);
    const gw_u64 mask = ~(((gw_u64)1 << GW_EXACT_TAG_SHIFT) - 1) | GW_EXACT_VALID | GW_EXACT_SECOND;
    for (gw_u32 at = 0; at < 8; at++) {
        const GW_GLOBAL gw_u64 *bucket =
            at < 4 ? gw_exact_one(image, table, mixed) : gw_exact_other(image, table, mixed);
        const gw_u64 entry = GW_ONCE(gw_u64, bucket + (at & 3));
        const gw_u64 same = at < 4 ? expected : expected | GW_EXACT_SECOND;
        if (((entry ^ same) & mask) != 0) {
            continue;
        }
        if (wanted == 0) {
            return entry;
        }
        wanted--;
    }
    return 0;
}

/* Returns the next entry with the same tag as a key, or 0 if there is none. `at` counts the entries
 * that were already returned. */
GW_LANE gw_u64 gw_exact_next(const GW_GLOBAL gw_u8 *image, const GW_GLOBAL gw_exact *table,
                             gw_u64 mixed, gw_u32 *at)
{
    const gw_u64 expected = gw_exact_tagged(table, mixed);
    const gw_u64 mask = ~(((gw_u64)1 << GW_EXACT_TAG_SHIFT) - 1) | GW_EXACT_VALID | GW_EXACT_SECOND;
    const gw_u32 number = *at;
    *at = number + 1;
    if (number != 0) {
        return gw_exact_again(image, table, mixed, number);
    }
    return gw_find_word(gw_exact_one(image, table, mixed), expected,
                        gw_exact_other(image, table, mixed), expected | GW_EXACT_SECOND, mask);
}

/* Returns the record of an entry in the wide form. */
GW_LANE const GW_GLOBAL gw_u64 *gw_exact_record(const GW_GLOBAL gw_u8 *image,
                                                const GW_GLOBAL gw_exact *table, gw_u64 entry)
{
    const gw_u64 index = entry >> 2 & 0xffffffffu;
    return (const GW_GLOBAL gw_u64 *)(image + table->records_offset +
                                      (index << table->record_shift));
}

#endif
