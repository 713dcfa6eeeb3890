/*
 * Peer of the benchmark `sign`: RSA private-key operations of Intel crypto_mb
 * in eight lanes, one core. The bare call: without padding, without a queue,
 * and without a check of the result.
 *
 *   crypto_mb LIBRARY KEY JOBS
 *
 * KEY  64-bit words: bits of the modulus, then the words of n, p, q, d mod
 * (p-1), d mod (q-1) and 1/q mod p, each least significant word first JOBS
 * operations of a round, a multiple of 8
 *
 * The program prints "ready VERSION" and then reads requests from standard
 * input. For each line it runs a round and prints "NANOSECONDS CORRECT".
 * CORRECT is the number of operations whose result gives the input again with
 * the public key, which is checked after the time was taken.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LANES 8
#define BYTES_MAX 512
#define KEY_WORDS (1 + 64 + 5 * 32)
#define JOBS_MAX 4096

typedef uint32_t
private_op(const uint8_t *const from[LANES], uint8_t *const to[LANES],
           const uint64_t *const p[LANES], const uint64_t *const q[LANES],
           const uint64_t *const dp[LANES], const uint64_t *const dq[LANES],
           const uint64_t *const qinv[LANES], int bits, const void *method,
           uint8_t *buffer);
typedef uint32_t public_op(const uint8_t *const from[LANES],
                           uint8_t *const to[LANES],
                           const uint64_t *const n[LANES], int bits,
                           const void *method, uint8_t *buffer);
typedef const void *method_of(int bits);
typedef int buffer_bytes_of(const void *method);
typedef struct {
  int numbers[3];
  const char *name, *date, *text;
} version;
typedef const version *get_version(void);

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "crypto_mb: %s\n", dlerror());
    exit(2);
  }
  return found;
}

static uint8_t inputs[JOBS_MAX][BYTES_MAX], outputs[JOBS_MAX][BYTES_MAX],
    checked[JOBS_MAX][BYTES_MAX];

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: crypto_mb LIBRARY KEY JOBS\n");
    return 2;
  }
  static uint64_t key[KEY_WORDS];
  FILE *file = fopen(argv[2], "rb");
  if (file == NULL || fread(key, 8, KEY_WORDS, file) < 97) {
    perror(argv[2]);
    return 2;
  }
  fclose(file);
  const int bits = (int)key[0];
  const size_t words = (size_t)bits / 64, bytes = (size_t)bits / 8,
               jobs = (size_t)strtoul(argv[3], NULL, 10);
  if (bytes > BYTES_MAX || jobs == 0 || jobs > JOBS_MAX || jobs % LANES != 0) {
    fprintf(stderr, "crypto_mb: unsupported key or number of jobs\n");
    return 2;
  }
  const uint64_t *n[LANES], *part[5][LANES];
  for (int lane = 0; lane < LANES; lane++) {
    n[lane] = key + 1;
    for (size_t i = 0; i < 5; i++)
      part[i][lane] = key + 1 + words + i * (words / 2);
  }
  void *library = dlopen(argv[1], RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "crypto_mb: %s\n", dlerror());
    return 2;
  }
  private_op *sign = (private_op *)symbol(library, "mbx_rsa_private_crt_mb8");
  public_op *check = (public_op *)symbol(library, "mbx_rsa_public_mb8");
  const void *private =
      ((method_of *)symbol(library, "mbx_RSA_private_crt_Method"))(bits);
  const void *public =
      ((method_of *)symbol(library, "mbx_RSA_pub65537_Method"))(bits);
  buffer_bytes_of *buffer_bytes =
      (buffer_bytes_of *)symbol(library, "mbx_RSA_Method_BufSize");
  const int sign_bytes = buffer_bytes(private),
            check_bytes = buffer_bytes(public);
  uint8_t *buffer = calloc(
      1, (size_t)(sign_bytes > check_bytes ? sign_bytes : check_bytes) + 64);
  if (buffer == NULL) {
    return 2;
  }
  for (size_t job = 0; job < jobs; job++) {
    /* The first byte is 0, so the number is below the modulus. */
    for (size_t i = 1; i < bytes; i++)
      inputs[job][i] = (uint8_t)(job * 31 + i * 7);
  }
  printf("ready %s\n",
         ((get_version *)symbol(library, "mbx_getversion"))()->text);
  fflush(stdout);

  char line[64];
  while (fgets(line, sizeof line, stdin) != NULL) {
    memset(outputs, 0, sizeof outputs);
    const uint64_t started_ns = now_ns();
    for (size_t job = 0; job < jobs; job += LANES) {
      const uint8_t *from[LANES];
      uint8_t *to[LANES];
      for (size_t lane = 0; lane < LANES; lane++) {
        from[lane] = inputs[job + lane];
        to[lane] = outputs[job + lane];
      }
      sign(from, to, part[0], part[1], part[2], part[3], part[4], bits, private,
           buffer);
    }
    const uint64_t time_ns = now_ns() - started_ns;
    uint64_t correct = 0;
    for (size_t job = 0; job < jobs; job += LANES) {
      const uint8_t *from[LANES];
      uint8_t *to[LANES];
      for (size_t lane = 0; lane < LANES; lane++) {
        from[lane] = outputs[job + lane];
        to[lane] = checked[job + lane];
      }
      check(from, to, n, bits, public, buffer);
      for (size_t lane = 0; lane < LANES; lane++)
        correct += memcmp(checked[job + lane], inputs[job + lane], bytes) == 0;
    }
    printf("%" PRIu64 " %" PRIu64 "\n", time_ns, correct);
    fflush(stdout);
  }
  return 0;
}
