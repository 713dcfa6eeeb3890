/*
 * meter: packet rates by five-tuple fields. The worker that owns an entry's packets fills and
 * empties its token buckets in the order of arrival (RFC 2697, color-blind mode). The kernel
 * receives each packet's color as its parameter.
 */
#ifndef GODWIT_TABLES_METER_H
#define GODWIT_TABLES_METER_H

#define GW_GREEN     0u /* within the rate and the burst */
#define GW_YELLOW    1u /* above the burst, but not above the excess burst */
#define GW_RED       2u /* above both */
#define GW_COLORLESS 3u /* the table has no entry for the packet */

#endif
