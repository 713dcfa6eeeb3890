/*
 * Peer of the bench `ipsec`: Intel ipsec-mb, bare jobs, one core.
 *
 *   ipsec_mb PACKETS
 *
 * PACKETS, little-endian u32 unless said otherwise: suite (0: AES-128-CBC and HMAC-SHA1-96, 1: AES-128-GCM), SAs,
 * packets, bytes of the arena; each SA: key of 16 bytes, authentication key of 20, salt of 4; each packet: SA, place in
 * the arena, bytes to encrypt, and then what lies there: ESP header, IV, plaintext with its padding.
 *
 * Says "ready VERSION" and then, for each line on standard input, seals all packets twice, submitting in bursts and
 * job by job, and says "NANOSECONDS SUM": the shorter time, and the sum of the first 32 bits of all ICVs. The bench
 * compares SUM with that of its own packets: both did the same work. "fresh" instead makes all packets what they were, "jobs N"
 * then seals the first N job by job and no more, and SUM is theirs: for several such processes that begin at the same time. Key schedules, HMAC states and hash keys are made
 * beforehand; everything a job is told about a packet is told within the time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <intel-ipsec-mb.h>

#define BURST 64

struct sa {
    uint32_t keys[60] __attribute__((aligned(16)));
    uint32_t decrypt_keys[60] __attribute__((aligned(16)));
    uint32_t inner[5] __attribute__((aligned(16)));
    uint32_t outer[5] __attribute__((aligned(16)));
    struct gcm_key_data gcm __attribute__((aligned(64)));
    uint8_t salt[4];
};

struct packet {
    const struct sa *sa;
    uint8_t *esp;
    const uint8_t *fresh;
    uint32_t bytes;
    uint8_t nonce[12];
};

static uint32_t suite, packets;
static struct packet *all;
static uint32_t iv_bytes, icv_bytes;

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

static void *lines(size_t bytes)
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

static void set_up(IMB_MGR *manager, struct sa *sa, const uint8_t *key, const uint8_t *hmac_key)
{
    uint8_t block[64];
    IMB_AES_KEYEXP_128(manager, key, sa->keys, sa->decrypt_keys);
    for (int i = 0; i < 64; i++)
        block[i] = (i < 20 ? hmac_key[i] : 0) ^ 0x36;
    IMB_SHA1_ONE_BLOCK(manager, block, sa->inner);
    for (int i = 0; i < 64; i++)
        block[i] ^= 0x36 ^ 0x5c;
    IMB_SHA1_ONE_BLOCK(manager, block, sa->outer);
    IMB_AES128_GCM_PRE(manager, key, &sa->gcm);
}

static inline void tell(IMB_JOB *job, struct packet *packet)
{
    const uint32_t front = 8 + iv_bytes;
    const struct sa *sa = packet->sa;
    uint8_t *data = packet->esp + front;
    job->cipher_direction = IMB_DIR_ENCRYPT;
    job->chain_order = IMB_ORDER_CIPHER_HASH;
    job->key_len_in_bytes = 16;
    job->src = packet->esp;
    job->dst = data;
    job->cipher_start_src_offset_in_bytes = front;
    job->msg_len_to_cipher_in_bytes = packet->bytes;
    job->auth_tag_output = data + packet->bytes;
    job->auth_tag_output_len_in_bytes = icv_bytes;
    if (suite == 0) {
        job->cipher_mode = IMB_CIPHER_CBC;
        job->hash_alg = IMB_AUTH_HMAC_SHA_1;
        job->enc_keys = sa->keys;
        job->dec_keys = sa->decrypt_keys;
        job->iv = packet->esp + 8;
        job->iv_len_in_bytes = 16;
        job->hash_start_src_offset_in_bytes = 0;
        job->msg_len_to_hash_in_bytes = front + packet->bytes;
        job->u.HMAC._hashed_auth_key_xor_ipad = (const uint8_t *)sa->inner;
        job->u.HMAC._hashed_auth_key_xor_opad = (const uint8_t *)sa->outer;
    } else {
        job->cipher_mode = IMB_CIPHER_GCM;
        job->hash_alg = IMB_AUTH_AES_GMAC;
        job->enc_keys = &sa->gcm;
        job->dec_keys = &sa->gcm;
        memcpy(packet->nonce, sa->salt, 4);
        memcpy(packet->nonce + 4, packet->esp + 8, 8);
        job->iv = packet->nonce;
        job->iv_len_in_bytes = 12;
        job->hash_start_src_offset_in_bytes = front;
        job->msg_len_to_hash_in_bytes = packet->bytes;
        job->u.GCM.aad = packet->esp;
        job->u.GCM.aad_len_in_bytes = 8;
    }
}

static uint32_t job_by_job(IMB_MGR *manager, uint32_t count)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++) {
        IMB_JOB *job = IMB_GET_NEXT_JOB(manager);
        tell(job, &all[i]);
        for (job = IMB_SUBMIT_JOB_NOCHECK(manager); job != NULL; job = IMB_GET_COMPLETED_JOB(manager))
            done += job->status == IMB_STATUS_COMPLETED;
    }
    for (IMB_JOB *job = IMB_FLUSH_JOB(manager); job != NULL; job = IMB_FLUSH_JOB(manager))
        done += job->status == IMB_STATUS_COMPLETED;
    return done;
}

static uint32_t completed(IMB_JOB *const *jobs, uint32_t count)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++)
        done += jobs[i]->status == IMB_STATUS_COMPLETED;
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
            tell(jobs[k], &all[i]);
        const uint32_t ended = IMB_SUBMIT_BURST_NOCHECK(manager, got, jobs);
        done += completed(jobs, ended);
    }
    for (uint32_t ended; (ended = IMB_FLUSH_BURST(manager, BURST, jobs)) != 0;)
        done += completed(jobs, ended);
    return done;
}

static void refresh(void)
{
    for (uint32_t i = 0; i < packets; i++)
        memcpy(all[i].esp, all[i].fresh, 8 + iv_bytes + all[i].bytes);
}

/* Below 0: not all were completed. */
static double round_of(IMB_MGR *manager, uint32_t (*seal)(IMB_MGR *, uint32_t), uint32_t count)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const uint32_t done = seal(manager, count);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (done != count)
        return -1;
    return (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
}

static uint64_t sum_of(uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t icv;
        memcpy(&icv, all[i].esp + 8 + iv_bytes + all[i].bytes, 4);
        sum += icv;
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
    suite = take(&at);
    iv_bytes = suite == 0 ? 16 : 8;
    icv_bytes = suite == 0 ? 12 : 16;
    const uint32_t sa_count = take(&at);
    packets = take(&at);
    uint8_t *arena = lines(take(&at));
    IMB_MGR *managers[2];
    IMB_ARCH arch;
    for (int i = 0; i < 2; i++) {
        managers[i] = alloc_mb_mgr(0);
        if (managers[i] == NULL) {
            fprintf(stderr, "ipsec_mb: no manager\n");
            return 2;
        }
        init_mb_mgr_auto(managers[i], &arch);
    }
    struct sa *sas = lines(sa_count * sizeof(*sas));
    for (uint32_t i = 0; i < sa_count; i++, at += 40) {
        set_up(managers[0], &sas[i], at, at + 16);
        memcpy(sas[i].salt, at + 36, 4);
    }
    all = lines(packets * sizeof(*all));
    for (uint32_t i = 0; i < packets; i++) {
        all[i].sa = &sas[take(&at)];
        all[i].esp = arena + take(&at);
        all[i].bytes = take(&at);
        all[i].fresh = at;
        at += 8 + iv_bytes + all[i].bytes;
    }
    printf("ready ipsec-mb %s, %s\n", imb_get_version_str(), arch == IMB_ARCH_AVX512 ? "AVX-512" : "no AVX-512");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        uint32_t count = packets;
        double time = 0;
        if (strcmp(line, "fresh\n") == 0) {
            refresh();
            count = 0;
        } else if (sscanf(line, "jobs %" SCNu32, &count) == 1) {
            count = count < packets ? count : packets;
            time = round_of(managers[0], job_by_job, count);
        } else {
            /* Version 1.3 hands jobs out twice in bursts that follow IMB_FLUSH_BURST, and where lengths differ
             * IMB_FLUSH_BURST leaves some behind: such a round does not count. */
            init_mb_mgr_auto(managers[1], &arch);
            refresh();
            const double bursts = round_of(managers[1], in_bursts, count);
            refresh();
            time = round_of(managers[0], job_by_job, count);
            if (time >= 0 && bursts >= 0 && bursts < time)
                time = bursts;
        }
        if (time < 0) {
            fprintf(stderr, "ipsec_mb: some jobs were not completed\n");
            return 2;
        }
        printf("%.0f %" PRIu64 "\n", time, sum_of(count));
        fflush(stdout);
    }
    return 0;
}
