/* Work of the threads that hash packets (group.h). One thread per packet processes the headers,
 * computes the ICV and sets the outcome. */
#ifndef GODWIT_IPSEC_GROUP_HASH_H
#define GODWIT_IPSEC_GROUP_HASH_H

/* State of a thread that hashes a packet. */
typedef struct gw_ipsec_hash {
    const GW_GLOBAL gw_ipsec_sa *sa;
    GW_GLOBAL gw_u8 *data; /* data to encrypt or decrypt */
    gw_u32 words;          /* length of the data in words; 0: no packet, or it is dropped */
    gw_u32 packet;         /* index of the packet in the round */
    gw_u32 extended;       /* 1: the upper half of the sequence number is authenticated last */
    gw_u32 upper;
    gw_u32 icv_bytes;
    gw_u32 udp_checksum; /* 1: gw_ipsec_esp_encapsulate_end must write a UDP checksum */
    gw_u32 state[8];     /* SHA-1 uses five words */
    gw_u32 outer[8];     /* initial state of the outer hash */
} gw_ipsec_hash;

/* Packs the offset of the next header field, the IP version and the L2 header length into one
 * word. */
GW_LANE gw_u32 gw_ipsec_pack_found(gw_ipsec_found found, gw_u32 next_header_at)
{
    return next_header_at << 16 | found.version << 8 | found.l2_bytes;
}

/* Returns the number of words in a hash state. */
GW_LANE gw_u32 gw_ipsec_state_words(gw_ipsec_suite suite)
{
    return suite.auth == GW_IPSEC_AUTH_SHA256 ? 8 : 5;
}

/* Loads four words of a hash state with one load. */
GW_LANE void gw_ipsec_load_half(gw_u32 *words, const GW_GLOBAL gw_u32 *from)
{
    const gw_block block = gw_load_block((const GW_GLOBAL gw_u8 *)from);
    words[0] = block.word0;
    words[1] = block.word1;
    words[2] = block.word2;
    words[3] = block.word3;
}

GW_LANE void gw_ipsec_load_states(gw_ipsec_hash *hash, const GW_GLOBAL gw_ipsec_sa *sa)
{
    gw_ipsec_load_half(hash->state, sa->authentication);
    gw_ipsec_load_half(hash->state + 4, sa->authentication + 4);
    gw_ipsec_load_half(hash->outer, sa->authentication + GW_IPSEC_HMAC_OUTER);
    gw_ipsec_load_half(hash->outer + 4, sa->authentication + GW_IPSEC_HMAC_OUTER + 4);
}

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

/* Writes a word to the ring buffer, `back` words before the encrypted data. */
GW_LANE void gw_ipsec_put_front(const gw_ipsec_hash *hash, GW_LOCAL gw_ipsec_scratch *scratch,
                                gw_u32 back, gw_u32 value)
{
    scratch->ring[(GW_IPSEC_RING_WORDS - back) * GW_IPSEC_STRIDE + hash->packet] = value;
}

/* Prepares the cipher and the hash for a packet with checked headers. `esp` points to the packet's
 * ESP header. */
GW_LANE void gw_ipsec_hash_data(gw_ipsec_hash *hash, const gw_work *work, gw_ipsec_suite suite,
                                GW_LOCAL gw_ipsec_scratch *scratch, GW_GLOBAL gw_u8 *esp,
                                gw_u64 sequence, gw_u32 cipher_bytes, gw_u32 spi, gw_u32 flags)
{
    const gw_u32 front_words = gw_ipsec_front_words(suite);
    hash->data = esp + 4 * front_words;
    hash->words = cipher_bytes / 4;
    hash->extended = (flags & GW_IPSEC_SA_ESN) != 0;
    hash->udp_checksum = gw_ipsec_has_udp_checksum(flags);
    hash->upper = (gw_u32)(sequence >> 32);
    scratch->data[hash->packet] = (gw_u64)(hash->data - work->arena);
    gw_ipsec_put_front(hash, scratch, front_words, spi);
    gw_ipsec_put_front(hash, scratch, front_words - 1, (gw_u32)sequence);
    /* With outbound CBC, other threads write the IV to the ring buffer. */
    const gw_u32 iv_is_written = !gw_ipsec_is_chained(work, suite);
    for (gw_u32 i = 2; i < front_words && iv_is_written; i++) {
        gw_ipsec_put_front(hash, scratch, front_words - i, gw_load_be32(esp + 4 * i));
    }
}

/* Checks or writes the headers of any packet. Simple packets have a faster path (simple.h). */
GW_LANE void gw_ipsec_hash_check(gw_ipsec_hash *hash, const gw_work *work, gw_ipsec_suite suite,
                                 GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    const gw_ipsec_found found = gw_ipsec_find(&lane, &descriptor, &outcome);
    gw_ipsec_encryption encryption;
    encryption.esp = 0;
    encryption.sequence = 0;
    encryption.cipher_bytes = 0;
    if (found.sa != 0 && gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        encryption = gw_ipsec_esp_encapsulate_begin(&lane, found, suite, &descriptor, &outcome);
        work->descriptors[index] = descriptor;
        if (encryption.cipher_bytes != 0 && suite.cipher == GW_IPSEC_CIPHER_CTR) {
            gw_store_be64(encryption.esp + GW_IPSEC_ESP_HEADER_BYTES, encryption.sequence);
        }
    } else if (found.sa != 0) {
        const gw_ipsec_decryption decryption =
            gw_ipsec_esp_decapsulate_begin(&lane, found, suite, &descriptor, &outcome);
        encryption.esp = decryption.esp;
        encryption.sequence = decryption.sequence;
        encryption.cipher_bytes = decryption.cipher_bytes;
        scratch->found[hash->packet] = gw_ipsec_pack_found(found, decryption.next_header_at);
    }
    if (encryption.cipher_bytes != 0) {
        hash->icv_bytes = found.sa->icv_bytes;
        gw_ipsec_hash_data(hash, work, suite, scratch, encryption.esp, encryption.sequence,
                           encryption.cipher_bytes, found.sa->spi, found.sa->flags);
    }
    work->outcomes[index] = outcome;
}

/* Processes the headers of packet `index`. Stores the location and length of its data for the
 * threads that encrypt or decrypt it. */
GW_LANE void gw_ipsec_hash_begin(gw_ipsec_hash *hash, const gw_work *work, gw_ipsec_suite suite,
                                 GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    hash->packet = gw_lane_id() - GW_IPSEC_HASH_LANE_FIRST;
    hash->words = 0;
    if (index < work->count) {
        GW_GLOBAL gw_u8 *esp = 0;
        if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
            gw_ipsec_simple_out out;
            esp = gw_ipsec_encapsulate_simple(work, suite, scratch->sas, index, &out);
            if (esp != 0) {
                hash->icv_bytes = out.icv_bytes;
                gw_ipsec_hash_data(hash, work, suite, scratch, esp,
                                   gw_ipsec_sequence(work->parameters[index]), out.cipher_bytes,
                                   out.sa.spi, out.sa.flags);
            }
        }
        if (esp == 0) {
            gw_ipsec_hash_check(hash, work, suite, scratch, index);
        }
        hash->sa = gw_ipsec_named_sa(scratch->sas, work->parameters[index]);
        gw_ipsec_load_states(hash, hash->sa);
    }
    scratch->words[hash->packet] = hash->words;
}

/* Reads a 16-word hash block from the ring buffer. After the end of the text, the block contains
 * the upper half of an extended sequence number and the padding (FIPS 180-4, section 5.1.1). */
GW_LANE void gw_ipsec_hash_words(const gw_ipsec_hash *hash, gw_ipsec_suite suite,
                                 const GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 block,
                                 gw_u32 blocks, gw_u32 *w)
{
    const gw_u32 front_words = gw_ipsec_front_words(suite);
    gw_u32 slot =
        (GW_IPSEC_STEP_WORDS * block + GW_IPSEC_RING_WORDS - front_words) % GW_IPSEC_RING_WORDS;
    GW_UNROLL
    for (gw_u32 i = 0; i < 16; i++) {
        w[i] = scratch->ring[slot * GW_IPSEC_STRIDE + hash->packet];
        slot = slot + 1 == GW_IPSEC_RING_WORDS ? 0 : slot + 1;
    }
    const gw_u32 words = front_words + hash->words;
    if (GW_IPSEC_STEP_WORDS * (block + 1) > words) {
        const gw_u32 first = hash->extended ? hash->upper : 0x80000000u;
        const gw_u32 second = hash->extended ? 0x80000000u : 0;
        GW_UNROLL
        for (gw_u32 i = 0; i < 16; i++) {
            const gw_u32 word = GW_IPSEC_STEP_WORDS * block + i;
            w[i] = word < words ? w[i] : (word == words ? first : (word == words + 1 ? second : 0));
        }
        if (block + 1 == blocks) {
            w[15] = 8 * (4 * GW_IPSEC_STEP_WORDS + 4 * (words + hash->extended));
        }
    }
}

/* Hashes one block of a packet. After the last block, it hashes HMAC's outer block. */
GW_LANE void gw_ipsec_hash_block(gw_ipsec_hash *hash, gw_ipsec_suite suite,
                                 const GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 block)
{
    if (hash->words == 0) {
        return;
    }
    const gw_u32 blocks =
        gw_ipsec_hash_blocks(gw_ipsec_front_words(suite) + hash->words + hash->extended);
    gw_u32 w[16];
    if (block > blocks) {
        return;
    }
    if (block == blocks) {
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
        gw_ipsec_hash_words(hash, suite, scratch, block, blocks, w);
    }
    gw_ipsec_compress(hash, suite, w);
}

/* Writes an ICV like gw_ipsec_tag_store, but with one store per word at an aligned address. */
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

/* Writes an outbound packet's ICV, or compares an inbound packet's ICV. A packet with a wrong ICV
 * is dropped without decryption. */
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
    } else if (!gw_ipsec_tag_equal(icv, tag, icv_bytes)) {
        gw_outcome outcome;
        gw_drop(&outcome, GW_IPSEC_AUTHENTICATION);
        work->outcomes[index] = outcome;
        hash->words = 0;
        scratch->words[hash->packet] = 0;
    }
}

/* Completes an outbound packet after its last byte is written. Writes the UDP checksum, if any. */
GW_LANE void gw_ipsec_finish_encrypted(const gw_ipsec_hash *hash, gw_ipsec_suite suite)
{
    if (hash->words == 0 || !hash->udp_checksum) {
        return;
    }
    gw_ipsec_found found;
    gw_ipsec_encryption encryption;
    found.sa = hash->sa;
    encryption.esp = hash->data - 4 * gw_ipsec_front_words(suite);
    encryption.cipher_bytes = 4 * hash->words;
    gw_ipsec_esp_encapsulate_end(found, suite, encryption);
}

GW_LANE void gw_ipsec_finish_decrypted(const gw_ipsec_hash *hash, const gw_work *work,
                                       gw_ipsec_suite suite,
                                       const GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 index)
{
    if (hash->words == 0) {
        return;
    }
    gw_descriptor descriptor = work->descriptors[index];
    const gw_lane lane = gw_ipsec_lane(work, &descriptor, index);
    gw_outcome outcome = {0, 0, 0, 0};
    const gw_u32 packed = scratch->found[hash->packet];
    gw_ipsec_found found;
    found.sa = hash->sa;
    found.l2_bytes = packed & 0xffu;
    found.version = packed >> 8 & 0xffu;
    gw_ipsec_decryption decryption;
    decryption.esp = hash->data - 4 * gw_ipsec_front_words(suite);
    decryption.sequence = 0;
    decryption.cipher_bytes = 4 * hash->words;
    decryption.next_header_at = packed >> 16;
    gw_ipsec_esp_decapsulate_end(&lane, found, suite, decryption, &descriptor, &outcome);
    work->descriptors[index] = descriptor;
    work->outcomes[index] = outcome;
}

/* Hashes the work-group's current packets, one packet per thread. `first` is the batch index of the
 * first packet. */
GW_GROUP void gw_ipsec_hash_round(const gw_work *work, gw_ipsec_suite suite,
                                  GW_LOCAL gw_ipsec_scratch *scratch, gw_u32 first)
{
    gw_ipsec_hash hash;
    const gw_u32 index = first + gw_lane_id() - GW_IPSEC_HASH_LANE_FIRST;
    gw_ipsec_hash_begin(&hash, work, suite, scratch, index);
    gw_barrier();
    const gw_u32 steps = gw_ipsec_steps(suite, gw_ipsec_words_max(scratch));
    for (gw_u32 step = 0; step < steps; step++) {
        /* The encrypting threads wrote this block to the ring buffer in the previous step. */
        if (step != 0 && suite.auth != GW_IPSEC_AUTH_NONE) {
            gw_ipsec_hash_block(&hash, suite, scratch, step - 1);
        }
        gw_barrier();
    }
    gw_ipsec_hash_end(&hash, work, suite, scratch, index);
    gw_barrier();
    if (gw_ipsec_direction(work->variant) == GW_IPSEC_OUTBOUND) {
        gw_ipsec_finish_encrypted(&hash, suite);
    } else {
        gw_barrier();
        gw_ipsec_finish_decrypted(&hash, work, suite, scratch, index);
    }
}

#endif
