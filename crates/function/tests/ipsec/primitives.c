/*
 * Runs primitives of the ipsec kernel. ipsec_common/program.rs compiles and runs this program.
 *
 * Each input line is one operation, and gives one output line. All values are in hex, except
 * numbers; - is an empty value. AREA is the key area of an SA in the table image
 * (crates/function/src/ipsec/key_area.rs).
 *
 *   encrypt ROUNDS AREA IV DATA      CBC in place
 *   decrypt ROUNDS AREA IV DATA      CBC in place
 *   block ROUNDS AREA DATA           one block
 *   ctr ROUNDS AREA NONCE DATA       counter starts at 1
 *   sha1 AREA DATA SUFFIX            full HMAC; SUFFIX has 4 bytes or none
 *   sha256, sha384, sha512           the same
 *   mac AREA DATA SUFFIX             AES-XCBC-MAC or AES-CMAC
 *   gcm ROUNDS AREA NONCE AAD DATA   ciphertext and tag
 *   ccm ROUNDS AREA NONCE AAD DATA   NONCE has 11 bytes: ciphertext and tag of 16 bytes
 *   chacha20 AREA NONCE COUNTER DATA
 *   poly1305 KEY DATA
 *   aead AREA NONCE AAD DATA         ChaCha20-Poly1305: ciphertext and tag
 *   encapsulate VARIANT SA SEQUENCE PACKET
 *                                    ESP packet with ICV; PACKET is the ESP header, space for the
 *                                    IV, and the plaintext
 *   decapsulate VARIANT SA SEQUENCE PACKET
 *                                    plaintext, or "no" if the ICV is wrong
 *   ah VARIANT SA SEQUENCE IV DATA   ICV
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialect/dialect.h"
#include "common/frame.h"
#include "ipsec/declared.h"
#include "ipsec/ipsec.h"

#define BYTES_MAX  65536
#define FIELDS_MAX 6

static _Alignas(64) gw_ipsec_sa sa;
static _Alignas(16) gw_u8 fields[FIELDS_MAX][BYTES_MAX + 16];
static gw_u32 bytes[FIELDS_MAX];

static gw_u32 decode(const char *text, gw_u8 *to)
{
    gw_u32 count = 0;
    if (text == NULL || strcmp(text, "-") == 0) {
        return 0;
    }
    for (; text[2 * count] != 0 && text[2 * count] != '\n' && count < BYTES_MAX; count++) {
        char pair[3] = {text[2 * count], text[2 * count + 1], 0};
        to[count] = (gw_u8)strtoul(pair, NULL, 16);
    }
    return count;
}

static void print(const gw_u8 *from, gw_u32 count)
{
    for (gw_u32 i = 0; i < count; i++) {
        printf("%02x", from[i]);
    }
}

/* Decodes field `i` to an address that is `shift` bytes after a multiple of 16. */
static gw_u8 *field(char *const *words, gw_u32 i, gw_u32 shift)
{
    bytes[i] = decode(words[i], fields[i] + shift);
    return fields[i] + shift;
}

static void area(const char *text)
{
    memset(&sa, 0, sizeof(sa));
    decode(text, (gw_u8 *)sa.authentication);
}

static gw_text text_with(const gw_u8 *data, gw_u32 count, const gw_u8 *suffix, gw_u32 suffix_bytes)
{
    gw_text text = gw_text_of(data, count);
    text.suffix = suffix_bytes == 4 ? gw_load_be32(suffix) : 0;
    text.suffix_bytes = suffix_bytes;
    return text;
}

static void print_tag(gw_ipsec_tag tag, gw_u32 icv_bytes)
{
    gw_u8 out[32];
    gw_ipsec_tag_store(out, tag, icv_bytes);
    print(out, icv_bytes);
}

/* Encrypts `data` with CCM and prints it with its tag. gw_ipsec_ccm has shorter additional data. */
static void ccm(const gw_u8 *keys, gw_u32 rounds, const gw_u8 *nonce, gw_text aad, gw_u8 *data,
                gw_u32 data_bytes)
{
    static gw_u8 prefixed[BYTES_MAX + 2];
    gw_u8 block[16] = {0x7b};
    memcpy(block + 1, nonce, 11);
    gw_store_be32(block + 12, data_bytes);
    gw_aes_block mac = gw_aes_encrypt(keys, rounds, gw_aes_load(block));
    gw_store_be16(prefixed, aad.bytes);
    memcpy(prefixed + 2, aad.data, aad.bytes);
    mac = gw_aes_cbc_mac(keys, rounds, mac, prefixed, 2 + aad.bytes);
    mac = gw_aes_cbc_mac(keys, rounds, mac, data, data_bytes);
    block[0] = 3;
    const gw_aes_nonce start = {gw_load_be32(block), gw_load_be32(block + 4),
                                gw_load_be32(block + 8)};
    gw_aes_ctr(keys, rounds, start, 1, data, data_bytes);
    print(data, data_bytes);
    gw_aes_store(block, mac);
    gw_aes_ctr(keys, rounds, start, 0, block, 16);
    print(block, 16);
}

static void aes(const char *operation, char *const *words, gw_u32 shift)
{
    const gw_u32 rounds = (gw_u32)strtoul(words[0], NULL, 10);
    area(words[1]);
    const gw_u8 *keys = (const gw_u8 *)sa.keys;
    const gw_u8 *second = field(words, 2, 0);
    gw_u8 *data = words[3] == NULL ? NULL : field(words, 3, shift);
    if (strcmp(operation, "encrypt") == 0) {
        gw_aes_cbc_encrypt(keys, rounds, gw_aes_load(second), data, bytes[3] / 16);
        print(data, bytes[3]);
    } else if (strcmp(operation, "decrypt") == 0) {
        gw_aes_cbc_decrypt(keys, rounds, gw_aes_load(second), data, bytes[3] / 16);
        print(data, bytes[3]);
    } else if (strcmp(operation, "block") == 0) {
        gw_u8 out[16];
        gw_aes_store(out, gw_aes_encrypt(keys, rounds, gw_aes_load(second)));
        print(out, 16);
    } else if (strcmp(operation, "ccm") == 0) {
        gw_u8 *plain = field(words, 4, shift);
        ccm(keys, rounds, second, gw_text_of(data, bytes[3]), plain, bytes[4]);
    } else {
        sa.salt = gw_load_le32(second);
        const gw_u64 iv = gw_load_be64(second + 4);
        if (strcmp(operation, "ctr") == 0) {
            gw_aes_ctr(keys, rounds, gw_ipsec_aes_nonce(&sa, iv), 1, data, bytes[3]);
            print(data, bytes[3]);
            return;
        }
        gw_u8 *plain = field(words, 4, shift);
        gw_aes_ctr(keys, rounds, gw_ipsec_aes_nonce(&sa, iv), 2, plain, bytes[4]);
        print(plain, bytes[4]);
        gw_ghash_element sum = gw_ghash_zero();
        sum = gw_ipsec_ghash_text(sum, sa.authentication, gw_text_of(data, bytes[3]));
        sum = gw_ipsec_ghash_text(sum, sa.authentication, gw_text_of(plain, bytes[4]));
        print_tag(gw_ipsec_gcm_tag(&sa, rounds, sum, bytes[3], bytes[4], iv), 16);
    }
}

static void chacha20(const char *operation, char *const *words, gw_u32 shift)
{
    if (strcmp(operation, "poly1305") == 0) {
        gw_u32 tag[4];
        gw_u32 key[8];
        decode(words[0], (gw_u8 *)key);
        const gw_poly1305 r = gw_poly1305_clamp(key[0], key[1], key[2], key[3]);
        const gw_u8 *data = field(words, 1, shift);
        gw_poly1305 sum = gw_poly1305_blocks(gw_poly1305_zero(), r, data, bytes[1] / 16);
        const gw_u32 rest = bytes[1] % 16;
        if (rest != 0) {
            /* Outside AEADs, a 1 follows a short last block (RFC 8439, section 2.5.1). */
            gw_u8 last[16] = {0};
            memcpy(last, data + bytes[1] - rest, rest);
            last[rest] = 1;
            sum = gw_poly1305_add(
                sum, gw_poly1305_words(gw_load_le32(last), gw_load_le32(last + 4),
                                       gw_load_le32(last + 8), gw_load_le32(last + 12), 0));
            sum = gw_poly1305_multiply(sum, r);
        }
        gw_poly1305_tag(sum, key + 4, tag);
        print((const gw_u8 *)tag, 16);
        return;
    }
    area(words[0]);
    const gw_u8 *nonce_bytes = field(words, 1, shift);
    sa.salt = gw_load_le32(nonce_bytes);
    const gw_chacha20_nonce nonce = gw_ipsec_chacha20_nonce(&sa, nonce_bytes + 4);
    if (strcmp(operation, "chacha20") == 0) {
        gw_u8 *data = field(words, 3, shift);
        gw_chacha20(sa.keys, nonce, (gw_u32)strtoul(words[2], NULL, 10), data, bytes[3]);
        print(data, bytes[3]);
        return;
    }
    const gw_u8 *aad = field(words, 2, shift);
    gw_u8 *data = field(words, 3, shift);
    gw_chacha20(sa.keys, nonce, 1, data, bytes[3]);
    print(data, bytes[3]);
    gw_u32 once[GW_CHACHA20_WORDS];
    gw_u32 tag[4];
    gw_chacha20_block(sa.keys, nonce, 0, once);
    const gw_poly1305 r = gw_poly1305_clamp(once[0], once[1], once[2], once[3]);
    gw_poly1305 sum = gw_poly1305_text(gw_poly1305_zero(), r, gw_text_of(aad, bytes[2]));
    sum = gw_poly1305_text(sum, r, gw_text_of(data, bytes[3]));
    sum = gw_poly1305_add(sum, gw_poly1305_words(bytes[2], 0, bytes[3], 0, 1));
    gw_poly1305_tag(gw_poly1305_multiply(sum, r), once + 4, tag);
    print((const gw_u8 *)tag, 16);
}

static void packet(const char *operation, char *const *words, gw_u32 shift)
{
    const gw_ipsec_suite suite = gw_ipsec_suite_of((gw_u32)strtoul(words[0], NULL, 10));
    decode(words[1], (gw_u8 *)&sa);
    const gw_u64 sequence = strtoull(words[2], NULL, 10);
    const gw_u32 before = 8 + gw_ipsec_iv_bytes(suite);
    gw_u8 *esp = field(words, 3, shift);
    if (strcmp(operation, "encapsulate") == 0) {
        gw_ipsec_esp_encrypt(&sa, suite, esp, bytes[3] - before, sequence);
        print(esp, bytes[3] + sa.icv_bytes);
    } else if (strcmp(operation, "decapsulate") == 0) {
        const gw_u32 cipher_bytes = bytes[3] - before - sa.icv_bytes;
        if (gw_ipsec_esp_decrypt(&sa, suite, esp, cipher_bytes, sequence)) {
            print(esp + before, cipher_bytes);
        } else {
            printf("no");
        }
    } else {
        const gw_u64 iv = gw_load_be64(field(words, 3, 0));
        const gw_u8 *data = field(words, 4, shift);
        print_tag(gw_ipsec_ah_tag(&sa, suite, data, bytes[4], iv, sequence), sa.icv_bytes);
    }
}

static void hmac(const char *operation, char *const *words, gw_u32 shift)
{
    area(words[0]);
    const gw_u8 *data = field(words, 1, shift);
    const gw_u8 *suffix = field(words, 2, 0);
    const gw_text text = text_with(data, bytes[1], suffix, bytes[2]);
    if (strcmp(operation, "sha1") == 0) {
        const gw_sha1 mac = gw_hmac_sha1(sa.authentication, sa.authentication + 8, text);
        printf("%08x%08x%08x%08x%08x", mac.a, mac.b, mac.c, mac.d, mac.e);
    } else if (strcmp(operation, "mac") == 0) {
        print_tag(gw_ipsec_aes_mac(&sa, text), 16);
    } else if (strcmp(operation, "sha256") != 0) {
        const gw_u32 words_max = strcmp(operation, "sha384") == 0 ? 6 : 8;
        const gw_sha512 mac = gw_hmac_sha512(sa.authentication, sa.more, words_max, text);
        const gw_u64 digest[] = {mac.a, mac.b, mac.c, mac.d, mac.e, mac.f, mac.g, mac.h};
        for (gw_u32 i = 0; i < words_max; i++) {
            gw_u8 word[8];
            gw_store_be64(word, digest[i]);
            print(word, 8);
        }
    } else {
        const gw_sha256 mac = gw_hmac_sha256(sa.authentication, sa.authentication + 8, text);
        printf("%08x%08x%08x%08x%08x%08x%08x%08x", mac.a, mac.b, mac.c, mac.d, mac.e, mac.f, mac.g,
               mac.h);
    }
}

static int is_one_of(const char *operation, const char *list)
{
    const char *at = strstr(list, operation);
    return at != NULL;
}

int main(void)
{
    static char line[4 * BYTES_MAX];
    for (gw_u32 shift = 0; fgets(line, sizeof(line), stdin) != NULL; shift = (shift + 1) % 8) {
        const char *operation = strtok(line, " \n");
        char *words[FIELDS_MAX];
        for (gw_u32 i = 0; i < FIELDS_MAX; i++) {
            words[i] = strtok(NULL, " \n");
            bytes[i] = 0;
        }
        if (operation == NULL || words[1] == NULL) {
            return 1;
        }
        if (is_one_of(operation, "encapsulate decapsulate ah")) {
            packet(operation, words, shift);
        } else if (is_one_of(operation, "sha1 sha256 sha384 sha512 mac")) {
            hmac(operation, words, shift);
        } else if (is_one_of(operation, "chacha20 poly1305 aead")) {
            chacha20(operation, words, shift);
        } else {
            aes(operation, words, shift);
        }
        printf("\n");
    }
    return 0;
}
