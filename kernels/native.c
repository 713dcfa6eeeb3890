/* Kernels that use AVX-512. ipsec and hash process sixteen packets at a time, and ipv4 and ipv6
 * look up sixteen addresses at a time. The code requires a CPU with AVX-512 and vector AES. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"
#include "ipsec/native/covers.h"
#include "ipsec/native/avx512_bin.h"
#include "hash/native/avx512.h"
#include "ipv4/bulk.h"
#include "ipv4/native/avx512_bulk.h"
#include "ipv6/bulk.h"
#include "ipv6/native/avx512_bulk.h"

void gw_native_avx512(gw_u32 kernel, const gw_bin_call *call);

/* Processes one packet batch with AVX-512 code. Does nothing if the kernel or the variant has no
 * AVX-512 code. */
void gw_native_avx512(gw_u32 kernel, const gw_bin_call *call)
{
    if (kernel == GW_IPSEC_NUMBER && gw_avx512_covers(call->variant)) {
        gw_avx512_bin(call);
    } else if (kernel == GW_HASH_NUMBER) {
        gw_hash_bin_16(call);
    }
}

void gw_native_ipv4_bulk(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                         gw_u32 *next_hops, gw_u64 count, gw_u64 ahead);

void gw_native_ipv4_bulk(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                         gw_u32 *next_hops, gw_u64 count, gw_u64 ahead)
{
    gw_ipv4_avx512_bulk(image, variant, addresses, next_hops, count, ahead);
}

void gw_native_ipv6_bulk(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                         gw_u32 *next_hops, gw_u64 count);

void gw_native_ipv6_bulk(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                         gw_u32 *next_hops, gw_u64 count)
{
    gw_ipv6_avx512_bulk(image, variant, addresses, next_hops, count);
}
