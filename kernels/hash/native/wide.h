/*
 * hash for several packets at once, with one packet per word of a register (dialect/words.h). The
 * packets of a group have about the same length. Each step computes one block of every packet, and
 * packets that have ended keep their state.
 *
 *   packet    | block | block | ... | end |
 *
 * The end consists of one or two blocks: the rest of the text, 0x80, zeros and the bit length.
 * The ends are built in memory, because a kernel must not read beyond the buffer of a packet. The
 * file has no include guard, because it is included once per word type. The file before it defines
 * GW_NAME(gw_hash_load), which loads a block of each packet as words, and the compression functions
 * GW_NAME(gw_hash_md5_step), GW_NAME(gw_hash_sha1_step) and GW_NAME(gw_hash_sha256_step).
 */

/* Number of packets in a group. */
#define GW_HASH_GROUP ((gw_u32)(sizeof(GW_WORD) / sizeof(gw_u32)))

#ifndef GW_HASH_BATCH
#define GW_HASH_BLOCK_BYTES 64u

/* Maximum number of packets that are sorted by length. */
#define GW_HASH_BATCH 256u

/* Number of lengths, in blocks, that sorting distinguishes. The last one includes longer texts. */
#define GW_HASH_CLASSES 160u

/* Marks functions with a constant number of words, which are inlined. */
#define GW_HASH_INLINE static inline __attribute__((always_inline))

/* Texts of a batch, and the order in which they are hashed. */
typedef struct gw_hash_batch {
    const gw_u8 *at[GW_HASH_BATCH];
    gw_u32 bytes[GW_HASH_BATCH];
    gw_u16 order[GW_HASH_BATCH];
    gw_u32 count; /* texts in `order` */
} gw_hash_batch;

/* Returns the number of blocks of a text with its end. */
GW_LANE gw_u32 gw_hash_blocks(gw_u32 bytes)
{
    return (bytes + 8) / GW_HASH_BLOCK_BYTES + 1;
}

GW_LANE gw_u32 gw_hash_class(gw_u32 bytes)
{
    const gw_u32 blocks = gw_hash_blocks(bytes);
    return blocks < GW_HASH_CLASSES ? blocks : GW_HASH_CLASSES - 1;
}

/* Finds the texts of up to GW_HASH_BATCH packets, and drops truncated packets. */
static void gw_hash_texts(gw_hash_batch *batch, const gw_bin_call *call, gw_u32 first, gw_u32 count)
{
    batch->count = 0;
    for (gw_u32 i = 0; i < count; i++) {
        const gw_descriptor *descriptor = &call->descriptors[first + i];
        const gw_u8 *frame =
            call->arena + (gw_u64)descriptor->buffer * GW_BUFFER_UNIT + descriptor->head;
        const gw_payload covered = gw_hash_covered(call->image, frame, descriptor->length);
        if (covered.start > covered.end) {
            gw_drop(&call->outcomes[first + i], GW_HASH_TRUNCATED);
            continue;
        }
        batch->at[i] = frame + covered.start;
        batch->bytes[i] = covered.end - covered.start;
        batch->order[batch->count++] = (gw_u16)i;
    }
}

/* Sorts the texts of a batch by their number of blocks. */
static void gw_hash_sort(gw_hash_batch *batch)
{
    gw_u16 starts[GW_HASH_CLASSES + 1] = {0};
    gw_u16 unsorted[GW_HASH_BATCH];
    gw_u32 difference = 0;
    for (gw_u32 i = 0; i < batch->count; i++) {
        const gw_u32 text = batch->order[i];
        const gw_u32 class = gw_hash_class(batch->bytes[text]);
        difference |= class ^ gw_hash_class(batch->bytes[batch->order[0]]);
        unsorted[i] = (gw_u16)text;
        starts[class + 1]++;
    }
    if (difference == 0) {
        return;
    }
    for (gw_u32 i = 0; i < GW_HASH_CLASSES; i++) {
        starts[i + 1] = (gw_u16)(starts[i + 1] + starts[i]);
    }
    for (gw_u32 i = 0; i < batch->count; i++) {
        batch->order[starts[gw_hash_class(batch->bytes[unsorted[i]])]++] = unsorted[i];
    }
}
#endif

typedef struct GW_NAME(gw_hash_group) {
    gw_u8 ends[GW_HASH_GROUP][2 * GW_HASH_BLOCK_BYTES] __attribute__((aligned(64)));
    GW_WORD state[GW_HASH_WORDS];
    GW_WORD total; /* blocks of each text with its end */
    GW_WORD bits;  /* length of each text */
    const gw_u8 *at[GW_HASH_GROUP];
    gw_u32 whole[GW_HASH_GROUP]; /* complete blocks of each text */
    gw_u32 steps;                /* blocks of the longest text */
} GW_NAME(gw_hash_group);

/* Starts a group with the texts from `from` on. Unused words repeat the last text. */
GW_HASH_INLINE void GW_NAME(gw_hash_begin)(GW_NAME(gw_hash_group) * group,
                                           const gw_hash_batch *batch, gw_u32 from, gw_u32 variant)
{
    const gw_u32 last = batch->count - 1;
    group->steps = 0;
    for (gw_u32 i = 0; i < GW_HASH_GROUP; i++) {
        const gw_u32 text = batch->order[from + i < last ? from + i : last];
        const gw_u32 bytes = batch->bytes[text];
        const gw_u32 whole = bytes / GW_HASH_BLOCK_BYTES;
        const gw_u32 rest = bytes % GW_HASH_BLOCK_BYTES;
        const gw_u32 blocks = gw_hash_blocks(bytes);
        group->at[i] = batch->at[text];
        group->whole[i] = whole;
        group->total[i] = blocks;
        group->bits[i] = 8 * bytes;
        group->steps = group->steps < blocks ? blocks : group->steps;
        __builtin_memset(group->ends[i], 0, sizeof(group->ends[i]));
        __builtin_memcpy(group->ends[i], batch->at[text] + GW_HASH_BLOCK_BYTES * whole, rest);
        group->ends[i][rest] = 0x80;
    }
    const GW_WORD zero = {0};
    if (variant == GW_HASH_VARIANT_SHA256) {
        group->state[0] = zero + GW_HASH_SHA256_A;
        group->state[1] = zero + GW_HASH_SHA256_B;
        group->state[2] = zero + GW_HASH_SHA256_C;
        group->state[3] = zero + GW_HASH_SHA256_D;
        group->state[4] = zero + GW_HASH_SHA256_E;
        group->state[5] = zero + GW_HASH_SHA256_F;
        group->state[6] = zero + GW_HASH_SHA256_G;
        group->state[7] = zero + GW_HASH_SHA256_H;
    } else {
        group->state[0] = zero + GW_HASH_SHA1_A;
        group->state[1] = zero + GW_HASH_SHA1_B;
        group->state[2] = zero + GW_HASH_SHA1_C;
        group->state[3] = zero + GW_HASH_SHA1_D;
        group->state[4] = zero + GW_HASH_SHA1_E;
    }
}

/* Computes one block of every text in a group. */
GW_HASH_INLINE void GW_NAME(gw_hash_step)(GW_NAME(gw_hash_group) * group, gw_u32 step,
                                          gw_u32 variant)
{
    const gw_u32 state_words = variant == GW_HASH_VARIANT_MD5    ? 4
                               : variant == GW_HASH_VARIANT_SHA1 ? 5
                                                                 : 8;
    const gw_u32 length_word = variant == GW_HASH_VARIANT_MD5 ? 14 : 15;
    const gw_u8 *rows[GW_HASH_GROUP];
    GW_WORD w[16];
    GW_WORD state[GW_HASH_WORDS];
    for (gw_u32 i = 0; i < GW_HASH_GROUP; i++) {
        /* A text that has ended repeats its end, and the result is ignored. */
        const gw_u8 *end = group->ends[i] + (step == group->whole[i] ? 0 : GW_HASH_BLOCK_BYTES);
        const gw_u8 *row = group->at[i] + GW_HASH_BLOCK_BYTES * step;
        __builtin_prefetch(row + 2 * GW_HASH_BLOCK_BYTES);
        rows[i] = step < group->whole[i] ? row : end;
    }
    GW_NAME(gw_hash_load)(w, rows, variant != GW_HASH_VARIANT_MD5);
    const GW_TEST is_last = GW_EQUAL(group->total, step + 1);
    w[length_word] = GW_SELECT(is_last, group->bits, w[length_word]);
    for (gw_u32 i = 0; i < state_words; i++) {
        state[i] = group->state[i];
    }
    if (variant == GW_HASH_VARIANT_MD5) {
        GW_NAME(gw_hash_md5_step)(state, w);
    } else if (variant == GW_HASH_VARIANT_SHA1) {
        GW_NAME(gw_hash_sha1_step)(state, w);
    } else {
        GW_NAME(gw_hash_sha256_step)(state, w);
    }
    const GW_TEST active = GW_AT_LEAST(group->total, step + 1);
    for (gw_u32 i = 0; i < state_words; i++) {
        group->state[i] = GW_SELECT(active, state[i], group->state[i]);
    }
}

/* Writes the outcomes of the texts from `from` on. */
GW_HASH_INLINE void GW_NAME(gw_hash_end)(const GW_NAME(gw_hash_group) * group,
                                         const gw_hash_batch *batch, gw_u32 from, gw_u32 variant,
                                         const gw_bin_call *call, gw_u32 first)
{
    const gw_u32 state_words = variant == GW_HASH_VARIANT_MD5    ? 4
                               : variant == GW_HASH_VARIANT_SHA1 ? 5
                                                                 : 8;
    const gw_u32 left = batch->count - from;
    for (gw_u32 i = 0; i < GW_HASH_GROUP && i < left; i++) {
        gw_u32 words[GW_HASH_WORDS];
        for (gw_u32 j = 0; j < GW_HASH_WORDS; j++) {
            const gw_u32 word = j < state_words ? group->state[j][i] : 0;
            words[j] = variant == GW_HASH_VARIANT_MD5 ? gw_reverse32(word) : word;
        }
        gw_hash_conclude(call->image, words, &call->outcomes[first + batch->order[from + i]]);
    }
}

GW_HASH_INLINE void GW_NAME(gw_hash_variant)(const gw_bin_call *call, gw_u32 variant)
{
    GW_NAME(gw_hash_group) group;
    gw_hash_batch batch;
    for (gw_u32 first = 0; first < call->count; first += GW_HASH_BATCH) {
        const gw_u32 left = call->count - first;
        gw_hash_texts(&batch, call, first, left < GW_HASH_BATCH ? left : GW_HASH_BATCH);
        gw_hash_sort(&batch);
        for (gw_u32 from = 0; from < batch.count; from += GW_HASH_GROUP) {
            GW_NAME(gw_hash_begin)(&group, &batch, from, variant);
            for (gw_u32 step = 0; step < group.steps; step++) {
                GW_NAME(gw_hash_step)(&group, step, variant);
            }
            GW_NAME(gw_hash_end)(&group, &batch, from, variant, call, first);
        }
    }
}

static __attribute__((noinline)) void GW_NAME(gw_hash_bin_md5)(const gw_bin_call *call)
{
    GW_NAME(gw_hash_variant)(call, GW_HASH_VARIANT_MD5);
}

static __attribute__((noinline)) void GW_NAME(gw_hash_bin_sha1)(const gw_bin_call *call)
{
    GW_NAME(gw_hash_variant)(call, GW_HASH_VARIANT_SHA1);
}

static __attribute__((noinline)) void GW_NAME(gw_hash_bin_sha256)(const gw_bin_call *call)
{
    GW_NAME(gw_hash_variant)(call, GW_HASH_VARIANT_SHA256);
}

/* Processes one packet batch. */
static void GW_NAME(gw_hash_bin)(const gw_bin_call *call)
{
    if (call->variant == GW_HASH_VARIANT_MD5) {
        GW_NAME(gw_hash_bin_md5)(call);
    } else if (call->variant == GW_HASH_VARIANT_SHA1) {
        GW_NAME(gw_hash_bin_sha1)(call);
    } else {
        GW_NAME(gw_hash_bin_sha256)(call);
    }
}
