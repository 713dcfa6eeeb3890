/* The compression function of SHA-1 (FIPS 180-4, section 6.1.2), in words of one packet or of
 * several packets (dialect/words.h). The file has no include guard, because it is included once per
 * word type. */

typedef struct GW_NAME(gw_sha1) {
    GW_WORD a;
    GW_WORD b;
    GW_WORD c;
    GW_WORD d;
    GW_WORD e;
} GW_NAME(gw_sha1);

#ifndef GW_SHA1_ROUND

/* The SHA-1 functions Ch, Parity and Maj (FIPS 180-4, section 4.1.1). Ch and Maj use fewer
 * operations than in the standard. */
#define GW_SHA1_CH(b, c, d)     ((d) ^ ((b) & ((c) ^ (d))))
#define GW_SHA1_PARITY(b, c, d) ((b) ^ (c) ^ (d))
#define GW_SHA1_MAJ(b, c, d)    (((b) & (c)) | ((d) & ((b) | (c))))

/* Performs one of the 80 SHA-1 rounds. The caller permutes the variables between rounds instead of
 * moving values. */
#define GW_SHA1_ROUND(f, k, a, b, c, d, e, word)                                                   \
    e += GW_ROTATE(a, 5) + f(b, c, d) + (k) + (word);                                              \
    b = GW_ROTATE(b, 30)

/* Computes word t of the SHA-1 message schedule, for t >= 16. The result overwrites word t - 16 in
 * the 16-word array. */
#define GW_SHA1_WORD(w, t)                                                                         \
    (w[(t)&15] =                                                                                   \
         GW_ROTATE(w[((t) + 13) & 15] ^ w[((t) + 8) & 15] ^ w[((t) + 2) & 15] ^ w[(t)&15], 1))

#define GW_SHA1_GIVEN(w, t) (w[t])

#define GW_SHA1_FIVE(f, k, source, t)                                                              \
    GW_SHA1_ROUND(f, k, a, b, c, d, e, source(w, (t)));                                            \
    GW_SHA1_ROUND(f, k, e, a, b, c, d, source(w, (t) + 1));                                        \
    GW_SHA1_ROUND(f, k, d, e, a, b, c, source(w, (t) + 2));                                        \
    GW_SHA1_ROUND(f, k, c, d, e, a, b, source(w, (t) + 3));                                        \
    GW_SHA1_ROUND(f, k, b, c, d, e, a, source(w, (t) + 4))

#define GW_SHA1_TWENTY(f, k, t)                                                                    \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t));                                                         \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t) + 5);                                                     \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t) + 10);                                                    \
    GW_SHA1_FIVE(f, k, GW_SHA1_WORD, (t) + 15)

#endif

/* Updates a SHA-1 state with one block of 16 words. The words are overwritten. */
GW_WORDWISE void GW_NAME(gw_sha1_block)(GW_NAME(gw_sha1) * state, GW_WORD *w)
{
    GW_WORD a = state->a;
    GW_WORD b = state->b;
    GW_WORD c = state->c;
    GW_WORD d = state->d;
    GW_WORD e = state->e;

    GW_SHA1_FIVE(GW_SHA1_CH, 0x5a827999u, GW_SHA1_GIVEN, 0);
    GW_SHA1_FIVE(GW_SHA1_CH, 0x5a827999u, GW_SHA1_GIVEN, 5);
    GW_SHA1_FIVE(GW_SHA1_CH, 0x5a827999u, GW_SHA1_GIVEN, 10);
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, a, b, c, d, e, w[15]);
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, e, a, b, c, d, GW_SHA1_WORD(w, 16));
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, d, e, a, b, c, GW_SHA1_WORD(w, 17));
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, c, d, e, a, b, GW_SHA1_WORD(w, 18));
    GW_SHA1_ROUND(GW_SHA1_CH, 0x5a827999u, b, c, d, e, a, GW_SHA1_WORD(w, 19));
    GW_SHA1_TWENTY(GW_SHA1_PARITY, 0x6ed9eba1u, 20);
    GW_SHA1_TWENTY(GW_SHA1_MAJ, 0x8f1bbcdcu, 40);
    GW_SHA1_TWENTY(GW_SHA1_PARITY, 0xca62c1d6u, 60);

    state->a += a;
    state->b += b;
    state->c += c;
    state->d += d;
    state->e += e;
}
