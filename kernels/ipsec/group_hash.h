/* The hash lanes' part of a round (group.h): headers, the ICV, and what is said of a packet. */
#ifndef GODWIT_IPSEC_GROUP_HASH_H
#define GODWIT_IPSEC_GROUP_HASH_H

/* A hash lane and its packet. */
typedef struct gw_ipsec_hash {
    const GW_GLOBAL gw_ipsec_sa *sa;
    GW_GLOBAL gw_u8 *data; /* what is to be encrypted or decrypted */
    gw_u32 words;          /* of it; 0: none, or the packet is settled */
    gw_u32 packet;         /* place in the round */
    gw_u32 extended;       /* 1: the upper half of the sequence number is authenticated last */
    gw_u32 upper;
    gw_u32 icv_bytes;
    gw_u32 udp_checksum; /* 1: gw_ipsec_seal_end has something to do */
    gw_u32 state[8];     /* SHA-1 uses five */
    gw_u32 outer[8];     /* the state with which the outer hash begins */
} gw_ipsec_hash;

/* What of gw_ipsec_found and gw_ipsec_opening is needed once a packet is decrypted, in one word. */
GW_LANE gw_u32 gw_ipsec_places(gw_ipsec_found found, gw_u32 named_at)
{
    return named_at << 16 | found.version << 8 | found.l2_bytes;
}

/* Words of a state. */
GW_LANE gw_u32 gw_ipsec_state_words(gw_ipsec_suite suite)
{
    return suite.auth == GW_IPSEC_AUTH_SHA256 ? 8 : 5;
}

/* Half of a state. */
GW_LANE void gw_ipsec_load_half(gw_u32 *words, const GW_GLOBAL gw_u32 *from)
{
    const gw_block block = gw_load_block((const GW_GLOBAL gw_u8 *)from);
    words[0] = block.word0;
    words[1] = block.word1;
    words[2] = block.word2;
    words[3] = block.word3;
}

/* Both states, at once and before they are needed. */
GW_LANE void gw_ipsec_load_states(gw_ipsec_hash *hash, const GW_GLOBAL gw_ipsec_sa *sa)
{
    gw_ipsec_load_half(hash->state, sa->authentication);
    gw_ipsec_load_half(hash->state + 4, sa->authentication + 4);
    gw_ipsec_load_half(hash->outer, sa->authentication + GW_IPSEC_HMAC_OUTER);
    gw_ipsec_load_half(hash->outer + 4, sa->authentication + GW_IPSEC_HMAC_OUTER + 4);
}

/* Takes one block of 16 words into the state. */
GW_LANE void gw_ipsec_compress(gw_ipsec_hash *hash, gw_ipsec_suite suite, gw_u32 *w)
{
    gw_u32 *state = hash->state;
    if (suite.auth == GW_IPSEC_AUTH_SHA256) {
        gw_sha256 digest = {state[0], state[1], state[2], state[3],
                            state[4], state[5], state[6], state[7]};
        gw_sha256_block(&digest, w);
        state[0] = digest.a;
        state[1] = digest.b;
        state[2] = digest.c;
        state[3] = digest.d;
        state[4] = digest.e;
        state[5] = digest.f;
        state[6] = digest.g;
        state[7] = digest.h;
    } else {
        gw_sha1 digest = {state[0], state[1], state[2], state[3], state[4]};
        gw_sha1_block(&digest, w);
        state[0] = digest.a;
        state[1] = digest.b;
        state[2] = digest.c;
        state[3] = digest.d;
        state[4] = digest.e;
    }
}

/* Puts word `word` of the packet, or those in front of it, into the ring. */
GW_LANE void gw_ipsec_put_ahead(const gw_ipsec_hash *hash, GW_LOCAL gw_ipsec_scratch *scratch,
                                gw_u32 back, gw_u32 value)
{
    scratch->ring[(GW_IPSEC_RING_WORDS - back) * GW_IPSEC_STRIDE + hash->packet] = value;
}

/* Takes up a packet whose headers are checked; esp: its ESP header. */
GW_LANE void gw_ipsec_hash_data(gw_ipsec_hash *hash, const gw_work *work, gw_ipsec_suite suite,
                                GW_LOCAL gw_ipsec_scratch *scratch, GW_GLOBAL gw_u8 *esp,
                                gw_u64 sequence, gw_u32 cipher_bytes, gw_u32 spi, gw_u32 flags)
{
    const gw_u32 ahead = gw_ipsec_ahead(suite);
    hash->data = esp + 4 * ahead;
    hash->words = cipher_bytes / 4;
    hash->extended = (flags & GW_IPSEC_SA_ESN) != 0;
    hash->udp_checksum = gw_ipsec_has_udp_checksum(flags);
    hash->upper = (gw_u32)(sequence >> 32);
    scratch->data[hash->packet] = (gw_u64)(hash->data - work->arena);
    gw_ipsec_put_ahead(hash, scratch, ahead, spi);
    gw_ipsec_put_ahead(hash, scratch, ahead - 1, (gw_u32)sequence);
    /* Where the team chains blocks it has the IV. */
    const gw_u32 has_iv = !gw_ipsec_chains(work, suite);
    for (gw_u32 i = 2; i < ahead && has_iv; i++) {
        gw_ipsec_put_ahead(hash, scratch, ahead - i, gw_load_be32(esp + 4 * i));
    }
}

/* Parses and checks any packet. */
GW_LANE void gw_ipsec_hash_check(gw_ipsec_hash *hash, const gw_work *work, gw_ipsec_suite suite,
                                 GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    const gw_ipsec_found found = gw_ipsec_find(&lane, &descriptor, &outcome);
    gw_ipsec_sealing sealing;
    sealing.esp = 0;
    sealing.sequence = 0;
    sealing.cipher_bytes = 0;
    if (found.sa != 0 && gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        sealing = gw_ipsec_seal_begin(&lane, found, suite, &descriptor, &outcome);
        work->descriptors[index] = descriptor;
        if (sealing.cipher_bytes != 0 && suite.cipher == GW_IPSEC_CIPHER_CTR) {
            gw_store_be64(sealing.esp + GW_IPSEC_ESP_HEADER_BYTES, sealing.sequence);
        }
    } else if (found.sa != 0) {
        const gw_ipsec_opening opening =
            gw_ipsec_open_begin(&lane, found, suite, &descriptor, &outcome);
        sealing.esp = opening.esp;
        sealing.sequence = opening.sequence;
        sealing.cipher_bytes = opening.cipher_bytes;
        scratch->places[hash->packet] = gw_ipsec_places(found, opening.named_at);
    }
    if (sealing.cipher_bytes != 0) {
        hash->icv_bytes = found.sa->icv_bytes;
        gw_ipsec_hash_data(hash, work, suite, scratch, sealing.esp, sealing.sequence,
                           sealing.cipher_bytes, found.sa->spi, found.sa->flags);
    }
    work->outcomes[index] = outcome;
}

/* Takes up packet `index` of the bin, and says what the team has to do. */
GW_LANE void gw_ipsec_hash_begin(gw_ipsec_hash *hash, const gw_work *work, gw_ipsec_suite suite,
                                 GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    hash->packet = gw_lane_id() - GW_IPSEC_HASHES;
    hash->words = 0;
    if (index < work->count) {
        gw_u32 plain = 0;
        if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
            const gw_ipsec_plain packet = gw_ipsec_seal_plain(work, suite, scratch->sas, index);
            plain = packet.cipher_bytes != 0;
            if (plain) {
                hash->icv_bytes = packet.icv_bytes;
                gw_ipsec_hash_data(hash, work, suite, scratch, packet.esp, packet.sequence,
                                   packet.cipher_bytes, packet.spi, packet.flags);
            }
        }
        if (!plain) {
            gw_ipsec_hash_check(hash, work, suite, scratch, index);
        }
        /* They come while the teams work on the first step. */
        hash->sa = gw_ipsec_named_sa(scratch->sas, work->parameters[index]);
        gw_ipsec_load_states(hash, hash->sa);
    }
    scratch->words[hash->packet] = hash->words;
}

/* The words of block `turn` of the stream, from the ring, padded behind the last (FIPS 180-4,
 * section 5.1.1). */
GW_LANE void gw_ipsec_hash_words(const gw_ipsec_hash *hash, gw_ipsec_suite suite,
                                 const GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 turn,
                                 gw_u32 turns, gw_u32 *w)
{
    const gw_u32 ahead = gw_ipsec_ahead(suite);
    gw_u32 place = (GW_IPSEC_STEP_WORDS * turn + GW_IPSEC_RING_WORDS - ahead) % GW_IPSEC_RING_WORDS;
    GW_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        w[i] = scratch->ring[place * GW_IPSEC_STRIDE + hash->packet];
        place = place + 1 == GW_IPSEC_RING_WORDS ? 0 : place + 1;
    }
    const gw_u32 words = ahead + hash->words;
    if (GW_IPSEC_STEP_WORDS * (turn + 1) > words) {
        const gw_u32 first = hash->extended ? hash->upper : 0x80000000u;
        const gw_u32 second = hash->extended ? 0x80000000u : 0;
        GW_UNROLL
        for (gw_u32 i = 0; i < 16; i++) {
            const gw_u32 word = GW_IPSEC_STEP_WORDS * turn + i;
            w[i] = word < words ? w[i] : (word == words ? first : (word == words + 1 ? second : 0));
        }
        if (turn + 1 == turns) {
            w[15] = 8 * (4 * GW_IPSEC_STEP_WORDS + 4 * (words + hash->extended));
        }
    }
}

/* One block of the hash: of the stream, or the outer one behind its last. */
GW_LANE void gw_ipsec_hash_turn(gw_ipsec_hash *hash, gw_ipsec_suite suite,
                                const GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 turn)
{
    if (hash->words == 0) {
        return;
    }
    const gw_u32 turns = gw_ipsec_hash_blocks(gw_ipsec_ahead(suite) + hash->words + hash->extended);
    gw_u32 w[16];
    if (turn > turns) {
        return;
    }
    if (turn == turns) {
        const gw_u32 words = gw_ipsec_state_words(suite);
        GW_UNROLL
        for (gw_u32 i = 0; i < 15; i++) {
            const gw_u32 word = i < 8 ? hash->state[i] : 0;
            w[i] = i < words ? word : (i == words ? 0x80000000u : 0);
        }
        w[15] = 8 * (4 * GW_IPSEC_STEP_WORDS + 4 * words);
        GW_UNROLL
        for (gw_u32 i = 0; i < 8; i++) {
            hash->state[i] = hash->outer[i];
        }
    } else {
        gw_ipsec_hash_words(hash, suite, scratch, turn, turns, w);
    }
    gw_ipsec_compress(hash, suite, w);
}

/* gw_ipsec_tag_store, in whole words where they lie so. */
GW_LANE void gw_ipsec_store_icv(GW_GLOBAL gw_u8 *to, gw_ipsec_tag tag, gw_u32 icv_bytes)
{
    if (((gw_u32)(gw_u64)to & 3u) != 0) {
        gw_ipsec_tag_store(to, tag, icv_bytes);
        return;
    }
    GW_GLOBAL gw_u32 *words = (GW_GLOBAL gw_u32 *)to;
    GW_UNROLL
    for (gw_u32 i = 0; i < 4; i++) {
        if (4 * i < icv_bytes) {
            words[i] = gw_swap32(tag.words[i]);
        }
    }
}

/* Writes or compares the ICV. A packet that is not authentic is not decrypted. */
GW_LANE void gw_ipsec_hash_end(gw_ipsec_hash *hash, const gw_work *work, gw_ipsec_suite suite,
                               GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    if (hash->words == 0) {
        return;
    }
    const gw_u32 icv_bytes = suite.auth == GW_IPSEC_AUTH_NONE ? 0 : hash->icv_bytes;
    GW_GLOBAL gw_u8 *icv = hash->data + 4 * hash->words;
    const gw_ipsec_tag tag =
        gw_ipsec_tag_words(hash->state[0], hash->state[1], hash->state[2], hash->state[3]);
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        gw_ipsec_store_icv(icv, tag, icv_bytes);
    } else if (!gw_ipsec_tag_same(icv, tag, icv_bytes)) {
        gw_outcome outcome;
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
        work->outcomes[index] = outcome;
        hash->words = 0;
        scratch->words[hash->packet] = 0;
    }
}

/* Settles a packet that is encrypted, and all of it written. */
GW_LANE void gw_ipsec_settle_sealed(const gw_ipsec_hash *hash, gw_ipsec_suite suite)
{
    if (hash->words == 0 || !hash->udp_checksum) {
        return;
    }
    gw_ipsec_found found;
    gw_ipsec_sealing sealing;
    found.sa = hash->sa;
    sealing.esp = hash->data - 4 * gw_ipsec_ahead(suite);
    sealing.cipher_bytes = 4 * hash->words;
    gw_ipsec_seal_end(found, suite, sealing);
}

/* Settles a packet that is decrypted. */
GW_LANE void gw_ipsec_settle_opened(const gw_ipsec_hash *hash, const gw_work *work,
                                    gw_ipsec_suite suite, const GW_LOCAL gw_ipsec_scratch *scratch,
                                    gw_u32 index)
{
    if (hash->words == 0) {
        return;
    }
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    const gw_u32 places = scratch->places[hash->packet];
    gw_ipsec_found found;
    found.sa = hash->sa;
    found.l2_bytes = places & 0xffu;
    found.version = places >> 8 & 0xffu;
    gw_ipsec_opening opening;
    opening.esp = hash->data - 4 * gw_ipsec_ahead(suite);
    opening.sequence = 0;
    opening.cipher_bytes = 4 * hash->words;
    opening.named_at = places >> 16;
    gw_ipsec_open_end(&lane, found, suite, opening, &descriptor, &outcome);
    work->descriptors[index] = descriptor;
    work->outcomes[index] = outcome;
}

/* A round by the hash lanes; first: index of its first packet. */
GW_GROUP void gw_ipsec_hash_round(const gw_work *work, gw_ipsec_suite suite,
                                  GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 first)
{
    gw_ipsec_hash hash;
    const gw_u32 index = first + gw_lane_id() - GW_IPSEC_HASHES;
    gw_ipsec_hash_begin(&hash, work, suite, scratch, index);
    gw_barrier();
    const gw_u32 steps = gw_ipsec_steps(suite, gw_ipsec_words_max(scratch));
    for (gw_u32 step = 0; step < steps; step++) {
        /* The step before has brought its words. */
        if (step != 0 && suite.auth != GW_IPSEC_AUTH_NONE) {
            gw_ipsec_hash_turn(&hash, suite, scratch, step - 1);
        }
        gw_barrier();
    }
    gw_ipsec_hash_end(&hash, work, suite, scratch, index);
    gw_barrier();
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        gw_ipsec_settle_sealed(&hash, suite);
    } else {
        gw_barrier();
        gw_ipsec_settle_opened(&hash, work, suite, scratch, index);
    }
}

#endif
