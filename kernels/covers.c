/* Tells which kinds of processing have native forms. These functions run on every CPU, so the build
 * compiles this file without special CPU features. */
#include "dialect/dialect.h"
#include "hash/declared.h"
#include "ipsec/declared.h"
#include "ipsec/suite.h"
#include "ipsec/native/covers.h"

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant);

gw_u32 gw_native_avx512_covers(gw_u32 kernel, gw_u32 variant)
{
    return (kernel == GW_IPSEC_NUMBER && gw_avx512_covers(variant)) || kernel == GW_HASH_NUMBER;
}

gw_u32 gw_native_avx2_covers(gw_u32 kernel, gw_u32 variant);

gw_u32 gw_native_avx2_covers(gw_u32 kernel, gw_u32 variant)
{
    return (kernel == GW_IPSEC_NUMBER && gw_avx2_covers(variant)) || kernel == GW_HASH_NUMBER;
}
