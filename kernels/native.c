/* Bins by sixteen packets at once and bare look-ups by sixteen addresses, for CPUs with AVX-512 and
 * wide AES; build.rs compiles this once. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"
#include "ipsec/native/covers.h"
#include "ipsec/native/wide_bin.h"
#include "ipv4/bulk.h"
#include "ipv4/native/wide_bulk.h"
#include "ipv6/bulk.h"
#include "ipv6/native/wide_bulk.h"

void gw_native_wide(gw_u32 kernel, const gw_bin_call *call);

/* What it does not cover changes nothing. */
void gw_native_wide(gw_u32 kernel, const gw_bin_call *call)
{
    if (kernel == GW_NATIVE_IPSEC && gw_wide_covers(call->variant)) {
        gw_wide_bin(call);
    }
}

void gw_native_ipv4_bulk(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                         gw_u32 *next_hops, gw_u64 count, gw_u64 ahead);

void gw_native_ipv4_bulk(const gw_u8 *image, gw_u32 variant, const gw_u32 *addresses,
                         gw_u32 *next_hops, gw_u64 count, gw_u64 ahead)
{
    gw_ipv4_wide_bulk(image, variant, addresses, next_hops, count, ahead);
}

void gw_native_ipv6_bulk(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                         gw_u32 *next_hops, gw_u64 count);

void gw_native_ipv6_bulk(const gw_u8 *image, gw_u32 variant, const gw_u8 *addresses,
                         gw_u32 *next_hops, gw_u64 count)
{
    gw_ipv6_wide_bulk(image, variant, addresses, next_hops, count);
}
