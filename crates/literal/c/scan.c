/* Searches a text with an image, the compiled form of the patterns. A filter finds possible
 * matches, and the verification checks them.
 *
 * The filter looks up windows (short byte strings) in bit tables, and appends the positions of hits
 * to lists without a branch per position. The verification compares the text with the entries in
 * the bucket of a window, and then with whole patterns. The build script compiles this file once
 * for every CPU, and once with AVX-512 (GW_AVX512).
 *
 * The text is processed in blocks, so that the lists have a fixed size. Near the end of the text,
 * the filter reads a copy that is padded with zeros. The verification never reads outside the text.
 */
#include <string.h>

#include "image.h"

#ifdef GW_AVX512
#include <immintrin.h>
#define GW_SCAN gw_literal_scan_avx512
#else
#define GW_SCAN gw_literal_scan_portable
#endif

/* Number of text positions in one block. */
#define BLOCK 4096u
#define STEP  64u
/* Number of bytes that a search step reads beyond its 64 text positions. */
#define AHEAD 8u
#define FOLD  0x20202020u

/* Reports a match: the number of the pattern, and the text offset after it. Returns 0 to end the
 * search. */
typedef int (*gw_literal_found)(void *context, uint32_t pattern, uint64_t end);

struct list {
    uint32_t count;
    uint32_t at[BLOCK / 2 + STEP];
};

struct scan {
    const uint8_t *image;
    const struct gw_literal_image *head;
    const uint8_t *text;
    uint64_t length;
    gw_literal_found found;
    void *context;
};

int GW_SCAN(const uint8_t *image, const uint8_t *text, uint64_t length, gw_literal_found found,
            void *context);

static inline uint32_t load4(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static inline uint64_t load8(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

/* Returns the eight text bytes from offset `at`. Bytes after the end of the text are zero. */
static inline uint64_t text8(const struct scan *s, uint64_t at)
{
    if (at + 8 <= s->length) {
        return load8(s->text + at);
    }
    uint64_t value = 0;
    if (at < s->length) {
        memcpy(&value, s->text + at, s->length - at);
    }
    return value;
}

/* Returns the eight text bytes from offset `at - back`. Bytes outside the text are zero. */
static inline uint64_t around8(const struct scan *s, uint64_t at, uint32_t back)
{
    return at >= back ? text8(s, at - back) : text8(s, 0) << ((back - at) * 8);
}

static inline int bit(const uint8_t *table, uint32_t index)
{
    return table[index >> 3] >> (index & 7) & 1;
}

/* Compares a whole pattern with the text at offset `start`, and reports a match. */
static int compare(const struct scan *s, uint32_t id, uint64_t start)
{
    const uint8_t *record = s->image + s->head->patterns_at + (uint64_t)id * 8;
    uint32_t at = load4(record), length = load4(record + 4);
    if (start + length > s->length) {
        return 1;
    }
    const uint8_t *values = s->image + at, *masks = values + ((length + 7) & ~7u);
    for (uint32_t index = 0; index < length; index += 8) {
        if ((text8(s, start + index) & load8(masks + index)) != load8(values + index)) {
            return 1;
        }
    }
    return s->found(s->context, id, start + length);
}

/* Compares a whole pattern with the text, after its window (a short substring) has matched at
 * offset `at`. */
static inline int confirm(const struct scan *s, const struct gw_literal_group *g, uint32_t entry,
                          uint64_t at)
{
    uint32_t position = s->image[g->positions_at + entry];
    if (position > at) {
        return 1;
    }
    return compare(s, load4(s->image + g->ids_at + (uint64_t)entry * 4), at - position);
}

/* Compares the text at offset `at` with the entries from `begin` to `end`. Each entry holds eight
 * bytes of a pattern. */
static int bucket(const struct scan *s, const struct gw_literal_group *g, uint32_t begin,
                  uint32_t end, uint64_t at)
{
    const uint8_t *values = s->image + g->values_at, *masks = s->image + g->masks_at;
    uint64_t around = around8(s, at, g->back);
#ifdef GW_AVX512
    const __m512i wide = _mm512_set1_epi64((long long)around);
    for (uint32_t entry = begin; entry < end; entry += 8) {
        __m512i mask = _mm512_loadu_si512(masks + (uint64_t)entry * 8);
        __m512i value = _mm512_loadu_si512(values + (uint64_t)entry * 8);
        uint32_t same = _mm512_cmpeq_epi64_mask(_mm512_and_si512(wide, mask), value);
        if (end - entry < 8) {
            same &= (1u << (end - entry)) - 1;
        }
        for (; same != 0; same &= same - 1) {
            if (!confirm(s, g, entry + (uint32_t)__builtin_ctz(same), at)) {
                return 0;
            }
        }
    }
#else
    for (uint32_t entry = begin; entry < end; entry++) {
        uint64_t offset = (uint64_t)entry * 8;
        if ((around & load8(masks + offset)) == load8(values + offset) &&
            !confirm(s, g, entry, at)) {
            return 0;
        }
    }
#endif
    return 1;
}

/* Verifies the positions at which the filter found a possible match for a pattern group.
 * Positions in `list` are relative to the text offset `base`. */
static int verify(const struct scan *s, uint32_t number, const struct list *list, uint64_t base)
{
    const struct gw_literal_group *g = &s->head->group[number];
    const uint8_t *starts = s->image + g->starts_at;
    const uint32_t k1 = s->head->k1, k2 = s->head->k2, shift = 32 - g->starts_bits;
    for (uint32_t index = 0; index < list->count; index++) {
        uint64_t at = base + list->at[index];
        uint64_t window = text8(s, at) | (uint64_t)FOLD << 32 | FOLD;
        uint32_t low = (uint32_t)window;
        uint32_t hash = number == 0   ? low * k1 + (uint32_t)(window >> 32) * k2
                        : number == 1 ? low * k1
                                      : (low & 0xffffff) * k1;
        const uint8_t *start = starts + (uint64_t)(hash >> shift) * 4;
        uint32_t begin = load4(start), end = load4(start + 4);
        if (begin != end && !bucket(s, g, begin, end, at)) {
            return 0;
        }
    }
    return 1;
}

#ifdef GW_AVX512
/* Tests sixteen bits of `table`, one for each SIMD lane of `index`. Appends the text positions of
 * the lanes whose bit is set to `list`. */
static inline void probe(const uint8_t *table, __m512i index, uint32_t at, struct list *list)
{
    __m512i words = _mm512_i32gather_epi32(_mm512_srli_epi32(index, 5), (const int *)table, 4);
    __m512i bits =
        _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_and_si512(index, _mm512_set1_epi32(31)));
    __mmask16 hits = _mm512_test_epi32_mask(words, bits);
    const __m512i lanes =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    __m512i positions = _mm512_add_epi32(_mm512_set1_epi32((int)at), lanes);
    _mm512_storeu_si512(list->at + list->count, _mm512_maskz_compress_epi32(hits, positions));
    list->count += (uint32_t)__builtin_popcount(hits);
}
#endif

/* Looks up 64 text positions in the bit tables, and appends possible matches to lists. `bytes`
 * points to the text at offset `at`. The AHEAD bytes after the 64 positions must be readable. */
static inline void filter_step(const struct scan *s, const uint8_t *bytes, uint32_t at, int is_long,
                               int is_medium, struct list *longs, struct list *mediums)
{
    const struct gw_literal_image *head = s->head;
    const struct gw_literal_group *medium = &head->group[2];
    const uint8_t *first = s->image + head->first_at, *table = s->image + medium->table_at;
    const uint32_t first_shift = 32 - head->first_bits, shift = 32 - medium->table_bits;
#ifdef GW_AVX512
    const __m512i fold = _mm512_set1_epi32(FOLD), k1 = _mm512_set1_epi32((int)head->k1);
    const __m512i three = _mm512_set1_epi32(0xffffff);
    __m512i even = _mm512_or_si512(_mm512_loadu_si512(bytes), fold);
    if (is_long) {
        __m512i hash = _mm512_mullo_epi32(even, k1);
        probe(first, _mm512_srl_epi32(hash, _mm_cvtsi32_si128((int)first_shift)), at, longs);
    }
    if (is_medium) {
        const __m128i by = _mm_cvtsi32_si128((int)shift);
        __m512i odd = _mm512_or_si512(_mm512_loadu_si512(bytes + 2), fold);
        __m512i hash = _mm512_mullo_epi32(_mm512_and_si512(even, three), k1);
        probe(table, _mm512_srl_epi32(hash, by), at, mediums);
        hash = _mm512_mullo_epi32(_mm512_and_si512(odd, three), k1);
        probe(table, _mm512_srl_epi32(hash, by), at + 2, mediums);
    }
#else
    for (uint32_t offset = 0; offset < STEP; offset += 4) {
        uint32_t even = load4(bytes + offset) | FOLD;
        if (is_long) {
            longs->at[longs->count] = at + offset;
            longs->count += (uint32_t)bit(first, even * head->k1 >> first_shift);
        }
        if (is_medium) {
            uint32_t odd = load4(bytes + offset + 2) | FOLD;
            mediums->at[mediums->count] = at + offset;
            mediums->count += (uint32_t)bit(table, (even & 0xffffff) * head->k1 >> shift);
            mediums->at[mediums->count] = at + offset + 2;
            mediums->count += (uint32_t)bit(table, (odd & 0xffffff) * head->k1 >> shift);
        }
    }
#endif
}

/* Checks the candidate positions from the first table against the tables of pattern groups 0 and 1.
 * Appends the remaining positions to one list per group. */
static void second_tables(const struct scan *s, uint64_t base, const struct list *longs,
                          struct list *eight, struct list *four)
{
    const struct gw_literal_group *g0 = &s->head->group[0], *g1 = &s->head->group[1];
    const uint8_t *table0 = s->image + g0->table_at, *table1 = s->image + g1->table_at;
    const uint32_t k1 = s->head->k1, k2 = s->head->k2;
    const uint32_t shift0 = 32 - g0->table_bits, shift1 = 32 - g1->table_bits;
    for (uint32_t index = 0; index < longs->count; index++) {
        uint32_t at = longs->at[index];
        uint64_t window = text8(s, base + at) | (uint64_t)FOLD << 32 | FOLD;
        uint32_t hash4 = (uint32_t)window * k1, hash8 = hash4 + (uint32_t)(window >> 32) * k2;
        eight->at[eight->count] = four->at[four->count] = at;
        eight->count += (uint32_t)bit(table0, hash8 >> shift0);
        four->count += (uint32_t)bit(table1, hash4 >> shift1);
    }
}

/* Searches a block for patterns of one to three bytes. Tables map each byte value to the buckets
 * of patterns that may match. */
static int short_block(const struct scan *s, uint64_t base, uint64_t end)
{
    const uint8_t *tables = s->image + s->head->short_at;
    const struct gw_literal_group *g = &s->head->group[3];
    const uint8_t *text = s->text;
    for (uint64_t at = base; at < end; at++) {
        uint32_t buckets = tables[text[at]];
        buckets &= at + 1 < s->length ? tables[256 + text[at + 1]] : 0xff;
        buckets &= at + 2 < s->length ? tables[512 + text[at + 2]] : 0xff;
        for (; buckets != 0; buckets &= buckets - 1) {
            const uint8_t *start = s->image + g->starts_at + (uint32_t)__builtin_ctz(buckets) * 4;
            for (uint32_t entry = load4(start); entry < load4(start + 4); entry++) {
                if (!compare(s, load4(s->image + g->ids_at + (uint64_t)entry * 4), at)) {
                    return 0;
                }
            }
        }
    }
    return 1;
}

/* Searches the block of the text at offset `base`. */
static int scan_block(const struct scan *s, uint64_t base, int is_long, int is_medium)
{
    struct list longs, mediums, eight, four;
    longs.count = mediums.count = eight.count = four.count = 0;
    uint64_t rest = s->length - base;
    uint32_t length = rest < BLOCK ? (uint32_t)rest : BLOCK;
    for (uint32_t at = 0; at < length; at += STEP) {
        const uint8_t *bytes = s->text + base + at;
        uint8_t padded[STEP + AHEAD];
        if (at + STEP + AHEAD > rest) {
            uint32_t left = (uint32_t)(rest - at);
            memset(padded, 0, sizeof padded);
            memcpy(padded, bytes, left < sizeof padded ? left : sizeof padded);
            bytes = padded;
        }
        filter_step(s, bytes, at, is_long, is_medium, &longs, &mediums);
    }
    if (is_long) {
        second_tables(s, base, &longs, &eight, &four);
        if (s->head->group[0].patterns != 0 && !verify(s, 0, &eight, base)) {
            return 0;
        }
        if (s->head->group[1].patterns != 0 && !verify(s, 1, &four, base)) {
            return 0;
        }
    }
    if (is_medium && !verify(s, 2, &mediums, base)) {
        return 0;
    }
    return s->head->group[3].patterns == 0 || short_block(s, base, base + length);
}

/* Calls `found` for each match in `text`. Returns 0 if `found` ended the search. */
int GW_SCAN(const uint8_t *image, const uint8_t *text, uint64_t length, gw_literal_found found,
            void *context)
{
    const struct gw_literal_image *head = (const struct gw_literal_image *)(const void *)image;
    struct scan s = {image, head, text, length, found, context};
    int is_long = head->group[0].patterns + head->group[1].patterns != 0;
    int is_medium = head->group[2].patterns != 0;
    for (uint64_t base = 0; base < length; base += BLOCK) {
        if (!scan_block(&s, base, is_long, is_medium)) {
            return 0;
        }
    }
    return 1;
}
