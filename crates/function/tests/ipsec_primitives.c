/*
 * The primitives of the ipsec kernel, one operation per line of the input, all in
 * hex; tests/ipsec_primitives.rs compiles and drives it.
 *
 *   encrypt KEYS IV DATA     CBC in place     KEYS: 11 round keys
 *   decrypt KEYS IV DATA     CBC in place     KEYS: 11 round keys
 *   block KEYS DATA          one block
 *   hmac STATES DATA         STATES: inner and outer, as in the table image; DATA: - is empty
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialect/dialect.h"
#include "common/frame.h"
#include "ipsec/ipsec.h"

#define BYTES_MAX 65536

static _Alignas(16) gw_u8 keys[256];
static _Alignas(16) gw_u8 iv[BYTES_MAX];
static gw_u8 data[BYTES_MAX];

static gw_u32 decode(const char *text, gw_u8 *bytes)
{
    gw_u32 count = 0;
    if (text == NULL || strcmp(text, "-") == 0) {
        return 0;
    }
    for (; text[2 * count] != 0 && text[2 * count] != '\n' && count < BYTES_MAX; count++) {
        char pair[3] = {text[2 * count], text[2 * count + 1], 0};
        bytes[count] = (gw_u8)strtoul(pair, NULL, 16);
    }
    return count;
}

static void print(const gw_u8 *bytes, gw_u32 count)
{
    for (gw_u32 i = 0; i < count; i++) {
        printf("%02x", bytes[i]);
    }
    printf("\n");
}

int main(void)
{
    static char line[4 * BYTES_MAX];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        const char *operation = strtok(line, " \n");
        const char *first = strtok(NULL, " \n");
        const char *second = strtok(NULL, " \n");
        const char *third = strtok(NULL, " \n");
        if (operation == NULL || first == NULL || second == NULL || strlen(first) > 2 * sizeof(keys)) {
            return 1;
        }
        decode(first, keys);
        if (strcmp(operation, "hmac") == 0) {
            const gw_u32 bytes = decode(second, data);
            const gw_sha1 mac =
                gw_hmac_sha1((const gw_u32 *)keys, (const gw_u32 *)(keys + 32), data, bytes);
            printf("%08x%08x%08x%08x%08x\n", mac.a, mac.b, mac.c, mac.d, mac.e);
        } else if (strcmp(operation, "block") == 0) {
            decode(second, data);
            gw_aes_store(data, gw_aes128_encrypt(keys, gw_aes_load(data)));
            print(data, 16);
        } else {
            decode(second, iv);
            const gw_u32 bytes = decode(third, data);
            if (strcmp(operation, "encrypt") == 0) {
                gw_aes128_cbc_encrypt(keys, gw_aes_load(iv), data, bytes / 16);
            } else {
                gw_aes128_cbc_decrypt(keys, gw_aes_load(iv), data, bytes / 16);
            }
            print(data, bytes);
        }
    }
    return 0;
}
