/*
 * Peer of the benchmarks `hash` and `aes`: OpenSSL's libcrypto on packets in memory, one core.
 *
 *   openssl WORK PACKETS
 *
 * WORK is md5, sha1, sha256, aes-128-cbc or chacha20-poly1305. PACKETS is a file with an entry for
 * each packet: its length in bytes as a little-endian u32, then the text or the data. The key
 * consists of the bytes 0, 1, 2 and so on, and the IV of zeros.
 *
 * The program prints "ready VERSION". For each line of standard input, it processes all packets and
 * prints "NANOSECONDS SUM". SUM adds the first four bytes of each digest or of the encrypted data,
 * as big-endian numbers. The benchmark compares it with its own sum.
 *
 * The time includes all calls per packet. It excludes the choice of the algorithm and the key
 * schedule.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

struct packet {
    const uint8_t *data;
    uint8_t *output;
    uint32_t bytes;
};

static struct packet *packets;
static size_t count;

static void fail(const char *what)
{
    fprintf(stderr, "openssl: %s\n", what);
    exit(2);
}

static void read_packets(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint32_t bytes;
    if (file == NULL)
        fail("cannot read the packets");
    while (fread(&bytes, sizeof bytes, 1, file) == 1) {
        uint8_t *data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
        uint8_t *output = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
        packets = realloc(packets, (count + 1) * sizeof *packets);
        if (data == NULL || output == NULL || packets == NULL || fread(data, 1, bytes, file) != bytes)
            fail("cannot read the packets");
        memset(output, 0, bytes);
        packets[count++] = (struct packet){data, output, bytes};
    }
    fclose(file);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint32_t first_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint64_t hash_all(EVP_MD_CTX *context, const EVP_MD *algorithm)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t digest[EVP_MAX_MD_SIZE];
        if (!EVP_DigestInit_ex2(context, algorithm, NULL) ||
            !EVP_DigestUpdate(context, packets[i].data, packets[i].bytes) ||
            !EVP_DigestFinal_ex(context, digest, NULL))
            fail("a digest failed");
        sum += first_word(digest);
    }
    return sum;
}

static uint64_t encrypt_all(EVP_CIPHER_CTX *context, int has_tag)
{
    static const uint8_t iv[16];
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        const int bytes = (int)(has_tag ? packets[i].bytes : packets[i].bytes / 16 * 16);
        uint8_t tag[16];
        int written;
        if (!EVP_EncryptInit_ex(context, NULL, NULL, NULL, iv) ||
            !EVP_EncryptUpdate(context, packets[i].output, &written, packets[i].data, bytes))
            fail("an encryption failed");
        if (has_tag && (!EVP_EncryptFinal_ex(context, packets[i].output + written, &written) ||
                        !EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag)))
            fail("an encryption failed");
        sum += first_word(packets[i].output);
    }
    return sum;
}

int main(int arguments, char **argument)
{
    if (arguments != 3)
        fail("usage: openssl WORK PACKETS");
    const char *work = argument[1];
    const int has_tag = strcmp(work, "chacha20-poly1305") == 0;
    read_packets(argument[2]);
    EVP_MD *digest = NULL;
    EVP_MD_CTX *digests = EVP_MD_CTX_new();
    EVP_CIPHER_CTX *ciphers = EVP_CIPHER_CTX_new();
    if (has_tag || strcmp(work, "aes-128-cbc") == 0) {
        static const uint8_t iv[16];
        uint8_t key[32];
        for (int i = 0; i < 32; i++)
            key[i] = (uint8_t)i;
        if (!EVP_EncryptInit_ex(ciphers, has_tag ? EVP_chacha20_poly1305() : EVP_aes_128_cbc(), NULL, key, iv) ||
            !EVP_CIPHER_CTX_set_padding(ciphers, 0))
            fail("the cipher is not available");
    } else {
        digest = EVP_MD_fetch(NULL, work, NULL);
        if (digest == NULL)
            fail("WORK is md5, sha1, sha256, aes-128-cbc or chacha20-poly1305");
    }
    printf("ready %s\n", OpenSSL_version(OPENSSL_VERSION_STRING));
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        const uint64_t started = now_ns();
        const uint64_t sum = digest != NULL ? hash_all(digests, digest) : encrypt_all(ciphers, has_tag);
        printf("%" PRIu64 " %" PRIu64 "\n", now_ns() - started, sum);
        fflush(stdout);
    }
    return 0;
}
