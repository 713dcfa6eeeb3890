/*
 * Peer of the benchmark `ipsec`: Intel ipsec-mb, crypto jobs without packet processing, one core.
 *
 *   ipsec_mb PACKETS
 *
 * PACKETS is a file with this layout. All numbers are little-endian u32:
 *
 *   header   cipher (0: none, 1: AES-CBC, 2: AES-CTR, 3: ChaCha20)
 *            length of the cipher key or GMAC key in bytes
 *            authentication (0: none, 1: HMAC-SHA1-96, 2: HMAC-SHA-256-128, 3: GHASH, 4: Poly1305)
 *            1 for decryption, 0 for encryption
 *            number of SAs, number of packets, size of the arena in bytes
 *   SAs      key of 32 bytes, authentication key of 32 bytes, salt of 4 bytes
 *   packets  SA, offset in the arena, length of the data in bytes; then ESP header, IV, data, and
 *            the ICV for decryption
 *
 * The data is the ciphertext, or the plaintext with its padding.
 *
 * The program prints "ready VERSION" and then reads requests from standard input:
 *
 *   fresh   restores the original contents of all packets
 *   jobs N  processes the first N packets, one job at a time; several processes that start at the
 *           same time use this request
 *   other   processes all packets one job at a time, in bursts, and in bursts of one algorithm if
 *           the suite has only one; each method starts with the original packets
 *
 * The reply is "NANOSECONDS SUM": the time, or the shortest time of all methods, and the sum of all
 * 32-bit words of data and ICV afterwards. The benchmark compares SUM with the sum of its packets,
 * to verify that both did the same work. The time includes the comparison of received ICVs and the
 * setup of all jobs. It excludes the computation of key schedules, HMAC states and hash keys.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <intel-ipsec-mb.h>

#define BURST 64

enum { CIPHER_NONE, CIPHER_CBC, CIPHER_CTR, CIPHER_CHACHA20 };
enum { AUTH_NONE, AUTH_SHA1, AUTH_SHA256, AUTH_GHASH, AUTH_POLY1305, AUTH_CCM, AUTH_SHA384, AUTH_SHA512, AUTH_XCBC, AUTH_CMAC };

/* Lengths of the fields of an SA in the file, in bytes. */
#define KEY_BYTES      32
#define HMAC_KEY_BYTES 64
#define SALT_BYTES 4
#define CCM_SALT_BYTES 3

struct sa {
    uint32_t keys[60] __attribute__((aligned(16)));
    uint32_t decrypt_keys[60] __attribute__((aligned(16)));
    uint8_t inner[64] __attribute__((aligned(16)));
    uint8_t outer[64] __attribute__((aligned(16)));
    uint32_t mac_keys[44] __attribute__((aligned(16)));
    uint8_t mac_subkeys[2][16] __attribute__((aligned(16)));
    struct gcm_key_data gcm __attribute__((aligned(64)));
    uint8_t key[KEY_BYTES];
    uint8_t salt[SALT_BYTES];
};

struct packet {
    const struct sa *sa;
    uint8_t *esp;
    const uint8_t *fresh;
    uint32_t bytes;
    uint8_t nonce[12];
    uint8_t tag[16]; /* ICV that ipsec-mb computed for a decrypted packet */
};

static uint32_t cipher, key_bytes, auth, decrypts, packets;
static struct packet *all;
static uint32_t iv_bytes, icv_bytes;
static IMB_CIPHER_MODE cipher_mode;
static IMB_HASH_ALG hash_alg;

static uint8_t *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    const size_t bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(bytes + 1);
    if (data == NULL || fread(data, 1, bytes, file) != bytes) {
        perror(path);
        exit(2);
    }
    fclose(file);
    return data;
}

/* Returns zeroed memory, aligned to cache lines. */
static void *cache_lines(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (memory == NULL) {
        perror("memory");
        exit(2);
    }
    memset(memory, 0, bytes);
    return memory;
}

static uint32_t take(const uint8_t **at)
{
    uint32_t value;
    memcpy(&value, *at, 4);
    *at += 4;
    return value;
}

static int is_hmac(void)
{
    return auth == AUTH_SHA1 || auth == AUTH_SHA256 || auth == AUTH_SHA384 || auth == AUTH_SHA512;
}

/* Returns the length of the HMAC key in the file, in bytes. */
static int hmac_key_bytes(void)
{
    return auth == AUTH_SHA1 ? 20 : auth == AUTH_SHA384 ? 48 : auth == AUTH_SHA512 ? 64 : 32;
}

/* Sets the algorithms of ipsec-mb and the lengths of IV and ICV. Returns 0 for an unknown suite. */
static int select_suite(void)
{
    static const IMB_HASH_ALG hmacs[] = {
        [AUTH_NONE] = IMB_AUTH_NULL,
        [AUTH_SHA1] = IMB_AUTH_HMAC_SHA_1,
        [AUTH_SHA256] = IMB_AUTH_HMAC_SHA_256,
        [AUTH_SHA384] = IMB_AUTH_HMAC_SHA_384,
        [AUTH_SHA512] = IMB_AUTH_HMAC_SHA_512,
        [AUTH_XCBC] = IMB_AUTH_AES_XCBC,
        [AUTH_CMAC] = IMB_AUTH_AES_CMAC,
    };
    static const IMB_HASH_ALG gmacs[] = {IMB_AUTH_AES_GMAC_128, IMB_AUTH_AES_GMAC_192, IMB_AUTH_AES_GMAC_256};
    static const uint32_t icvs[] = {0, 12, 16, 16, 16, 16, 24, 32, 12, 12};
    const int is_aes = key_bytes == 16 || key_bytes == 24 || key_bytes == 32;
    if (auth > AUTH_CMAC || (cipher == CIPHER_CHACHA20) != (auth == AUTH_POLY1305))
        return 0;
    icv_bytes = icvs[auth];
    iv_bytes = cipher == CIPHER_CBC ? 16 : cipher != CIPHER_NONE || auth == AUTH_GHASH ? 8 : 0;
    if (cipher == CIPHER_CHACHA20) {
        cipher_mode = IMB_CIPHER_CHACHA20_POLY1305;
        hash_alg = IMB_AUTH_CHACHA20_POLY1305;
        return key_bytes == 32;
    }
    if (auth == AUTH_CCM) {
        cipher_mode = IMB_CIPHER_CCM;
        hash_alg = IMB_AUTH_AES_CCM;
        return is_aes && cipher == CIPHER_CTR;
    }
    if (auth == AUTH_GHASH) {
        cipher_mode = cipher == CIPHER_NONE ? IMB_CIPHER_NULL : IMB_CIPHER_GCM;
        hash_alg = cipher != CIPHER_NONE ? IMB_AUTH_AES_GMAC : is_aes ? gmacs[key_bytes / 8 - 2] : IMB_AUTH_NULL;
        return is_aes && cipher != CIPHER_CBC;
    }
    cipher_mode = cipher == CIPHER_CBC ? IMB_CIPHER_CBC : cipher == CIPHER_CTR ? IMB_CIPHER_CNTR : IMB_CIPHER_NULL;
    hash_alg = hmacs[auth];
    return cipher == CIPHER_NONE || (is_aes && cipher <= CIPHER_CTR);
}

static void expand(IMB_MGR *manager, struct sa *sa)
{
    if (key_bytes == 16) {
        IMB_AES_KEYEXP_128(manager, sa->key, sa->keys, sa->decrypt_keys);
        IMB_AES128_GCM_PRE(manager, sa->key, &sa->gcm);
    } else if (key_bytes == 24) {
        IMB_AES_KEYEXP_192(manager, sa->key, sa->keys, sa->decrypt_keys);
        IMB_AES192_GCM_PRE(manager, sa->key, &sa->gcm);
    } else if (key_bytes == 32) {
        IMB_AES_KEYEXP_256(manager, sa->key, sa->keys, sa->decrypt_keys);
        IMB_AES256_GCM_PRE(manager, sa->key, &sa->gcm);
    }
}

/* Computes the state of the hash after one block. */
static void hash_block(IMB_MGR *manager, const uint8_t *block, uint8_t *state)
{
    if (auth == AUTH_SHA1)
        IMB_SHA1_ONE_BLOCK(manager, block, state);
    else if (auth == AUTH_SHA384)
        IMB_SHA384_ONE_BLOCK(manager, block, state);
    else if (auth == AUTH_SHA512)
        IMB_SHA512_ONE_BLOCK(manager, block, state);
    else
        IMB_SHA256_ONE_BLOCK(manager, block, state);
}

static void set_up(IMB_MGR *manager, struct sa *sa, const uint8_t *hmac_key)
{
    const int hmac_bytes = hmac_key_bytes();
    const int block_bytes = hmac_bytes > 32 ? 128 : 64;
    uint8_t block[128];
    expand(manager, sa);
    if (auth == AUTH_XCBC) {
        IMB_AES_XCBC_KEYEXP(manager, hmac_key, sa->mac_keys, sa->mac_subkeys[0], sa->mac_subkeys[1]);
        return;
    }
    if (auth == AUTH_CMAC) {
        uint32_t unused[44] __attribute__((aligned(16)));
        IMB_AES_KEYEXP_128(manager, hmac_key, sa->mac_keys, unused);
        IMB_AES_CMAC_SUBKEY_GEN_128(manager, sa->mac_keys, sa->mac_subkeys[0], sa->mac_subkeys[1]);
        return;
    }
    for (int i = 0; i < block_bytes; i++)
        block[i] = (i < hmac_bytes ? hmac_key[i] : 0) ^ 0x36;
    hash_block(manager, block, sa->inner);
    for (int i = 0; i < block_bytes; i++)
        block[i] ^= 0x36 ^ 0x5c;
    hash_block(manager, block, sa->outer);
}

/* Sets the nonce of a packet from salt and IV, and returns it. */
static inline const uint8_t *nonce_of(struct packet *packet)
{
    memcpy(packet->nonce, packet->sa->salt, SALT_BYTES);
    memcpy(packet->nonce + SALT_BYTES, packet->esp + 8, 8);
    return packet->nonce;
}

/* Fills a job for a packet. */
static inline void fill_job(IMB_JOB *job, struct packet *packet)
{
    const uint32_t front = 8 + iv_bytes;
    const struct sa *sa = packet->sa;
    uint8_t *data = packet->esp + front;
    job->user_data = packet;
    job->cipher_direction = decrypts ? IMB_DIR_DECRYPT : IMB_DIR_ENCRYPT;
    job->chain_order = decrypts ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH;
    job->cipher_mode = cipher_mode;
    job->hash_alg = hash_alg;
    job->key_len_in_bytes = key_bytes;
    job->src = packet->esp;
    job->dst = data;
    job->cipher_start_src_offset_in_bytes = front;
    job->msg_len_to_cipher_in_bytes = cipher == CIPHER_NONE ? 0 : packet->bytes;
    job->auth_tag_output = decrypts ? packet->tag : data + packet->bytes;
    job->auth_tag_output_len_in_bytes = icv_bytes;
    job->hash_start_src_offset_in_bytes = 0;
    job->msg_len_to_hash_in_bytes = front + packet->bytes;
    job->enc_keys = sa->keys;
    job->dec_keys = sa->decrypt_keys;
    if (cipher == CIPHER_CBC) {
        job->iv = packet->esp + 8;
        job->iv_len_in_bytes = 16;
    } else if (cipher != CIPHER_NONE) {
        job->iv = nonce_of(packet);
        job->iv_len_in_bytes = 12;
    }
    if (is_hmac()) {
        job->u.HMAC._hashed_auth_key_xor_ipad = sa->inner;
        job->u.HMAC._hashed_auth_key_xor_opad = sa->outer;
    } else if (auth == AUTH_XCBC) {
        job->u.XCBC._k1_expanded = sa->mac_keys;
        job->u.XCBC._k2 = sa->mac_subkeys[0];
        job->u.XCBC._k3 = sa->mac_subkeys[1];
    } else if (auth == AUTH_CMAC) {
        job->u.CMAC._key_expanded = sa->mac_keys;
        job->u.CMAC._skey1 = sa->mac_subkeys[0];
        job->u.CMAC._skey2 = sa->mac_subkeys[1];
    } else if (auth == AUTH_GHASH && cipher == CIPHER_NONE) {
        job->u.GMAC._key = &sa->gcm;
        job->u.GMAC._iv = nonce_of(packet);
        job->u.GMAC.iv_len_in_bytes = 12;
    } else if (auth == AUTH_GHASH) {
        job->enc_keys = &sa->gcm;
        job->dec_keys = &sa->gcm;
        job->hash_start_src_offset_in_bytes = front;
        job->msg_len_to_hash_in_bytes = packet->bytes;
        job->u.GCM.aad = packet->esp;
        job->u.GCM.aad_len_in_bytes = 8;
    } else if (auth == AUTH_CCM) {
        /* The nonce has a salt of 3 bytes. CCM authenticates before it encrypts. */
        memcpy(packet->nonce, sa->salt, CCM_SALT_BYTES);
        memcpy(packet->nonce + CCM_SALT_BYTES, packet->esp + 8, 8);
        job->iv_len_in_bytes = CCM_SALT_BYTES + 8;
        job->chain_order = decrypts ? IMB_ORDER_CIPHER_HASH : IMB_ORDER_HASH_CIPHER;
        job->hash_start_src_offset_in_bytes = front;
        job->msg_len_to_hash_in_bytes = packet->bytes;
        job->u.CCM.aad = packet->esp;
        job->u.CCM.aad_len_in_bytes = 8;
    } else if (auth == AUTH_POLY1305) {
        job->enc_keys = sa->key;
        job->dec_keys = sa->key;
        job->hash_start_src_offset_in_bytes = front;
        job->msg_len_to_hash_in_bytes = packet->bytes;
        job->u.CHACHA20_POLY1305.aad = packet->esp;
        job->u.CHACHA20_POLY1305.aad_len_in_bytes = 8;
    }
}

/* Returns whether a job is complete and, for decryption, the received ICV is correct. */
static inline uint32_t is_correct(const IMB_JOB *job)
{
    uint32_t difference = job->status != IMB_STATUS_COMPLETED;
    if (decrypts) {
        const struct packet *packet = job->user_data;
        const uint8_t *icv = packet->esp + 8 + iv_bytes + packet->bytes;
        for (uint32_t i = 0; i < icv_bytes; i += 4) {
            uint32_t received, computed;
            memcpy(&received, icv + i, 4);
            memcpy(&computed, packet->tag + i, 4);
            difference |= received ^ computed;
        }
    }
    return difference == 0;
}

static uint32_t job_by_job(IMB_MGR *manager, uint32_t count)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++) {
        IMB_JOB *job = IMB_GET_NEXT_JOB(manager);
        fill_job(job, &all[i]);
        for (job = IMB_SUBMIT_JOB_NOCHECK(manager); job != NULL; job = IMB_GET_COMPLETED_JOB(manager))
            done += is_correct(job);
    }
    for (IMB_JOB *job = IMB_FLUSH_JOB(manager); job != NULL; job = IMB_FLUSH_JOB(manager))
        done += is_correct(job);
    return done;
}

static uint32_t completed(IMB_JOB *const *jobs, uint32_t count)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++)
        done += is_correct(jobs[i]);
    return done;
}

static uint32_t in_bursts(IMB_MGR *manager, uint32_t count)
{
    IMB_JOB *jobs[BURST];
    uint32_t done = 0;
    for (uint32_t i = 0; i < count;) {
        const uint32_t want = count - i < BURST ? count - i : BURST;
        const uint32_t got = IMB_GET_NEXT_BURST(manager, want, jobs);
        if (got == 0) {
            const uint32_t flushed = IMB_FLUSH_BURST(manager, BURST, jobs);
            done += completed(jobs, flushed);
            continue;
        }
        for (uint32_t k = 0; k < got; k++, i++)
            fill_job(jobs[k], &all[i]);
        const uint32_t ended = IMB_SUBMIT_BURST_NOCHECK(manager, got, jobs);
        done += completed(jobs, ended);
    }
    for (uint32_t ended; (ended = IMB_FLUSH_BURST(manager, BURST, jobs)) != 0;)
        done += completed(jobs, ended);
    return done;
}

/* Processes bursts with a single algorithm: AES-CBC, AES-CTR or HMAC alone. */
static uint32_t in_bursts_of_one(IMB_MGR *manager, uint32_t count)
{
    static IMB_JOB jobs[BURST];
    uint32_t done = 0;
    for (uint32_t i = 0; i < count;) {
        const uint32_t burst = count - i < BURST ? count - i : BURST;
        for (uint32_t k = 0; k < burst; k++, i++)
            fill_job(&jobs[k], &all[i]);
        if (auth == AUTH_NONE)
            IMB_SUBMIT_CIPHER_BURST_NOCHECK(manager, jobs, burst, cipher_mode, jobs[0].cipher_direction,
                                            key_bytes);
        else
            IMB_SUBMIT_HASH_BURST_NOCHECK(manager, jobs, burst, hash_alg);
        for (uint32_t k = 0; k < burst; k++)
            done += is_correct(&jobs[k]);
    }
    return done;
}

static void refresh(void)
{
    for (uint32_t i = 0; i < packets; i++)
        memcpy(all[i].esp, all[i].fresh, 8 + iv_bytes + all[i].bytes + (decrypts ? icv_bytes : 0));
}

/*
 * Runs `work` on `count` packets and returns the time in nanoseconds. Returns -1 if a job did not
 * complete or an ICV was wrong.
 */
static double round_of(IMB_MGR *manager, uint32_t (*work)(IMB_MGR *, uint32_t), uint32_t count)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const uint32_t done = work(manager, count);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (done != count)
        return -1;
    return (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
}

/* Returns the shortest time of all methods, in nanoseconds, or a negative number after an error. */
static double best_of(IMB_MGR *const managers[2], uint32_t count)
{
    const int is_one = auth == AUTH_NONE ? cipher == CIPHER_CBC || cipher == CIPHER_CTR
                                         : cipher == CIPHER_NONE && is_hmac();
    IMB_ARCH arch;
    /*
     * Version 1.3 returns jobs twice in bursts after IMB_FLUSH_BURST. IMB_FLUSH_BURST also misses
     * jobs if lengths differ. Rounds with such an error are ignored.
     */
    init_mb_mgr_auto(managers[1], &arch);
    refresh();
    const double bursts = round_of(managers[1], in_bursts, count);
    refresh();
    const double of_one = is_one ? round_of(managers[0], in_bursts_of_one, count) : -1;
    refresh();
    double best = round_of(managers[0], job_by_job, count);
    if (best >= 0 && bursts >= 0 && bursts < best)
        best = bursts;
    if (best >= 0 && of_one >= 0 && of_one < best)
        best = of_one;
    return best;
}

/* Returns the sum of all 32-bit words in the data and ICVs of `count` packets. */
static uint64_t sum_of(uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t at = 0; at < all[i].bytes + icv_bytes; at += 4) {
            uint32_t word;
            memcpy(&word, all[i].esp + 8 + iv_bytes + at, 4);
            sum += word;
        }
    }
    return sum;
}

int main(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: ipsec_mb PACKETS\n");
        return 2;
    }
    const uint8_t *at = read_file(arguments[1]);
    cipher = take(&at);
    key_bytes = take(&at);
    auth = take(&at);
    decrypts = take(&at);
    if (!select_suite()) {
        fprintf(stderr, "ipsec_mb: unknown suite: cipher %u, key of %u bytes, authentication %u\n", cipher, key_bytes,
                auth);
        return 2;
    }
    const uint32_t sa_count = take(&at);
    packets = take(&at);
    uint8_t *arena = cache_lines(take(&at));
    IMB_MGR *managers[2];
    IMB_ARCH arch;
    for (int i = 0; i < 2; i++) {
        managers[i] = alloc_mb_mgr(0);
        if (managers[i] == NULL) {
            fprintf(stderr, "ipsec_mb: alloc_mb_mgr failed\n");
            return 2;
        }
        init_mb_mgr_auto(managers[i], &arch);
    }
    struct sa *sas = cache_lines(sa_count * sizeof(*sas));
    for (uint32_t i = 0; i < sa_count; i++, at += KEY_BYTES + HMAC_KEY_BYTES + SALT_BYTES) {
        memcpy(sas[i].key, at, KEY_BYTES);
        memcpy(sas[i].salt, at + KEY_BYTES + HMAC_KEY_BYTES, SALT_BYTES);
        set_up(managers[0], &sas[i], at + KEY_BYTES);
    }
    all = cache_lines(packets * sizeof(*all));
    for (uint32_t i = 0; i < packets; i++) {
        all[i].sa = &sas[take(&at)];
        all[i].esp = arena + take(&at);
        all[i].bytes = take(&at);
        all[i].fresh = at;
        at += 8 + iv_bytes + all[i].bytes + (decrypts ? icv_bytes : 0);
    }
    printf("ready ipsec-mb %s, %s\n", imb_get_version_str(), arch == IMB_ARCH_AVX512 ? "AVX-512" : "no AVX-512");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        uint32_t processed = packets;
        double time = 0;
        if (strcmp(line, "fresh\n") == 0) {
            refresh();
            processed = 0;
        } else if (sscanf(line, "jobs %" SCNu32, &processed) == 1) {
            processed = processed < packets ? processed : packets;
            time = round_of(managers[0], job_by_job, processed);
        } else {
            time = best_of(managers, packets);
        }
        if (time < 0) {
            fprintf(stderr, "ipsec_mb: some jobs were not completed, or ICVs were wrong\n");
            return 2;
        }
        printf("%.0f %" PRIu64 "\n", time, sum_of(processed));
        fflush(stdout);
    }
    return 0;
}
