/* The compression function of SHA-256 (FIPS 180-4, section 6.2.2), in words of one packet or of
 * several packets (dialect/words.h). The file has no include guard, because it is included once per
 * word type. */

typedef struct GW_NAME(gw_sha256) {
    GW_WORD a;
    GW_WORD b;
    GW_WORD c;
    GW_WORD d;
    GW_WORD e;
    GW_WORD f;
    GW_WORD g;
    GW_WORD h;
} GW_NAME(gw_sha256);

#ifndef GW_SHA256_ROUND

/* Round constants of SHA-256 (FIPS 180-4, section 4.2.2). */
/* clang-format off */
GW_TABLE gw_u32 gw_sha256_constants[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};
/* clang-format on */

/* The SHA-256 functions Ch and Maj (FIPS 180-4, section 4.1.2), with fewer operations than in the
 * standard. */
#define GW_SHA256_CH(e, f, g)  ((g) ^ ((e) & ((f) ^ (g))))
#define GW_SHA256_MAJ(a, b, c) (((a) & (b)) | ((c) & ((a) | (b))))
#define GW_SHA256_TURN(x, i, j, k)                                                                 \
    (GW_ROTATE(x, 32 - (i)) ^ GW_ROTATE(x, 32 - (j)) ^ GW_ROTATE(x, 32 - (k)))
#define GW_SHA256_SHIFT(x, i, j, k) (GW_ROTATE(x, 32 - (i)) ^ GW_ROTATE(x, 32 - (j)) ^ ((x) >> (k)))

/* Performs one of the 64 SHA-256 rounds. The caller permutes the variables between rounds instead
 * of moving values. */
#define GW_SHA256_ROUND(a, b, c, d, e, f, g, h, word)                                              \
    h += GW_SHA256_TURN(e, 6, 11, 25) + GW_SHA256_CH(e, f, g) + (word);                            \
    d += h;                                                                                        \
    h += GW_SHA256_TURN(a, 2, 13, 22) + GW_SHA256_MAJ(a, b, c)

/* Computes word t of the SHA-256 message schedule, for t >= 16. The result overwrites word t - 16
 * in the 16-word array. */
#define GW_SHA256_WORD(w, t)                                                                       \
    (w[(t)&15] += GW_SHA256_SHIFT(w[((t) + 14) & 15], 17, 19, 10) + w[((t) + 9) & 15] +            \
                  GW_SHA256_SHIFT(w[((t) + 1) & 15], 7, 18, 3))

#define GW_SHA256_GIVEN(w, t) (w[t])

#define GW_SHA256_EIGHT(source, from, t)                                                           \
    GW_SHA256_ROUND(a, b, c, d, e, f, g, h, source(w, t) + from[t]);                               \
    GW_SHA256_ROUND(h, a, b, c, d, e, f, g, source(w, (t) + 1) + from[(t) + 1]);                   \
    GW_SHA256_ROUND(g, h, a, b, c, d, e, f, source(w, (t) + 2) + from[(t) + 2]);                   \
    GW_SHA256_ROUND(f, g, h, a, b, c, d, e, source(w, (t) + 3) + from[(t) + 3]);                   \
    GW_SHA256_ROUND(e, f, g, h, a, b, c, d, source(w, (t) + 4) + from[(t) + 4]);                   \
    GW_SHA256_ROUND(d, e, f, g, h, a, b, c, source(w, (t) + 5) + from[(t) + 5]);                   \
    GW_SHA256_ROUND(c, d, e, f, g, h, a, b, source(w, (t) + 6) + from[(t) + 6]);                   \
    GW_SHA256_ROUND(b, c, d, e, f, g, h, a, source(w, (t) + 7) + from[(t) + 7])

#endif

/* Updates a SHA-256 state with one block of 16 words. The words are overwritten. */
GW_WORDWISE void GW_NAME(gw_sha256_block)(GW_NAME(gw_sha256) * state, GW_WORD *w)
{
    GW_WORD a = state->a;
    GW_WORD b = state->b;
    GW_WORD c = state->c;
    GW_WORD d = state->d;
    GW_WORD e = state->e;
    GW_WORD f = state->f;
    GW_WORD g = state->g;
    GW_WORD h = state->h;

    GW_SHA256_EIGHT(GW_SHA256_GIVEN, gw_sha256_constants, 0);
    GW_SHA256_EIGHT(GW_SHA256_GIVEN, gw_sha256_constants, 8);
    for (gw_u32 t = 16; t < 64; t += 16) {
        const GW_CONSTANT gw_u32 *k = gw_sha256_constants + t;
        GW_SHA256_EIGHT(GW_SHA256_WORD, k, 0);
        GW_SHA256_EIGHT(GW_SHA256_WORD, k, 8);
    }

    state->a += a;
    state->b += b;
    state->c += c;
    state->d += d;
    state->e += e;
    state->f += f;
    state->g += g;
    state->h += h;
}
